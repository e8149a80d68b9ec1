//! Aligned windows: a count, and the window it belongs to.

use num_traits::Zero;

use super::answer::Status;
use super::number::{Q, floor_u64, whole};
use super::spec::{Windows, zero};

/// A fixed limit in use.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    limit: Q,
    windows: Windows,
    /// The last window in which anything was taken or booked.
    begin: u64,
    end: u64,
    used: Q,
}

impl Counter {
    pub(super) fn new(limit: &Q, windows: Windows) -> Counter {
        Counter { limit: limit.clone(), windows, begin: 0, end: 0, used: zero() }
    }

    /// The instant at which the cost passes, if it does not pass at `now`.
    pub(super) fn ready(&self, now: u64, cost: &Q) -> Option<Q> {
        if now >= self.end {
            return None;
        }
        if &self.used + cost > self.limit {
            return Some(whole(self.end));
        }
        (self.begin > now).then(|| whole(self.begin))
    }

    /// Takes the cost as of an instant; answers the window that it went into.
    pub(super) fn charge(&mut self, at: u64, cost: &Q) -> u64 {
        if at >= self.end {
            (self.begin, self.end) = self.windows.around(at);
            self.used = zero();
        }
        self.used += cost;
        self.begin
    }

    /// Gives back what a booking did not need, unless its window is over.
    pub(super) fn refund(&mut self, begin: u64, unneeded: &Q) {
        if begin == self.begin {
            self.used -= unneeded;
        }
    }

    /// `now`, or when the window of what was booked last begins.
    pub(super) fn not_before(&self, now: u64) -> u64 {
        if now < self.end { self.begin.max(now) } else { now }
    }

    /// What counts for the next call at `now`, a booking ahead included.
    pub(super) fn counted(&self, now: u64) -> Q {
        if now >= self.end { zero() } else { self.used.clone() }
    }

    pub(super) fn status(&self, now: u64) -> Status {
        let left = if now >= self.end {
            self.limit.clone()
        } else if now < self.begin {
            zero()
        } else {
            &self.limit - &self.used
        };
        let new_at = if self.used.is_zero() { self.begin } else { self.end };
        let reset_after = new_at.saturating_sub(now);
        Status { limit: floor_u64(&self.limit), remaining: floor_u64(&left), burst_left: floor_u64(&left), reset_after }
    }
}
