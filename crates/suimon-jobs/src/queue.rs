//! The queue as programs see it.

mod builder;
mod change;
mod control;
mod status;

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use suimon::Calendar;
use tokio::sync::Notify;

pub use builder::QueueBuilder;
pub use control::Pause;
pub use status::HandlerStatus;

use crate::Error;
use crate::db::Db;
use crate::dispatch::{Add, Dispatch};
use crate::job::{Job, JobId};
pub(crate) use control::Given;

/// A queue of jobs in a database, with a limit for each handler.
///
/// Copies share its connections. It is for a tokio runtime with time and I/O.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = suimon_testkit::servers::Folder::new("example", &[]);
/// # let url = format!("sqlite://{}/jobs.db", folder.path().display());
/// use suimon_jobs::Queue;
///
/// let queue = Queue::open(&url).await?;
/// queue.dispatch("call_openai", "Why is the sky blue?").rate_limit(10, 60).await?;
/// assert!(!queue.is_limited("call_openai").await?);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct Queue(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) db: Db,
    pub(crate) calendar: Arc<dyn Calendar + Send + Sync>,
    /// Handlers and priorities that are in the table.
    known: Mutex<HashSet<(String, u8)>>,
    /// Wakes the workers of this process.
    pub(crate) news: Notify,
}

impl Queue {
    /// Opens the queue in the database of a URL, and brings its tables up to date:
    /// `sqlite://jobs.db`, `postgres://app@db/app`, `mysql://app@db/app`.
    ///
    /// # Errors
    /// When the URL is wrong, its kind of database is not built in, or the tables cannot be made.
    pub async fn open(url: &str) -> Result<Queue, Error> {
        Queue::builder(url).open().await
    }

    /// To open a queue otherwise than by the defaults.
    #[must_use]
    pub fn builder(url: &str) -> QueueBuilder {
        QueueBuilder::new(url)
    }

    pub(crate) fn new(db: Db, calendar: Arc<dyn Calendar + Send + Sync>) -> Queue {
        Queue(Arc::new(Shared { db, calendar, known: Mutex::default(), news: Notify::new() }))
    }

    /// Adds a job, once the answer is awaited; limit, key, cost, delay and so on are told before.
    pub fn dispatch(&self, handler: impl Into<String>, payload: impl Serialize) -> Dispatch<'_> {
        Dispatch::new(self, Job::new(handler, &payload))
    }

    /// Adds jobs in one transaction, all or none, and tells their numbers in their order. For a
    /// unique job that is there already it is the number of that one.
    ///
    /// # Errors
    /// Those of the jobs: a name that is too long, a limit that is none, a payload that is not
    /// JSON. [`Error::is_database`] when the database could not be asked; after a cut in the
    /// middle of the last step it is unknown whether they were added, and only unique ones can
    /// be dispatched again without harm.
    pub async fn dispatch_all(&self, jobs: &[Job]) -> Result<Vec<JobId>, Error> {
        for job in jobs {
            job.check()?;
        }
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        self.give_limits(jobs).await?;
        let unknown: BTreeSet<_> = {
            let known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
            let names = jobs.iter().map(|job| (job.handler.clone(), job.priority));
            names.filter(|name| !known.contains(name)).collect()
        };
        let unknown: Vec<_> = unknown.into_iter().collect();
        let ids = self.0.db.run(&Add { jobs, unknown: &unknown }).await?;
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner).extend(unknown);
        self.0.news.notify_waiters();
        for job in jobs {
            crate::metrics::dispatched(&job.handler);
        }
        Ok(ids)
    }

    /// Sets the limits that jobs bring along: the last of each handler.
    async fn give_limits(&self, jobs: &[Job]) -> Result<(), Error> {
        let mut done = BTreeSet::new();
        for job in jobs.iter().rev().filter(|job| job.limit.is_some() || job.key_limit.is_some()) {
            if done.insert(&job.handler) {
                self.give(&job.handler, job.limit.as_ref(), job.key_limit.as_ref(), job.count, Given::Dispatch).await?;
            }
        }
        Ok(())
    }

    /// Closes the connections that are not in use, in good order, for the end of a program.
    pub async fn close(&self) {
        self.0.db.pool.close().await;
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = &self.0.db.tables;
        f.debug_struct("Queue")
            .field("database", &tables.dialect)
            .field("prefix", &tables.prefix)
            .finish_non_exhaustive()
    }
}
