//! The limit in force, read without a lock, and the ones before it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use suimon_core::gcra::{FRESH, Gcra};
use suimon_core::{Carry, Timestamp};

use crate::sync::{AtomicU64 as Modelled, Mutex, lock};

/// The limits of a table: a number of the version in force, and a ring of cells
/// with the numbers of the last ones.
///
/// A reader takes the version, copies the cell and looks at the version again: the
/// cell is written anew only 256 versions later. Nothing is allocated by a change,
/// and nothing has to be kept for slow readers.
#[derive(Debug)]
pub(super) struct Limits {
    /// The one of which the model checker sees every step.
    current: Modelled,
    cells: Box<[Cell; RING as usize]>,
    past: Mutex<VecDeque<Change>>,
}

/// The version of a slot is known by its lowest bits.
const RING: u64 = 1 << VERSION_BITS;
pub(super) const VERSION_BITS: u32 = 8;
/// How many changes are kept: slots of older versions must be gone.
const KEPT: u64 = 128;
/// After so many changes all slots are brought to the version in force.
const SWEEP: u64 = 64;

/// Two lines of the processor's cache.
#[derive(Debug)]
#[repr(align(128))]
struct Cell([AtomicU64; Gcra::WORDS]);

/// A version, and how it came to it.
#[derive(Clone, Copy, Debug)]
struct Change {
    gcra: Gcra,
    at: Timestamp,
    carry: Carry,
}

impl Limits {
    pub(super) fn new(gcra: Gcra) -> Limits {
        let limits = Limits {
            current: Modelled::new(0),
            cells: Box::new([const { Cell([const { AtomicU64::new(0) }; Gcra::WORDS]) }; RING as usize]),
            past: Mutex::new(VecDeque::from([Change { gcra, at: Timestamp::ZERO, carry: Carry::Reset }])),
        };
        limits.write(0, gcra);
        limits
    }

    /// The version in force and its limit.
    #[inline(always)]
    pub(super) fn read(&self) -> (u64, Gcra) {
        loop {
            let version = self.current.load(Ordering::Acquire);
            let words = self.cell(version).0.each_ref().map(|word| word.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            // Written anew from the moment on at which the version before is in force.
            if self.current.load(Ordering::Relaxed) - version < RING - 1 {
                return (version, Gcra::from_words(words));
            }
        }
    }

    /// The same, and a time at which it was in force, or one before: not later than the
    /// instant at which the limit is changed next. The limit is read first, while the
    /// processor still waits for its clock.
    #[inline(always)]
    pub(super) fn read_at(&self, now: impl Fn() -> Timestamp) -> (u64, Gcra, Timestamp) {
        loop {
            let version = self.current.load(Ordering::Acquire);
            let words = self.cell(version).0.each_ref().map(|word| word.load(Ordering::Relaxed));
            let now = now();
            fence(Ordering::Acquire);
            if self.current.load(Ordering::Relaxed) == version {
                return (version, Gcra::from_words(words), now);
            }
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    /// Puts another limit in force, and answers since when. Changes come one at a
    /// time: the caller sees to it.
    pub(super) fn change(&self, gcra: Gcra, carry: Carry, now: impl FnOnce() -> Timestamp) -> Timestamp {
        let version = self.current.load(Ordering::Relaxed) + 1;
        // Whoever sees one of the words to come sees that the version has moved on.
        fence(Ordering::Release);
        self.write(version, gcra);
        // Under the lock, so that `past` ends with the version in force.
        let mut past = lock(&self.past);
        self.current.store(version, Ordering::Release);
        // Read only now: nobody has decided under the limit before by a later time, of
        // which the word would be carried over as if the new rate had held since `at`.
        let at = now();
        past.push_back(Change { gcra, at, carry });
        if past.len() as u64 > KEPT {
            past.pop_front();
        }
        at
    }

    /// Is it for this change to bring all slots to the version in force?
    pub(super) fn wants_sweep(version: u64) -> bool {
        version.is_multiple_of(SWEEP)
    }

    /// A word of a slot whose version ends in `bits`, as it is under the version
    /// `to`. Each change on the way is made as of its own instant.
    pub(super) fn carried(&self, word: u64, bits: u64, to: u64) -> u64 {
        let past = lock(&self.past);
        let newest = self.current.load(Ordering::Relaxed);
        let at = |version: u64| past.get((past.len() as u64).checked_sub(newest - version + 1)? as usize);
        let from = to - (to.wrapping_sub(bits) & (RING - 1)).min(to);
        let (mut word, mut old) = (word, at(from));
        for version in from + 1..=to {
            let next = at(version);
            word = match (old, next) {
                // As good as new then: like a key that was not there.
                (Some(old), Some(next)) if word <= old.gcra.ticks().at(next.at) => FRESH,
                (Some(old), Some(next)) => next.gcra.carry(&old.gcra, word, next.at, next.carry),
                // Swept away long ago.
                _ => FRESH,
            };
            old = next;
        }
        word
    }

    #[inline(always)]
    fn cell(&self, version: u64) -> &Cell {
        &self.cells[(version & (RING - 1)) as usize]
    }

    fn write(&self, version: u64, gcra: Gcra) {
        for (cell, word) in self.cell(version).0.iter().zip(gcra.to_words()) {
            cell.store(word, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::thread;

    use suimon_core::{Bucket, Cost, Gate, Policy, Quota};

    use super::*;

    fn bucket(tokens: u64) -> Gcra {
        Gcra::from(&Bucket::new(Quota::per_second(tokens).unwrap()))
    }

    #[test]
    fn the_last_one_is_in_force() {
        let limits = Limits::new(bucket(1));
        assert_eq!(limits.read(), (0, bucket(1)));
        for version in 1..=1000 {
            limits.change(bucket(version + 1), Carry::Keep, || Timestamp::from_secs(version));
            assert_eq!(limits.read(), (version, bucket(version + 1)));
        }
    }

    /// Readers see whole limits, though the ring goes round again and again.
    #[test]
    fn no_limit_is_seen_by_halves() {
        let limits = Limits::new(bucket(1));
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = 0;
                while seen < 20_000 {
                    let (version, gcra) = limits.read();
                    assert!(version >= seen);
                    assert_eq!(gcra, bucket(version % 997 + 1));
                    seen = version;
                }
            });
            for version in 1..=20_000_u64 {
                limits.change(bucket(version % 997 + 1), Carry::Keep, || Timestamp::from_nanos(version));
            }
            reader.join().unwrap();
        });
    }

    /// A word that has slept through several changes is what a gate makes of it that
    /// was there at each; and one that was as good as new is new.
    #[test]
    fn a_word_is_carried_through_all_changes() {
        let carries = [Carry::Keep, Carry::Scale, Carry::Balance, Carry::Reset];
        let mut limits = Limits::new(bucket(50));
        for skip in [0, 200, 255, 256, 257, 600] {
            limits = Limits::new(bucket(50));
            for n in 0..skip {
                limits.change(bucket(50), Carry::Keep, || Timestamp::from_nanos(n));
            }
            let mut gate = Gate::new("bucket 50/s".parse::<Policy>().unwrap()).unwrap();
            let mut state = gate.fresh();
            let now = Timestamp::from_secs(1);
            assert!(gate.allow(&mut state, now, Cost::whole(40)).unwrap().is_allowed());
            let word = state.word().unwrap();
            for (n, tokens) in [100, 30, 7, 7, 90, 45].into_iter().enumerate() {
                let at = Timestamp::from_nanos(1_000_000_000 + 100_000_000 * (n as u64 + 1));
                let carry = carries[n % 3];
                limits.change(bucket(tokens), carry, || at);
                let next = gate.changed(format!("bucket {tokens}/s").parse::<Policy>().unwrap()).unwrap();
                if gate.is_fresh(&state, at).unwrap() {
                    state = next.fresh();
                } else {
                    next.adopt(&mut state, &gate, at, carry).unwrap();
                }
                gate = next;
                let carried = limits.carried(word, skip & (RING - 1), skip + n as u64 + 1);
                assert_eq!(Some(carried), state.word(), "{skip} {n}");
            }
        }
        assert_eq!(limits.carried(77, limits.version() & (RING - 1), limits.version()), 77);
    }
}
