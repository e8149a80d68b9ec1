//! What a queue tells the facade of the crate [`metrics`](https://docs.rs/metrics), with the
//! feature `metrics`: labelled by handler, never by key or job.
//!
//! | name | kind | labels |
//! |---|---|---|
//! | `suimon_jobs_dispatched_total` | counter | `handler` |
//! | `suimon_jobs_ended_total` | counter | `handler`, `outcome`: `done`, `retried`, `failed`, `limited`, `released`, `overtaken` |
//! | `suimon_jobs_run_seconds` | histogram | `handler` |
//! | `suimon_jobs_lost_total` | counter: runs of workers that gave no sign of life | `handler` |
//! | `suimon_jobs_step_seconds` | histogram: transactions, with trying them again | `step`: `look`, `claim`, `finish`, `beat` |
//! | `suimon_jobs_database_retries_total` | counter: deadlocks, locked files, lost connections | |
//! | `suimon_jobs_waiting`, `suimon_jobs_running`, `suimon_jobs_failed` | gauge, by [`HandlerStatus::publish`](crate::HandlerStatus::publish) | `handler` |
//! | `suimon_jobs_limited_seconds` | gauge: until the next can start, infinite if something has to happen | `handler` |

#[cfg(feature = "metrics")]
pub(crate) use on::*;

#[cfg(not(feature = "metrics"))]
pub(crate) use off::*;

#[cfg(feature = "metrics")]
mod on {
    use std::time::Duration;

    use metrics::{counter, gauge, histogram};

    use crate::HandlerStatus;

    pub(crate) fn dispatched(handler: &str) {
        counter!("suimon_jobs_dispatched_total", "handler" => handler.to_owned()).increment(1);
    }

    pub(crate) fn ended(handler: &str, outcome: &'static str, time: Option<Duration>) {
        counter!("suimon_jobs_ended_total", "handler" => handler.to_owned(), "outcome" => outcome).increment(1);
        if let Some(time) = time {
            histogram!("suimon_jobs_run_seconds", "handler" => handler.to_owned()).record(time.as_secs_f64());
        }
    }

    pub(crate) fn lost(handler: &str) {
        counter!("suimon_jobs_lost_total", "handler" => handler.to_owned()).increment(1);
    }

    pub(crate) fn step(step: &'static str, time: Duration) {
        histogram!("suimon_jobs_step_seconds", "step" => step).record(time.as_secs_f64());
    }

    pub(crate) fn retried() {
        counter!("suimon_jobs_database_retries_total").increment(1);
    }

    impl HandlerStatus {
        /// Publishes the numbers, to the recorder that the program has installed; without one nothing
        /// happens. One process is enough.
        pub fn publish(&self) {
            let handler = || self.handler.clone();
            gauge!("suimon_jobs_waiting", "handler" => handler()).set(self.pending as f64);
            gauge!("suimon_jobs_running", "handler" => handler()).set(self.running as f64);
            gauge!("suimon_jobs_failed", "handler" => handler()).set(self.failed as f64);
            let until = self.available_in;
            let until = if until == Duration::MAX { f64::INFINITY } else { until.as_secs_f64() };
            gauge!("suimon_jobs_limited_seconds", "handler" => handler()).set(until);
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod off {
    use std::time::Duration;

    pub(crate) const fn dispatched(_: &str) {}
    pub(crate) const fn ended(_: &str, _: &'static str, _: Option<Duration>) {}
    pub(crate) const fn lost(_: &str) {}
    pub(crate) const fn step(_: &'static str, _: Duration) {}
    pub(crate) const fn retried() {}
}
