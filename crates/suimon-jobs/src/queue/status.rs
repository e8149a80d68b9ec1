//! Looking at jobs, trying failed ones again, removing old ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use suimon_sql::access::Session;

use crate::Error;
use crate::config::Count;
use crate::db::{Db, NEVER, Rows, Stop, Work, micros, until};
use crate::job::{JobId, JobInfo, JobState};
use crate::lane::Tidy;
use crate::queue::Queue;
use crate::row::LIMIT;
use crate::rules::opens_at;

/// How a handler stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerStatus {
    /// Its name.
    pub handler: String,
    /// Its limit, as text.
    pub limit: Option<String>,
    /// Which runs that counts.
    pub count: Count,
    /// The limit of each of its keys, as text.
    pub key_limit: Option<String>,
    /// Jobs that wait, with those that nobody has looked at yet.
    pub pending: u64,
    /// Jobs that run.
    pub running: u64,
    /// Jobs that have been done and not been removed.
    pub done: u64,
    /// Jobs that failed for good and have not been removed.
    pub failed: u64,
    /// The least time until the next run can start: zero if one can now, [`Duration::MAX`] if
    /// something else has to happen.
    pub available_in: Duration,
    /// How long it is paused, [`Duration::MAX`] until it is resumed; `None` if it is not.
    pub paused_for: Option<Duration>,
    /// Why it is paused.
    pub pause_reason: Option<String>,
    /// How long ago a worker was there that serves it; `None` if there has never been one.
    pub served_ago: Option<Duration>,
}

impl Queue {
    /// How the handlers stand, in the order of their names.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn status(&self) -> Result<Vec<HandlerStatus>, Error> {
        let rows = self.ask(|db: &Db| {
            format!(
                "SELECT {COUNTED}, handler, state, count(*) FROM {} GROUP BY handler, state; {}{}",
                db.jobs(),
                db.select_handlers(),
                db.select_clock()
            )
        });
        let rows = rows.await?;
        let limits = rows.limits();
        let mut all: BTreeMap<String, HandlerStatus> = BTreeMap::new();
        for row in rows.tagged(LIMIT) {
            let (name, limited) = row.limited();
            let opens_at = opens_at(&limits, &name, rows.now, &*self.0.calendar);
            let status = all.entry(name.0.clone()).or_insert_with(|| HandlerStatus::of(&name.0));
            status.limit = limited.policy;
            status.count = limited.count;
            status.key_limit = limited.key_policy;
            status.available_in = time_until(opens_at, rows.now);
            let is_paused = limited.paused_until > rows.now;
            status.paused_for = is_paused.then(|| time_until(limited.paused_until, rows.now));
            status.pause_reason = limited.pause_reason.filter(|_| is_paused);
            status.served_ago = row.optional_number(20).map(|served_at| until(rows.now, served_at));
        }
        for row in rows.tagged(COUNTED) {
            let handler = row.text(1);
            let status = all.entry(handler).or_insert_with_key(|handler| HandlerStatus::of(handler));
            let count = u64::try_from(row.number(3)).unwrap_or_default();
            match JobState::parse(&row.text(2)) {
                JobState::New | JobState::Pending => status.pending += count,
                JobState::Running => status.running += count,
                JobState::Done => status.done += count,
                JobState::Failed => status.failed += count,
            }
        }
        Ok(all.into_values().collect())
    }

    /// A job, if there is one with this number.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn job(&self, id: JobId) -> Result<Option<JobInfo>, Error> {
        Ok(self.select(format!("WHERE id = {id}"), 1).await?.into_iter().next())
    }

    /// The newest jobs of a handler in a state, so many at most.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn jobs(&self, handler: &str, state: JobState, most: usize) -> Result<Vec<JobInfo>, Error> {
        let handler = self.0.db.text(handler);
        self.select(format!("WHERE handler = {handler} AND state = '{}'", state.as_str()), most).await
    }

    async fn select(&self, which: String, most: usize) -> Result<Vec<JobInfo>, Error> {
        let rows = self.ask(move |db: &Db| {
            format!(
                "SELECT {COUNTED}, id, handler, job_key, state, attempts, deferrals, error, payload FROM {} {which} \
                 ORDER BY id DESC LIMIT {most}",
                db.jobs()
            )
        });
        let rows = rows.await?;
        let count = |number: i64| u32::try_from(number).unwrap_or_default();
        let jobs = rows.tagged(COUNTED).map(|row| JobInfo {
            id: JobId(row.number(1)),
            handler: row.text(2),
            key: Some(row.text(3)).filter(|key| !key.is_empty()),
            state: JobState::parse(&row.text(4)),
            attempts: count(row.number(5)),
            deferrals: count(row.number(6)),
            error: row.optional_text(7),
            payload: row.optional_text(8).unwrap_or_else(|| "null".to_owned()),
        });
        Ok(jobs.collect())
    }

    /// Lets a job that failed for good run again, as if it were new. Says whether there was one.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn retry(&self, id: JobId) -> Result<bool, Error> {
        Ok(self.retry_all(&format!("id = {id}"), 1).await? > 0)
    }

    /// The same for all of a handler; says how many.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn retry_failed(&self, handler: &str) -> Result<u64, Error> {
        let which = format!("handler = {}", self.0.db.text(handler));
        let mut all = 0;
        loop {
            match self.retry_all(&which, 500).await? {
                0 => return Ok(all),
                some => all += some,
            }
        }
    }

    /// To the state in which jobs come from other programs: a worker looks at them and opens
    /// their lanes. One whose unique id has been taken meanwhile stays failed.
    async fn retry_all(&self, which: &str, most: usize) -> Result<u64, Error> {
        let which = which.to_owned();
        let rows = self.ask(move |db: &Db| {
            let jobs = db.jobs();
            let free = format!(
                "NOT EXISTS (SELECT 1 FROM {jobs} AS live WHERE live.handler = job.handler \
                 AND live.unique_id = job.unique_id AND live.state IN ('new', 'pending', 'running'))"
            );
            format!(
                "SELECT {COUNTED}, id FROM {jobs} AS job WHERE state = 'failed' AND {which} AND {free} LIMIT {most}"
            )
        });
        let ids: Vec<_> = rows.await?.tagged(COUNTED).map(|row| row.number(1)).collect();
        let mut done = 0;
        for id in ids {
            // One by one, so that twins do not hold up others.
            let rows = self.ask_changing(move |db: &Db| {
                let jobs = db.jobs();
                format!(
                    "UPDATE {jobs} SET state = 'new', attempts = 0, run_at = 0, finished_at = NULL \
                     WHERE id = {id} AND state = 'failed' AND NOT EXISTS (SELECT 1 FROM {jobs} AS live \
                     WHERE live.handler = {jobs}.handler AND live.unique_id = {jobs}.unique_id \
                     AND live.state IN ('new', 'pending', 'running')); SELECT {COUNTED} FROM {jobs} WHERE id = {id} AND state <> 'failed'"
                )
            });
            done += u64::try_from(rows.await?.rows.len()).unwrap_or_default();
        }
        self.0.news.notify_waiters();
        Ok(done)
    }

    /// Takes back a job that has not begun; says whether it was there.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn cancel(&self, id: JobId) -> Result<bool, Error> {
        let which = format!("id = {id} AND state IN ('new', 'pending')");
        let rows = self
            .ask(|db: &Db| format!("SELECT {COUNTED}, handler, job_key, priority FROM {} WHERE {which}", db.jobs()));
        let rows = rows.await?;
        let lanes: BTreeSet<_> = rows.tagged(COUNTED).map(|row| (row.text(1), row.text(2), row.number(3))).collect();
        let is_removed = self.remove(&which, 1).await? > 0;
        if is_removed {
            // It may have been the last one there.
            self.0.db.run(&Tidy { lanes: &lanes }).await?;
        }
        Ok(is_removed)
    }

    /// Removes jobs that have been done, or have failed for good, so long ago; says how many.
    /// Limits do not forget them.
    ///
    /// # Errors
    /// When the state is another, or the database cannot be asked.
    pub async fn purge(&self, state: JobState, older_than: Duration) -> Result<u64, Error> {
        if !matches!(state, JobState::Done | JobState::Failed) {
            let asked = format!("`{}`", state.as_str());
            return Err(Error::Range { what: "state of jobs to be removed", asked, allowed: "`done` or `failed`" });
        }
        let mut all = 0;
        loop {
            match self.purge_some(state, older_than, 500).await? {
                0 => return Ok(all),
                some => all += some,
            }
        }
    }

    pub(crate) async fn purge_some(&self, state: JobState, older: Duration, most: u64) -> Result<u64, Error> {
        let before = format!("{} - {}", self.0.db.clock(), micros(older));
        self.remove(&format!("state = '{}' AND finished_at <= {before}", state.as_str()), most).await
    }

    /// Asks by statements that change nothing.
    async fn ask(&self, sql: impl Fn(&Db) -> String + Sync) -> Result<Rows, Error> {
        self.0.db.run(&Ask { sql, changes: false }).await
    }

    /// Changes something by statements that can be done again, in a transaction.
    async fn ask_changing(&self, sql: impl Fn(&Db) -> String + Sync) -> Result<Rows, Error> {
        self.0.db.run(&Ask { sql, changes: true }).await
    }

    async fn remove(&self, which: &str, most: u64) -> Result<u64, Error> {
        self.0.db.run(&Remove { which, most }).await
    }
}

/// Removes some jobs.
struct Remove<'a> {
    which: &'a str,
    most: u64,
}

impl Work for Remove<'_> {
    type Answer = u64;
    const STEP: &'static str = "remove";
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, left: Duration) -> Result<u64, Stop> {
        let (jobs, lock) = (db.jobs(), db.tables.dialect.words().lock_free);
        let sql = format!(
            "{}; SELECT {COUNTED}, id FROM {jobs} WHERE {} LIMIT {}{lock}",
            db.tables.begin(left),
            self.which,
            self.most
        );
        let rows = Rows::read(session.cells(sql).await.map_err(Stop::Before)?);
        let ids: Vec<_> = rows.tagged(COUNTED).map(|row| row.number(1).to_string()).collect();
        if ids.is_empty() {
            session.undo().await;
            return Ok(0);
        }
        let sql = format!("DELETE FROM {jobs} WHERE id IN ({}); COMMIT", ids.join(", "));
        session.finish_cells(sql).await.map_err(Stop::Amid)?;
        Ok(ids.len().try_into().unwrap_or(u64::MAX))
    }
}

impl HandlerStatus {
    fn of(handler: &str) -> HandlerStatus {
        HandlerStatus {
            handler: handler.to_owned(),
            limit: None,
            count: Count::default(),
            key_limit: None,
            pending: 0,
            running: 0,
            done: 0,
            failed: 0,
            available_in: Duration::ZERO,
            paused_for: None,
            pause_reason: None,
            served_ago: None,
        }
    }
}

fn time_until(at: i64, now: i64) -> Duration {
    if at == NEVER { Duration::MAX } else { until(at, now) }
}

const COUNTED: i64 = 2;

/// A single statement, or some without a transaction.
struct Ask<F> {
    sql: F,
    changes: bool,
}

impl<F: Fn(&Db) -> String + Sync> Work for Ask<F> {
    type Answer = Rows;
    const STEP: &'static str = "ask";
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, left: Duration) -> Result<Rows, Stop> {
        let sql = (self.sql)(db);
        let sql = match self.changes {
            true => format!("{}; {sql}; COMMIT", db.tables.begin(left)),
            false => sql,
        };
        session.finish_cells(sql).await.map(Rows::read).map_err(Stop::Amid)
    }
}
