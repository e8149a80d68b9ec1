//! What memory costs, whoever decides.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// As much memory as a table has, to be read at random.
pub struct Lines(Vec<AtomicU64>);

impl Lines {
    pub fn new(bytes: u64) -> Lines {
        // Written to, or all of it were the one page of zeroes.
        Lines((0..bytes / 8).map(|word| AtomicU64::new(word & 1)).collect())
    }

    /// Memory that the system gives only when it is touched.
    pub fn untouched(bytes: u64) -> Lines {
        let words = Box::into_raw(vec![0_u64; (bytes / 8) as usize].into_boxed_slice());
        // SAFETY: an `AtomicU64` is laid out like a `u64`, and the box is taken back as it was given.
        Lines(unsafe { Box::from_raw(words as *mut [AtomicU64]) }.into_vec())
    }

    /// Writes where a hash leads.
    pub fn touch(&self, hash: u64) -> bool {
        self.at(hash).fetch_add(1, Ordering::Relaxed) < u64::MAX
    }

    fn at(&self, step: u64) -> &AtomicU64 {
        let hash = step.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.0[((u128::from(hash) * self.0.len() as u128) >> 64) as usize]
    }

    /// Each load waits for the one before.
    pub fn chase(&self, n: u64) {
        let next = |step, _| random_step(step).wrapping_add(self.at(step).load(Ordering::Relaxed) * 2);
        black_box((0..n).fold(1, next));
    }

    /// Loads that do not wait for each other.
    pub fn load(&self, n: u64) {
        (0..n).fold(1, |step, _| {
            black_box(self.at(step).load(Ordering::Relaxed));
            random_step(step)
        });
    }

    /// What an exact decision does at least; its address is known before, like that of a
    /// batch.
    pub fn swap(&self, n: u64) {
        (0..n).fold(1, |step, _| {
            let word = self.at(step);
            let before = word.load(Ordering::Relaxed);
            let _ = black_box(word.compare_exchange(before, before ^ 1, Ordering::AcqRel, Ordering::Relaxed));
            random_step(step)
        });
    }
}

/// A linear congruential generator of full period.
fn random_step(step: u64) -> u64 {
    step.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(1)
}
