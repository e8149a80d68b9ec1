//! The four ways of keeping limits per key, behind the same verbs.

use std::future::Future;
use std::hash::{BuildHasher, Hash, Hasher};
use std::pin::Pin;
use std::time::Duration;

use suimon::clock::ManualClock;
use suimon::{Carry, Cost, Decision, Error, Keyed, KeyedMap, KeyedStats, Overflow, Request, Reservation, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Flat,
    Portable,
    InMap,
    Map,
}

/// A key whose hash is chosen by the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id(pub(crate) u64);

/// A hash that mixes well, but for the keys that crowd: every third key has the
/// first nest of a small table for its first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen(pub(crate) u64);

impl BuildHasher for Chosen {
    type Hasher = ChosenHasher;

    fn build_hasher(&self) -> ChosenHasher {
        ChosenHasher(self.0)
    }
}

pub(crate) struct ChosenHasher(u64);

impl Hasher for ChosenHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, key: u64) {
        let hash = mixed(self.0.wrapping_add(key));
        self.0 = if key.is_multiple_of(3) { hash >> 2 } else { hash };
    }
}

/// The finalizer of splitmix64.
pub(crate) fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

pub(crate) enum Table {
    Hashed(Keyed<Chosen>),
    Exact(KeyedMap<Id, Chosen>),
}

pub(crate) type Waiting = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

macro_rules! on {
    ($self:ident, $table:ident => $verb:expr) => {
        match $self {
            Table::Hashed($table) => $verb,
            Table::Exact($table) => $verb,
        }
    };
}

impl Table {
    pub(crate) fn new(
        kind: Kind,
        policy: &str,
        max_keys: usize,
        overflow: Overflow,
        seed: u64,
        clock: &ManualClock,
    ) -> Table {
        let builder = Keyed::builder(policy).unwrap().clock(clock.clone());
        let builder = builder.max_keys(max_keys).overflow(overflow).hasher(Chosen(seed));
        match kind {
            Kind::Flat => Table::Hashed(builder.build().unwrap()),
            Kind::Portable => Table::Hashed(builder.portable().build().unwrap()),
            Kind::InMap => Table::Hashed(builder.in_map().build().unwrap()),
            Kind::Map => Table::Exact(builder.build_map().unwrap()),
        }
    }

    pub(crate) fn allow(&self, at: Option<Timestamp>, key: Id, cost: Cost) -> Result<Decision, Error> {
        on!(self, table => match at {
            Some(at) => table.allow_at(at, &key, cost),
            None => table.allow(&key, cost),
        })
    }

    pub(crate) fn allow_many(&self, calls: &[(&Id, Cost)]) -> Vec<Result<Decision, Error>> {
        let mut answers = Vec::new();
        on!(self, table => table.allow_many(calls, &mut answers));
        answers
    }

    pub(crate) fn peek(&self, at: Option<Timestamp>, key: Id, cost: Cost) -> Result<Decision, Error> {
        on!(self, table => match at {
            Some(at) => table.peek_at(at, &key, cost),
            None => table.peek(&key, cost),
        })
    }

    pub(crate) fn consume_async(&self, key: Id, request: Request) -> Waiting {
        on!(self, table => Box::pin(table.consume_async(&key, request)))
    }

    pub(crate) fn reserve(&self, key: Id, request: Request) -> Result<Reservation, Error> {
        on!(self, table => table.reserve(&key, request))
    }

    pub(crate) fn reset(&self, key: Id) {
        on!(self, table => table.reset(&key)).unwrap();
    }

    pub(crate) fn set_policy(&self, key: Id, policy: &str, carry: Carry) {
        on!(self, table => table.set_policy(&key, policy, carry)).unwrap();
    }

    pub(crate) fn clear_policy(&self, key: Id, carry: Carry) {
        on!(self, table => table.clear_policy(&key, carry)).unwrap();
    }

    pub(crate) fn pause_for(&self, key: Id, pause: Duration) {
        on!(self, table => table.pause_for(&key, pause)).unwrap();
    }

    pub(crate) fn change(&self, policy: &str, carry: Carry) -> Result<(), Error> {
        on!(self, table => table.change(policy, carry))
    }

    pub(crate) fn stats(&self) -> KeyedStats {
        on!(self, table => table.stats())
    }
}
