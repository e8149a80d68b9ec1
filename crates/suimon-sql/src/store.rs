use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use suimon::store::{Acting, Call, Reply, Settling, Store, Verb};
use suimon::{Calendar, Error, Settlement};

use crate::builder::{OpenError, SqlBuilder};
use crate::dialect::Tables;
use crate::key::{self, CALL, SETTLEMENT};
use crate::session::Pool;
use crate::sweep::{Sweeper, Sweeping};
use crate::work::{Count, Decide, Peek, Settle, keys};

/// A store in a database that processes and machines share.
///
/// Copies share the connections. A store is for a tokio runtime with time and I/O; its
/// connections outlive the runtime that made them, and are made again in another.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = suimon_testkit::servers::Folder::new("example", &[]);
/// # let url = format!("sqlite://{}/limits.db", folder.path().display());
/// use suimon_sql::SqlStore;
///
/// let store = SqlStore::open(&url).await?;
/// assert_eq!(store.clean_up().await?, 0);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct SqlStore(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) tables: Tables,
    pub(crate) timeout: Duration,
    pub(crate) calendar: Arc<dyn Calendar + Send + Sync>,
    pub(crate) counters: Counters,
    pub(crate) sweeper: Sweeper,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) conflicts: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) removed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) locks: AtomicU64,
    /// In nanoseconds.
    pub(crate) locking: AtomicU64,
}

/// What a store has been through since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqlStats {
    /// Transactions that were tried again: deadlocks, failures to serialize, two who were
    /// first with a key, a file that was locked, a lock that did not come in time.
    pub conflicts: u64,
    /// Connections that turned out to be lost, or could not be made.
    pub lost: u64,
    /// Calls that had no answer within the deadline.
    pub late: u64,
    /// Rows that were removed because they were as good as new, or expired.
    pub removed: u64,
    /// Calls that failed otherwise, for an error of the database that would come again, or one after
    /// which it is unknown what was written.
    pub failed: u64,
    /// Transactions that locked records.
    pub locks: u64,
    /// The time for which they waited for that step, in sum: a round trip each, and whatever others held the
    /// same records for.
    pub locking: Duration,
}

/// The rows that a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Keys that have used something, or are not swept away yet.
    pub records: u64,
    /// Requests and settlements with ids whose answers are kept.
    pub requests: u64,
}

impl SqlStore {
    /// Opens the store in the database of a URL, and brings its tables up to date.
    ///
    /// # Errors
    /// When the URL is wrong, its kind of database is not built in, or the tables
    /// cannot be made.
    pub async fn open(url: &str) -> Result<SqlStore, OpenError> {
        SqlStore::builder(url).open().await
    }

    /// To open a store otherwise than by the defaults.
    #[must_use]
    pub fn builder(url: &str) -> SqlBuilder {
        SqlBuilder::new(url)
    }

    pub(crate) fn new(shared: Shared) -> SqlStore {
        SqlStore(Arc::new(shared))
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    /// What it has been through.
    #[must_use]
    pub fn stats(&self) -> SqlStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { conflicts, lost, late, removed, failed, locks, locking } = &self.0.counters;
        SqlStats {
            conflicts: read(conflicts),
            lost: read(lost),
            late: read(late),
            removed: read(removed),
            failed: read(failed),
            locks: read(locks),
            locking: Duration::from_nanos(read(locking)),
        }
    }

    /// Counts the rows that it holds. The database looks at all of them: for a page that is asked for now and
    /// then.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn held(&self) -> Result<Held, Error> {
        self.0.in_time(Count).await
    }

    /// Removes all records of keys that are as good as new, and of requests that have
    /// expired, a minute after they are; and says how many.
    ///
    /// A store does so by itself, a few in passing whenever some have been added: this
    /// is for one that nobody adds to any more.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn clean_up(&self) -> Result<u64, Error> {
        self.0.clean_up().await
    }

    /// Closes the connections that are not in use, in good order, for the end of a program.
    /// The store can still be used.
    pub async fn close(&self) {
        self.0.pool.close().await;
    }

    async fn decide_call(&self, call: &Call) -> Result<Reply, Error> {
        let shared = &*self.0;
        let keys = keys(call.parts.iter().map(|part| &part.key))?;
        if call.verb == Verb::Peek && call.id.is_none() {
            return shared.in_time(Peek { call, keys: &keys }).await;
        }
        let id = call.id.as_ref().zip(call.parts.first());
        let id = id.map(|(id, part)| (key::request(CALL, &part.key, id.as_str()), id.lifetime()));
        let reply = shared.in_time(Decide { call, keys: &keys, id: id.as_ref() }).await?;
        if let Some(sweeping) = Sweeping::if_due(self) {
            tokio::spawn(sweeping.run());
        }
        Ok(reply)
    }
}

impl Store for SqlStore {
    fn decide<'a>(&'a self, call: &'a Call) -> Acting<'a, Reply> {
        Box::pin(self.decide_call(call))
    }

    fn settle<'a>(&'a self, settling: &'a Settling) -> Acting<'a, Settlement> {
        Box::pin(async move {
            let keys = keys(settling.ticket.parts.iter().map(|(key, _)| key))?;
            let id = settling.id.as_ref().zip(settling.ticket.parts.first());
            let id = id.map(|(id, (key, _))| (key::request(SETTLEMENT, key, id.as_str()), id.lifetime()));
            let settlement = self.0.in_time(Settle { settling, keys: &keys, id: id.as_ref() }).await?;
            if let Some(sweeping) = Sweeping::if_due(self) {
                tokio::spawn(sweeping.run());
            }
            Ok(settlement)
        })
    }
}

impl fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { tables, timeout, .. } = &*self.0;
        let mut debug = f.debug_struct("SqlStore");
        debug.field("database", &tables.dialect).field("prefix", &tables.prefix).field("timeout", timeout);
        debug.finish_non_exhaustive()
    }
}

#[cfg(feature = "metrics")]
impl SqlStats {
    /// Publishes the numbers under the name of the store, to the recorder that the program has
    /// installed; without one nothing happens. A task of yours does so every few seconds.
    ///
    /// | name | kind |
    /// |---|---|
    /// | `suimon_sql_conflicts_total`, `suimon_sql_lost_total`, `suimon_sql_late_total`, `suimon_sql_failed_total`, `suimon_sql_removed_rows_total`, `suimon_sql_locks_total` | counter, labelled `store` |
    /// | `suimon_sql_locking_seconds` | gauge, labelled `store`: in sum |
    pub fn publish(&self, store: &'static str) {
        use metrics::{counter, gauge};
        counter!("suimon_sql_conflicts_total", "store" => store).absolute(self.conflicts);
        counter!("suimon_sql_lost_total", "store" => store).absolute(self.lost);
        counter!("suimon_sql_late_total", "store" => store).absolute(self.late);
        counter!("suimon_sql_failed_total", "store" => store).absolute(self.failed);
        counter!("suimon_sql_removed_rows_total", "store" => store).absolute(self.removed);
        counter!("suimon_sql_locks_total", "store" => store).absolute(self.locks);
        gauge!("suimon_sql_locking_seconds", "store" => store).set(self.locking.as_secs_f64());
    }
}

#[cfg(feature = "metrics")]
impl Held {
    /// Publishes the numbers as the gauges `suimon_sql_records` and `suimon_sql_requests`, labelled `store`.
    pub fn publish(&self, store: &'static str) {
        use metrics::gauge;
        gauge!("suimon_sql_records", "store" => store).set(self.records as f64);
        gauge!("suimon_sql_requests", "store" => store).set(self.requests as f64);
    }
}
