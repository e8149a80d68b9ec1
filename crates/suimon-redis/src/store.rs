use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use suimon::store::{Acting, Call, Limits, Reply, Settling, Store, default_calendar};
use suimon::{Calendar, Settlement, Timestamp};

use crate::builder::RedisStoreBuilder;
use crate::error::Error;
use crate::keys::Names;
use crate::link::{Link, Source};
use crate::plan::Plan;
use crate::scripts::Scripts;
use crate::stats::RedisStats;

/// Limits shared through Redis or Valkey; see the [crate's documentation](crate) for what
/// that promises.
///
/// Nothing is connected before the first call, and connections that are lost are made
/// again by themselves. A call must be made within a tokio runtime.
///
/// ```no_run
/// use std::sync::Arc;
/// use suimon::store::{Call, Limits, Part, Store, Verb, default_calendar};
/// use suimon::{Carry, Cost};
/// use suimon_redis::RedisStore;
///
/// # async fn example() -> Result<(), suimon::Error> {
/// let store = RedisStore::open("redis://127.0.0.1/")?.build()?;
///
/// let policy = "bucket 10/s burst 20".parse()?;
/// let limits = Limits::new(policy, &*default_calendar(), 1, Carry::Keep)?;
/// let part = Part { key: "user:42".into(), limits: Arc::new(limits), cost: Cost::ONE };
/// let call = Call { parts: vec![part], verb: Verb::Allow, id: None, at: None };
/// println!("{:?}", store.decide(&call).await?.outcome);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore(Arc<Shared>);

/// What copies of a store share.
pub(crate) struct Shared {
    pub(crate) link: Link,
    pub(crate) names: Names,
    pub(crate) calendar: Arc<dyn Calendar + Send + Sync>,
    pub(crate) scripts: Scripts,
    pub(crate) plans: Plans,
    pub(crate) time: Time,
}

impl RedisStore {
    pub(crate) fn new(
        source: Source,
        timeout: Duration,
        names: Names,
        calendar: Option<Arc<dyn Calendar + Send + Sync>>,
    ) -> RedisStore {
        RedisStore(Arc::new(Shared {
            link: Link::new(source, timeout),
            names,
            calendar: calendar.unwrap_or_else(default_calendar),
            scripts: Scripts::new(),
            plans: Plans::default(),
            time: Time::default(),
        }))
    }

    /// A store on one server, or on whatever answers at its address: `redis://host:6379/0`,
    /// `rediss://` (feature `tls`), `redis+unix:///path`.
    ///
    /// # Errors
    /// When the address cannot be read.
    pub fn open(url: &str) -> Result<RedisStoreBuilder, Error> {
        RedisStoreBuilder::single(url)
    }

    /// A store on a cluster, of which one or more nodes are named.
    ///
    /// All keys of one call must lie in one slot: give them the same part in braces.
    ///
    /// # Errors
    /// When an address cannot be read, or there is none.
    #[cfg(feature = "cluster")]
    pub fn cluster(nodes: impl IntoIterator<Item = impl AsRef<str>>) -> Result<RedisStoreBuilder, Error> {
        RedisStoreBuilder::cluster(nodes)
    }

    /// A store on the master that sentinels name, which are asked anew with every
    /// connection.
    ///
    /// # Errors
    /// When an address cannot be read, or there is none.
    #[cfg(feature = "sentinel")]
    pub fn sentinel(
        sentinels: impl IntoIterator<Item = impl AsRef<str>>,
        master: &str,
    ) -> Result<RedisStoreBuilder, Error> {
        RedisStoreBuilder::sentinel(sentinels, master)
    }

    /// What it has been through.
    #[must_use]
    pub fn stats(&self) -> RedisStats {
        self.0.link.counters().stats()
    }

    /// How many keys the server holds, those of others among them: `DBSIZE`, which costs nothing.
    ///
    /// # Errors
    /// When the server cannot be asked; for a cluster, whose nodes each have a number of their own.
    pub async fn keys_held(&self) -> Result<u64, Error> {
        let link = &self.0.link;
        if link.is_cluster() {
            return Err(Error::unsupported("each node of a cluster has a number of keys of its own"));
        }
        let deadline = tokio::time::Instant::now() + link.timeout();
        let held = link.ask(&redis::cmd("DBSIZE"), deadline).await.map_err(Error::unavailable)?;
        redis::from_redis_value(held).map_err(Error::unavailable)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }
}

impl Store for RedisStore {
    fn decide<'a>(&'a self, call: &'a Call) -> Acting<'a, Reply> {
        Box::pin(self.0.decide_call(call))
    }

    fn settle<'a>(&'a self, settling: &'a Settling) -> Acting<'a, Settlement> {
        Box::pin(self.0.settle_booking(settling))
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("link", &self.0.link).field("names", &self.0.names).finish_non_exhaustive()
    }
}

/// Limits that have been made ready; most programs have a handful.
#[derive(Debug, Default)]
pub(crate) struct Plans(Mutex<HashMap<usize, Kept>>);

/// The limits are kept so that nothing else gets their address.
type Kept = (Arc<Limits>, Arc<Plan>);

/// More are not kept: then they are made ready anew.
const MOST_PLANS: usize = 4096;

impl Plans {
    pub(crate) fn of(&self, limits: &Arc<Limits>, calendar: &dyn Calendar) -> Result<Arc<Plan>, Error> {
        let address = Arc::as_ptr(limits).addr();
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, plan)) = plans.get(&address) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(Plan::new(limits.gate().policy().clone(), limits.version(), calendar)?);
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        plans.insert(address, (limits.clone(), plan.clone()));
        Ok(plan)
    }
}

/// About what time it is at the server, which alone knows: only for the choice of the
/// windows that a script is told of.
#[derive(Debug, Default)]
pub(crate) struct Time(AtomicI64);

impl Time {
    pub(crate) fn guess(&self) -> Timestamp {
        let ahead = i128::from(self.0.load(Ordering::Relaxed));
        let now = i128::from(own_nanos()) + ahead;
        Timestamp::from_nanos(u64::try_from(now.max(0)).unwrap_or(u64::MAX))
    }

    pub(crate) fn learn(&self, now: Timestamp) {
        let ahead = i128::from(now.as_nanos()) - i128::from(own_nanos());
        self.0.store(i64::try_from(ahead).unwrap_or(0), Ordering::Relaxed);
    }
}

fn own_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
