//! Limits that are set while the queue runs, and pauses.

use std::time::Duration;

use suimon::Cost;
use suimon_sql::access::Session;

use crate::Error;
use crate::config::{Config, Count, LimitSpec};
use crate::db::{Db, NEVER, Rows, Stop, Work, micros, until};
use crate::error::{check_handler, check_key};
use crate::limits::{Name, counted_period, opens_at};
use crate::queue::Queue;
use crate::row::{LIMIT, Lock};

/// Who gave a limit: a later one in this list goes before an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Given {
    Config = 0,
    Dispatch = 1,
    Set = 2,
}

/// How long a handler or key is to be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// For this time from now; a pause that lasts longer already stays.
    For(Duration),
    /// Until it is resumed.
    UntilResumed,
}

impl Queue {
    /// Limits a handler to `max` runs in any `window_secs` seconds, over all workers and from now
    /// on, whatever its configuration and its jobs say.
    ///
    /// Runs that are in the queue's tables already count.
    ///
    /// # Errors
    /// When the limit cannot be, or the database cannot be asked.
    pub async fn register(&self, handler: &str, max: u64, window_secs: u64) -> Result<(), Error> {
        self.set(handler, Some(&LimitSpec::per(max, window_secs)), None, None).await
    }

    /// Sets the limit of a handler for all workers from now on, as text; it goes before those
    /// of its configuration and its jobs.
    ///
    /// What was used stays used, as far as the kinds of limits can be carried over.
    ///
    /// # Errors
    /// As [`register`](Queue::register).
    pub async fn set_limit(&self, handler: &str, limit: &str, count: Count) -> Result<(), Error> {
        self.set(handler, Some(&LimitSpec::new(limit)), None, Some(count)).await
    }

    /// Sets the limit that each key of a handler has.
    ///
    /// # Errors
    /// As [`register`](Queue::register).
    pub async fn set_key_limit(&self, handler: &str, limit: &str, count: Count) -> Result<(), Error> {
        self.set(handler, None, Some(&LimitSpec::new(limit)), Some(count)).await
    }

    /// Sets the limit of one key of a handler, instead of that which its keys have.
    ///
    /// # Errors
    /// As [`register`](Queue::register).
    pub async fn set_limit_of_key(&self, handler: &str, key: &str, limit: &str, count: Count) -> Result<(), Error> {
        check_handler(handler)?;
        check_key("key", key)?;
        let text = LimitSpec::new(limit).checked()?;
        let name = (handler.to_owned(), key.to_owned());
        self.change(&Change {
            name: &name,
            what: What::Limit { text: Some(&text), count: Some(count), given: Given::Set },
        })
        .await
    }

    /// Takes away the limits that were set, given by jobs or by the configuration; those of the
    /// configuration come back when a worker starts.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn clear_limit(&self, handler: &str) -> Result<(), Error> {
        check_handler(handler)?;
        self.change(&Change { name: &(handler.to_owned(), String::new()), what: What::Clear }).await
    }

    /// Takes away the limit of one key that was [set](Queue::set_limit_of_key): it has that of all keys again.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn clear_limit_of_key(&self, handler: &str, key: &str) -> Result<(), Error> {
        check_handler(handler)?;
        check_key("key", key)?;
        self.change(&Change { name: &(handler.to_owned(), key.to_owned()), what: What::Clear }).await
    }

    /// Is there no place for a run of this handler now? An unknown handler is never limited.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn is_limited(&self, handler: &str) -> Result<bool, Error> {
        Ok(self.time_until_available(handler).await? > Duration::ZERO)
    }

    /// The least time until a run of this handler could start: zero if one can now,
    /// [`Duration::MAX`] if something has to happen first (a run has to end, a pause to be lifted, a limit to
    /// be changed).
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn time_until_available(&self, handler: &str) -> Result<Duration, Error> {
        self.time_until((handler.to_owned(), String::new())).await
    }

    /// The same for a key of a handler.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn time_until_key_available(&self, handler: &str, key: &str) -> Result<Duration, Error> {
        self.time_until((handler.to_owned(), key.to_owned())).await
    }

    async fn time_until(&self, name: Name) -> Result<Duration, Error> {
        let rows = self.0.db.run(&Look { name: &name }).await?;
        let at = opens_at(&rows.limits(), &name, rows.now, &*self.0.calendar);
        Ok(if at == NEVER { Duration::MAX } else { until(at, rows.now) })
    }

    /// Lets no job of a handler start for a while, in any process. Those that run go on.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn pause(&self, handler: &str, pause: Pause) -> Result<(), Error> {
        check_handler(handler)?;
        self.change(&Change { name: &(handler.to_owned(), String::new()), what: What::Pause(pause) }).await
    }

    /// The same for the jobs of one key.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn pause_key(&self, handler: &str, key: &str, pause: Pause) -> Result<(), Error> {
        check_handler(handler)?;
        check_key("key", key)?;
        self.change(&Change { name: &(handler.to_owned(), key.to_owned()), what: What::Pause(pause) }).await
    }

    /// Ends the pause of a handler, whoever asked for it.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn resume(&self, handler: &str) -> Result<(), Error> {
        self.change(&Change { name: &(handler.to_owned(), String::new()), what: What::Resume }).await
    }

    /// The same for one key.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn resume_key(&self, handler: &str, key: &str) -> Result<(), Error> {
        self.change(&Change { name: &(handler.to_owned(), key.to_owned()), what: What::Resume }).await
    }

    async fn set(
        &self,
        handler: &str,
        limit: Option<&LimitSpec>,
        key_limit: Option<&LimitSpec>,
        count: Option<Count>,
    ) -> Result<(), Error> {
        check_handler(handler)?;
        self.give(handler, limit, key_limit, count, Given::Set).await
    }

    /// The limits of a configuration, which give way to any other.
    pub(crate) async fn configure(&self, handler: &str, config: &Config) -> Result<(), Error> {
        let Config { limit, key_limit, count, concurrency, .. } = config;
        self.give(handler, limit.as_ref(), key_limit.as_ref(), Some(*count), Given::Config).await?;
        let name = (handler.to_owned(), String::new());
        // One that an earlier configuration had, and this one has not any more.
        if limit.is_none() {
            let what = What::Limit { text: None, count: None, given: Given::Config };
            self.change(&Change { name: &name, what }).await?;
        }
        if key_limit.is_none() {
            let what = What::KeyLimit { text: None, count: None, given: Given::Config };
            self.change(&Change { name: &name, what }).await?;
        }
        self.change(&Change { name: &name, what: What::Concurrency(*concurrency) }).await
    }

    pub(crate) async fn give(
        &self,
        handler: &str,
        limit: Option<&LimitSpec>,
        key_limit: Option<&LimitSpec>,
        count: Option<Count>,
        given: Given,
    ) -> Result<(), Error> {
        let name = (handler.to_owned(), String::new());
        let texts = [limit, key_limit].map(|spec| spec.map(LimitSpec::checked).transpose());
        let [limit, key_limit] = texts;
        let (limit, key_limit) = (limit?, key_limit?);
        if let Some(text) = &limit {
            self.change(&Change { name: &name, what: What::Limit { text: Some(text), count, given } }).await?;
        }
        if let Some(text) = &key_limit {
            self.change(&Change { name: &name, what: What::KeyLimit { text: Some(text), count, given } }).await?;
        }
        Ok(())
    }

    async fn change(&self, change: &Change<'_>) -> Result<(), Error> {
        // Most jobs bring a limit that is there already: that takes no lock.
        let rows = self.0.db.run(&Look { name: change.name }).await?;
        if change.is_done(&rows) {
            return Ok(());
        }
        let change = Changing { change, calendar: &*self.0.calendar };
        self.0.db.run(&change).await?;
        self.0.news.notify_waiters();
        Ok(())
    }
}

/// Reads the row of a handler, and of a key.
struct Look<'a> {
    name: &'a Name,
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
struct Change<'a> {
    name: &'a Name,
    what: What<'a>,
}

enum What<'a> {
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

struct Changing<'a> {
    change: &'a Change<'a>,
    calendar: &'a (dyn suimon::Calendar + Send + Sync),
}

/// The tag of a run of the past.
const RUN: i64 = 2;
/// As many runs of the past count at most.
const MOST_RUNS: usize = 10_000;

impl Change<'_> {
    /// Is it so already, or is there something that goes before it?
    fn is_done(&self, rows: &Rows) -> bool {
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
                // Without one, nothing is counted; a later one looks at the runs of the past anew.
                let forgotten = if text.is_none() { ", state_policy = NULL, state = NULL" } else { "" };
                if text.is_none() {
                    row.record = None;
                }
                let text = db.optional_text(text);
                more =
                    format!("policy = {text}, count_on = '{}', given_by = {}{forgotten}", count.as_str(), given as i64);
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
                    more += ", state_policy = NULL, state = NULL";
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
        let of_key = if key.is_empty() { String::new() } else { format!(" AND job_key = {}", db.text(key)) };
        sql += &format!(
            "UPDATE {} SET next_at = {} WHERE handler = {}{of_key} AND next_at > {}; ",
            db.lanes(),
            rows.now,
            db.text(handler),
            rows.now
        );
        if let Some(notify) = db.notify() {
            sql += &notify;
            sql += "; ";
        }
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
        let (handler, key) = self.change.name;
        let of_key = if key.is_empty() { String::new() } else { format!(" AND job_key = {}", db.text(key)) };
        let (column, states) = match count {
            Count::Started => ("started_at", "'running', 'done', 'failed', 'pending'"),
            Count::Completed => ("finished_at", "'done'"),
        };
        let since = now.saturating_sub(micros(period));
        let sql = format!(
            "SELECT {RUN}, {column}, cost FROM {} WHERE handler = {}{of_key} AND state IN ({states}) AND {column} > {since} \
             ORDER BY {column} DESC LIMIT {MOST_RUNS}",
            db.jobs(),
            db.text(handler),
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
