use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{Served, Settings, Worker};
use crate::Error;
use crate::config::Config;
use crate::error::check_handler;
use crate::handler::{Context, Handler, JobError, Kind, Raw, Runs, Typed};
use crate::queue::Queue;

/// How a worker is made; see [`Worker::builder`].
pub struct WorkerBuilder {
    queue: Queue,
    handlers: Vec<(String, Served)>,
    settings: Settings,
}

impl WorkerBuilder {
    pub(crate) fn new(queue: &Queue) -> WorkerBuilder {
        let settings = Settings {
            slots: 16,
            lease: Duration::from_secs(60),
            grace: Duration::from_secs(30),
            keep_done: Some(Duration::from_secs(7 * 86_400)),
            fails_unknown: false,
        };
        WorkerBuilder { queue: queue.clone(), handlers: Vec::new(), settings }
    }

    /// Serves the jobs of a handler.
    #[must_use]
    pub fn handler<H: Handler>(self, handler: H) -> WorkerBuilder {
        let config = handler.config();
        self.serve(H::NAME, config, Arc::new(Typed(handler)))
    }

    /// Serves the jobs of a name with a function of their payload.
    #[must_use]
    pub fn function<P, F, R>(self, name: &str, config: Config, function: F) -> WorkerBuilder
    where
        P: DeserializeOwned + Send + 'static,
        F: Fn(P, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), JobError>> + Send + 'static,
    {
        let function = Arc::new(function);
        self.json(name, config, move |payload, job| {
            let function = function.clone();
            async move {
                let payload = serde_json::from_str(&payload)
                    .map_err(|why| JobError(Kind::Permanent(format!("the payload does not parse: {why}"))))?;
                function(payload, job).await
            }
        })
    }

    /// Serves the jobs of a name with a function of the JSON of their payload.
    #[must_use]
    pub fn json<F, R>(self, name: &str, config: Config, function: F) -> WorkerBuilder
    where
        F: Fn(String, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), JobError>> + Send + 'static,
    {
        self.serve(name, config, Arc::new(Raw(function)))
    }

    fn serve(mut self, name: &str, config: Config, runs: Arc<dyn Runs>) -> WorkerBuilder {
        self.handlers.push((name.to_owned(), Served { config, runs }));
        self
    }

    /// How many jobs run at the same time here, at least one: 16. A job that waits for a limit is none of
    /// them.
    #[must_use]
    pub fn slots(mut self, most: usize) -> WorkerBuilder {
        self.settings.slots = most.clamp(1, 10_000);
        self
    }

    /// How long a job is held without a sign of life of its worker before another takes it up:
    /// a minute. Signs of life are given three times as often.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> WorkerBuilder {
        self.settings.lease = lease.clamp(Duration::from_millis(100), Duration::from_secs(86_400));
        self
    }

    /// How long jobs may go on when the worker is told to stop, at most a year: 30 seconds.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> WorkerBuilder {
        // A clock cannot count for ever.
        self.settings.grace = grace.min(Duration::from_secs(365 * 86_400));
        self
    }

    /// How long jobs that have been done are kept, a week; `None` for ever. Those that failed stay
    /// until they are [purged](Queue::purge).
    #[must_use]
    pub fn keep_done(mut self, keep: Option<Duration>) -> WorkerBuilder {
        self.settings.keep_done = keep;
        self
    }

    /// Lets jobs fail whose handler this worker does not serve. Otherwise they wait for a worker
    /// that does.
    #[must_use]
    pub fn fail_unknown(mut self, fails: bool) -> WorkerBuilder {
        self.settings.fails_unknown = fails;
        self
    }

    /// Makes the worker, and sets the limits of its handlers where nothing that goes before them
    /// has been set.
    ///
    /// # Errors
    /// When there is no handler, or two have one name; when a limit is none; when the database
    /// cannot be asked.
    pub async fn build(self) -> Result<Worker, Error> {
        if self.handlers.is_empty() {
            return Err(Error::Handlers("a worker needs a handler".to_owned()));
        }
        let mut handlers = BTreeMap::new();
        for (name, served) in self.handlers {
            check_handler(&name)?;
            self.queue.configure(&name, &served.config).await?;
            if handlers.insert(name.clone(), served).is_some() {
                return Err(Error::Handlers(format!("two handlers are called `{name}`")));
            }
        }
        Ok(Worker { queue: self.queue, handlers, settings: self.settings })
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.handlers.iter().map(|(name, _)| name).collect();
        f.debug_struct("WorkerBuilder")
            .field("handlers", &names)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
