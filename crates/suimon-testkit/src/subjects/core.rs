//! The deciding core as a subject, with the adapters that it leaves to callers:
//! a clock that never runs back, and an origin for its time.

use std::collections::HashMap;
use std::time::Duration;

use suimon_core::{
    Booking, Calendar, Carry, Cost, Decision, Error, Gate, HighWater, Limit, Policy, Reservation, State, Status,
    Timestamp, Utc,
};

use crate::golden::{self, Action, Clock, ErrorKind, Opening, Outcome, Refusal, Retry, Subject, Verdict};

/// A gate of `suimon-core`, its state, and the time.
#[derive(Debug)]
pub struct CoreSubject<C = Utc> {
    calendar: C,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    gate: Gate,
    state: State,
    seen: Option<HighWater>,
    /// Subtracted from every instant; zero where windows follow the calendar.
    origin: Timestamp,
    bookings: HashMap<String, Reservation>,
}

impl CoreSubject {
    /// With the calendar of UTC.
    #[must_use]
    pub fn new() -> CoreSubject {
        CoreSubject::with_calendar(Utc)
    }
}

impl Default for CoreSubject {
    fn default() -> CoreSubject {
        CoreSubject::new()
    }
}

impl<C: Calendar> CoreSubject<C> {
    /// With a calendar that knows more zones.
    pub fn with_calendar(calendar: C) -> CoreSubject<C> {
        CoreSubject { calendar, open: None }
    }
}

impl<C: Calendar> Subject for CoreSubject<C> {
    fn name(&self) -> String {
        "suimon-core".to_owned()
    }

    fn counts_in_ticks(&self) -> bool {
        true
    }

    fn open(&mut self, opening: &Opening<'_>) -> Result<(), Refusal> {
        self.open = None;
        let policy: Policy = opening.policy.parse()?;
        // Rates may count from the start of the limiter, and then last a century
        // from there; windows of the calendar count from the epoch, and a clock
        // that runs back may show instants before the start.
        let follows_calendar = policy.limits().iter().any(|limit| matches!(limit, Limit::Fixed(_)));
        let from_zero = follows_calendar || opening.clock == Clock::Raw;
        let origin = if from_zero { Timestamp::ZERO } else { Timestamp::from_nanos(opening.start) };
        let now = since(origin, opening.start);
        let gate = Gate::with_calendar(policy, &self.calendar)?;
        let state = match opening.balance {
            Some(balance) => gate.with_balance(now, cost(balance)?)?,
            None => gate.fresh(),
        };
        let seen = (opening.clock == Clock::HighWater).then(HighWater::new);
        self.open = Some(Open { gate, state, seen, origin, bookings: HashMap::new() });
        Ok(())
    }

    fn act(&mut self, now: u64, action: &Action) -> Result<Outcome, Refusal> {
        let open = self.open.as_mut().ok_or_else(|| Refusal::Broken("nothing is open".to_owned()))?;
        let given = since(open.origin, now);
        let now = open.seen.map_or(given, |seen| given.max(seen.latest()));
        let outcome = open.act(now, action, &self.calendar)?;
        // An argument error comes before the clock is read.
        if let Some(seen) = &mut open.seen {
            seen.observe(now);
        }
        Ok(outcome)
    }
}

impl Open {
    fn act(&mut self, now: Timestamp, action: &Action, calendar: &dyn Calendar) -> Result<Outcome, Refusal> {
        match action {
            Action::Allow { cost: tokens } => Ok(decision(self.gate.allow(&mut self.state, now, cost(tokens)?)?)),
            Action::Peek { cost: tokens } => Ok(decision(self.gate.peek(&self.state, now, cost(tokens)?)?)),
            Action::Reserve { cost: tokens, within, name } => {
                match self.gate.reserve(&mut self.state, now, cost(tokens)?, *within)? {
                    Booking::Booked(status, reservation) => {
                        let wait = reservation.wait();
                        if let Some(name) = name {
                            self.bookings.insert(name.clone(), reservation);
                        }
                        Ok(answer(Verdict::Booked { wait }, &status, None))
                    }
                    Booking::Denied(status, retry) => Ok(answer(Verdict::Denied, &status, Some(retry))),
                }
            }
            Action::Settle { name, cost: tokens } => {
                let tokens = cost(tokens)?;
                let reservation = self.bookings.remove(name);
                let reservation =
                    reservation.ok_or_else(|| Refusal::Broken(format!("there is no booking `{name}`")))?;
                self.gate.settle(&mut self.state, now, reservation, tokens)?;
                self.done(now)
            }
            Action::Change { carry, policy } => {
                let policy: Policy = policy.parse()?;
                let gate = self.gate.changed_with_calendar(policy, calendar)?;
                gate.adopt(&mut self.state, &self.gate, now, carry_of(*carry))?;
                self.gate = gate;
                self.done(now)
            }
        }
    }

    fn done(&self, now: Timestamp) -> Result<Outcome, Refusal> {
        let status = self.gate.status(&self.state, now)?;
        Ok(answer(Verdict::Done, &status, None))
    }
}

pub(super) fn since(origin: Timestamp, now: u64) -> Timestamp {
    Timestamp::ZERO.saturating_add(Timestamp::from_nanos(now).saturating_since(origin))
}

pub(super) fn cost(text: &str) -> Result<Cost, Refusal> {
    Ok(text.parse()?)
}

pub(super) fn carry_of(carry: golden::Carry) -> Carry {
    match carry {
        golden::Carry::Keep => Carry::Keep,
        golden::Carry::Balance => Carry::Balance,
        golden::Carry::Scale => Carry::Scale,
        golden::Carry::Reset => Carry::Reset,
    }
}

pub(super) fn decision(decision: Decision) -> Outcome {
    let verdict = if decision.is_allowed() { Verdict::Allowed } else { Verdict::Denied };
    answer(verdict, decision.status(), decision.retry())
}

pub(super) fn answer(verdict: Verdict, status: &Status, retry: Option<suimon_core::Retry>) -> Outcome {
    let after = |wait: Option<Duration>| wait.map_or(Retry::Never, Retry::After);
    Outcome {
        verdict,
        retry: retry.map(|retry| after(retry.after())),
        by: retry.map(suimon_core::Retry::limit),
        limit: Some(status.limit()),
        remaining: Some(status.remaining()),
        burst_left: Some(status.burst_left()),
        reset: Some(status.reset_after()),
    }
}

/// For every subject that is built on the core.
impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let kind = if error.is_cost_too_large() {
            ErrorKind::CostTooLarge
        } else if error.is_invalid_cost() {
            ErrorKind::InvalidCost
        } else if error.is_out_of_range() {
            ErrorKind::OutOfRange
        } else if error.is_syntax() {
            ErrorKind::Syntax
        } else {
            ErrorKind::Any
        };
        Refusal::error(kind, error.to_string())
    }
}
