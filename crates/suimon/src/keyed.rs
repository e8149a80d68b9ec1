//! Limits per key: millions of keys in bounded memory.

mod builder;
mod flat;
mod held;
mod keys;
mod limits;
mod shard;
#[allow(unsafe_code)]
mod slots;
mod stats;

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::Duration;

use suimon_core::{Carry, Decision, Status, Timestamp};

pub use builder::{KeyedBuilder, Overflow};
pub use held::{KeyLimiter, KeyedConsume};
pub use stats::KeyedStats;

use crate::local::block_on;
use crate::sync::Arc;
use crate::{Error, IntoRequest, PolicyArg, Reservation};
use held::Stored;
use keys::{Keys, When};
use shard::Find;

/// A limit for each key: a user, an address, an API token. Inbound limiting.
///
/// Keys are anything that hashes, borrowed: `&str`, `&u64`, `&(tenant, path)`. They are
/// neither kept nor cloned: a key is known by its hash, keyed with a secret of the
/// table's own, so that nobody can aim at the slot of another. Copies share the limits.
///
/// ```
/// use suimon::Keyed;
///
/// let limits = Keyed::new("bucket 10/s burst 20", 1_000_000)?;
///
/// let decision = limits.allow("user:42", 1)?;
/// assert!(decision.is_allowed());
/// assert_eq!(decision.status().remaining(), 19);
/// assert_eq!(limits.status("user:43")?.remaining(), 20);
/// # Ok::<(), suimon::Error>(())
/// ```
///
/// # Memory
///
/// One pace or bucket stands in a flat table of fixed size: 16 bytes a slot, 23 bytes for
/// each of the `max_keys`, whatever the keys are. Nothing grows, nothing is swept,
/// and memory is taken from the system as slots are first used. A key whose tokens have
/// all come back is the same as a new one: its slot is free for others.
///
/// A key can stand in sixteen slots. When all of them are in use, [`Overflow`] says what
/// a newcomer gets. While `max_keys` keys come that stay in use, that happens to about six
/// of a million of them. Where keys come and go, it happens to 2 in a thousand newcomers
/// with `max_keys` in use, to 60 in a million with nine tenths of that, and to none with
/// two thirds.
///
/// Other policies (windows, several limits at once) stand in a map under locks, at
/// most `max_keys` entries of some hundred bytes.
///
/// # Two keys that meet
///
/// Two keys share a limit if their hashes agree so far that the table cannot tell
/// them apart. With `n` keys in use, a new key meets one of them with a probability of
/// `n / 2^64 + 17 / 2^56`: at a million keys once in three trillion. Where that is too
/// often, or the policy is a window anyway, take [`KeyedMap`], which keeps the keys.
///
/// # Verbs
///
/// [`allow`](Keyed::allow) answers at once and is what most need. A key somebody
/// waits for, has reserved of, or that has limits of its own gets a limiter of its
/// own for the time, like a [`LocalLimiter`](crate::LocalLimiter) with all its verbs
/// and its order, and gives it up afterwards.
pub struct Keyed<S = RandomState> {
    keys: Arc<Keys<()>>,
    hasher: S,
}

/// A limit for each key, like [`Keyed`], where keys are kept as they are.
///
/// Two keys never meet, whatever their hashes. All policies; a lock for each part of the
/// keys; at most `max_keys` entries of some hundred bytes and the key, which is cloned when
/// it is first seen. Keys as long as an attacker likes are kept as they are: hash
/// them first, or take [`Keyed`].
///
/// ```
/// use suimon::KeyedMap;
///
/// let limits: KeyedMap<String> = KeyedMap::new("window 10/60s and fixed 1000/day", 10_000)?;
/// assert!(limits.allow("user:42", 1)?.is_allowed());
/// # Ok::<(), suimon::Error>(())
/// ```
pub struct KeyedMap<K: Send + 'static, S = RandomState> {
    keys: Arc<Keys<K>>,
    hasher: S,
}

/// A key that is compared.
struct ByKey<'a, Q: ?Sized>(&'a Q);

impl<K: Borrow<Q>, Q: Eq + ToOwned<Owned = K> + ?Sized> Find<K> for ByKey<'_, Q> {
    fn is(&self, id: &K) -> bool {
        id.borrow() == self.0
    }

    fn own(&self) -> K {
        self.0.to_owned()
    }
}

impl Keyed {
    /// Limits of up to `max_keys` keys at a time, on the machine's clock.
    ///
    /// Takes a text, a [`Policy`](suimon_core::Policy) or a [`Limit`](suimon_core::Limit).
    ///
    /// # Errors
    /// When the text is wrong, a quantity out of range, or a time zone unknown.
    pub fn new<P>(policy: P, max_keys: usize) -> Result<Keyed, Error>
    where
        P: TryInto<PolicyArg>,
        P::Error: Into<Error>,
    {
        Keyed::builder(policy)?.max_keys(max_keys).build()
    }

    /// Limits with a clock, a hash, a policy for overflow of your own; also of a
    /// [`KeyedMap`].
    ///
    /// # Errors
    /// When the text of the policy is wrong.
    pub fn builder<P>(policy: P) -> Result<KeyedBuilder, Error>
    where
        P: TryInto<PolicyArg>,
        P::Error: Into<Error>,
    {
        Ok(KeyedBuilder::new(policy.try_into().map_err(Into::into)?.into_policy()))
    }
}

impl<K: Hash + Eq + Send + 'static> KeyedMap<K> {
    /// Limits of up to `max_keys` keys at a time, on the machine's clock; for more
    /// choices see [`Keyed::builder`].
    ///
    /// # Errors
    /// When the text is wrong, a quantity out of range, or a time zone unknown.
    pub fn new<P>(policy: P, max_keys: usize) -> Result<KeyedMap<K>, Error>
    where
        P: TryInto<PolicyArg>,
        P::Error: Into<Error>,
    {
        Keyed::builder(policy)?.max_keys(max_keys).build_map()
    }
}

/// The verbs, which differ in how a key is borrowed and kept.
macro_rules! verbs {
    ($Key:ident: [$($bounds:tt)*], $find:expr, $keep:expr, [$($keep_bounds:tt)*], $Id:ty) => {
        /// May `cost` pass for this key now? Never waits.
        ///
        /// # Errors
        /// [`Error::is_cost_too_large`] and [`Error::is_invalid_cost`] for arguments,
        /// [`Error::is_closed`] after `close`.
        #[inline(always)]
        pub fn allow<$Key>(&self, key: &$Key, cost: impl IntoRequest) -> Result<Decision, Error>
        where
            $($bounds)*,
        {
            let cost = cost.into_request()?.cost();
            self.keys.allow(self.hasher.hash_one(key), &$find(key), When::Now, cost)
        }

        /// `allow` at a time that the caller brings.
        ///
        /// Of several such times the latest counts, for all keys and also where the clock
        /// is asked: an older one after it mints nothing. So bring them from the origin
        /// of the limiter's clock.
        ///
        /// # Errors
        /// As for `allow`.
        pub fn allow_at<$Key>(&self, now: Timestamp, key: &$Key, cost: impl IntoRequest) -> Result<Decision, Error>
        where
            $($bounds)*,
        {
            let cost = cost.into_request()?.cost();
            self.keys.allow(self.hasher.hash_one(key), &$find(key), When::At(now), cost)
        }

        /// Many decisions at once, in the order of the calls; the answers are added to
        /// `answers`. The memory of several keys is asked for before the first of them
        /// is decided about, which saves much of the time where there are so many keys
        /// that their memory is not at hand.
        ///
        /// Sixteen calls at a time are dated by one reading of the clock.
        pub fn allow_many<$Key, C>(&self, calls: &[(&$Key, C)], answers: &mut Vec<Result<Decision, Error>>)
        where
            $($bounds)*,
            C: IntoRequest + Copy,
        {
            answers.reserve(calls.len());
            for calls in calls.chunks(BATCH) {
                let mut hashes = [0; BATCH];
                for (hash, (key, _)) in hashes.iter_mut().zip(calls) {
                    *hash = self.hasher.hash_one(*key);
                    self.keys.prefetch(*hash);
                }
                let time = self.keys.batch_time();
                for (hash, (key, cost)) in hashes.into_iter().zip(calls) {
                    let decide = |cost: crate::Request| self.keys.allow_dated(hash, &$find(*key), time, cost.cost());
                    answers.push(cost.into_request().and_then(decide));
                }
            }
        }

        /// What `allow` would answer, also where there is no room for the key; nothing
        /// changes. (Room that pauses take which are over is seen by `allow` alone.)
        ///
        /// # Errors
        /// As for `allow`.
        pub fn peek<$Key>(&self, key: &$Key, cost: impl IntoRequest) -> Result<Decision, Error>
        where
            $($bounds)*,
        {
            self.keys.peek(self.hasher.hash_one(key), &$find(key), When::Now, cost.into_request()?.cost())
        }

        /// `peek` at a time that the caller brings.
        ///
        /// # Errors
        /// As for `allow`.
        pub fn peek_at<$Key>(&self, now: Timestamp, key: &$Key, cost: impl IntoRequest) -> Result<Decision, Error>
        where
            $($bounds)*,
        {
            self.keys.peek(self.hasher.hash_one(key), &$find(key), When::At(now), cost.into_request()?.cost())
        }

        /// How the limit of this key stands; of several, the tightest.
        ///
        /// # Errors
        /// [`Error::is_closed`] after `close`.
        pub fn status<$Key>(&self, key: &$Key) -> Result<Status, Error>
        where
            $($bounds)*,
        {
            self.peek(key, 0).map(|decision| *decision.status())
        }

        /// Waits in the turn of this key, then takes `cost`; blocks the thread.
        ///
        /// # Errors
        /// As for `allow`, and [`Error::is_rate_limited`] at once where the request
        /// would have to wait longer than it may, or there is no room for the key;
        /// [`Error::is_queue_full`] where too much is waiting. Nothing is taken.
        pub fn consume<$Key>(&self, key: &$Key, request: impl IntoRequest) -> Result<(), Error>
        where
            $($bounds)*,
            $($keep_bounds)*
        {
            block_on(self.consume_async(key, request))
        }

        /// Waits in the turn of this key, then takes `cost`; the future can be polled
        /// by any executor. Dropped before it is ready it leaves no trace; only what was
        /// granted before a change of the limits, and not polled since, stays used.
        ///
        /// # Errors
        /// As for `consume`.
        pub fn consume_async<$Key>(&self, key: &$Key, request: impl IntoRequest) -> KeyedConsume<$Id>
        where
            $($bounds)*,
            $($keep_bounds)*
        {
            self.limiter(key).consume_owned(request.into_request())
        }

        /// Takes a place in the queue of this key for a cost that is known only later.
        ///
        /// # Errors
        /// As for `consume`.
        pub fn reserve<$Key>(&self, key: &$Key, request: impl IntoRequest) -> Result<Reservation, Error>
        where
            $($bounds)*,
        {
            held::reserve(&self.keys, self.hasher.hash_one(key), &$find(key), request)
        }

        /// This key as a [`Limiter`](crate::Limiter), for instance for a
        /// [`Spot`](crate::Spot).
        pub fn limiter<$Key>(&self, key: &$Key) -> KeyLimiter<$Id>
        where
            $($bounds)*,
            $($keep_bounds)*
        {
            KeyLimiter::new(self.keys.clone(), self.hasher.hash_one(key), $keep(key))
        }

        /// Forgets what this key has used.
        ///
        /// # Errors
        /// None, as long as its limits are in force.
        pub fn reset<$Key>(&self, key: &$Key) -> Result<(), Error>
        where
            $($bounds)*,
        {
            self.keys.reset(self.hasher.hash_one(key), &$find(key))
        }

        /// Gives this key limits of its own, which a change for all keys does not touch: the
        /// plan of a customer. Any policy.
        ///
        /// Such a key has a limiter of its own as long as it has these limits (about a
        /// kilobyte, and a decision takes some hundred nanoseconds). For a plan that
        /// many keys have, make a table for each plan.
        ///
        /// # Errors
        /// When the policy is wrong; then nothing changes.
        pub fn set_policy<$Key, P>(&self, key: &$Key, policy: P, carry: Carry) -> Result<(), Error>
        where
            $($bounds)*,
            P: TryInto<PolicyArg>,
            P::Error: Into<Error>,
        {
            let policy = policy.try_into().map_err(Into::into)?.into_policy();
            self.keys.set_policy(self.hasher.hash_one(key), &$find(key), Some(policy), carry)
        }

        /// Takes its own limits from this key, if it has any: it follows those of all
        /// keys again.
        ///
        /// # Errors
        /// None, as long as the limits of all are in force.
        pub fn clear_policy<$Key>(&self, key: &$Key, carry: Carry) -> Result<(), Error>
        where
            $($bounds)*,
        {
            self.keys.set_policy(self.hasher.hash_one(key), &$find(key), None, carry)
        }

        /// Lets nothing of this key pass for a while: a server has said so.
        ///
        /// # Errors
        /// [`Error::is_closed`] after `close`.
        pub fn pause_for<$Key>(&self, key: &$Key, pause: Duration) -> Result<(), Error>
        where
            $($bounds)*,
        {
            self.keys.busy(self.hasher.hash_one(key), &$find(key), true)?.shared().pause(pause);
            Ok(())
        }

        /// Changes the limits of all keys that have none of their own. Nothing is swept:
        /// each key follows when it is next asked for, as of this instant. (After every
        /// sixty-fourth change all keys follow at once, within this call, while decisions
        /// go on.)
        ///
        /// # Errors
        /// When the policy is wrong, or [`Error::is_unsupported`] when it does not fit
        /// a flat table; then nothing changes.
        pub fn change<P>(&self, policy: P, carry: Carry) -> Result<(), Error>
        where
            P: TryInto<PolicyArg>,
            P::Error: Into<Error>,
        {
            self.keys.change(policy.try_into().map_err(Into::into)?.into_policy(), carry)
        }

        /// Closes the limits: everybody who waits, and every later call, gets an error
        /// that [`is_closed`](Error::is_closed).
        pub fn close(&self) {
            self.keys.close();
        }

        /// What has been decided, and how full it is. Counting does not slow decisions;
        /// asking looks at up to 262,144 slots, a millisecond's work.
        #[must_use]
        pub fn stats(&self) -> KeyedStats {
            self.keys.stats()
        }
    };
}

/// How many calls of `allow_many` are under way at a time: as many misses of the
/// cache as processors have in flight.
const BATCH: usize = 16;

impl<S: BuildHasher> Keyed<S> {
    verbs!(K: [K: Hash + ?Sized], by_hash, no_key, [], ());
}

impl<K, S> KeyedMap<K, S>
where
    K: Hash + Eq + Send + 'static,
    S: BuildHasher,
{
    verbs!(
        Q: [Q: Hash + Eq + ToOwned<Owned = K> + ?Sized, K: Borrow<Q>],
        ByKey,
        ToOwned::to_owned,
        [K: Clone,],
        K
    );
}

/// A key that is known by its hash is nothing else.
fn by_hash<K: ?Sized>(_: &K) -> Stored<()> {
    Stored(())
}

fn no_key<K: ?Sized>(_: &K) {}

impl<S: Clone> Clone for Keyed<S> {
    fn clone(&self) -> Keyed<S> {
        Keyed { keys: self.keys.clone(), hasher: self.hasher.clone() }
    }
}

impl<K: Send + 'static, S: Clone> Clone for KeyedMap<K, S> {
    fn clone(&self) -> KeyedMap<K, S> {
        KeyedMap { keys: self.keys.clone(), hasher: self.hasher.clone() }
    }
}

impl<S> fmt::Debug for Keyed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.keys.fmt(f)
    }
}

impl<K: Send + 'static, S> fmt::Debug for KeyedMap<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.keys.fmt(f)
    }
}
