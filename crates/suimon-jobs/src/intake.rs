//! Jobs that other programs have written with SQL: they are checked, their limits are set, and their
//! lanes are opened.

use std::collections::BTreeSet;
use std::time::Duration;

use suimon::Cost;
use suimon_sql::access::Session;

use crate::Error;
use crate::claim::ids;
use crate::config::{Count, LimitSpec};
use crate::db::{Db, Row, Rows, Stop, Work};
use crate::dispatch::open_lane;
use crate::job::HIGHEST;
use crate::lane::{Lane, Tidy};
use crate::queue::{Given, Queue};

const NEW: i64 = 2;
const MOST: usize = 200;

/// A job that nobody has looked at.
#[derive(Clone, Debug)]
struct Arrived {
    id: i64,
    handler: String,
    key: String,
    /// `None`, like the time, if it is no number: SQLite takes anything.
    priority: Option<i64>,
    run_at: Option<i64>,
    cost: String,
    limit: Option<String>,
    key_limit: Option<String>,
    count: Option<String>,
}

impl Queue {
    /// Takes in what has come, a few hundred at a time; says how many.
    pub(crate) async fn take_in(&self) -> Result<usize, Error> {
        let arrived = self.0.db.run(&Arriving).await?;
        let mut good = Vec::new();
        let mut bad = Vec::new();
        for job in &arrived {
            match self.check(job).await {
                Ok(()) => good.push(job.clone()),
                Err(error) if error.is_database() => return Err(error),
                Err(error) => bad.push((job.id, error.to_string())),
            }
        }
        self.0.db.run(&TakeIn { good: &good, bad: &bad }).await?;
        Ok(arrived.len())
    }

    /// Checks a job and sets the limits that it brings along.
    async fn check(&self, job: &Arrived) -> Result<(), Error> {
        crate::error::check_handler(&job.handler)?;
        if !job.key.is_empty() {
            crate::error::check_key("key", &job.key)?;
        }
        if !job.priority.is_some_and(|priority| (0..=i64::from(HIGHEST)).contains(&priority)) {
            let asked = job.priority.map_or_else(|| "something else".to_owned(), |priority| priority.to_string());
            return Err(Error::Range { what: "priority", asked, allowed: "0 to 9" });
        }
        if job.run_at.is_none() {
            let asked = "something else".to_owned();
            return Err(Error::Range { what: "run_at", asked, allowed: "microseconds since 1970" });
        }
        if let Err(why) = job.cost.parse::<Cost>() {
            let asked = format!("`{}` ({why})", job.cost);
            return Err(Error::Range { what: "cost", asked, allowed: "a decimal number that is not negative" });
        }
        let count = job.count.as_deref().map(Count::parse).transpose()?;
        let limit = job.limit.clone().map(LimitSpec::new);
        let key_limit = job.key_limit.clone().map(LimitSpec::new);
        self.give(&job.handler, limit.as_ref(), key_limit.as_ref(), count, Given::Dispatch).await
    }
}

struct Arriving;

impl Work for Arriving {
    type Answer = Vec<Arrived>;
    const STEP: &'static str = "arrive";
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, _: Duration) -> Result<Vec<Arrived>, Stop> {
        let sql = format!(
            "SELECT {NEW}, id, handler, job_key, priority, cost, rate_limit, key_limit, count_on, run_at FROM {} \
             WHERE state = 'new' ORDER BY id LIMIT {MOST}",
            db.jobs()
        );
        let rows = Rows::read(session.finish_cells(sql).await.map_err(Stop::Before)?);
        let arrived = |row: &Row| Arrived {
            id: row.number(1),
            handler: row.text(2),
            key: row.text(3),
            priority: row.optional_number(4),
            run_at: row.optional_number(9),
            cost: row.text(5),
            limit: row.optional_text(6),
            key_limit: row.optional_text(7),
            count: row.optional_text(8),
        };
        Ok(rows.tagged(NEW).map(arrived).collect())
    }
}

struct TakeIn<'a> {
    good: &'a [Arrived],
    bad: &'a [(i64, String)],
}

impl Work for TakeIn<'_> {
    type Answer = ();
    const STEP: &'static str = "take_in";
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, left: Duration) -> Result<(), Stop> {
        let (jobs, clock) = (db.jobs(), db.clock());
        let mut sql = db.tables.begin(left) + "; ";
        let priority = |job: &Arrived| job.priority.unwrap_or_default();
        let handlers: BTreeSet<_> = self.good.iter().map(|job| (&job.handler, priority(job))).collect();
        for (handler, priority) in handlers {
            sql += &db.make_handler(handler, u8::try_from(priority).ok());
        }
        let lanes: BTreeSet<_> = self.good.iter().map(|job| (&job.handler, &job.key, priority(job))).collect();
        for (handler, key, priority) in lanes {
            sql += &open_lane(db, handler, key, priority, &clock);
        }
        if !self.good.is_empty() {
            sql += &format!(
                "UPDATE {jobs} SET state = 'pending', created_at = {clock}, \
                 run_at = CASE WHEN run_at = 0 THEN {clock} ELSE run_at END WHERE id IN ({}) AND state = 'new'; ",
                ids(self.good.iter().map(|job| job.id))
            );
        }
        for (id, why) in self.bad {
            sql += &format!(
                "UPDATE {jobs} SET state = 'failed', finished_at = {clock}, error = {} WHERE id = {id} AND state = 'new'; ",
                db.text(why)
            );
        }
        session.finish_cells(sql + "COMMIT").await.map(drop).map_err(Stop::Amid)
    }
}

impl Queue {
    /// Lets jobs fail that nobody here serves.
    pub(crate) async fn fail_unknown(&self, known: &[String]) -> Result<(), Error> {
        let lanes = self.0.db.run(&FailUnknown { known }).await?;
        if !lanes.is_empty() {
            self.0.db.run(&Tidy { lanes: &lanes }).await?;
        }
        Ok(())
    }

    /// Removes the rows of keys that say nothing any more, some at a time; says whether there
    /// may be more.
    pub(crate) async fn forget_keys(&self) -> Result<bool, Error> {
        Ok(self.0.db.run(&ForgetKeys).await? == MOST)
    }
}

struct FailUnknown<'a> {
    known: &'a [String],
}

impl Work for FailUnknown<'_> {
    /// Lanes that nobody here serves: they may be empty now.
    type Answer = BTreeSet<Lane>;
    const STEP: &'static str = "unknown";
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, left: Duration) -> Result<BTreeSet<Lane>, Stop> {
        let known = db.texts(self.known.iter().map(|name| &**name));
        let sql = format!(
            "{}; UPDATE {} SET state = 'failed', finished_at = {}, error = 'no handler of this name is known' \
             WHERE state = 'pending' AND handler NOT IN ({known}); \
             SELECT {NEW}, handler, job_key, priority FROM {} WHERE handler NOT IN ({known}) LIMIT {MOST}; COMMIT",
            db.tables.begin(left),
            db.jobs(),
            db.clock(),
            db.lanes(),
        );
        let rows = Rows::read(session.finish_cells(sql).await.map_err(Stop::Amid)?);
        Ok(rows.tagged(NEW).map(|row| (row.text(1), row.text(2), row.number(3))).collect())
    }
}

struct ForgetKeys;

/// A row stays so long after it is as good as new, in nanoseconds: a clock that steps back by
/// less mints nothing.
const GRACE: i64 = 60_000_000_000;

impl Work for ForgetKeys {
    type Answer = usize;
    const STEP: &'static str = "forget";
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, left: Duration) -> Result<usize, Stop> {
        let (limits, lanes, jobs) = (db.limits(), db.lanes(), db.jobs());
        let lock = db.tables.dialect.words().lock_free;
        let clock = db.clock();
        let idle = format!(
            "job_key <> '' AND policy IS NULL AND held = '0' AND fresh_at < {clock} * 1000 - {GRACE} \
             AND paused_until < {clock}"
        );
        let sql = format!(
            "{}; SELECT {NEW}, handler, job_key FROM {limits} WHERE {idle} \
             AND NOT EXISTS (SELECT 1 FROM {lanes} AS lane WHERE lane.handler = {limits}.handler \
             AND lane.job_key = {limits}.job_key) \
             AND NOT EXISTS (SELECT 1 FROM {jobs} AS job WHERE job.state = 'running' \
             AND job.handler = {limits}.handler AND job.job_key = {limits}.job_key) LIMIT {MOST}{lock}",
            db.tables.begin(left)
        );
        let rows = Rows::read(session.cells(sql).await.map_err(Stop::Before)?);
        let remove = |row: &Row| format!("DELETE FROM {limits} WHERE {}; ", db.names(&row.text(1), &row.text(2)));
        let sql: Vec<String> = rows.tagged(NEW).map(remove).collect();
        if sql.is_empty() {
            session.undo().await;
            return Ok(0);
        }
        session.finish_cells(sql.concat() + "COMMIT").await.map_err(Stop::Amid)?;
        Ok(sql.len())
    }
}
