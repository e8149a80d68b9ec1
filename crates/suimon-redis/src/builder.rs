use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use suimon::Calendar;

use crate::error::Error;
use crate::keys::Names;
use crate::link::Source;
use crate::store::RedisStore;

/// How a [`RedisStore`] is made.
pub struct RedisStoreBuilder {
    address: Address,
    prefix: String,
    timeout: Duration,
    calendar: Option<Arc<dyn Calendar + Send + Sync>>,
}

enum Address {
    Single(Box<redis::Client>),
    #[cfg(feature = "cluster")]
    Cluster(Vec<redis::ConnectionInfo>),
    #[cfg(feature = "sentinel")]
    Sentinel(Vec<redis::ConnectionInfo>, String),
}

impl RedisStoreBuilder {
    pub(crate) fn single(url: &str) -> Result<RedisStoreBuilder, Error> {
        Ok(RedisStoreBuilder::of(Address::Single(Box::new(redis::Client::open(url).map_err(Error::unsupported)?))))
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn cluster(nodes: impl IntoIterator<Item = impl AsRef<str>>) -> Result<RedisStoreBuilder, Error> {
        Ok(RedisStoreBuilder::of(Address::Cluster(addresses(nodes)?)))
    }

    #[cfg(feature = "sentinel")]
    pub(crate) fn sentinel(
        sentinels: impl IntoIterator<Item = impl AsRef<str>>,
        master: &str,
    ) -> Result<RedisStoreBuilder, Error> {
        Ok(RedisStoreBuilder::of(Address::Sentinel(addresses(sentinels)?, master.to_owned())))
    }

    fn of(address: Address) -> RedisStoreBuilder {
        RedisStoreBuilder { address, prefix: "suimon".to_owned(), timeout: Duration::from_millis(500), calendar: None }
    }

    /// What the names of all keys begin with (`suimon`): letters, digits, `_`, `.` and
    /// `/`. Stores with another prefix share nothing.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> RedisStoreBuilder {
        self.prefix = prefix.into();
        self
    }

    /// The deadline of a call, connecting included (500 ms), at most an hour.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> RedisStoreBuilder {
        self.timeout = timeout.min(Duration::from_secs(3600));
        self
    }

    /// Whose rules of time zones hold; otherwise those of
    /// [`default_calendar`](suimon::store::default_calendar).
    #[must_use]
    pub fn calendar(mut self, calendar: Arc<dyn Calendar + Send + Sync>) -> RedisStoreBuilder {
        self.calendar = Some(calendar);
        self
    }

    /// The store. Nothing is connected yet.
    ///
    /// # Errors
    /// When the prefix or the addresses cannot be used.
    pub fn build(self) -> Result<RedisStore, Error> {
        let names = Names::new(&self.prefix)?;
        let source = self.address.source(self.timeout)?;
        Ok(RedisStore::new(source, self.timeout, names, self.calendar))
    }

    /// The store, connected and [checked](RedisStore::check).
    ///
    /// # Errors
    /// As for [`build`](RedisStoreBuilder::build) and [`RedisStore::check`].
    pub async fn connect(self) -> Result<RedisStore, Error> {
        let store = self.build()?;
        store.check().await?;
        Ok(store)
    }
}

impl Address {
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "only a cluster is told here"))]
    fn source(self, timeout: Duration) -> Result<Source, Error> {
        Ok(match self {
            Address::Single(client) => Source::Single(client),
            #[cfg(feature = "cluster")]
            Address::Cluster(nodes) => {
                // No retries: a call whose answer was lost may have been charged.
                let client = redis::cluster::ClusterClientBuilder::new(nodes)
                    .retries(0)
                    // Calls have deadlines of their own; these come after all of them.
                    .connection_timeout(2 * timeout)
                    .response_timeout(2 * timeout)
                    .build()
                    .map_err(Error::unsupported)?;
                Source::Cluster(Box::new(client))
            }
            #[cfg(feature = "sentinel")]
            Address::Sentinel(sentinels, master) => {
                let kind = redis::sentinel::SentinelServerType::Master;
                let client = redis::sentinel::SentinelClient::build(sentinels, master, None, kind)
                    .map_err(Error::unsupported)?;
                Source::Sentinel(Box::new(tokio::sync::Mutex::new(client)))
            }
        })
    }
}

#[cfg(any(feature = "cluster", feature = "sentinel"))]
fn addresses(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Vec<redis::ConnectionInfo>, Error> {
    use redis::IntoConnectionInfo;

    let infos: Result<Vec<_>, _> = urls.into_iter().map(|url| url.as_ref().into_connection_info()).collect();
    match infos {
        Ok(infos) if infos.is_empty() => Err(Error::unsupported("no address was given: name one node or more")),
        other => other.map_err(Error::unsupported),
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
