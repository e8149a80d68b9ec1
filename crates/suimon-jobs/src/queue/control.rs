//! Limits that are set while the queue runs, and pauses.

use std::time::Duration;

use crate::Error;
use crate::config::{Config, Count, LimitSpec};
use crate::db::{NEVER, until};
use crate::error::{check_handler, check_key};
use crate::limits::Name;
use crate::queue::Queue;
use crate::queue::change::{Change, Changing, Look, What};
use crate::rules::opens_at;

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
