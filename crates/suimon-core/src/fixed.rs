//! The count of a `fixed` limit: one window at a time.

use alloc::sync::Arc;
use core::num::NonZeroU64;

use crate::calendar::{Boundaries, Span};
use crate::cost::Cost;
use crate::decision::Status;
use crate::int;
use crate::time::Timestamp;

/// A `fixed` limit whose calendar is known.
#[derive(Clone, Debug)]
pub(crate) struct FixedRule {
    pub(crate) limit: Cost,
    pub(crate) boundaries: Arc<dyn Boundaries>,
}

/// What has passed in the latest window in which anything did.
///
/// The window may lie in the future: a reservation. A fresh one has an empty
/// window at the origin, which is over at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    start: Timestamp,
    end: Timestamp,
    used: Cost,
}

impl Count {
    /// A count of `used` in the window that holds `now`.
    pub(crate) fn with_used(rule: &FixedRule, used: Cost, now: Timestamp) -> Count {
        Count { used, ..Count::default().at(rule, now) }
    }

    /// The latest window and what has been used of it.
    pub(crate) fn parts(&self) -> (Timestamp, Timestamp, Cost) {
        (self.start, self.end, self.used)
    }

    /// The inverse.
    pub(crate) fn from_parts(start: Timestamp, end: Timestamp, used: Cost) -> Count {
        Count { start, end, used }
    }

    /// The count as it is at `now`: a new window begins with nothing used.
    fn at(&self, rule: &FixedRule, now: Timestamp) -> Count {
        if now < self.end {
            return *self;
        }
        let Span { start, end } = rule.boundaries.window(now);
        // Boundaries that break their promise must not stop time.
        let end = end.max(now.saturating_add(core::time::Duration::from_nanos(1)));
        Count { start: start.min(now), end, used: Cost::ZERO }
    }

    /// The first instant, not before `now`, at which `cost` would pass.
    pub(crate) fn ready(&self, rule: &FixedRule, now: Timestamp, cost: Cost) -> Timestamp {
        let count = self.at(rule, now);
        let wanted = count.used.billionths().saturating_add(cost.billionths());
        if wanted <= rule.limit.billionths() { count.start.max(now) } else { count.end }
    }

    pub(crate) fn charge(&mut self, rule: &FixedRule, start: Timestamp, cost: Cost) {
        let count = self.at(rule, start);
        *self = Count { used: count.used.saturating_add(cost), ..count };
    }

    /// Gives back a part of what passed at `start`, if that window is still the latest.
    pub(crate) fn refund(&mut self, start: Timestamp, difference: Cost) {
        if (self.start..self.end).contains(&start) {
            self.used = self.used.saturating_sub(difference);
        }
    }

    pub(crate) fn status(&self, rule: &FixedRule, now: Timestamp) -> Status {
        let count = self.at(rule, now);
        // Whoever comes before a reservation has to wait for it.
        let used = if count.start > now { rule.limit } else { count.used };
        let as_new = if count.used.is_zero() { count.start } else { count.end };
        let reset_after = as_new.saturating_since(now);
        Status::counted(rule.limit, used.billionths(), reset_after)
    }

    /// What has been used of the window that holds `now`, or of a later one that
    /// has been booked, and an instant in it.
    pub(crate) fn used(&self, rule: &FixedRule, now: Timestamp) -> (Cost, Timestamp) {
        let count = self.at(rule, now);
        (count.used, count.start.max(now))
    }
}

/// Windows of equal length, counted from the epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochWindows {
    pub(crate) length: NonZeroU64,
}

impl Boundaries for EpochWindows {
    fn window(&self, t: Timestamp) -> Span {
        let nanos = t.as_nanos();
        let start = nanos.saturating_sub(int::rem(nanos, self.length));
        Span {
            start: Timestamp::from_nanos(start),
            end: Timestamp::from_nanos(start.saturating_add(self.length.get())),
        }
    }
}
