//! Background jobs with a limit for each handler, over all workers.

#![forbid(unsafe_code)]

mod claim;
mod config;
mod db;
mod dispatch;
mod error;
mod finish;
mod handler;
mod intake;
mod job;
mod limits;
#[cfg(feature = "metrics")]
mod metrics;
mod queue;
mod row;
mod schema;
mod worker;

pub use config::{Backoff, Config, Count};
pub use dispatch::Dispatch;
pub use error::Error;
pub use handler::{Context, Handler, JobError, Limited, Permanent};
pub use job::{Job, JobId, JobInfo, JobState};
pub use queue::{HandlerStatus, Pause, Queue, QueueBuilder};
pub use worker::{Ran, Worker, WorkerBuilder};
