//! Changes of the rows of limits: how they are looked at, locked and written.

use std::time::Duration;

use suimon::Cost;
use suimon_sql::access::Session;

use crate::config::Count;
use crate::db::{Db, NEVER, Rows, Stop, Work, micros};
use crate::limits::Name;
use crate::queue::control::{Given, Pause};
use crate::row::{LIMIT, Lock};
use crate::rules::counted_period;

/// Reads the row of a handler, and of a key.
pub(super) struct Look<'a> {
    pub(super) name: &'a Name,
}

impl Work for Look<'_> {
    type Answer = Rows;
    const STEP: &'static str = "ask";
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, _: Duration) -> Result<Rows, Stop> {
        let (handler, key) = self.name;
        let mut sql = db.select_limit(&(handler.clone(), String::new()), Lock::None);
        if !key.is_empty() {
            sql += &db.select_limit(self.name, Lock::None);
        }
        let cells = session.finish_cells(sql + &db.select_clock()).await.map_err(Stop::Before)?;
        Ok(Rows::read(cells))
    }
}

/// A change of a row.
pub(super) struct Change<'a> {
    pub(super) name: &'a Name,
    pub(super) what: What<'a>,
}

pub(super) enum What<'a> {
    /// Without a count that stays as it is.
    Limit {
        text: Option<&'a str>,
        count: Option<Count>,
        given: Given,
    },
    KeyLimit {
        text: Option<&'a str>,
        count: Option<Count>,
        given: Given,
    },
    Clear,
    Concurrency(Option<u32>),
    Pause(Pause),
    Resume,
}

pub(super) struct Changing<'a> {
    pub(super) change: &'a Change<'a>,
    pub(super) calendar: &'a (dyn suimon::Calendar + Send + Sync),
}

/// The tag of a run of the past.
const RUN: i64 = 2;
/// As many runs of the past count at most.
const MOST_RUNS: usize = 10_000;

impl Change<'_> {
    /// Is it so already, or is there something that goes before it?
    pub(super) fn is_done(&self, rows: &Rows) -> bool {
        let Some(row) = rows.tagged(LIMIT).find(|row| row.text(2) == self.name.1) else { return false };
        let (_, limited) = row.limited();
        let (given_by, key_given_by) = row.given_by();
        match self.what {
            What::Limit { text, count, given } => {
                let is_counted = text.is_none() || count.is_none_or(|count| limited.count == count);
                let is_as_given = limited.policy.as_deref() == text && is_counted;
                is_as_given && given_by == given as i64 || given_by > given as i64
            }
            What::KeyLimit { text, count, given } => {
                let is_counted = text.is_none() || count.is_none_or(|count| limited.key_count == count);
                let is_as_given = limited.key_policy.as_deref() == text && is_counted;
                is_as_given && key_given_by == given as i64 || key_given_by > given as i64
            }
            What::Concurrency(most) => limited.concurrency == most.map(i64::from),
            What::Clear | What::Pause(_) | What::Resume => false,
        }
    }
}

impl Work for Changing<'_> {
    type Answer = ();
    const STEP: &'static str = "change";
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, left: Duration) -> Result<(), Stop> {
        let (handler, key) = self.change.name;
        let mut sql = db.tables.begin(left) + "; " + &db.make_handler(handler, None);
        if !key.is_empty() {
            sql += &db.make_key(handler, key);
        }
        sql += &db.select_limit(self.change.name, Lock::Alone);
        let rows = Rows::read(session.cells(sql + &db.select_clock()).await.map_err(Stop::Before)?);
        if self.change.is_done(&rows) {
            session.undo().await;
            return Ok(());
        }
        let mut locked = rows.limits();
        let Some(row) = locked.get_mut(self.change.name) else { return Ok(()) };
        row.is_changed = true;
        row.open_at = 0;
        let mut more = String::new();
        match self.change.what {
            What::Limit { text, count, given } => {
                let count = count.unwrap_or(row.count);
                if let Some(text) = text.filter(|_| row.record.is_none()) {
                    let runs = self.past_runs(db, session, text, count, rows.now).await?;
                    row.charge_past(text, &runs, self.calendar);
                }
                if text.is_none() {
                    // Nothing is counted; a later one looks at the runs of the past anew.
                    row.record = None;
                }
                let text = db.optional_text(text);
                more = format!("policy = {text}, count_on = '{}', given_by = {}", count.as_str(), given as i64);
            }
            What::KeyLimit { text, count, given } => {
                let (text, count) = (db.optional_text(text), count.unwrap_or(row.key_count));
                more = format!(
                    "key_policy = {text}, key_count_on = '{}', key_given_by = {}",
                    count.as_str(),
                    given as i64
                );
            }
            What::Clear => {
                more = "policy = NULL, given_by = 0, key_policy = NULL, key_given_by = 0".to_owned();
                // What it counted is not counted any more: a later limit looks at the runs of the past anew. A key
                // goes on under the limit that all keys have.
                if key.is_empty() {
                    row.record = None;
                }
            }
            What::Concurrency(most) => {
                let most = most.map_or_else(|| "NULL".to_owned(), |most| most.to_string());
                more = format!("concurrency = {most}");
            }
            What::Pause(Pause::UntilResumed) => row.paused_until = NEVER,
            What::Pause(Pause::For(time)) => {
                row.paused_until = row.paused_until.max(rows.now.saturating_add(micros(time)));
            }
            What::Resume => {
                row.paused_until = 0;
                row.pause_reason = None;
            }
        }
        let mut sql = db.write_limits(&locked);
        if !more.is_empty() {
            sql += &format!("UPDATE {} SET {more} WHERE {}; ", db.limits(), db.names(handler, key));
        }
        if matches!(self.change.what, What::KeyLimit { .. } | What::Clear) {
            // Keys that the limit of before had closed.
            sql += &format!(
                "UPDATE {} SET open_at = 0 WHERE handler = {} AND job_key <> '' AND open_at > 0; ",
                db.limits(),
                db.text(handler)
            );
        }
        // Looked at too early, a lane is closed again; too late, it would be forgotten.
        sql += &db.open_lanes(self.change.name, rows.now);
        sql += &db.notify();
        session.finish_cells(sql + "COMMIT").await.map_err(Stop::Amid)?;
        Ok(())
    }
}

impl Changing<'_> {
    /// The runs of the past that a new limit counts, oldest first.
    async fn past_runs(
        &self,
        db: &Db,
        session: &mut Session<'_>,
        text: &str,
        count: Count,
        now: i64,
    ) -> Result<Vec<(i64, Cost)>, Stop> {
        let Some(period) = counted_period(text) else { return Ok(Vec::new()) };
        let (column, states) = match count {
            Count::Started => ("started_at", "'running', 'done', 'failed', 'pending'"),
            Count::Completed => ("finished_at", "'done'"),
        };
        let since = now.saturating_sub(micros(period));
        let sql = format!(
            "SELECT {RUN}, {column}, cost FROM {} WHERE {} AND state IN ({states}) AND {column} > {since} \
             ORDER BY {column} DESC LIMIT {MOST_RUNS}",
            db.jobs(),
            db.under(self.change.name),
        );
        let rows = Rows::read(session.cells(sql).await.map_err(Stop::Before)?);
        let runs = rows.tagged(RUN).map(|row| (row.number(1), row.text(2).parse().unwrap_or(Cost::ONE)));
        Ok(newest(runs, text))
    }
}

/// Those runs that decide when the next may start: the newest, as many as fit. Oldest first.
fn newest(runs: impl Iterator<Item = (i64, Cost)>, text: &str) -> Vec<(i64, Cost)> {
    let policy: Option<suimon::Policy> = text.parse().ok();
    let most = policy.and_then(|policy| policy.limits().iter().filter_map(suimon::Limit::max_cost).max());
    let mut left = most.unwrap_or_default();
    let mut runs: Vec<_> = runs
        .map_while(|(at, cost)| {
            let cost = cost.min(left);
            left = left.saturating_sub(cost);
            (!cost.is_zero()).then_some((at, cost))
        })
        .collect();
    runs.reverse();
    runs
}
