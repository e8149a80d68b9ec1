use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use suimon_core::{Calendar, Carry, Policy};

use super::breaker::Breaker;
use super::denied::Denied;
use super::stats::Counters;
use super::{Remote, Shared};
use crate::keyed::Keyed;
use crate::store::{Limits, Store, default_calendar};
use crate::{Error, PolicyArg};

/// What happens to requests while the store cannot be asked.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Outage {
    /// They get an error that [`is_unavailable`](Error::is_unavailable). Nothing is let
    /// through, and nobody is told to be over a limit.
    #[default]
    Deny,
    /// A limit of this process alone, for each key: with ten processes an outage can
    /// let pass ten times as much. [`Outage::local`] makes it.
    Local(Policy),
    /// Everything passes.
    Allow,
}

impl Outage {
    /// A limit of this process for each key.
    ///
    /// # Errors
    /// When the text is wrong.
    pub fn local<P>(policy: P) -> Result<Outage, Error>
    where
        P: TryInto<PolicyArg>,
        P::Error: Into<Error>,
    {
        Ok(Outage::Local(policy.try_into().map_err(Into::into)?.into_policy()))
    }
}

/// A [`Remote`] to be made.
#[must_use = "a builder makes nothing until `build` is called"]
pub struct RemoteBuilder {
    store: Arc<dyn Store>,
    key: Arc<str>,
    policy: Policy,
    version: u64,
    carry: Carry,
    outage: Outage,
    timeout: Duration,
    deny_cache: bool,
    calendar: Arc<dyn Calendar + Send + Sync>,
}

impl RemoteBuilder {
    pub(super) fn new(store: Arc<dyn Store>, key: &str, policy: Policy) -> Result<RemoteBuilder, Error> {
        Ok(RemoteBuilder {
            store,
            key: key.into(),
            policy,
            version: 0,
            carry: Carry::Keep,
            outage: Outage::Deny,
            timeout: Duration::from_millis(500),
            deny_cache: false,
            calendar: default_calendar(),
        })
    }

    /// The version of the limits: give changed limits a higher one, so that processes
    /// with the old and the new ones can share keys while they are rolled out.
    pub fn version(mut self, version: u64) -> Self {
        self.version = version;
        self
    }

    /// What becomes of what was used under an older version.
    pub fn carry(mut self, carry: Carry) -> Self {
        self.carry = carry;
        self
    }

    /// What happens in an outage.
    pub fn outage(mut self, outage: Outage) -> Self {
        self.outage = outage;
        self
    }

    /// The longest time to wait for an answer of the store; half a second if nothing is
    /// said, a millisecond at least.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Remembers refusals of `allow` until their time is over: a key that is refused does not
    /// ask the store again before. What others give back meanwhile is noticed
    /// later, up to the time that the refusal said.
    pub fn deny_cache(mut self) -> Self {
        self.deny_cache = true;
        self
    }

    /// Another source of the rules of time zones.
    pub fn calendar(mut self, calendar: impl Calendar + Send + Sync + 'static) -> Self {
        self.calendar = Arc::new(calendar);
        self
    }

    /// The limiter. The store is not asked yet.
    ///
    /// # Errors
    /// When a policy names a time zone that the calendar does not know.
    pub fn build(self) -> Result<Remote, Error> {
        let limits = Limits::new(self.policy, &*self.calendar, self.version, self.carry)?;
        let local = match &self.outage {
            Outage::Local(policy) => Some(Keyed::new(policy.clone(), 100_000)?),
            Outage::Deny | Outage::Allow => None,
        };
        let shared = Shared {
            store: self.store,
            limits: Mutex::new(Arc::new(limits)),
            timeout: self.timeout,
            outage: self.outage,
            local,
            breaker: Breaker::default(),
            denied: self.deny_cache.then(Denied::default),
            counters: Counters::default(),
        };
        Ok(Remote { shared: Arc::new(shared), key: self.key })
    }
}

impl fmt::Debug for RemoteBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteBuilder")
            .field("key", &self.key)
            .field("policy", &self.policy.to_string())
            .field("outage", &self.outage)
            .finish_non_exhaustive()
    }
}
