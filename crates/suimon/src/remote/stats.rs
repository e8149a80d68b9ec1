use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use suimon_core::Decision;

use crate::Error;

/// What a [`Remote`](super::Remote) has asked and answered, by all of its copies and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteStats {
    allowed: u64,
    denied: u64,
    replayed: u64,
    cached: u64,
    degraded: u64,
    failures: u64,
    not_asked: u64,
    asked: u64,
    time: Duration,
    is_out: bool,
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident: $number:ty,)*) => {
        impl RemoteStats {
            $($(#[$doc])* #[must_use] pub const fn $name(&self) -> $number {
                self.$name
            })*
        }
    };
}

numbers! {
    /// Requests that the store allowed, bookings among them.
    allowed: u64,
    /// Requests that the store refused.
    denied: u64,
    /// Answers that had been recorded under the id of the request; counted above, too.
    replayed: u64,
    /// Refusals that were known without asking.
    cached: u64,
    /// Requests that were decided by the policy for outages.
    degraded: u64,
    /// Times the store gave no answer: errors and deadlines.
    failures: u64,
    /// Times it was not asked, since it had just failed.
    not_asked: u64,
    /// Times it was asked.
    asked: u64,
    /// The time for which its answers were waited for, in sum.
    time: Duration,
    /// Is it taken to be out at this moment?
    is_out: bool,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    allowed: AtomicU64,
    denied: AtomicU64,
    replayed: AtomicU64,
    cached: AtomicU64,
    degraded: AtomicU64,
    failures: AtomicU64,
    not_asked: AtomicU64,
    asked: AtomicU64,
    nanos: AtomicU64,
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl Counters {
    pub(super) fn decided(&self, decision: &Decision, replayed: bool) {
        add(if decision.is_allowed() { &self.allowed } else { &self.denied }, 1);
        add(&self.replayed, u64::from(replayed));
    }

    pub(super) fn answered_from_cache(&self) {
        add(&self.cached, 1);
    }

    pub(super) fn degraded(&self) {
        add(&self.degraded, 1);
    }

    pub(super) fn refused_by_breaker(&self) {
        add(&self.not_asked, 1);
    }

    /// A conversation with the store is over.
    pub(super) fn talked<T>(&self, time: Duration, answer: &Result<T, Error>) {
        add(&self.asked, 1);
        add(&self.nanos, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let failed = matches!(answer, Err(error) if error.is_unavailable());
        add(&self.failures, u64::from(failed));
        #[cfg(feature = "metrics")]
        metrics::histogram!("suimon_store_seconds", "outcome" => if failed { "failed" } else { "answered" })
            .record(time.as_secs_f64());
        #[cfg(feature = "tracing")]
        if let Err(error) = answer
            && failed
        {
            tracing::debug!(%error, ?time, "the store of the limiter gave no answer");
        }
    }

    /// The store has failed, or answers again.
    #[cfg_attr(not(feature = "tracing"), expect(clippy::unused_self, reason = "says it to the log"))]
    pub(super) fn switched(&self, works: bool) {
        #[cfg(feature = "tracing")]
        if works {
            tracing::info!("the store of the limiter answers again");
        } else {
            tracing::warn!("the store of the limiter is unavailable; the policy for outages decides");
        }
        let _ = works;
    }

    pub(super) fn read(&self, is_out: bool) -> RemoteStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RemoteStats {
            allowed: of(&self.allowed),
            denied: of(&self.denied),
            replayed: of(&self.replayed),
            cached: of(&self.cached),
            degraded: of(&self.degraded),
            failures: of(&self.failures),
            not_asked: of(&self.not_asked),
            asked: of(&self.asked),
            time: Duration::from_nanos(of(&self.nanos)),
            is_out,
        }
    }
}
