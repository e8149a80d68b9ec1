//! Pace and bucket: the generic cell rate algorithm on one 64-bit word.
//!
//! The whole state is one instant. In the design's words that is `Z`, at which
//! the balance is exactly zero; what is stored is the *theoretical arrival time*
//! `Z + savings` (ITU-T I.371 calls it TAT), because then a word of zero is a
//! limit as good as new, whatever its savings: memory that comes zeroed needs no
//! initialisation.
//!
//! With `n` the tick of now, `S` the savings and `c` the cost in ticks:
//!
//! | | admitted when | then |
//! |---|---|---|
//! | pace | `max(tat, n) <= n + S` | `tat = max(tat, n) + c` |
//! | bucket | `max(tat, n) + c <= n + S` | `tat = max(tat, n) + c` |

use core::time::Duration;

use crate::carry::{self, Carry};
use crate::cost::Cost;
use crate::decision::Status;
use crate::error::OutOfRange;
use crate::int;
use crate::limit::{Bucket, Pace};
use crate::ticks::Ticks;
use crate::time::Timestamp;

/// The word of a limit that is as good as new.
pub const FRESH: u64 = 0;

/// One pace or bucket, ready to decide on a word that the caller keeps.
///
/// Pure functions: the word comes in and a new one goes out. Whoever keeps it in
/// an atomic, a table or a store makes the step atomic.
///
/// ```
/// use suimon_core::gcra::{FRESH, Gcra, Step};
/// use suimon_core::{Bucket, Quota, Timestamp};
///
/// let gcra = Gcra::from(&Bucket::new(Quota::per_second(10)?));
/// let now = gcra.ticks().at(Timestamp::from_secs(1));
/// let one = gcra.ticks().per_token();
///
/// let Step::Admit(word) = gcra.step(FRESH, now, one) else { unreachable!() };
/// assert_eq!(gcra.status(word, Timestamp::from_secs(1)).remaining(), 9);
/// # Ok::<(), suimon_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    ticks: Ticks,
    savings: u64,
    pays_first: bool,
    max_cost: Cost,
}

/// What one request does to the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It passes; this is the new word.
    Admit(u64),
    /// It does not pass before this tick.
    Refuse(u64),
}

impl From<&Pace> for Gcra {
    fn from(pace: &Pace) -> Gcra {
        Gcra::new(Ticks::of(pace.quota()), pace.savings(), false, pace.max_cost())
    }
}

impl From<&Bucket> for Gcra {
    fn from(bucket: &Bucket) -> Gcra {
        Gcra::new(Ticks::of(bucket.quota()), bucket.burst(), true, bucket.burst())
    }
}

impl Gcra {
    fn new(ticks: Ticks, savings: Cost, pays_first: bool, max_cost: Cost) -> Gcra {
        // Pace and Bucket hold at most a century of savings, which always fits.
        let savings = ticks.of_cost(savings).unwrap_or(u64::MAX);
        Gcra { ticks, savings, pays_first, max_cost }
    }

    /// How time and tokens are counted.
    #[must_use]
    pub const fn ticks(&self) -> &Ticks {
        &self.ticks
    }

    /// The most that idling saves up, in ticks.
    #[must_use]
    pub const fn savings(&self) -> u64 {
        self.savings
    }

    /// The largest cost that can ever pass.
    #[must_use]
    pub const fn max_cost(&self) -> Cost {
        self.max_cost
    }

    /// Decides about a cost of `cost` ticks at the tick `now`.
    ///
    /// `cost` must be at most the largest cost; a cost of zero passes and leaves
    /// the word as it is.
    #[inline(always)]
    #[must_use]
    pub fn step(&self, word: u64, now: u64, cost: u64) -> Step {
        if cost == 0 {
            return Step::Admit(word);
        }
        let ready = self.ready(word, now, cost);
        if ready <= now { Step::Admit(word.max(now).saturating_add(cost)) } else { Step::Refuse(ready) }
    }

    /// The first tick, not before `now`, at which a cost would pass if nothing
    /// else happened.
    #[inline(always)]
    #[must_use]
    pub fn ready(&self, word: u64, now: u64, cost: u64) -> u64 {
        let charged = if self.pays_first { cost } else { 0 };
        // Never `word + charged`, which could pass the end of the word.
        let ready = match self.savings.checked_sub(charged) {
            Some(spare) => word.saturating_sub(spare),
            None => word.max(now).saturating_add(charged.saturating_sub(self.savings)),
        };
        ready.max(now)
    }

    /// The word after a cost that begins at the tick `start`, or `None` where it
    /// does not fit 64 bits.
    pub(crate) fn book(&self, word: u64, start: u64, cost: u64) -> Option<u64> {
        if cost == 0 { Some(word) } else { word.max(start).checked_add(cost) }
    }

    /// How the limit stands at `now`.
    #[inline]
    #[must_use]
    pub fn status(&self, word: u64, now: Timestamp) -> Status {
        self.status_at(word, now, self.ticks.at(now))
    }

    /// [`status`](Gcra::status) for a caller that has the tick of `now` already.
    #[inline]
    #[must_use]
    pub fn status_at(&self, word: u64, now: Timestamp, tick: u64) -> Status {
        let left = self.savings.checked_sub(word.saturating_sub(tick));
        Status::ticking(&self.ticks, self.max_cost, self.pays_first, left, word, now)
    }

    /// The time until the word is as good as fresh, rounded up.
    #[inline]
    #[must_use]
    pub fn reset_after(&self, word: u64, now: Timestamp) -> Duration {
        self.ticks.until(word, now)
    }

    /// Brings a word from the limit `old` under which it was last moved on to this
    /// one: what [`Gate::adopt`](crate::Gate::adopt) does, for a caller who keeps the
    /// words. `now` is the instant of the change.
    ///
    /// ```
    /// use suimon_core::gcra::{FRESH, Gcra, Step};
    /// use suimon_core::{Bucket, Carry, Quota, Timestamp};
    ///
    /// let old = Gcra::from(&Bucket::new(Quota::per_second(10)?));
    /// let new = Gcra::from(&Bucket::new(Quota::per_second(100)?));
    /// let now = Timestamp::from_secs(1);
    ///
    /// let Step::Admit(word) = old.step(FRESH, old.ticks().at(now), 3 * old.ticks().per_token()) else { unreachable!() };
    /// let word = new.carry(&old, word, now, Carry::Keep);
    /// assert_eq!(new.status(word, now).remaining(), 97);
    /// # Ok::<(), suimon_core::Error>(())
    /// ```
    #[must_use]
    pub fn carry(&self, old: &Gcra, word: u64, now: Timestamp, carry: Carry) -> u64 {
        carry::carry_word(self, old, word, now, carry)
    }

    /// All of it as plain numbers, for memory that is read without a lock.
    #[must_use]
    pub const fn to_words(self) -> [u64; Gcra::WORDS] {
        let [t0, t1, t2, t3, t4, t5, t6] = self.ticks.to_words();
        let kind = if self.pays_first { 1 } else { 0 };
        [
            t0,
            t1,
            t2,
            t3,
            t4,
            t5,
            t6,
            self.savings,
            kind,
            self.max_cost.as_whole(),
            int::widen_u32(self.max_cost.subsec_nanos()),
        ]
    }

    /// The inverse of [`to_words`](Gcra::to_words); other numbers give a limit that
    /// decides nonsense, and nothing worse.
    #[inline]
    #[must_use]
    pub fn from_words(words: [u64; Gcra::WORDS]) -> Gcra {
        let [t0, t1, t2, t3, t4, t5, t6, savings, kind, whole, nanos] = words;
        let max_cost = Cost::from_parts(whole, nanos);
        Gcra { ticks: Ticks::from_words([t0, t1, t2, t3, t4, t5, t6]), savings, pays_first: kind == 1, max_cost }
    }

    /// The count of [`to_words`](Gcra::to_words).
    pub const WORDS: usize = 11;

    /// A word with this balance at `now`, instead of full savings.
    pub(crate) fn with_balance(&self, now: Timestamp, balance: Cost) -> Result<u64, OutOfRange> {
        match self.ticks.of_cost(balance) {
            Some(balance) if balance <= self.savings => {
                Ok(self.ticks.at(now).saturating_add(self.savings.saturating_sub(balance)))
            }
            _ => Err(OutOfRange::above_savings(balance, self.ticks.tokens_up(self.savings))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Quota;

    #[test]
    fn words_are_the_whole_of_it() {
        let quotas = [Quota::per_second(10), Quota::per_second(999_999_937), Quota::per_day(7), Quota::per_minute(2)];
        for quota in quotas.map(Result::unwrap) {
            let cost = Cost::new(3, 250_000_000).unwrap();
            let pace = Pace::new(quota).with_max_cost(cost).unwrap();
            for gcra in [Gcra::from(&pace), Gcra::from(&Bucket::new(quota))] {
                assert_eq!(Gcra::from_words(gcra.to_words()), gcra);
            }
        }
        // Nothing that could not have been written makes it panic.
        for word in [0, 1, u64::MAX] {
            let gcra = Gcra::from_words([word; Gcra::WORDS]);
            let _ = gcra.step(word, gcra.ticks().at(Timestamp::from_nanos(word)), word);
        }
    }
}
