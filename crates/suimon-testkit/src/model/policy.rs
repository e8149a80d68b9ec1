//! Several limits together: all or nothing.

use num_traits::Zero;

use super::answer::{Booking, Decision, Fault, Retry, Status};
use super::fixed::Counter;
use super::gcra::{Gcra, Held};
use super::number::{Q, ceil_u64, whole};
use super::spec::{Grain, Spec};
use super::window::Log;

/// A policy in use: its limits, and all that has passed.
///
/// Instants are whole nanoseconds and are taken as they are; whoever wants time
/// that never runs back passes the latest instant seen.
#[derive(Clone, Debug)]
pub struct Model {
    pub(super) limits: Vec<Limit>,
    pub(super) origin: u64,
    pub(super) grain: GrainRule,
    /// How often the limits were changed; a booking made before gives nothing back.
    pub(super) version: u64,
}

/// Which grain the limits with a rate get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrainRule {
    Exact,
    Ticks,
}

/// One limit in use.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) spec: Spec,
    pub(super) used: Used,
}

#[derive(Clone, Debug)]
pub(super) enum Used {
    Gcra(Box<Gcra>),
    Window(Log),
    Fixed(Counter),
    Nothing,
}

/// A booking that may be settled once.
#[derive(Clone, Debug)]
pub struct Ticket {
    start: u64,
    estimate: Q,
    version: u64,
    /// What it took of each limit; empty where it was free.
    parts: Vec<Part>,
}

impl Ticket {
    /// The instant at which it may begin.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The cost that was booked.
    #[must_use]
    pub fn estimate(&self) -> &Q {
        &self.estimate
    }
}

#[derive(Clone, Debug)]
enum Part {
    Gcra(Box<Held>),
    /// The index of the entry.
    Window(usize),
    /// The beginning of the window.
    Fixed(u64),
    Nothing,
}

impl Model {
    /// Limits that have seen nothing, made at the instant `origin`; exact.
    #[must_use]
    pub fn new(specs: Vec<Spec>, origin: u64) -> Model {
        Model::with_rule(specs, origin, GrainRule::Exact)
    }

    /// The same, but every limit with a rate counts in ticks from `origin` on,
    /// of the size that [`Grain::of`] gives its rate.
    #[must_use]
    pub fn in_ticks(specs: Vec<Spec>, origin: u64) -> Model {
        Model::with_rule(specs, origin, GrainRule::Ticks)
    }

    pub(super) fn with_rule(specs: Vec<Spec>, origin: u64, grain: GrainRule) -> Model {
        let limits = specs.into_iter().map(|spec| Limit::new(spec, origin, grain)).collect();
        Model { limits, origin, grain, version: 0 }
    }

    /// Starts every limit with this balance at `now`.
    ///
    /// # Errors
    /// When it is negative or above what one of them holds.
    pub fn start_with(&mut self, now: u64, balance: &Q) -> Result<(), Fault> {
        for size in self.limits.iter().filter_map(|limit| limit.spec.size()) {
            if balance < &Q::zero() || balance > size {
                return Err(Fault::OutOfRange(format!("a balance of {balance} where {size} is the most")));
            }
        }
        for limit in &mut self.limits {
            limit.set_left(now, balance);
        }
        Ok(())
    }

    /// Takes the cost from every limit now, or from none.
    ///
    /// # Errors
    /// When the cost is negative or above the largest of a limit.
    pub fn allow(&mut self, now: u64, cost: &Q) -> Result<Decision, Fault> {
        let decision = self.peek(now, cost)?;
        if !decision.is_allowed() || cost.is_zero() {
            return Ok(decision);
        }
        for limit in &mut self.limits {
            limit.charge(now, &whole(now), cost);
        }
        Ok(Decision { status: self.status(now), retry: None })
    }

    /// What [`Model::allow`] would answer, with the status as it is.
    ///
    /// # Errors
    /// As for [`Model::allow`].
    pub fn peek(&self, now: u64, cost: &Q) -> Result<Decision, Fault> {
        self.check(cost)?;
        let Some(retry) = self.longest_wait(now, cost) else {
            return Ok(Decision { status: self.status(now), retry: None });
        };
        Ok(Decision { status: self.limits[retry.limit].status(now), retry: Some(retry) })
    }

    /// Books the cost behind all earlier bookings, unless that would take longer
    /// than `within` nanoseconds.
    ///
    /// It starts at the latest of the instants at which the limits are ready for
    /// it, and every limit is charged as of that start.
    ///
    /// # Errors
    /// As for [`Model::allow`].
    pub fn reserve(&mut self, now: u64, cost: &Q, within: Option<u64>) -> Result<Booking, Fault> {
        self.check(cost)?;
        let wait = match self.longest_wait(now, cost) {
            None => 0,
            Some(Retry { wait: Some(wait), .. }) if within.is_none_or(|within| wait <= within) => wait,
            Some(Retry { wait, limit }) => {
                let retry = Retry { wait: wait.map(|wait| wait - within.unwrap_or(0)), limit };
                return Ok(Booking::Denied { status: self.limits[limit].status(now), retry });
            }
        };
        let start = now + wait;
        let mut parts = Vec::new();
        if !cost.is_zero() {
            for limit in &mut self.limits {
                // The limit for which the others wait is charged as of the exact
                // instant at which it is ready; the start is that instant rounded
                // up, and charging as of it would add up the rounding.
                let ready = limit.ready(now, cost).filter(|ready| ceil_u64(ready) == start);
                parts.push(limit.charge(start, &ready.unwrap_or_else(|| whole(start)), cost));
            }
        }
        let ticket = Ticket { start, estimate: cost.clone(), version: self.version, parts };
        Ok(Booking::Booked { status: self.status(now), wait, ticket })
    }

    /// Replaces the estimate of a booking by what it really cost: the excess is
    /// taken now, into debt if need be; what was not needed is given back.
    ///
    /// # Errors
    /// When the cost is negative. It may be above the largest: it has been spent.
    pub fn settle(&mut self, now: u64, ticket: Ticket, actual: &Q) -> Result<(), Fault> {
        if actual < &Q::zero() {
            return Err(Fault::InvalidCost);
        }
        if actual > &ticket.estimate {
            for limit in &mut self.limits {
                limit.charge(now, &whole(now), &(actual - &ticket.estimate));
            }
        } else if ticket.version == self.version {
            let unneeded = &ticket.estimate - actual;
            for (limit, part) in self.limits.iter_mut().zip(ticket.parts) {
                match (&mut limit.used, part) {
                    (Used::Gcra(gcra), Part::Gcra(held)) => gcra.refund(now, &held, &ticket.estimate, actual),
                    (Used::Window(log), Part::Window(index)) => log.refund(index, &unneeded),
                    (Used::Fixed(counter), Part::Fixed(begin)) => counter.refund(begin, &unneeded),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// How each limit stands at `now`.
    #[must_use]
    pub fn statuses(&self, now: u64) -> Vec<Status> {
        self.limits.iter().map(|limit| limit.status(now)).collect()
    }

    /// How the tightest limit stands: the one that lets the fewest calls pass,
    /// of equals the one that takes longest to be as good as new.
    #[must_use]
    pub fn status(&self, now: u64) -> Status {
        let tightness = |status: &Status| (status.burst_left, u64::MAX - status.reset_after);
        // `min_by_key` takes the first of equals.
        self.statuses(now).into_iter().min_by_key(tightness).unwrap_or(UNLIMITED)
    }

    /// Costs are judged before anything else is looked at.
    fn check(&self, cost: &Q) -> Result<(), Fault> {
        if cost < &Q::zero() {
            return Err(Fault::InvalidCost);
        }
        let is_too_large = |limit: &Limit| limit.spec.max_cost().is_some_and(|most| cost > most);
        match self.limits.iter().position(is_too_large) {
            Some(limit) => Err(Fault::CostTooLarge { limit }),
            None => Ok(()),
        }
    }

    /// The longest wait that a limit asks for, or `None` if all let the cost pass.
    fn longest_wait(&self, now: u64, cost: &Q) -> Option<Retry> {
        let mut longest: Option<Retry> = None;
        for (index, limit) in self.limits.iter().enumerate() {
            let wait = match (&limit.spec, limit.ready(now, cost)) {
                (Spec::Block, _) => None,
                (_, None) => continue,
                (_, Some(ready)) => Some(ceil_u64(&(ready - whole(now)))),
            };
            let is_longer = longest
                .is_none_or(|longest| longest.wait.is_some_and(|longest| wait.is_none_or(|wait| wait > longest)));
            if is_longer {
                longest = Some(Retry { wait, limit: index });
            }
        }
        longest
    }
}

const UNLIMITED: Status = Status { limit: u64::MAX, remaining: u64::MAX, burst_left: u64::MAX, reset_after: 0 };
const BLOCK: Status = Status { limit: 0, remaining: 0, burst_left: 0, reset_after: 0 };

impl Limit {
    pub(super) fn new(spec: Spec, origin: u64, rule: GrainRule) -> Limit {
        let grain = |rate| (rule == GrainRule::Ticks).then(|| Grain::of(rate));
        let used = match &spec {
            Spec::Pace { rate, savings, max_cost } => {
                Used::Gcra(Box::new(Gcra::new(*rate, savings, max_cost, false, grain(*rate), origin)))
            }
            Spec::Bucket { rate, burst } => {
                Used::Gcra(Box::new(Gcra::new(*rate, burst, burst, true, grain(*rate), origin)))
            }
            Spec::Window { limit, period } => Used::Window(Log::new(limit, *period)),
            Spec::Fixed { limit, windows } => Used::Fixed(Counter::new(limit, windows.clone())),
            Spec::Unlimited | Spec::Block => Used::Nothing,
        };
        Limit { spec, used }
    }

    /// The instant at which the cost passes, if it does not pass at `now`. What
    /// is free always passes.
    fn ready(&self, now: u64, cost: &Q) -> Option<Q> {
        if cost.is_zero() {
            return None;
        }
        match &self.used {
            Used::Gcra(gcra) => gcra.ready(now, cost),
            Used::Window(log) => log.ready(now, cost),
            Used::Fixed(counter) => counter.ready(now, cost),
            Used::Nothing => None,
        }
    }

    /// Takes the cost at the instant `start`; a rate may know it more exactly.
    fn charge(&mut self, start: u64, exactly: &Q, cost: &Q) -> Part {
        match &mut self.used {
            Used::Gcra(gcra) => Part::Gcra(Box::new(gcra.charge(exactly, cost))),
            Used::Window(log) => Part::Window(log.charge(start, cost)),
            Used::Fixed(counter) => Part::Fixed(counter.charge(start, cost)),
            Used::Nothing => Part::Nothing,
        }
    }

    /// Lets `left` be at hand at `now`.
    fn set_left(&mut self, now: u64, left: &Q) {
        let taken = self.spec.size().map_or_else(Q::zero, |size| size - left);
        match &mut self.used {
            Used::Gcra(gcra) => gcra.start_with(now, left),
            Used::Window(log) => drop(log.charge(now, &taken)),
            Used::Fixed(counter) => drop(counter.charge(now, &taken)),
            Used::Nothing => {}
        }
    }

    fn status(&self, now: u64) -> Status {
        match &self.used {
            Used::Gcra(gcra) => gcra.status(now),
            Used::Window(log) => log.status(now),
            Used::Fixed(counter) => counter.status(now),
            Used::Nothing if matches!(self.spec, Spec::Block) => BLOCK,
            Used::Nothing => UNLIMITED,
        }
    }
}
