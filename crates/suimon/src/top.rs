//! The keys that come most often, in bounded memory.
//!
//! This is Space-Saving: A. Metwally, D. Agrawal and A. El Abbadi, "Efficient
//! Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005. Their
//! linked lists are here one array in the order of counts: a counter that rises by
//! one changes places with the first of those equal to it, found by bisection.

#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::mem;

use crate::sync::{Mutex, lock};

/// The keys that were recorded most often, in bounded memory: who is refused most,
/// which routes are slow, whatever is worth a list.
///
/// There is a fixed number of counters, the capacity. A key without a counter takes
/// over the smallest one and counts on from there, which is too high by at most
/// what it took over: its [`error`](TopKey::error). After `total` records
///
/// - a listed key was recorded at most `count` and at least `count - error` times;
/// - no error is above `total / capacity`;
/// - every key that was recorded more than `total / capacity` times is listed;
/// - while no more different keys came than there are counters, all counts are exact;
///
/// whatever the keys and their order, an attacker's too. So a thousand counters find
/// everybody who makes up more than a thousandth of all refusals. Counts do not
/// decay: for a list per minute, read it and [`clear`](TopKeys::clear) each minute.
///
/// ```
/// use suimon::clock::ManualClock;
/// use suimon::{LocalLimiter, TopKeys};
///
/// let limiter = LocalLimiter::builder("bucket 10/s burst 2")?.clock(ManualClock::new()).build()?;
/// let refused = TopKeys::<String>::new(100);
/// for client in ["amy", "bob", "bob", "amy", "bob", "bob"] {
///     if !limiter.allow(1)?.is_allowed() {
///         refused.record(client);
///     }
/// }
///
/// let worst = refused.top(10);
/// assert_eq!(worst[0].key(), "bob");
/// assert_eq!((worst[0].count(), worst[0].error()), (3, 0));
/// assert_eq!(refused.total(), 4);
/// refused.clear();
/// # Ok::<(), suimon::Error>(())
/// ```
///
/// A record hashes the key and takes one lock, for a time that grows with the
/// logarithm of the capacity, some tens of nanoseconds. Shards by key would not help
/// the key that all threads record at once; shards by thread would loosen the bounds.
///
/// A counter takes 72 bytes and its key, or up to twice that where memory was grown
/// ahead; it grows with the keys that come, up to the capacity. How long a key may be
/// is for the caller to bound: a counter keeps the memory of the longest key that it
/// had, for those that follow, until [`clear`](TopKeys::clear).
pub struct TopKeys<K> {
    /// Of random keys of its own, so that nobody can prepare collisions.
    hasher: RandomState,
    capacity: usize,
    sketch: Mutex<Sketch<K>>,
}

/// A key, and how often it was recorded; from [`TopKeys::top`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKey<K> {
    key: K,
    count: u64,
    error: u64,
}

impl<K> TopKeys<K> {
    /// With this many counters. Without any, keys are not kept, only the
    /// [`total`](TopKeys::total).
    #[must_use]
    pub fn new(capacity: usize) -> TopKeys<K> {
        TopKeys { hasher: RandomState::new(), capacity, sketch: Mutex::new(Sketch::new()) }
    }

    /// Counts `key` once more.
    ///
    /// Allocates only when a key takes a counter; a `String` or `Vec` not even then, if
    /// it fits where the key before it was.
    pub fn record<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        lock(&self.sketch).record(self.capacity, hash, key);
    }

    /// The `n` keys with the highest counts, or all that have a counter; the highest
    /// first, of equal counts the more certain one. Records wait while it copies.
    #[must_use]
    pub fn top(&self, n: usize) -> Vec<TopKey<K>>
    where
        K: Clone,
    {
        let sketch = lock(&self.sketch);
        let read = |place: &Place| {
            let Counter { key, error, .. } = &sketch.counters[place.counter];
            TopKey { key: key.clone(), count: place.count, error: *error }
        };
        let mut top: Vec<_> = sketch.order.iter().take(n).map(read).collect();
        drop(sketch);
        top.sort_by_key(|key| (Reverse(key.count), key.error));
        top
    }

    /// How many records there were, of all keys.
    #[must_use]
    pub fn total(&self) -> u64 {
        lock(&self.sketch).total
    }

    /// The number of counters.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Forgets all records, and gives their memory back.
    pub fn clear(&self) {
        let old = mem::replace(&mut *lock(&self.sketch), Sketch::new());
        drop(old); // after the lock
    }
}

/// Without the keys, which may be nobody's business.
impl<K> fmt::Debug for TopKeys<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopKeys")
            .field("capacity", &self.capacity)
            .field("total", &self.total())
            .finish_non_exhaustive()
    }
}

impl<K> TopKey<K> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The key, to keep.
    #[must_use]
    pub fn into_key(self) -> K {
        self.key
    }

    /// How often it was recorded, at most; exact where the error is zero.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// By how much the count may be too high; less than the count.
    #[must_use]
    pub fn error(&self) -> u64 {
        self.error
    }

    /// How often it was recorded, at least.
    #[must_use]
    pub fn at_least(&self) -> u64 {
        self.count - self.error
    }
}

/// Counters by key and by count.
struct Sketch<K> {
    total: u64,
    counters: Vec<Counter<K>>,
    /// From the highest count to the lowest.
    order: Vec<Place>,
    /// A hash table: the first counter of each chain. Empty, or a power of two long,
    /// and then at least as long as there are counters.
    heads: Vec<Option<usize>>,
}

struct Counter<K> {
    key: K,
    hash: u64,
    error: u64,
    /// Where it is in `order`.
    place: usize,
    /// The next counter of its chain.
    next: Option<usize>,
}

#[derive(Clone, Copy)]
struct Place {
    count: u64,
    counter: usize,
}

impl<K> Sketch<K> {
    const fn new() -> Sketch<K> {
        Sketch { total: 0, counters: Vec::new(), order: Vec::new(), heads: Vec::new() }
    }

    // What is the key's own, its comparison and its copy, comes before all changes,
    // so that a panic in it leaves the counters whole.
    fn record<Q>(&mut self, capacity: usize, hash: u64, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        let id = match self.find(hash, key) {
            Some(id) => Some(id),
            None if self.counters.len() < capacity => Some(self.add(hash, key.to_owned())),
            None => self.replace_smallest(hash, key),
        };
        self.total += 1;
        if let Some(id) = id {
            self.raise(id);
        }
    }

    fn find<Q: Eq + ?Sized>(&self, hash: u64, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        let mut chain = *self.heads.get(self.chain(hash))?;
        while let Some(id) = chain {
            let counter = &self.counters[id];
            if counter.hash == hash && counter.key.borrow() == key {
                return Some(id);
            }
            chain = counter.next;
        }
        None
    }

    /// A counter that stands at zero.
    fn add(&mut self, hash: u64, key: K) -> usize {
        let id = self.counters.len();
        self.counters.push(Counter { key, hash, error: 0, place: id, next: None });
        self.order.push(Place { count: 0, counter: id });
        if id < self.heads.len() {
            self.link(id);
        } else {
            self.heads = vec![None; (2 * id).max(4)];
            (0..=id).for_each(|id| self.link(id));
        }
        id
    }

    /// The smallest counter, now of this key; none where there are no counters.
    fn replace_smallest<Q: ToOwned<Owned = K> + ?Sized>(&mut self, hash: u64, key: &Q) -> Option<usize> {
        let Place { count, counter: id } = *self.order.last()?;
        key.clone_into(&mut self.counters[id].key);
        self.unlink(id);
        let counter = &mut self.counters[id];
        (counter.hash, counter.error) = (hash, count);
        self.link(id);
        Some(id)
    }

    /// One more for this counter.
    fn raise(&mut self, id: usize) {
        let place = self.counters[id].place;
        let count = self.order[place].count;
        let first = self.order[..place].partition_point(|above| above.count > count);
        self.order.swap(first, place);
        self.counters[self.order[place].counter].place = place;
        self.counters[id].place = first;
        self.order[first].count += 1;
    }

    fn chain(&self, hash: u64) -> usize {
        hash as usize & self.heads.len().wrapping_sub(1)
    }

    fn link(&mut self, id: usize) {
        let chain = self.chain(self.counters[id].hash);
        self.counters[id].next = self.heads[chain].replace(id);
    }

    fn unlink(&mut self, id: usize) {
        let chain = self.chain(self.counters[id].hash);
        let next = self.counters[id].next;
        let mut link = &mut self.heads[chain];
        while let Some(other) = *link
            && other != id
        {
            link = &mut self.counters[other].next;
        }
        *link = next;
    }
}
