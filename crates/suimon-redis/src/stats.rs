use std::sync::atomic::{AtomicU64, Ordering};

/// What a store has been through since it was made, by all of its copies.
///
/// What was decided, and how long the answers took, is counted by the limiter over it
/// (`suimon::RemoteStats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisStats {
    /// Connections that were made: more than one says that some were lost, or given up.
    pub connections: u64,
    /// Times a script had to be sent in full, since the server did not know it.
    pub scripts: u64,
    /// Commands that were sent again, since the server did not serve just then (it was loading, a slot was moving).
    pub retries: u64,
    /// Commands without an answer within the deadline.
    pub late: u64,
    /// Commands that failed otherwise: no connection, or the server said no.
    pub failed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) scripts: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) failed: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> RedisStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RedisStats {
            connections: read(&self.connections),
            scripts: read(&self.scripts),
            retries: read(&self.retries),
            late: read(&self.late),
            failed: read(&self.failed),
        }
    }
}

#[cfg(feature = "metrics")]
impl RedisStats {
    /// Publishes the numbers under the name of the store, to the recorder that the program has
    /// installed; without one nothing happens. A task of yours does so every few seconds.
    ///
    /// | name | kind |
    /// |---|---|
    /// | `suimon_redis_connections_total`, `suimon_redis_scripts_total`, `suimon_redis_retries_total`, `suimon_redis_late_total`, `suimon_redis_failed_total` | counter, labelled `store` |
    pub fn publish(&self, store: &'static str) {
        use metrics::counter;
        counter!("suimon_redis_connections_total", "store" => store).absolute(self.connections);
        counter!("suimon_redis_scripts_total", "store" => store).absolute(self.scripts);
        counter!("suimon_redis_retries_total", "store" => store).absolute(self.retries);
        counter!("suimon_redis_late_total", "store" => store).absolute(self.late);
        counter!("suimon_redis_failed_total", "store" => store).absolute(self.failed);
    }
}
