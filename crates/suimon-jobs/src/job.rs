//! Jobs: as they are given to a queue, and as they lie in it.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use suimon::Cost;

use crate::Error;
use crate::config::{Count, LimitSpec};
use crate::db::micros;
use crate::error::{check_handler, check_key};

/// The number of a job in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A job to be dispatched.
///
/// ```
/// use std::time::Duration;
/// use suimon_jobs::Job;
///
/// let job = Job::new("call_openai", &"Why is the sky blue?")
///     .rate_limit(10, 60)
///     .key("customer:42")
///     .delay(Duration::from_secs(5))
///     .priority(3);
/// ```
#[derive(Clone, Debug)]
pub struct Job {
    pub(crate) handler: String,
    /// JSON, or why there is none.
    pub(crate) payload: Result<String, String>,
    pub(crate) limit: Option<LimitSpec>,
    pub(crate) key_limit: Option<LimitSpec>,
    pub(crate) count: Option<Count>,
    pub(crate) key: Option<String>,
    pub(crate) cost: Cost,
    pub(crate) due: Due,
    pub(crate) priority: u8,
    pub(crate) unique: Option<String>,
    pub(crate) attempts: Option<u32>,
}

/// The earliest time for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// So many microseconds from when it is dispatched.
    In(i64),
    /// In microseconds since 1970.
    At(i64),
}

/// The highest priority.
pub(crate) const HIGHEST: u8 = 9;

impl Job {
    /// A job for a handler, with a payload that it can read.
    #[must_use]
    pub fn new(handler: impl Into<String>, payload: &(impl Serialize + ?Sized)) -> Job {
        Job::with_json(handler, serde_json::to_string(payload).map_err(|why| why.to_string()))
    }

    /// A job whose payload is JSON already.
    #[must_use]
    pub fn from_json(handler: impl Into<String>, payload: impl Into<String>) -> Job {
        Job::with_json(handler, Ok(payload.into()))
    }

    fn with_json(handler: impl Into<String>, payload: Result<String, String>) -> Job {
        Job {
            handler: handler.into(),
            payload,
            limit: None,
            key_limit: None,
            count: None,
            key: None,
            cost: Cost::ONE,
            due: Due::In(0),
            priority: 0,
            unique: None,
            attempts: None,
        }
    }

    /// At most `max` runs of this handler in any `secs` seconds, over all workers, from now on:
    /// as [`limit`](Job::limit).
    #[must_use]
    pub fn rate_limit(mut self, max: u64, secs: u64) -> Job {
        self.limit = Some(LimitSpec::per(max, secs));
        self
    }

    /// Sets the limit of the handler (not of this job alone), for all workers and all its
    /// jobs from now on. It goes before the limit in the handler's configuration; one that was
    /// [set](crate::Queue::set_limit) goes before it.
    #[must_use]
    pub fn limit(mut self, text: impl Into<String>) -> Job {
        self.limit = Some(LimitSpec::new(text));
        self
    }

    /// Sets the limit that each key of the handler has, in the same way.
    #[must_use]
    pub fn key_limit(mut self, text: impl Into<String>) -> Job {
        self.key_limit = Some(LimitSpec::new(text));
        self
    }

    /// Which runs the limits given here count; without it what the handler's limit counts stays.
    #[must_use]
    pub const fn count(mut self, count: Count) -> Job {
        self.count = Some(count);
        self
    }

    /// On whose behalf it runs, up to 190 bytes: jobs of a key have a limit of their own where the handler has one for
    /// keys, and keys take turns.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Job {
        self.key = Some(key.into());
        self
    }

    /// What it costs in each of its limits: 1.
    #[must_use]
    pub fn cost(mut self, cost: impl Into<Cost>) -> Job {
        self.cost = cost.into();
        self
    }

    /// Not before so much time has passed, by the clock of the database.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Job {
        self.due = Due::In(micros(delay));
        self
    }

    /// Not before a time.
    #[must_use]
    pub fn at(mut self, time: SystemTime) -> Job {
        self.due = Due::At(micros(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()));
        self
    }

    /// From 0, which is the default, to 9: higher ones go first.
    #[must_use]
    pub const fn priority(mut self, priority: u8) -> Job {
        self.priority = priority;
        self
    }

    /// While a job of this handler with the same id waits or runs, no other is added.
    #[must_use]
    pub fn unique(mut self, id: impl Into<String>) -> Job {
        self.unique = Some(id.into());
        self
    }

    /// How often it is tried in all, instead of what the handler says.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Job {
        self.attempts = Some(attempts);
        self
    }

    /// Looks at all that can be wrong with it without a database, as
    /// [`dispatch_all`](crate::Queue::dispatch_all) does before anything is written.
    ///
    /// # Errors
    /// When a name is too long, a limit is none, a number is out of its range, or the payload is not JSON.
    pub fn check(&self) -> Result<(), Error> {
        check_handler(&self.handler)?;
        for limit in [&self.limit, &self.key_limit].into_iter().flatten() {
            limit.checked()?;
        }
        if let Some(key) = &self.key {
            check_key("key", key)?;
        }
        if let Some(unique) = &self.unique {
            check_key("id of a unique job", unique)?;
        }
        if self.priority > HIGHEST {
            return Err(Error::Range { what: "priority", asked: self.priority.to_string(), allowed: "0 to 9" });
        }
        if self.attempts == Some(0) || self.attempts.is_some_and(|attempts| attempts > 1_000_000) {
            let asked = self.attempts.unwrap_or_default().to_string();
            return Err(Error::Range { what: "attempts", asked, allowed: "1 to 1000000" });
        }
        match &self.payload {
            Err(why) => Err(Error::Payload(why.clone())),
            Ok(payload) if payload.contains('\0') => Err(Error::Payload("it has a zero byte in it".to_owned())),
            Ok(_) => Ok(()),
        }
    }
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobState {
    /// It was written by somebody else's SQL, and no worker has looked at it yet.
    New,
    /// It waits for its time, its turn, or its limits.
    Pending,
    /// A worker is at it.
    Running,
    /// It has been done.
    Done,
    /// It failed for good; its error says why.
    Failed,
}

impl JobState {
    /// As it is in the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            JobState::New => "new",
            JobState::Pending => "pending",
            JobState::Running => "running",
            JobState::Done => "done",
            JobState::Failed => "failed",
        }
    }

    pub(crate) fn parse(text: &str) -> JobState {
        match text {
            "pending" => JobState::Pending,
            "running" => JobState::Running,
            "done" => JobState::Done,
            "failed" => JobState::Failed,
            _ => JobState::New,
        }
    }
}

/// A job as it lies in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobInfo {
    /// Its number.
    pub id: JobId,
    /// Who is to run it.
    pub handler: String,
    /// On whose behalf.
    pub key: Option<String>,
    /// Where it stands.
    pub state: JobState,
    /// How often it has run, without those runs that met a limit.
    pub attempts: u32,
    /// How often it has run and met a limit.
    pub deferrals: u32,
    /// Why it failed last.
    pub error: Option<String>,
    /// The payload, JSON.
    pub payload: String,
}
