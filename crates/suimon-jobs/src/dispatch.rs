//! Adding jobs.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use suimon::Cost;
use suimon_sql::access::Session;

use crate::Error;
use crate::config::Count;
use crate::db::{Db, Rows, Stop, Work};
use crate::job::{Due, Job, JobId};
use crate::queue::Queue;

/// Jobs to be added in one transaction; all or none.
pub(crate) struct Add<'a> {
    pub(crate) jobs: &'a [Job],
    /// Handlers and priorities that may be new.
    pub(crate) unknown: &'a [(String, u8)],
}

/// The tags of rows.
const SEEN: i64 = 1;
const ADDED: i64 = 2;

impl Work for Add<'_> {
    type Answer = Vec<JobId>;
    const STEP: &'static str = "add";

    /// A job that was added twice would run twice.
    const IS_REPEATABLE: bool = false;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, left: Duration) -> Result<Vec<JobId>, Stop> {
        let mut sql = db.tables.begin(left) + "; ";
        sql.extend(self.unknown.iter().map(|(handler, priority)| db.make_handler(handler, Some(*priority))));
        sql += &self.lanes(db);
        // Who is here already is looked up first, and again if somebody else was faster.
        let mut ids: Vec<Option<JobId>> = vec![None; self.jobs.len()];
        if self.jobs.iter().any(|job| job.unique.is_some()) {
            for (index, job) in self.jobs.iter().enumerate() {
                let Some(unique) = &job.unique else { continue };
                sql += &format!(
                    "SELECT {SEEN}, {index}, id FROM {} WHERE handler = {} AND unique_id = {} \
                     AND state IN ('new', 'pending', 'running'); ",
                    db.jobs(),
                    db.text(&job.handler),
                    db.text(unique),
                );
            }
            let rows = Rows::read(session.cells(sql).await.map_err(Stop::Before)?);
            read_ids(&rows, SEEN, &mut ids);
            sql = String::new();
        }
        // The same id twice in one go is one job.
        let mut twins: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut same: Vec<Option<usize>> = vec![None; self.jobs.len()];
        for (index, job) in self.jobs.iter().enumerate() {
            if let (None, Some(unique)) = (ids[index], &job.unique) {
                let first = *twins.entry((&job.handler, unique)).or_insert(index);
                same[index] = (first != index).then_some(first);
            }
        }
        for (index, job) in self.jobs.iter().enumerate() {
            if ids[index].is_none() && same[index].is_none() {
                sql += &insert(db, index, job);
            }
        }
        sql += &db.notify();
        let rows = Rows::read(session.finish_cells(sql + "COMMIT").await.map_err(Stop::Amid)?);
        read_ids(&rows, ADDED, &mut ids);
        for (index, first) in same.into_iter().enumerate() {
            ids[index] = ids[index].or_else(|| first.and_then(|first| ids[first]));
        }
        Ok(ids.into_iter().flatten().collect())
    }
}

/// Notes the numbers of jobs, which follow the places of the jobs in the rows.
fn read_ids(rows: &Rows, tag: i64, ids: &mut [Option<JobId>]) {
    for row in rows.tagged(tag) {
        if let Some(id) = usize::try_from(row.number(1)).ok().and_then(|index| ids.get_mut(index)) {
            *id = Some(JobId(row.number(2)));
        }
    }
}

impl Add<'_> {
    /// Opens the lanes of the jobs, in their order.
    fn lanes(&self, db: &Db) -> String {
        let mut earliest: BTreeMap<(&str, &str, u8), Due> = BTreeMap::new();
        for job in self.jobs {
            let lane = (&*job.handler, job.key.as_deref().unwrap_or_default(), job.priority);
            // Too early does no harm.
            let due = match (earliest.get(&lane), job.due) {
                (Some(Due::In(one)), Due::In(other)) => Due::In(other.min(*one)),
                (Some(Due::At(one)), Due::At(other)) => Due::At(other.min(*one)),
                (Some(_), _) => Due::At(0),
                (None, due) => due,
            };
            earliest.insert(lane, due);
        }
        earliest
            .into_iter()
            .map(|((handler, key, priority), due)| open_lane(db, handler, key, priority.into(), &due_at(db, due)))
            .collect()
    }
}

/// Lets a lane be looked at from a time on; makes it if it is not there.
pub(crate) fn open_lane(db: &Db, handler: &str, key: &str, priority: i64, at: &str) -> String {
    let lanes = db.lanes();
    let (handler, key) = (db.text(handler), db.text(key));
    let insert = format!(
        "INSERT INTO {lanes} (handler, job_key, priority, next_at) VALUES ({handler}, {key}, {priority}, {at})"
    );
    if db.is_mysql() {
        format!("{insert} ON DUPLICATE KEY UPDATE next_at = LEAST(next_at, VALUES(next_at)); ")
    } else {
        format!(
            "{insert} ON CONFLICT (handler, job_key, priority) DO UPDATE SET next_at = excluded.next_at \
             WHERE {lanes}.next_at > excluded.next_at; "
        )
    }
}

fn due_at(db: &Db, due: Due) -> String {
    match due {
        Due::In(0) => db.clock(),
        // What is added to the time has to fit into a number of the database.
        Due::In(micros) => format!("{} + {}", db.clock(), micros.min(i64::MAX / 2)),
        Due::At(at) => at.to_string(),
    }
}

fn insert(db: &Db, index: usize, job: &Job) -> String {
    let payload = job.payload.as_deref().unwrap_or("null");
    format!(
        "INSERT INTO {} (handler, payload, job_key, priority, cost, max_attempts, unique_id, run_at, created_at, state) \
         VALUES ({}, {}, {}, {}, '{}', {}, {}, {}, {}, 'pending') RETURNING {ADDED}, {index}, id; ",
        db.jobs(),
        db.text(&job.handler),
        db.text(payload),
        db.text(job.key.as_deref().unwrap_or_default()),
        job.priority,
        job.cost,
        job.attempts.map_or_else(|| "NULL".to_owned(), |attempts| attempts.to_string()),
        db.optional_text(job.unique.as_deref()),
        due_at(db, job.due),
        db.clock(),
    )
}

/// A job that is dispatched when this is awaited; see [`Queue::dispatch`].
#[derive(Debug)]
#[must_use = "nothing is dispatched until it is awaited"]
pub struct Dispatch<'a> {
    queue: &'a Queue,
    job: Job,
}

impl<'a> Dispatch<'a> {
    pub(crate) fn new(queue: &'a Queue, job: Job) -> Dispatch<'a> {
        Dispatch { queue, job }
    }

    fn map(mut self, change: impl FnOnce(Job) -> Job) -> Dispatch<'a> {
        self.job = change(self.job);
        self
    }

    /// As [`Job::rate_limit`].
    pub fn rate_limit(self, max: u64, secs: u64) -> Dispatch<'a> {
        self.map(|job| job.rate_limit(max, secs))
    }

    /// As [`Job::limit`].
    pub fn limit(self, text: impl Into<String>) -> Dispatch<'a> {
        self.map(|job| job.limit(text))
    }

    /// As [`Job::key_limit`].
    pub fn key_limit(self, text: impl Into<String>) -> Dispatch<'a> {
        self.map(|job| job.key_limit(text))
    }

    /// As [`Job::count`].
    pub fn count(self, count: Count) -> Dispatch<'a> {
        self.map(|job| job.count(count))
    }

    /// As [`Job::key`].
    pub fn key(self, key: impl Into<String>) -> Dispatch<'a> {
        self.map(|job| job.key(key))
    }

    /// As [`Job::cost`].
    pub fn cost(self, cost: impl Into<Cost>) -> Dispatch<'a> {
        self.map(|job| job.cost(cost))
    }

    /// As [`Job::delay`].
    pub fn delay(self, delay: Duration) -> Dispatch<'a> {
        self.map(|job| job.delay(delay))
    }

    /// As [`Job::at`].
    pub fn at(self, time: SystemTime) -> Dispatch<'a> {
        self.map(|job| job.at(time))
    }

    /// As [`Job::priority`].
    pub fn priority(self, priority: u8) -> Dispatch<'a> {
        self.map(|job| job.priority(priority))
    }

    /// As [`Job::unique`].
    pub fn unique(self, id: impl Into<String>) -> Dispatch<'a> {
        self.map(|job| job.unique(id))
    }

    /// As [`Job::attempts`].
    pub fn attempts(self, attempts: u32) -> Dispatch<'a> {
        self.map(|job| job.attempts(attempts))
    }
}

impl<'a> IntoFuture for Dispatch<'a> {
    type Output = Result<JobId, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let ids = self.queue.dispatch_all(&[self.job]).await?;
            ids.into_iter().next().ok_or_else(|| Error::Database("no number for the job came back".into()))
        })
    }
}
