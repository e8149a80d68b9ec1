//! Background jobs that call limited APIs: a queue in PostgreSQL, MariaDB or SQLite, with a
//! limit for each handler (and each customer) that holds over all workers.
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = suimon_testkit::servers::Folder::new("example", &[]);
//! # let url = format!("sqlite://{}/jobs.db", folder.path().display());
//! use suimon_jobs::{Config, Context, Handler, JobError, Queue, Worker};
//!
//! struct CallOpenAi;
//!
//! impl Handler for CallOpenAi {
//!     const NAME: &'static str = "call_openai";
//!     type Payload = String;
//!
//!     fn config(&self) -> Config {
//!         // At most 10 runs in any minute, of all workers together.
//!         Config::new().rate_limit(10, 60)
//!     }
//!
//!     async fn handle(&self, question: String, _job: Context) -> Result<(), JobError> {
//!         println!("asking: {question}");
//!         Ok(())
//!     }
//! }
//!
//! // Any number of processes open the same queue.
//! let queue = Queue::open(&url).await?;
//! queue.dispatch(CallOpenAi::NAME, "Why is the sky blue?").await?;
//! queue.dispatch("send_mail", "hello").key("customer:42").key_limit("bucket 5/min").await?;
//!
//! let worker = Worker::builder(&queue).handler(CallOpenAi).build().await?;
//! worker.drain().await?; // or `run_until(a_signal)`
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```
//!
//! # Limits
//!
//! A limited job is not claimed. The transaction that claims jobs locks the limits that they
//! have, decides by the core of suimon at a time that was read after the locks, and books them; so over all workers
//! never more starts than the limit lets, nothing is put back, and no attempt is used up. A
//! handler or key that is at its limit is not even looked at until it opens, so that it costs
//! nothing and holds up nobody, however many jobs wait for it.
//!
//! | what | how |
//! |---|---|
//! | at most n in any period, exactly | `window 10/60s`, or `rate_limit(10, 60)` |
//! | evenly spaced | `pace 60/min` |
//! | with a burst | `bucket 10/s burst 20` |
//! | in hours and days of a calendar | `fixed 1000/day in Europe/Berlin` |
//! | several at once, all or none | `window 10/s & fixed 100000/day` |
//! | at most n at a time | [`Config::concurrency`] |
//! | for each customer beside that of the handler | a [`key`](Job::key) and a [`key_limit`](Config::key_limit) |
//!
//! A limit is given in the handler's [`Config`], or by a job when it is [dispatched](Job::limit), or
//! [set](Queue::set_limit) while all runs: the later of these goes before the earlier, for all workers
//! and from the next claim on. A change keeps what was used. One that is given by a job is that of
//! its handler from then on, not of that job alone.
//!
//! What is counted is [`Count`]: runs that started, or runs that completed.
//!
//! Within a handler the first job (by priority, then by the time from which it may run) that has to wait for the handler's limit
//! makes those behind it wait too, so that a costly one does not starve behind cheap ones. Keys take turns.
//!
//! # What is promised
//!
//! - A job runs **at least once**. It runs twice only if its worker was lost, or cut off from the
//!   database for longer than its [lease](WorkerBuilder::lease), while it ran; the late one of two
//!   changes nothing in the queue any more. Jobs of a lost worker are taken up by those that serve their handler.
//! - The limit holds over all of that: a start is booked before it happens. A place that is
//!   held by a run of a lost worker ([`Count::Completed`]) comes back once, with its lease.
//! - An attempt is a run. Waiting for a limit, meeting one ([`Limited`]), and being given back by a worker
//!   that stops are none.
//! - The time is that of the database server; SQLite has that of the machine. Those of workers do not matter.
//!   One that steps back mints nothing; one that steps forward refills, as time does, and ends leases.
//! - A database that is away is waited for: what ended meanwhile is written down when it is back.
//!   After a power cut SQLite may have forgotten what was committed last (its `synchronous` is
//!   `NORMAL`), so that it runs again and its limits with it; a server forgets nothing with its
//!   usual settings.
//!
//! # Jobs by SQL
//!
//! Any program that can write a row can dispatch a job:
//!
//! ```sql
//! INSERT INTO suimon_jobs (handler, payload, rate_limit) VALUES ('send_mail', '{"to": "ann"}', 'window 10/60s');
//! ```
//!
//! | column | |
//! |---|---|
//! | `handler` | up to 100 bytes |
//! | `payload` | JSON; `NULL` is `null` |
//! | `job_key` | on whose behalf, up to 190 bytes; empty: nobody's |
//! | `priority` | 0 to 9, higher ones first; 0 |
//! | `cost` | a decimal number as text; `1` |
//! | `rate_limit`, `key_limit` | limits as text, as given at dispatch; `NULL` |
//! | `count_on` | what those count, `started` or `completed` |
//! | `max_attempts` | `NULL`: what the handler says |
//! | `unique_id` | no second one while one of the same handler waits or runs: the database refuses it |
//! | `run_at` | not before, in microseconds since 1970 in UTC; 0: now |
//!
//! Such a row is `new`; a worker checks it within its next look and makes it `pending`, or `failed` with the reason in
//! `error`. The other columns are the queue's, to be read by all: `state` (`new`, `pending`, `running`, `done`, `failed`), `attempts`,
//! `deferrals` (runs that met a limit), `error`, `created_at`, `started_at`, `finished_at`, `lease_until`. On PostgreSQL
//! `NOTIFY suimon_jobs` wakes the workers at once; otherwise they look every few seconds there, and many times a
//! second on the others.
//!
//! `suimon_job_limits` has a row for each handler, and one for each key that has something to remember; `suimon_job_lanes` one for
//! each handler, key and priority in which jobs wait. They are the queue's own.
//!
//! # Features
//!
//! `sqlite` (on by default), `postgres`, `mysql` (MariaDB 10.6 or newer), `tls`, `metrics`. Each run is in a `tracing` span
//! `job`.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(feature = "postgres", feature = "mysql", feature = "sqlite")),
    allow(dead_code, unused_imports, unused_variables, reason = "not every kind of database needs everything")
)]

mod claim;
mod config;
mod db;
mod dispatch;
mod error;
mod finish;
mod handler;
mod intake;
mod job;
mod lane;
mod limits;
mod look;
pub mod metrics;
mod queue;
mod recount;
mod row;
mod rules;
mod schema;
mod worker;

pub use config::{Backoff, Config, Count};
pub use dispatch::Dispatch;
pub use error::Error;
pub use handler::{Context, Handler, JobError, Limited, Permanent};
pub use job::{Job, JobId, JobInfo, JobState};
pub use queue::{HandlerStatus, Pause, Queue, QueueBuilder};
pub use worker::{Ran, Worker, WorkerBuilder};

/// The examples of the project's README.
#[cfg(all(doctest, feature = "sqlite", feature = "postgres"))]
#[doc = include_str!("../../../README.md")]
mod readme {}
