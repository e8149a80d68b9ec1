use std::num::NonZeroU64;

use suimon_core::gcra::{Gcra, Step};

use crate::sync::{AtomicU64, Ordering};

/// The state of a pace or bucket, or the sign that the lock keeps it.
///
/// While nobody waits, decisions are one compare-and-swap on the word. Whoever
/// needs more takes the word away under the lock; decisions then find the sign,
/// come to the lock too, and see the queue. The word comes back when the queue is
/// empty.
#[derive(Debug)]
pub(super) struct Word(AtomicU64);

/// No state: a word this large lies at the end of time, and is never published.
const KEPT: u64 = u64::MAX;

/// What a decision found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fast {
    /// It passes; this is the new word.
    Admitted(u64),
    /// It does not pass before the tick `ready`.
    Refused { word: u64, ready: u64 },
    /// The lock keeps the word.
    Kept,
}

impl Word {
    pub(super) const fn new(word: u64) -> Word {
        Word(AtomicU64::new(word))
    }

    pub(super) const fn kept() -> Word {
        Word(AtomicU64::new(KEPT))
    }

    /// Decides, if the word is there. The cost is not zero: a free call does not
    /// care.
    #[inline(always)]
    pub(super) fn step(&self, gcra: &Gcra, now: u64, cost: NonZeroU64) -> Fast {
        let mut word = self.0.load(Ordering::Acquire);
        while word != KEPT {
            match gcra.step(word, now, cost.get()) {
                Step::Refuse(ready) => return Fast::Refused { word, ready },
                Step::Admit(next) => {
                    match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                        Ok(_) => return Fast::Admitted(next),
                        Err(other) => word = other,
                    }
                }
            }
        }
        Fast::Kept
    }

    /// The word, if it is there.
    #[inline]
    pub(super) fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|word| *word != KEPT)
    }

    /// Takes the word into the keeping of the lock, which the caller holds.
    pub(super) fn take(&self) -> Option<u64> {
        Some(self.0.swap(KEPT, Ordering::AcqRel)).filter(|word| *word != KEPT)
    }

    /// Gives the word back; the caller holds the lock.
    pub(super) fn publish(&self, word: u64) {
        self.0.store(word.min(KEPT - 1), Ordering::Release);
    }
}
