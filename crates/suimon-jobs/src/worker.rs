//! A worker: claims jobs, runs them, writes down what came of them.

mod builder;
mod engine;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub use builder::WorkerBuilder;

use crate::Error;
use crate::config::Config;
use crate::handler::Runs;
use crate::job::{JobId, JobState};
use crate::queue::Queue;
use engine::{Engine, Until};

/// Runs the jobs of some handlers.
///
/// Any number of workers in any number of processes can serve a queue. The limits hold over
/// all of them.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = suimon_testkit::servers::Folder::new("example", &[]);
/// # let url = format!("sqlite://{}/jobs.db", folder.path().display());
/// use suimon_jobs::{Config, Queue, Worker};
///
/// let queue = Queue::open(&url).await?;
/// for name in ["Ann", "Bob", "Cid"] {
///     queue.dispatch("greet", name).await?;
/// }
/// let worker = Worker::builder(&queue)
///     .function("greet", Config::new().rate_limit(2, 60), |name: String, _job| async move {
///         println!("Hello, {name}!");
///         Ok(())
///     })
///     .build()
///     .await?;
/// // Two run; the third waits for its time, and nobody would wait for it.
/// assert_eq!(worker.drain().await?.len(), 2);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
pub struct Worker {
    queue: Queue,
    handlers: BTreeMap<String, Served>,
    settings: Settings,
}

struct Served {
    config: Config,
    runs: Arc<dyn Runs>,
}

#[derive(Clone, Debug)]
struct Settings {
    slots: usize,
    lease: Duration,
    grace: Duration,
    keep_done: Option<Duration>,
    fails_unknown: bool,
}

/// A run that a worker has made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ran {
    /// The job.
    pub id: JobId,
    /// Its handler.
    pub handler: String,
    /// What it is now: done, failed for good, or pending again.
    pub state: JobState,
    /// Why it is not done.
    pub error: Option<String>,
}

impl Worker {
    /// To make a worker for a queue.
    #[must_use]
    pub fn builder(queue: &Queue) -> WorkerBuilder {
        WorkerBuilder::new(queue)
    }

    /// Works until this is dropped. Then what runs is cut off, and taken up by another worker when its lease has
    /// run out; [`run_until`](Worker::run_until) ends in good order.
    ///
    /// An outage of the database does not end it, nor anything else that the database says: it asks
    /// again until that is over, and writes down what ended meanwhile.
    ///
    /// # Errors
    /// When a limit in the tables cannot be used.
    pub async fn run(&self) -> Result<(), Error> {
        self.run_until(std::future::pending()).await
    }

    /// Works until a future is ready; then it claims nothing more, lets end what runs (up to the
    /// [grace](WorkerBuilder::grace)), and gives back the rest without using up an attempt.
    ///
    /// # Errors
    /// As [`run`](Worker::run).
    pub async fn run_until(&self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        Engine::new(self, Until::Stopped).run(stop).await.map(drop)
    }

    /// Runs one job, if one can start now; says which and what came of it.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn once(&self) -> Result<Option<Ran>, Error> {
        self.once_until(std::future::pending()).await
    }

    /// The same; stops before that in good order, as [`run_until`](Worker::run_until) does, when a future is ready.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn once_until(&self, stop: impl Future<Output = ()>) -> Result<Option<Ran>, Error> {
        Ok(Engine::new(self, Until::One).run(stop).await?.into_iter().next())
    }

    /// Runs jobs until none can start now: what is left waits for its time or its limit.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn drain(&self) -> Result<Vec<Ran>, Error> {
        self.drain_until(std::future::pending()).await
    }

    /// The same; stops before that in good order, as [`run_until`](Worker::run_until) does, when a future is ready.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn drain_until(&self, stop: impl Future<Output = ()>) -> Result<Vec<Ran>, Error> {
        Engine::new(self, Until::Idle).run(stop).await
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("queue", &self.queue)
            .field("handlers", &self.handlers.keys())
            .field("settings", &self.settings)
            .finish()
    }
}
