//! Counting without slowing what is counted.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How the keys of a [`Keyed`](super::Keyed) stand: taken at an instant, while
/// others go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyedStats {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) overflows: u64,
    pub(super) evictions: u64,
    pub(super) live_keys: usize,
    pub(super) busy_keys: usize,
    pub(super) capacity: usize,
}

impl KeyedStats {
    /// Requests that have passed; those that waited first are among them.
    #[must_use]
    pub const fn allowed(&self) -> u64 {
        self.allowed
    }

    /// Requests that were refused by a limit or for want of room.
    #[must_use]
    pub const fn denied(&self) -> u64 {
        self.denied
    }

    /// Requests of keys for which there was no room, of those that are counted
    /// above.
    #[must_use]
    pub const fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Keys that were forgotten too early, under
    /// [`Overflow::Evict`](super::Overflow::Evict).
    #[must_use]
    pub const fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Keys that have used something and not all of it has come back; of a large
    /// table an estimate from a sample.
    #[must_use]
    pub const fn live_keys(&self) -> usize {
        self.live_keys
    }

    /// Keys with a limiter of their own for the time: somebody waits, has reserved,
    /// is paused, or has limits of its own.
    #[must_use]
    pub const fn busy_keys(&self) -> usize {
        self.busy_keys
    }

    /// The most keys for which there could be room.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }
}

/// What is counted in the hot path: a pair of counters for each of the first
/// threads, which no other thread writes to, so that counting is a load and a store;
/// and one pair for all other threads.
pub(super) struct Counters {
    own: Box<[Pair; OWNERS]>,
    shared: Pair,
}

/// Two cache lines: processors fetch them by twos.
#[derive(Default)]
#[repr(align(128))]
struct Pair {
    allowed: AtomicU64,
    denied: AtomicU64,
}

impl Pair {
    #[inline(always)]
    fn of(&self, allowed: bool) -> &AtomicU64 {
        if allowed { &self.allowed } else { &self.denied }
    }
}

/// Threads with counters of their own, at a time.
const OWNERS: usize = 32;

impl Counters {
    pub(super) fn new() -> Counters {
        Counters { own: Box::new(std::array::from_fn(|_| Pair::default())), shared: Pair::default() }
    }

    #[inline(always)]
    pub(super) fn count(&self, allowed: bool) {
        match self.own.get(INDEX.get()) {
            Some(pair) => {
                let counter = pair.of(allowed);
                counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            }
            None => self.count_elsewhere(allowed),
        }
    }

    /// For a thread that has no counters of its own, or none yet.
    #[cold]
    #[inline(never)]
    fn count_elsewhere(&self, allowed: bool) {
        let own = if INDEX.get() == NONE { self.own.get(new_index()) } else { None };
        own.unwrap_or(&self.shared).of(allowed).fetch_add(1, Ordering::Relaxed);
    }

    /// Allowed and denied.
    pub(super) fn sums(&self) -> (u64, u64) {
        let pairs = || self.own.iter().chain([&self.shared]);
        let sum = |of: fn(&Pair) -> &AtomicU64| pairs().map(|pair| of(pair).load(Ordering::Relaxed)).sum();
        (sum(|pair| &pair.allowed), sum(|pair| &pair.denied))
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (allowed, denied) = self.sums();
        f.debug_struct("Counters").field("allowed", &allowed).field("denied", &denied).finish()
    }
}

/// No index yet, and no index to be had.
const NONE: usize = usize::MAX;
const SHARED: usize = usize::MAX - 1;

thread_local! {
    static INDEX: Cell<usize> = const { Cell::new(NONE) };
    static RETURN: Return = const { Return };
}

/// Indices of threads that have ended, and the first one never given out.
static FREE: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

/// Gives this thread an index, which it has for itself while it lives, or one that no
/// counters have.
fn new_index() -> usize {
    // A thread that is ending has given its index back and takes no other.
    let index = RETURN.try_with(|_| {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let (returned, next) = &mut *free;
        returned.pop().unwrap_or_else(|| {
            let index = *next;
            *next = (*next + 1).min(OWNERS);
            if index < OWNERS { index } else { SHARED }
        })
    });
    INDEX.set(index.unwrap_or(SHARED));
    INDEX.get()
}

/// Gives the index back when the thread ends.
struct Return;

impl Drop for Return {
    fn drop(&mut self) {
        let index = INDEX.replace(SHARED);
        if index < OWNERS {
            FREE.lock().unwrap_or_else(PoisonError::into_inner).0.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn nothing_is_lost_however_many_threads_count() {
        let counters = Arc::new(Counters::new());
        for _ in 0..3 {
            let threads: Vec<_> = (0..2 * OWNERS)
                .map(|_| {
                    let counters = counters.clone();
                    thread::spawn(move || (0..500).for_each(|n| counters.count(n % 5 != 0)))
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
        let calls = 3 * 2 * OWNERS as u64 * 500;
        assert_eq!(counters.sums(), (calls / 5 * 4, calls / 5));
        assert!(!FREE.lock().unwrap().0.is_empty(), "threads that have ended give their counters back");
    }
}
