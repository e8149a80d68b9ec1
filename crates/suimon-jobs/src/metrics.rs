//! What a queue counts through the `metrics` facade, labelled by handler, never by key.
//!
//! | name | labels |
//! |---|---|
//! | `suimon_jobs_dispatched_total` | `handler` |
//! | `suimon_jobs_started_total` | `handler` |
//! | `suimon_jobs_ended_total` | `handler`, `outcome`: `done`, `retried`, `failed` |

use metrics::counter;

use crate::job::JobState;

pub(crate) fn dispatched(handler: &str) {
    counter!("suimon_jobs_dispatched_total", "handler" => handler.to_owned()).increment(1);
}

pub(crate) fn started(handler: &str) {
    counter!("suimon_jobs_started_total", "handler" => handler.to_owned()).increment(1);
}

pub(crate) fn ended(handler: &str, state: JobState, _has_error: bool) {
    let outcome = match state {
        JobState::Done => "done",
        JobState::Failed => "failed",
        _ => "retried",
    };
    counter!("suimon_jobs_ended_total", "handler" => handler.to_owned(), "outcome" => outcome).increment(1);
}
