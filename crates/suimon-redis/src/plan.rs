//! Limits, made ready for the scripts.
//!
//! What a script is told of the limits of a key is a string of doubles: what it does with
//! them (0 charges, 1 gives back, 2 takes a lease back, 3 nothing), is the cost zero, how many limits, the
//! number of their tag, the epoch of a booking; then for each its kind and
//!
//! | kind | numbers |
//! |---|---|
//! | 1, pace or bucket | units of a microsecond, cost, slack, spare |
//! | 2, window | limit, cost, period, start of the booking |
//! | 3, fixed | limit, cost, start of the booking, length in microseconds or 0, count of windows, the windows |
//! | 4 unlimited, 5 block | none |
//!
//! To give back, the slack is the arrival right after the booking, and the spare what had been given back before
//! it. A bucket that lends is told as well, all of them pairs, the most in units; the most and the
//! least as costs; four tokens and one in units; the lifetime. One that takes a lease back: when that
//! ends, and its number.
//!
//! It passes a pace or bucket if the arrival is not later than now and the *slack*, which is the
//! *spare* (the savings, less what is paid first) and the longest wait together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use suimon::store::LeaseTicket;
use suimon::{Boundaries, Calendar, Cost, Every, Gate, Limit, Policy, Timestamp};

use crate::booked::Booked;
use crate::error::{self, Error};
use crate::record::{Layout, Tag, put};
use crate::units::{MOST_PER_NANO, Units, billionths, cost_pair, nanos_pair};

/// The limits of a key in a version, ready to be asked about.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) tag: Tag,
    /// The tag as it stands in values.
    pub(crate) tag_bytes: Vec<u8>,
    /// The number that stands for it.
    pub(crate) number: f64,
    pub(crate) rules: Vec<Rule>,
    gate: Gate,
}

/// One limit.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    Gcra(Gcra),
    Window { limit: Cost, period: u64 },
    Fixed { limit: Cost, windows: Windows },
    Unlimited,
    Block,
}

/// A pace or bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gcra {
    pub(crate) units: Units,
    /// In units.
    pub(crate) savings: u128,
    pub(crate) pays_first: bool,
    pub(crate) max_cost: Cost,
}

/// The windows of a fixed limit.
#[derive(Clone)]
pub(crate) enum Windows {
    /// Counted from the epoch, in microseconds: the script finds them by itself.
    Micros(u64),
    /// The script is told those around the time that it is probably.
    Listed(Arc<dyn Boundaries>),
}

impl fmt::Debug for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Windows::Micros(length) => write!(f, "Micros({length})"),
            Windows::Listed(_) => f.write_str("Listed"),
        }
    }
}

/// What a call wants of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) cost: Cost,
    /// The longest wait; `None` for any.
    pub(crate) max_wait: Option<Duration>,
    /// About when that is: windows around it are listed.
    pub(crate) around: Timestamp,
}

const CHARGES: f64 = 0.0;
const GIVES_BACK: f64 = 1.0;
const RETURNS: f64 = 2.0;
const NOTHING: f64 = 3.0;

impl Plan {
    pub(crate) fn new(policy: Policy, version: u64, calendar: &dyn Calendar) -> Result<Plan, Error> {
        let rules = policy.limits().iter().map(|limit| Rule::new(limit, calendar)).collect::<Result<_, _>>()?;
        let tag = Tag { version, policy: policy.to_string() };
        let gate = Gate::with_calendar(policy, calendar)?;
        Ok(Plan { tag_bytes: tag.to_bytes(), number: tag.number(), tag, rules, gate })
    }

    /// The same limits in another version.
    pub(crate) fn with_version(&self, version: u64) -> Plan {
        let tag = Tag { version, policy: self.tag.policy.clone() };
        Plan {
            tag_bytes: tag.to_bytes(),
            number: tag.number(),
            tag,
            rules: self.rules.clone(),
            gate: self.gate.clone(),
        }
    }

    /// The errors of the arguments.
    pub(crate) fn check(&self, cost: Cost) -> Result<(), Error> {
        self.gate.peek(&self.gate.fresh(), Timestamp::ZERO, cost)?;
        Ok(())
    }

    /// The pace or bucket that it is, if it is just one.
    pub(crate) fn gcra(&self) -> Option<&Gcra> {
        match self.rules.as_slice() {
            [Rule::Gcra(gcra)] => Some(gcra),
            _ => None,
        }
    }

    /// Can tokens be leased of it?
    pub(crate) fn lends(&self) -> bool {
        self.gcra().is_some_and(|gcra| gcra.pays_first)
    }

    pub(crate) fn layouts(&self) -> impl Iterator<Item = Layout> {
        self.rules.iter().map(|rule| match rule {
            Rule::Gcra(gcra) => Layout::Gcra(gcra.units),
            Rule::Window { .. } => Layout::Window,
            Rule::Fixed { .. } => Layout::Fixed,
            Rule::Unlimited | Rule::Block => Layout::Nothing,
        })
    }

    /// What the script is told in order to decide, or to charge what went beyond an
    /// estimate.
    pub(crate) fn to_charge(&self, ask: Ask) -> Vec<u8> {
        let mut bytes = self.head(CHARGES, ask.cost.is_zero(), 0);
        self.put_charges(&mut bytes, ask);
        bytes
    }

    /// What it is told in order to do nothing with them.
    pub(crate) fn to_leave(&self, around: Timestamp) -> Vec<u8> {
        let mut bytes = self.head(NOTHING, true, 0);
        self.put_charges(&mut bytes, Ask { cost: Cost::ZERO, max_wait: None, around });
        bytes
    }

    /// What it is told in order to lend at least the cost that is asked for, and `most` at the most.
    pub(crate) fn to_lend(&self, least: Ask, most: Cost, lifetime: Duration) -> Vec<u8> {
        let mut bytes = self.head(CHARGES, false, 0);
        self.put_charges(&mut bytes, least);
        let Some(Gcra { units, .. }) = self.gcra() else { return bytes };
        put(&mut bytes, &units.pair(units.of_cost(most)));
        for cost in [most, least.cost] {
            put(&mut bytes, &cost_pair(billionths(cost)));
        }
        for tokens in [4, 1] {
            put(&mut bytes, &units.pair(tokens * units.per_token));
        }
        put(&mut bytes, &nanos_pair(nanos(lifetime)));
        bytes
    }

    /// What it is told in order to take a lease back, of which so much was spent.
    pub(crate) fn to_take_back(&self, lease: LeaseTicket, spent: Cost, around: Timestamp) -> Vec<u8> {
        let mut bytes = self.head(RETURNS, false, 0);
        let Some(Gcra { units, .. }) = self.gcra() else {
            self.put_charges(&mut bytes, Ask { cost: Cost::ZERO, max_wait: None, around });
            return bytes;
        };
        // Rounded up when it was charged: what goes back is rounded down.
        let back = units.of_cost(lease.granted).saturating_sub(units.of_cost(spent));
        put(&mut bytes, &[1.0, units.base() as f64]);
        put(&mut bytes, &units.pair(back));
        put(&mut bytes, &[0.0; 4]);
        put(&mut bytes, &nanos_pair(lease.expires.as_nanos()));
        put(&mut bytes, &[lease.id as f64]);
        bytes
    }

    fn put_charges(&self, bytes: &mut Vec<u8>, ask: Ask) {
        for rule in &self.rules {
            match rule {
                Rule::Gcra(gcra) => {
                    let spare = gcra.spare(ask.cost);
                    let [base, cost, slack] = gcra.charge(ask);
                    put(bytes, &[1.0, base[0], cost[0], cost[1], slack[0], slack[1]]);
                    put(bytes, &gcra.units.pair(spare));
                }
                Rule::Window { .. } | Rule::Fixed { .. } => rule.counted(bytes, ask.cost, 0, ask.around),
                Rule::Unlimited => put(bytes, &[4.0]),
                Rule::Block => put(bytes, &[5.0]),
            }
        }
    }

    /// What it is told in order to give back the difference of two costs of a booking.
    pub(crate) fn to_give_back(&self, booked: &Booked, actual: Cost) -> Vec<u8> {
        let difference = booked.estimate.saturating_sub(actual);
        let mut bytes = self.head(GIVES_BACK, difference.is_zero(), booked.epoch);
        for (rule, mark) in self.rules.iter().zip(&booked.marks) {
            match rule {
                Rule::Gcra(gcra) => {
                    // Both are rounded up to a unit: so nothing is minted.
                    let units = gcra.units;
                    let back = units.of_cost(booked.estimate).saturating_sub(units.of_cost(actual));
                    put(&mut bytes, &[1.0, units.base() as f64]);
                    put(&mut bytes, &units.pair(back));
                    put(&mut bytes, &units.pair(mark.arrival));
                    put(&mut bytes, &units.pair(mark.back));
                }
                Rule::Window { .. } | Rule::Fixed { .. } => {
                    rule.counted(&mut bytes, difference, booked.start, Timestamp::from_nanos(booked.start));
                }
                Rule::Unlimited => put(&mut bytes, &[4.0]),
                Rule::Block => put(&mut bytes, &[5.0]),
            }
        }
        bytes
    }

    fn head(&self, does: f64, is_free: bool, epoch: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(40 + 80 * self.rules.len());
        put(&mut bytes, &[does, f64::from(u8::from(is_free)), self.rules.len() as f64, self.number, epoch as f64]);
        bytes
    }
}

impl Gcra {
    /// The savings, less what is paid first.
    pub(crate) fn spare(&self, cost: Cost) -> u128 {
        let first = if self.pays_first { self.units.of_cost(cost) } else { 0 };
        self.savings.saturating_sub(first)
    }

    /// The base, the cost and the slack, as both scripts want them.
    pub(crate) fn charge(&self, ask: Ask) -> [[f64; 2]; 3] {
        let units = self.units;
        let slack = match ask.max_wait {
            Some(wait) => self.spare(ask.cost).saturating_add(units.at(nanos(wait))),
            None => u128::MAX,
        };
        [[units.base() as f64, 0.0], units.pair(units.of_cost(ask.cost)), units.pair(slack)]
    }
}

impl Rule {
    fn new(limit: &Limit, calendar: &dyn Calendar) -> Result<Rule, Error> {
        let (quota, savings, pays_first, max_cost) = match limit {
            Limit::Pace(pace) => (pace.quota(), pace.savings(), false, pace.max_cost()),
            Limit::Bucket(bucket) => (bucket.quota(), bucket.burst(), true, bucket.burst()),
            Limit::Window(window) => return Ok(Rule::Window { limit: window.limit(), period: nanos(window.period()) }),
            Limit::Fixed(fixed) => return Rule::fixed(fixed.limit(), fixed.every(), calendar),
            Limit::Unlimited => return Ok(Rule::Unlimited),
            Limit::Block => return Ok(Rule::Block),
            _ => return Err(error::unsupported(format!("the Redis store does not know the limit `{limit}`"))),
        };
        let units = Units::of(quota).ok_or_else(|| {
            error::unsupported(format!(
                "the rate of `{limit}` cannot be counted exactly in Redis: tokens and nanoseconds of its period, \
                 without their common factors, have more than {MOST_PER_NANO} tokens; take a rounder rate"
            ))
        })?;
        let savings = units.of_cost(savings);
        Ok(Rule::Gcra(Gcra { units, savings, pays_first, max_cost }))
    }

    fn fixed(limit: Cost, every: &Every, calendar: &dyn Calendar) -> Result<Rule, Error> {
        let windows = match every {
            Every::Period { nanos, .. } if nanos.get() % 1000 == 0 => Windows::Micros(nanos.get() / 1000),
            Every::Period { nanos, .. } => Windows::Listed(Arc::new(EpochWindows(nanos.get()))),
            Every::Calendar { unit, at_minute, zone, .. } => {
                Windows::Listed(calendar.boundaries(*unit, *at_minute, zone)?)
            }
            _ => return Err(error::unsupported("the Redis store does not know these fixed windows")),
        };
        Ok(Rule::Fixed { limit, windows })
    }

    /// The numbers of a window or a fixed limit.
    fn counted(&self, bytes: &mut Vec<u8>, cost: Cost, start: u64, around: Timestamp) {
        let cost = cost_pair(billionths(cost));
        match self {
            Rule::Window { limit, period } => {
                put(bytes, &[2.0]);
                for pair in [cost_pair(billionths(*limit)), cost, nanos_pair(*period), nanos_pair(start)] {
                    put(bytes, &pair);
                }
            }
            Rule::Fixed { limit, windows } => {
                put(bytes, &[3.0]);
                for pair in [cost_pair(billionths(*limit)), cost, nanos_pair(start)] {
                    put(bytes, &pair);
                }
                match windows {
                    Windows::Micros(length) => put(bytes, &[*length as f64, 0.0]),
                    Windows::Listed(boundaries) => {
                        let spans = around_it(&**boundaries, around);
                        put(bytes, &[0.0, spans.len() as f64]);
                        for (start, end) in spans {
                            put(bytes, &nanos_pair(start));
                            put(bytes, &nanos_pair(end));
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// The windows before, at and after an instant.
fn around_it(boundaries: &dyn Boundaries, around: Timestamp) -> Vec<(u64, u64)> {
    let at = |t: u64| {
        let span = boundaries.window(Timestamp::from_nanos(t));
        (span.start.as_nanos(), span.end.as_nanos())
    };
    let this = at(around.as_nanos());
    let before = this.0.checked_sub(1).map(at);
    let after = at(this.1);
    let spans = [before, Some(this), Some(after), Some(at(after.1))];
    // At the end of time windows do not go on.
    spans.into_iter().flatten().filter(|(start, end)| start < end).collect()
}

/// Windows of equal length from the epoch on, that are no whole microseconds.
#[derive(Debug)]
struct EpochWindows(u64);

impl Boundaries for EpochWindows {
    fn window(&self, t: Timestamp) -> suimon::Span {
        let start = t.as_nanos() - t.as_nanos() % self.0;
        let end = start.saturating_add(self.0);
        suimon::Span { start: Timestamp::from_nanos(start), end: Timestamp::from_nanos(end) }
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
