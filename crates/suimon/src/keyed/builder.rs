use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use suimon_core::{Calendar, Gate, Policy};

use super::keys::{Keys, Setup};
use super::slots::How;
use super::{Keyed, KeyedMap};
use crate::clock::{Clock, MachineClock};
use crate::local::{Source, default_calendar};
use crate::{Error, IntoRequest};

/// What a key gets for which there is no room: every slot that it could take is in
/// use by a key that has used something.
///
/// Keys that have used nothing, or to which all has come back, take no room: they are
/// forgotten first, and nobody notices. A map looks at sixteen of them for each newcomer,
/// so that it may find no room, or not the nearest one, where there is some. A key whose
/// pause is over keeps its room until it comes again, or its part of the keys is looked
/// through for room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// All such keys share one limit more, of the same policy. So however many keys
    /// somebody makes up, together they get one more quota at most, and nobody who is
    /// limited is freed by it.
    #[default]
    Share,
    /// They are refused until there is room. A map says when one of the keys that
    /// it has looked at makes room; another may do so earlier.
    Deny,
    /// The key that is nearest to being as good as new is forgotten for it, which is
    /// counted. What that one has used is forgiven: whoever can make up keys without
    /// end can have it forgiven at will.
    Evict,
}

/// A [`Keyed`] or [`KeyedMap`] to be made.
#[must_use = "a builder makes nothing until `build` is called"]
pub struct KeyedBuilder<S = RandomState> {
    policy: Policy,
    setup: Setup,
    hasher: S,
}

impl KeyedBuilder {
    pub(super) fn new(policy: Policy) -> KeyedBuilder {
        let setup = Setup {
            clock: Source::new(MachineClock),
            calendar: default_calendar(),
            overflow: Overflow::default(),
            max_keys: 100_000,
            max_queue: None,
            in_map: false,
            how: How::default(),
        };
        KeyedBuilder { policy, setup, hasher: RandomState::new() }
    }
}

impl<S> KeyedBuilder<S> {
    /// How many keys there is room for at a time: 100,000 if nothing is said, one at
    /// least, 2^36 at most.
    ///
    /// A flat table takes 23 bytes for each, from the system when they are first
    /// used; see [`Keyed`] for how well it is filled.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.setup.max_keys = keys.clamp(1, 1 << 36);
        self
    }

    /// What a key gets for which there is no room.
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.setup.overflow = overflow;
        self
    }

    /// The most tokens that may be waited for at a time, by one key.
    ///
    /// # Errors
    /// [`Error::is_invalid_cost`] when the number is no cost.
    pub fn max_queue(mut self, tokens: impl IntoRequest) -> Result<Self, Error> {
        self.setup.max_queue = Some(tokens.into_request()?.cost());
        Ok(self)
    }

    /// Another hash of keys, for instance a faster one where nobody can choose keys
    /// in order to harm: it must mix all 64 bits well.
    ///
    /// The default is that of the standard library's maps, with keys of its own for
    /// each table that nobody can guess.
    pub fn hasher<T: BuildHasher>(self, hasher: T) -> KeyedBuilder<T> {
        KeyedBuilder { policy: self.policy, setup: self.setup, hasher }
    }

    /// Another clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.setup.clock = Source::new(clock);
        self
    }

    /// Another source of the rules of time zones.
    pub fn calendar(mut self, calendar: impl Calendar + Send + Sync + 'static) -> Self {
        self.setup.calendar = Arc::new(calendar);
        self
    }

    /// Keeps the keys of a [`Keyed`] in a map from the start, also for one pace or
    /// bucket, so that the limits can be changed to any policy.
    pub fn in_map(mut self) -> Self {
        self.setup.in_map = true;
        self
    }

    /// Asks the system for huge pages (of 2 MiB) for the flat table: on Linux, where
    /// they are to be had for the asking or always; elsewhere nothing changes.
    ///
    /// Of a table that does not fit the processor's caches a decision then takes about
    /// a tenth less time, since its pages are found sooner. In exchange memory is taken
    /// from the system in steps of 2 MiB: a table of a million keys is resident as a whole
    /// when some dozens have come, and the call that first touches such a page waits until
    /// the system has cleared it.
    pub fn huge_pages(mut self) -> Self {
        self.setup.how.huge_pages = true;
        self
    }

    /// Reads and writes the flat table in the way that works on every platform, for
    /// tests: the answers are the same.
    #[doc(hidden)]
    pub fn portable(mut self) -> Self {
        self.setup.how.portable = true;
        self
    }

    /// The limits of keys that are known by their hash.
    ///
    /// # Errors
    /// When the policy names a time zone that the calendar does not know.
    pub fn build(self) -> Result<Keyed<S>, Error> {
        let gate = Gate::with_calendar(self.policy, &*self.setup.calendar)?;
        Ok(Keyed { keys: Keys::new(gate, self.setup), hasher: self.hasher })
    }

    /// The limits of keys that are kept as they are.
    ///
    /// # Errors
    /// As for [`build`](KeyedBuilder::build).
    pub fn build_map<K: Hash + Eq + Send + 'static>(mut self) -> Result<KeyedMap<K, S>, Error> {
        self.setup.in_map = true;
        let gate = Gate::with_calendar(self.policy, &*self.setup.calendar)?;
        Ok(KeyedMap { keys: Keys::new(gate, self.setup), hasher: self.hasher })
    }
}

impl<S> fmt::Debug for KeyedBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedBuilder")
            .field("policy", &self.policy.to_string())
            .field("max_keys", &self.setup.max_keys)
            .field("overflow", &self.setup.overflow)
            .finish_non_exhaustive()
    }
}
