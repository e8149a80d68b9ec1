//! Ending runs: writing down what came of them and giving back what they held, many in one
//! transaction.
//!
//! A run is known by the token of its claim. One whose lease has run out and that somebody else
//! has taken over meanwhile changes nothing any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use suimon::{Calendar, Cost};
use suimon_sql::access::Session;

use crate::claim::{CLAIMED, Claimed, ids};
use crate::db::{Db, NEVER, Row, Rows, Stop, Work, micros};
use crate::dispatch::open_lane;
use crate::lane::names;
use crate::limits::{Asking, Ended, Limited, Locked, Name, close_books, end};

const ROW: i64 = 2;
const STATE: i64 = 3;
const STALE: i64 = 4;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With what it really cost, if that was told.
    Done(Option<Cost>),
    /// To be tried again after a while, or never.
    Failed { error: String, retry_after: Option<Duration>, actual: Option<Cost> },
    /// It met a limit of somebody else: no attempt, and its handler or key pauses.
    Limited { retry_after: Duration, whole_handler: bool, reason: String },
    /// The worker stops before it has ended: no attempt.
    Released,
    /// Its worker gave no sign of life.
    Lost { is_last: bool },
}

/// A run that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) job: Claimed,
    pub(crate) outcome: Outcome,
    /// How long it took, where that is known.
    pub(crate) time: Option<Duration>,
}

/// What has become of a run that was to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is written down.
    Yes,
    /// Somebody else has taken over: its lease had run out.
    Overtaken,
}

impl Run {
    /// Does it change nothing but its own row?
    fn is_simple(&self) -> bool {
        matches!(self.outcome, Outcome::Done(_)) && !self.touches_limits()
    }

    /// Does it change its limits?
    fn touches_limits(&self) -> bool {
        let booking = &self.job.booking;
        let is_settled = |actual: &Option<Cost>| actual.is_some() && !booking.booked.is_empty();
        match &self.outcome {
            Outcome::Limited { .. } => true,
            Outcome::Done(actual) => booking.holds() || is_settled(actual),
            Outcome::Failed { actual, .. } => booking.holds() || booking.returns() || is_settled(actual),
            Outcome::Released | Outcome::Lost { .. } => booking.holds() || booking.returns(),
        }
    }

    /// From when on it may run again; `None` if not.
    fn waits_until(&self, now: i64) -> Option<i64> {
        match &self.outcome {
            Outcome::Done(_) | Outcome::Lost { is_last: true } => None,
            Outcome::Failed { retry_after, .. } => retry_after.map(|wait| now.saturating_add(micros(wait))),
            // It keeps its place in the order.
            Outcome::Limited { .. } | Outcome::Released | Outcome::Lost { .. } => Some(0),
        }
    }

    fn ended(&self) -> Ended {
        match &self.outcome {
            Outcome::Done(actual) => Ended::Completed(*actual),
            Outcome::Failed { actual, .. } => Ended::Failed(*actual),
            _ => Ended::Failed(None),
        }
    }
}

/// Ends some runs.
pub(crate) struct Finish<'a> {
    pub(crate) runs: &'a [Run],
    pub(crate) calendar: &'a (dyn Calendar + Send + Sync),
}

impl Work for Finish<'_> {
    type Answer = Vec<Written>;
    const STEP: &'static str = "finish";
    /// What is written a second time has another state already.
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, left: Duration) -> Result<Vec<Written>, Stop> {
        let mut sql = db.tables.begin(left) + "; ";
        let more: Vec<_> = self.runs.iter().filter(|run| !run.is_simple()).collect();
        let mut has_news = false;
        if !more.is_empty() {
            let rows = Rows::read(session.cells(sql + &lock(db, &more)).await.map_err(Stop::Before)?);
            (sql, has_news) = self.write(db, &more, &rows);
        }
        sql += &done(db, self.runs.iter().filter(|run| run.is_simple()), &db.clock());
        sql += &format!(
            "SELECT {STATE}, id, state, lease_token FROM {} WHERE id IN ({}); ",
            db.jobs(),
            ids(self.runs.iter().map(|run| run.job.id))
        );
        if has_news {
            sql += &db.notify();
        }
        let rows = Rows::read(session.finish_cells(sql + "COMMIT").await.map_err(Stop::Amid)?);
        Ok(self.runs.iter().map(|run| written(run, &rows)).collect())
    }
}

/// A run that has been written down has the token of its claim still, and another state.
fn written(run: &Run, rows: &Rows) -> Written {
    let row = rows.tagged(STATE).find(|row| row.number(1) == run.job.id);
    match row {
        Some(row) if row.number(3) == run.job.token && row.text(2) != "running" => Written::Yes,
        _ => Written::Overtaken,
    }
}

/// Locks limits, then lanes, then jobs: all transactions do so in this order.
fn lock(db: &Db, runs: &[&Run]) -> String {
    let mut limits: BTreeSet<Name> = BTreeSet::new();
    let mut lanes = BTreeSet::new();
    for run in runs {
        let (handler, key) = names(&run.job.lane);
        if run.touches_limits() {
            limits.insert(handler);
            limits.extend(key);
        }
        if run.waits_until(0).is_some() {
            lanes.insert(&run.job.lane);
        }
    }
    let mut sql = db.lock_limits(&limits);
    for (handler, key, priority) in lanes {
        // Open from now on: when something in it may start is found when it is looked at.
        sql += &open_lane(db, handler, key, *priority, &db.clock());
    }
    let mut all: Vec<_> = runs.iter().map(|run| run.job.id).collect();
    all.sort_unstable();
    let lock = db.tables.dialect.words().lock;
    sql += &format!(
        "SELECT {ROW}, id, lease_token, lease_until FROM {} WHERE id IN ({}) AND state = 'running' ORDER BY id{lock}; ",
        db.jobs(),
        ids(all.into_iter())
    );
    sql + &db.select_clock()
}

impl Finish<'_> {
    /// What is to be written, and whether others may start something because of it.
    fn write(&self, db: &Db, runs: &[&Run], rows: &Rows) -> (String, bool) {
        let (mut locked, now) = (rows.limits(), rows.now);
        let mut sql = String::new();
        let mut reopened: BTreeSet<Name> = BTreeSet::new();
        let mut has_news = false;
        let mut all_done = Vec::new();
        for run in runs {
            let job = &run.job;
            let row = rows.tagged(ROW).find(|row| row.number(1) == job.id && row.number(2) == job.token);
            // A worker that was only late may have given a sign of life meanwhile.
            let is_alive = |row: &Row| matches!(run.outcome, Outcome::Lost { .. }) && row.number(3) >= now;
            if row.is_none_or(is_alive) {
                continue;
            }
            let (handler, key) = names(&job.lane);
            if run.touches_limits() {
                let asking = Asking { handler: &handler, key: key.as_ref(), cost: job.cost };
                end(&mut locked, &asking, &job.booking, run.ended(), now, self.calendar);
                reopened.extend(key.clone());
                has_news = true;
            }
            if let Outcome::Limited { retry_after, whole_handler, reason } = &run.outcome {
                let name = key.filter(|_| !whole_handler).unwrap_or(handler);
                pause(&mut locked, name, now.saturating_add(micros(*retry_after)), reason);
            }
            has_news |= run.waits_until(now).is_some();
            match run.outcome {
                Outcome::Done(_) => all_done.push(*run),
                _ => sql += &update(db, run, now),
            }
        }
        close_books(&mut locked, now, self.calendar);
        sql += &done(db, all_done.into_iter(), &now.to_string());
        let mut all = db.write_limits(&locked);
        for name in reopened {
            let opens_at = locked.get(&name).map_or(0, |row| row.open_at.max(row.paused_until));
            if opens_at != NEVER {
                all += &db.open_lanes(&name, opens_at);
            }
        }
        (all + &sql, has_news)
    }
}

fn pause(locked: &mut Locked, name: Name, until: i64, reason: &str) {
    let row = locked.entry(name).or_insert_with(Limited::unknown);
    if until > row.paused_until {
        row.paused_until = until;
        row.pause_reason = Some(told(400, reason));
        row.is_changed = true;
    }
}

/// Runs that are done, one statement for each claim.
fn done<'a>(db: &Db, runs: impl Iterator<Item = &'a Run>, now: &str) -> String {
    let mut of_token: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for run in runs {
        of_token.entry(run.job.token).or_default().push(run.job.id);
    }
    let done = |(token, jobs): (i64, Vec<i64>)| {
        format!(
            "UPDATE {} SET state = 'done', finished_at = {now}, error = NULL, booking = NULL WHERE id IN ({}) \
             AND state = 'running' AND lease_token = {token}; ",
            db.jobs(),
            ids(jobs.into_iter())
        )
    };
    of_token.into_iter().map(done).collect()
}

fn update(db: &Db, run: &Run, now: i64) -> String {
    let waits_until = run.waits_until(now);
    let (state, error) = match &run.outcome {
        Outcome::Done(_) => ("done", None),
        Outcome::Failed { error, retry_after, .. } => {
            (if retry_after.is_some() { "pending" } else { "failed" }, Some(error.clone()))
        }
        Outcome::Limited { reason, .. } => ("pending", Some(reason.clone())),
        Outcome::Released => ("pending", None),
        Outcome::Lost { is_last } => {
            (if *is_last { "failed" } else { "pending" }, Some("its worker was lost while it ran".to_owned()))
        }
    };
    let mut sets = format!("state = '{state}', error = {}, booking = NULL", db.optional_text(error.as_deref()));
    match waits_until {
        Some(0) => {}
        Some(at) => sets += &format!(", run_at = {at}"),
        None => sets += &format!(", finished_at = {now}"),
    }
    match run.outcome {
        Outcome::Limited { .. } => sets += ", attempts = attempts - 1, deferrals = deferrals + 1",
        Outcome::Released => sets += ", attempts = attempts - 1",
        _ => {}
    }
    format!("UPDATE {} SET {sets} WHERE id = {}; ", db.jobs(), run.job.id)
}

/// What a handler tells, as a database takes it, so many bytes at most: what is refused could never be
/// written down.
pub(crate) fn told(longest: usize, text: &str) -> String {
    let end = text.floor_char_boundary(longest);
    let cut = if end < text.len() { "..." } else { "" };
    text[..end].replace('\0', "\u{fffd}") + cut
}

/// Tells the database that runs are alive.
pub(crate) struct Beat<'a> {
    /// Jobs and the tokens of their claims.
    pub(crate) runs: &'a [(i64, i64)],
    /// In microseconds.
    pub(crate) lease: i64,
    /// The handlers that are served.
    pub(crate) handlers: &'a [String],
}

impl Work for Beat<'_> {
    /// The jobs that are still ours.
    type Answer = BTreeSet<i64>;
    const STEP: &'static str = "beat";
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, left: Duration) -> Result<BTreeSet<i64>, Stop> {
        let (jobs, clock) = (db.jobs(), db.clock());
        let mut sql = db.tables.begin(left) + "; ";
        // One by one, in the order in which all lock them.
        for handler in self.handlers {
            sql += &format!("UPDATE {} SET served_at = {clock} WHERE {}; ", db.limits(), db.names(handler, ""));
        }
        let tokens: BTreeSet<i64> = self.runs.iter().map(|(_, token)| *token).collect();
        for token in tokens {
            let of_token = ids(self.runs.iter().filter(|(_, other)| *other == token).map(|(id, _)| *id));
            sql += &format!(
                "UPDATE {jobs} SET lease_until = {clock} + {} WHERE id IN ({of_token}) AND state = 'running' \
                 AND lease_token = {token}; ",
                self.lease
            );
        }
        if !self.runs.is_empty() {
            let all = ids(self.runs.iter().map(|(id, _)| *id));
            sql += &format!("SELECT {STATE}, id, lease_token FROM {jobs} WHERE id IN ({all}) AND state = 'running'; ");
        }
        let rows = Rows::read(session.finish_cells(sql + "COMMIT").await.map_err(Stop::Amid)?);
        let ours = |row: &&Row| self.runs.contains(&(row.number(1), row.number(2)));
        Ok(rows.tagged(STATE).filter(ours).map(|row| row.number(1)).collect())
    }
}

/// Finds runs whose lease has run out.
pub(crate) struct FindLost<'a> {
    /// Those that are served: it is known how often their jobs are tried.
    pub(crate) handlers: &'a [String],
    pub(crate) most: usize,
}

impl Work for FindLost<'_> {
    type Answer = Vec<Claimed>;
    const STEP: &'static str = "search";
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, _: Duration) -> Result<Vec<Claimed>, Stop> {
        let sql = format!(
            "SELECT {STALE}, {CLAIMED} FROM {} \
             WHERE state = 'running' AND (lease_until < {} OR lease_until IS NULL) AND handler IN ({}) \
             ORDER BY lease_until LIMIT {}",
            db.jobs(),
            db.clock(),
            db.texts(self.handlers.iter().map(|handler| &**handler)),
            self.most
        );
        let rows = Rows::read(session.finish_cells(sql).await.map_err(Stop::Before)?);
        Ok(rows.tagged(STALE).map(Row::claimed).collect())
    }
}
