//! The exact sliding log: every entry is kept and added up anew.

use num_traits::Zero;

use super::answer::Status;
use super::number::{Q, floor_u64};
use super::spec::zero;

/// A window in use.
#[derive(Clone, Debug)]
pub(super) struct Log {
    limit: Q,
    period: u64,
    entries: Vec<Entry>,
}

/// What passed, or will: it counts from `at` until just before `at + period`.
#[derive(Clone, Debug)]
struct Entry {
    at: u64,
    cost: Q,
}

impl Entry {
    fn is_over(&self, now: u64, period: u64) -> bool {
        u128::from(self.at) + u128::from(period) <= u128::from(now)
    }
}

impl Log {
    pub(super) fn new(limit: &Q, period: u64) -> Log {
        Log { limit: limit.clone(), period, entries: Vec::new() }
    }

    pub(super) fn limit(&self) -> &Q {
        &self.limit
    }

    pub(super) fn period(&self) -> u64 {
        self.period
    }

    /// The instant at which the cost passes, if it does not pass at `now`: not
    /// before what has been booked, and as soon as enough of it is over.
    pub(super) fn ready(&self, now: u64, cost: &Q) -> Option<Q> {
        let earliest = self.not_before(now);
        let mut candidates: Vec<u64> = self.entries.iter().map(|entry| entry.at.saturating_add(self.period)).collect();
        candidates.retain(|candidate| *candidate > earliest);
        candidates.push(earliest);
        candidates.sort_unstable();
        let ready = candidates.into_iter().find(|at| self.used(*at) + cost <= self.limit)?;
        (ready > now).then(|| super::number::whole(ready))
    }

    /// Takes the cost as of an instant, not before what was booked last; answers
    /// which entry it is.
    pub(super) fn charge(&mut self, at: u64, cost: &Q) -> usize {
        let at = self.not_before(at);
        self.entries.push(Entry { at, cost: cost.clone() });
        self.entries.len() - 1
    }

    /// Gives back what a booking did not need.
    ///
    /// Also where nothing is left of it, the booking holds its place in time:
    /// what counted before it has been given to it as over.
    pub(super) fn refund(&mut self, index: usize, unneeded: &Q) {
        self.entries[index].cost -= unneeded;
    }

    pub(super) fn status(&self, now: u64) -> Status {
        let from = self.not_before(now);
        let left = if from > now { zero() } else { &self.limit - self.used(from) };
        // As good as new when all that counts is over, and when what was booked
        // last has begun.
        let counting = self.live().filter(|entry| !entry.is_over(from, self.period));
        let new_at = counting.map(|entry| entry.at.saturating_add(self.period)).fold(from, u64::max);
        Status {
            limit: floor_u64(&self.limit),
            remaining: floor_u64(&left),
            burst_left: floor_u64(&left),
            reset_after: new_at - now,
        }
    }

    /// The cost of what counts at an instant that is not before any entry.
    pub(super) fn used(&self, now: u64) -> Q {
        self.live().filter(|entry| !entry.is_over(now, self.period)).map(|entry| entry.cost.clone()).sum()
    }

    /// `now`, or when what was booked last begins: nobody overtakes.
    pub(super) fn not_before(&self, now: u64) -> u64 {
        self.entries.iter().map(|entry| entry.at).fold(now, u64::max)
    }

    /// What counts for the next call at `now`, a booking ahead included.
    pub(super) fn counted(&self, now: u64) -> Q {
        self.used(self.not_before(now))
    }

    /// Another limit on the same log; what is over by now under the old period
    /// is over, also if the new one is longer.
    pub(super) fn resized(&self, limit: &Q, period: u64, now: u64, resize: impl Fn(&Q) -> Q) -> Log {
        let from = self.not_before(now);
        let still_counts = |entry: &&Entry| !entry.is_over(from, self.period);
        let resized = |entry: &Entry| Entry { at: entry.at, cost: resize(&entry.cost) };
        let mut entries: Vec<Entry> = self.entries.iter().filter(still_counts).map(resized).collect();
        if entries.is_empty() {
            // What is forgotten must not be met again by a clock that runs back.
            entries.push(Entry { at: from, cost: zero() });
        }
        Log { limit: limit.clone(), period, entries }
    }

    fn live(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| !entry.cost.is_zero())
    }
}
