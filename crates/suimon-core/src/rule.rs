//! One limit of a policy, ready to decide on its slot of the state.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::calendar::{Calendar, Every};
use crate::cost::Cost;
use crate::decision::Status;
use crate::error::Error;
use crate::fixed::{Count, EpochWindows, FixedRule};
use crate::gcra::{FRESH, Gcra};
use crate::limit::{Limit, Window};
use crate::state::Slot;
use crate::time::Timestamp;
use crate::window::Log;

#[derive(Clone, Debug)]
pub(crate) enum Rule {
    Gcra(Gcra),
    Window(Window),
    Fixed(FixedRule),
    Unlimited,
    Block,
}

/// When a cost would begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// The instant, rounded up to a nanosecond.
    pub(crate) at: Timestamp,
    /// The tick behind it, for a pace or bucket: rounding the instant back would
    /// add up from one reservation to the next.
    tick: u64,
}

/// What a reservation keeps of one limit, to be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The word right after the booking.
    word: u64,
    /// The ticks given back before it.
    refunded: u64,
}

impl Mark {
    pub(crate) fn new(word: u64, refunded: u64) -> Mark {
        Mark { word, refunded }
    }

    pub(crate) fn parts(self) -> (u64, u64) {
        (self.word, self.refunded)
    }
}

impl Rule {
    pub(crate) fn new(limit: &Limit, calendar: &dyn Calendar) -> Result<Rule, Error> {
        Ok(match limit {
            Limit::Pace(pace) => Rule::Gcra(pace.gcra()),
            Limit::Bucket(bucket) => Rule::Gcra(bucket.gcra()),
            Limit::Window(window) => Rule::Window(*window),
            Limit::Fixed(fixed) => {
                let boundaries = match fixed.every() {
                    Every::Period { nanos } => Arc::new(EpochWindows { length: *nanos }),
                    Every::Calendar { unit, at_minute, zone } => calendar.boundaries(*unit, *at_minute, zone)?,
                };
                Rule::Fixed(FixedRule { limit: fixed.limit(), boundaries })
            }
            Limit::Unlimited => Rule::Unlimited,
            Limit::Block => Rule::Block,
        })
    }

    /// A slot as good as new.
    pub(crate) fn fresh(&self) -> Slot {
        match self {
            Rule::Gcra(_) => Slot::Word { word: FRESH, refunded: 0 },
            Rule::Window(_) => Slot::Log(Box::default()),
            Rule::Fixed(_) => Slot::Count(Count::default()),
            Rule::Unlimited | Rule::Block => Slot::Nothing,
        }
    }

    /// A slot that has this balance at `now`.
    pub(crate) fn with_balance(&self, now: Timestamp, balance: Cost) -> Result<Slot, Error> {
        let used = |size: Cost| {
            if balance > size {
                Err(crate::OutOfRange::above_savings(balance, size))
            } else {
                Ok(size.saturating_sub(balance))
            }
        };
        Ok(match self {
            Rule::Gcra(gcra) => Slot::Word { word: gcra.with_balance(now, balance)?, refunded: 0 },
            Rule::Window(window) => Slot::Log(Box::new(Log::with_used(used(window.limit())?, now))),
            Rule::Fixed(rule) => Slot::Count(Count::with_used(rule, used(rule.limit)?, now)),
            Rule::Unlimited | Rule::Block => Slot::Nothing,
        })
    }

    /// The largest cost that can ever pass, if the cost matters at all.
    pub(crate) fn max_cost(&self) -> Option<Cost> {
        match self {
            Rule::Gcra(gcra) => Some(gcra.max_cost()),
            Rule::Window(window) => Some(window.limit()),
            Rule::Fixed(rule) => Some(rule.limit),
            Rule::Unlimited | Rule::Block => None,
        }
    }

    /// The first instant, not before `now`, at which `cost` would pass if
    /// nothing else happened; `None` for never.
    pub(crate) fn ready(&self, slot: &Slot, now: Timestamp, cost: Cost) -> Result<Option<Start>, Error> {
        let at = match (self, slot) {
            (Rule::Block, Slot::Nothing) => return Ok(None),
            (_, _) if cost.is_zero() => now,
            (Rule::Gcra(gcra), Slot::Word { word, .. }) => return Ok(Some(gcra_ready(gcra, *word, now, cost))),
            (Rule::Window(window), Slot::Log(log)) => log.ready(window, now, cost),
            (Rule::Fixed(rule), Slot::Count(count)) => count.ready(rule, now, cost),
            (Rule::Unlimited, Slot::Nothing) => now,
            _ => return Err(Error::mismatch()),
        };
        Ok(Some(Start { at, tick: 0 }))
    }

    /// Would a charge at `start` fit the state?
    pub(crate) fn can_charge(&self, slot: &Slot, start: Start, cost: Cost) -> bool {
        match (self, slot) {
            (Rule::Gcra(gcra), Slot::Word { word, .. }) => {
                let fits = gcra.ticks().of_cost(cost).and_then(|cost| gcra.book(*word, start.tick, cost)).is_some();
                fits && gcra.ticks().counts(start.at)
            }
            _ => start.at < Timestamp::MAX,
        }
    }

    /// Charges a cost that begins at `start`, which must be ready and fit.
    pub(crate) fn charge(&self, slot: &mut Slot, start: Start, cost: Cost) {
        if cost.is_zero() {
            return;
        }
        match (self, slot) {
            (Rule::Gcra(gcra), Slot::Word { word, .. }) => {
                let ticks = gcra.ticks().of_cost(cost).unwrap_or(u64::MAX);
                *word = gcra.book(*word, start.tick, ticks).unwrap_or(u64::MAX);
            }
            (Rule::Window(window), Slot::Log(log)) => log.charge(window, start.at, cost),
            (Rule::Fixed(rule), Slot::Count(count)) => count.charge(rule, start.at, cost),
            _ => {}
        }
    }

    /// The start of this limit's part of a reservation that begins, because of
    /// other limits, at `at`.
    pub(crate) fn start_at(&self, own: Start, at: Timestamp) -> Start {
        match self {
            Rule::Gcra(gcra) if at > own.at => Start { at, tick: gcra.ticks().at(at) },
            _ => Start { at, ..own },
        }
    }

    /// What to remember of a booking that has just been charged.
    pub(crate) fn mark(slot: &Slot) -> Mark {
        match slot {
            Slot::Word { word, refunded } => Mark { word: *word, refunded: *refunded },
            _ => Mark { word: 0, refunded: 0 },
        }
    }

    /// Gives back `estimate - actual` of a booking that began at `start`.
    ///
    /// A word does not say what happened since. What has been refilled
    /// meanwhile must not be given a second time, so a pace or bucket gives back
    /// at most what is still unpaid of the stretch that ended with this booking.
    pub(crate) fn refund(
        &self,
        slot: &mut Slot,
        mark: Mark,
        start: Timestamp,
        now: Timestamp,
        estimate: Cost,
        actual: Cost,
    ) {
        match (self, slot) {
            (Rule::Gcra(gcra), Slot::Word { word, refunded }) => {
                let ticks = gcra.ticks();
                let difference = ticks
                    .of_cost(estimate)
                    .zip(ticks.of_cost(actual))
                    .map_or(0, |(estimate, actual)| estimate.saturating_sub(actual));
                let since = refunded.wrapping_sub(mark.refunded);
                let unpaid = mark.word.saturating_sub(since).saturating_sub(ticks.at(now));
                let back = difference.min(unpaid);
                *word = word.saturating_sub(back);
                *refunded = refunded.wrapping_add(back);
            }
            (_, Slot::Log(log)) => log.refund(start, estimate.saturating_sub(actual)),
            (_, Slot::Count(count)) => count.refund(start, estimate.saturating_sub(actual)),
            _ => {}
        }
    }

    /// Charges what went beyond the estimate, at `now`, even into debt.
    pub(crate) fn charge_excess(&self, slot: &mut Slot, now: Timestamp, excess: Cost) {
        match (self, slot) {
            (Rule::Gcra(gcra), Slot::Word { word, .. }) => {
                let ticks = gcra.ticks().of_cost(excess).unwrap_or(u64::MAX);
                *word = (*word).max(gcra.ticks().at(now)).saturating_add(ticks);
            }
            (Rule::Window(window), Slot::Log(log)) => log.charge(window, now, excess),
            (Rule::Fixed(rule), Slot::Count(count)) => count.charge(rule, now, excess),
            _ => {}
        }
    }

    /// Is it a slot of this kind of limit?
    pub(crate) fn fits(&self, slot: &Slot) -> bool {
        matches!(
            (self, slot),
            (Rule::Gcra(_), Slot::Word { .. })
                | (Rule::Window(_), Slot::Log(_))
                | (Rule::Fixed(_), Slot::Count(_))
                | (Rule::Unlimited | Rule::Block, Slot::Nothing)
        )
    }

    pub(crate) fn status(&self, slot: &Slot, now: Timestamp) -> Result<Status, Error> {
        match (self, slot) {
            (Rule::Gcra(gcra), Slot::Word { word, .. }) => Ok(gcra.status(*word, now)),
            (Rule::Window(window), Slot::Log(log)) => Ok(log.status(window, now)),
            (Rule::Fixed(rule), Slot::Count(count)) => Ok(count.status(rule, now)),
            (Rule::Unlimited, Slot::Nothing) => Ok(Status::UNLIMITED),
            (Rule::Block, Slot::Nothing) => Ok(Status::BLOCK),
            _ => Err(Error::mismatch()),
        }
    }
}

fn gcra_ready(gcra: &Gcra, word: u64, now: Timestamp, cost: Cost) -> Start {
    let ticks = gcra.ticks();
    // The largest cost fits the word, and no larger one comes here.
    let cost = ticks.of_cost(cost).unwrap_or(u64::MAX);
    let tick_now = ticks.at(now);
    let tick = gcra.ready(word, tick_now, cost);
    let at = if tick <= tick_now { now } else { now.saturating_add(ticks.until(tick, now)) };
    Start { at, tick }
}
