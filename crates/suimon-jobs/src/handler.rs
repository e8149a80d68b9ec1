//! What runs jobs, and what it may say about a run.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use suimon::Cost;
use tokio::sync::watch;

use crate::config::Config;
use crate::job::JobId;

/// Runs the jobs of one name.
///
/// ```
/// use std::time::Duration;
/// use serde::Deserialize;
/// use suimon_jobs::{Config, Context, Handler, JobError, Limited};
///
/// #[derive(Deserialize)]
/// struct Question {
///     text: String,
/// }
///
/// struct CallOpenAi;
///
/// impl Handler for CallOpenAi {
///     const NAME: &'static str = "call_openai";
///     type Payload = Question;
///
///     fn config(&self) -> Config {
///         Config::new().rate_limit(10, 60).attempts(5)
///     }
///
///     async fn handle(&self, question: Question, job: Context) -> Result<(), JobError> {
///         match ask(&question.text).await {
///             Answer::Text(_) => Ok(()),
///             // No attempt is used, and all workers leave the handler alone until then.
///             Answer::TooManyRequests { retry_after } => Err(Limited { retry_after })?,
///         }
///     }
/// }
/// # enum Answer { Text(String), TooManyRequests { retry_after: Duration } }
/// # async fn ask(text: &str) -> Answer { Answer::Text(text.to_owned()) }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// Its name in the queue, up to 100 bytes.
    const NAME: &'static str;

    /// What it is given, read from JSON. A payload that does not parse fails for good.
    type Payload: DeserializeOwned + Send;

    /// Its limits, retries and so on; asked once, when a worker is made.
    fn config(&self) -> Config {
        Config::new()
    }

    /// Runs a job, at least once: after a crash it may run again. One that panics or takes
    /// longer than its timeout has failed.
    fn handle(&self, payload: Self::Payload, job: Context) -> impl Future<Output = Result<(), JobError>> + Send;
}

/// Why a job did not do what it was to do. Any error becomes one by `?`: it is tried again.
/// [`Limited`] and [`Permanent`] say otherwise; so does a limiter's own refusal, which is as [`Limited`].
#[derive(Debug)]
pub struct JobError(pub(crate) Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    Failed(String),
    Permanent(String),
    Limited { retry_after: Duration, whole_handler: bool, reason: String },
    GivenBack,
}

/// It met a limit (a 429): it is put back without using an attempt, and all jobs of its key, or
/// of its handler if it has no key, pause for that time in every process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// How long.
    pub retry_after: Duration,
}

/// It would fail again, so it is not tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permanent(pub String);

impl JobError {
    /// It failed, and is tried again.
    #[must_use]
    pub fn failed(why: impl Into<String>) -> JobError {
        JobError(Kind::Failed(why.into()))
    }

    /// As [`Limited`], for all jobs of the handler, also when this one has a key.
    #[must_use]
    pub fn limited_handler(retry_after: Duration) -> JobError {
        let reason = Limited { retry_after }.to_string();
        JobError(Kind::Limited { retry_after, whole_handler: true, reason })
    }

    /// It was interrupted because the worker [stops](Context::stopping): it is put back without using an
    /// attempt, and can start at once elsewhere.
    #[must_use]
    pub const fn given_back() -> JobError {
        JobError(Kind::GivenBack)
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for JobError {
    fn from(error: E) -> JobError {
        let any: &dyn Any = &error;
        if let Some(Limited { retry_after }) = any.downcast_ref() {
            let (retry_after, reason) = (*retry_after, error.to_string());
            return JobError(Kind::Limited { retry_after, whole_handler: false, reason });
        }
        if let Some(Permanent(why)) = any.downcast_ref() {
            return JobError(Kind::Permanent(why.clone()));
        }
        if let Some(refused) = any.downcast_ref::<suimon::Error>()
            && refused.is_rate_limited()
            && let Some(retry_after) = refused.retry_after()
        {
            return JobError(Kind::Limited { retry_after, whole_handler: false, reason: error.to_string() });
        }
        let mut told = error.to_string();
        let mut source = error.source();
        while let Some(why) = source {
            let why_told = why.to_string();
            if !told.contains(&why_told) {
                told = format!("{told}: {why_told}");
            }
            source = why.source();
        }
        JobError(Kind::Failed(told))
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limited, retry after {:?}", self.retry_after)
    }
}

impl StdError for Limited {}

impl fmt::Display for Permanent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Permanent {}

/// The job that a handler is at.
#[derive(Clone, Debug)]
pub struct Context(pub(crate) Arc<Running>);

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) id: JobId,
    pub(crate) handler: String,
    pub(crate) key: Option<String>,
    pub(crate) attempt: u32,
    pub(crate) cost: Cost,
    pub(crate) actual: Mutex<Option<Cost>>,
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Context {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.0.id
    }

    /// The name of its handler.
    #[must_use]
    pub fn handler(&self) -> &str {
        &self.0.handler
    }

    /// On whose behalf it runs.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// The how manieth run it is, from 1; runs that met a limit do not count.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// What it was booked with.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.0.cost
    }

    /// Tells what it really costs. When the run ends, its limits are charged what went beyond
    /// the booking, or get back what was not needed as far as that mints nothing.
    pub fn settle(&self, actual: impl Into<Cost>) {
        *self.0.actual.lock().unwrap_or_else(PoisonError::into_inner) = Some(actual.into());
    }

    /// Waits until the worker is told to stop: a long run may then save what it has and end, as
    /// [given back](JobError::given_back) if it is not done.
    pub async fn stopping(&self) {
        let mut stopping = self.0.stopping.clone();
        // The worker is gone: it will not be told any more.
        if stopping.wait_for(|stops| *stops).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

type Acting = Pin<Box<dyn Future<Output = Result<(), JobError>> + Send>>;

/// A handler of any payload.
pub(crate) trait Runs: Send + Sync + 'static {
    fn run(self: Arc<Self>, payload: String, job: Context) -> Acting;
}

/// A handler with a payload of its own type.
pub(crate) struct Typed<H>(pub(crate) H);

impl<H: Handler> Runs for Typed<H> {
    fn run(self: Arc<Self>, payload: String, job: Context) -> Acting {
        Box::pin(async move {
            let payload = serde_json::from_str(&payload).map_err(|why| unreadable(&why))?;
            self.0.handle(payload, job).await
        })
    }
}

/// A function that is given the JSON.
pub(crate) struct Raw<F>(pub(crate) F);

impl<F, R> Runs for Raw<F>
where
    F: Fn(String, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), JobError>> + Send + 'static,
{
    fn run(self: Arc<Self>, payload: String, job: Context) -> Acting {
        Box::pin((self.0)(payload, job))
    }
}

fn unreadable(why: &serde_json::Error) -> JobError {
    JobError(Kind::Permanent(format!("the payload does not parse: {why}")))
}
