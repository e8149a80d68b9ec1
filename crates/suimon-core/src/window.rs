//! The exact sliding log of a `window` limit.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::cost::Cost;
use crate::decision::Status;
use crate::int;
use crate::limit::Window;
use crate::time::Timestamp;

/// What passed, oldest first, with one entry for each instant.
///
/// The last entry may lie in the future: a reservation. Instants before it are
/// taken as that instant, so that nobody overtakes, and so that a clock that runs
/// back never meets a log from which its past has been dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Timestamp,
    cost: Cost,
}

impl Log {
    /// A log in which `used` passed at `at`; where that is nothing it still holds
    /// its place in time.
    pub(crate) fn with_used(used: Cost, at: Timestamp) -> Log {
        Log { entries: VecDeque::from([Entry { at, cost: used }]) }
    }

    /// What counts or did, oldest first.
    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = (Timestamp, Cost)> {
        self.entries.iter().map(|entry| (entry.at, entry.cost))
    }

    /// The inverse; the instants rise.
    pub(crate) fn from_entries(entries: impl IntoIterator<Item = (Timestamp, Cost)>) -> Log {
        Log { entries: entries.into_iter().map(|(at, cost)| Entry { at, cost }).collect() }
    }

    /// The first instant, not before `now`, at which `cost` would pass.
    pub(crate) fn ready(&self, limit: &Window, now: Timestamp, cost: Cost) -> Timestamp {
        let from = self.not_before(now);
        let wanted = self.used(limit, from).saturating_add(cost.billionths());
        let Some(excess) = wanted.checked_sub(limit.limit().billionths()).filter(|excess| *excess > 0) else {
            return from;
        };
        let mut freed: u128 = 0;
        let mut at = from;
        for entry in self.live(limit, from) {
            freed = freed.saturating_add(entry.cost.billionths());
            at = entry.at.saturating_add(limit.period());
            if freed >= excess {
                break;
            }
        }
        at
    }

    /// Writes down what passes at `start`, and forgets what no longer counts then.
    pub(crate) fn charge(&mut self, limit: &Window, start: Timestamp, cost: Cost) {
        let start = self.not_before(start);
        self.forget(limit, start);
        match self.entries.back_mut() {
            Some(last) if last.at == start => last.cost = last.cost.saturating_add(cost),
            // All of it was given back: it only held its place in time.
            Some(last) if last.cost.is_zero() => *last = Entry { at: start, cost },
            _ => self.entries.push_back(Entry { at: start, cost }),
        }
    }

    /// Forgets what no longer counts at `now`, even if the limit changes.
    pub(crate) fn settle(&mut self, limit: &Window, now: Timestamp) {
        let now = self.not_before(now);
        self.forget(limit, now);
        if self.entries.is_empty() {
            // Holds the place in time.
            self.entries.push_back(Entry { at: now, cost: Cost::ZERO });
        }
    }

    fn forget(&mut self, limit: &Window, now: Timestamp) {
        let expired = self.entries.iter().take_while(|entry| entry.has_expired(limit.period(), now)).count();
        self.entries.drain(..expired);
    }

    /// Gives back a part of what passed at `start`, if that still counts.
    pub(crate) fn refund(&mut self, start: Timestamp, difference: Cost) {
        let Ok(index) = self.entries.binary_search_by_key(&start, |entry| entry.at) else { return };
        let is_last = index.saturating_add(1) == self.entries.len();
        if let Some(entry) = self.entries.get_mut(index) {
            entry.cost = entry.cost.saturating_sub(difference);
            // The last one holds the place in time.
            if entry.cost.is_zero() && !is_last {
                self.entries.remove(index);
            }
        }
    }

    /// The log as if every cost had been this much larger or smaller.
    pub(crate) fn map_costs(&mut self, change: impl Fn(Cost) -> Cost) {
        for entry in &mut self.entries {
            entry.cost = change(entry.cost);
        }
    }

    pub(crate) fn status(&self, limit: &Window, now: Timestamp) -> Status {
        let from = self.not_before(now);
        // Whoever comes before a reservation has to wait for it.
        let used = if from > now { limit.limit().billionths() } else { self.used(limit, from) };
        let empty_at = self
            .live(limit, from)
            .filter(|entry| !entry.cost.is_zero())
            .last()
            .map(|last| last.at.saturating_add(limit.period()));
        let reset_after = empty_at.unwrap_or(from).saturating_since(now);
        Status::counted(limit.limit(), used, reset_after)
    }

    /// What counts at `from`, in billionths of a token.
    pub(crate) fn used(&self, limit: &Window, from: Timestamp) -> u128 {
        self.live(limit, from).fold(0, |sum, entry| sum.saturating_add(entry.cost.billionths()))
    }

    /// Time does not run back within a log.
    pub(crate) fn not_before(&self, now: Timestamp) -> Timestamp {
        self.entries.back().map_or(now, |last| last.at.max(now))
    }

    fn live(&self, limit: &Window, from: Timestamp) -> impl Iterator<Item = &Entry> {
        let period = limit.period();
        self.entries.iter().skip_while(move |entry| entry.has_expired(period, from))
    }
}

impl Entry {
    fn has_expired(&self, period: Duration, now: Timestamp) -> bool {
        int::nanos(now.saturating_since(self.at)) >= int::nanos(period)
    }
}
