//! The limiter of one key, slow and simple: a gate, a state, a list of those who
//! wait. It knows nothing of tables, words and slots, and never forgets.

use std::collections::HashMap;
use std::time::Duration;

use suimon::{Carry, Cost, Decision, Error, Gate, Policy, Request, Retry, Settlement, State, Timestamp};
use suimon_core::{Booking, Reservation as Booked};

/// An error, as far as it can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    TooLarge,
    /// It passes so much later, or never.
    RateLimited(Option<Duration>),
    Other,
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Refusal {
        match error {
            _ if error.is_cost_too_large() => Refusal::TooLarge,
            _ if error.is_rate_limited() => Refusal::RateLimited(error.retry_after()),
            _ => Refusal::Other,
        }
    }
}

impl From<suimon_core::Error> for Refusal {
    fn from(error: suimon_core::Error) -> Refusal {
        Refusal::from(&Error::from(error))
    }
}

pub(crate) type Answer = Result<Decision, Refusal>;

#[derive(Clone, Copy, Debug)]
struct Waiter {
    id: usize,
    cost: Cost,
    arrived: Timestamp,
    deadline: Option<Timestamp>,
}

#[derive(Debug)]
pub(crate) enum Joined {
    Now(Booked),
    /// With the start that it would have if nothing changed.
    Queued(Timestamp),
}

#[derive(Debug)]
pub(crate) struct OneKey {
    gate: Gate,
    state: State,
    queue: Vec<Waiter>,
    /// What has become of those who waited.
    pub(crate) fates: HashMap<usize, Result<Booked, Refusal>>,
    served: Timestamp,
    paused_until: Timestamp,
    /// Has it limits of its own?
    pub(crate) own: bool,
    /// Might the table still keep a limiter for it, though nobody needs one?
    pub(crate) lingers: bool,
    /// Reservations that are not settled.
    pub(crate) held: usize,
}

impl OneKey {
    pub(crate) fn new(policy: &Policy) -> OneKey {
        let gate = Gate::new(policy.clone()).unwrap();
        OneKey {
            state: gate.fresh(),
            gate,
            queue: Vec::new(),
            fates: HashMap::new(),
            served: Timestamp::ZERO,
            paused_until: Timestamp::ZERO,
            own: false,
            lingers: false,
            held: 0,
        }
    }

    /// Nothing but what it has used tells it from a new key.
    pub(crate) fn is_idle(&self, now: Timestamp) -> bool {
        self.queue.is_empty() && self.paused_until <= now && !self.own && self.held == 0
    }

    pub(crate) fn is_fresh(&self, now: Timestamp) -> bool {
        self.gate.is_fresh(&self.state, now).unwrap()
    }

    pub(crate) fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The key has been forgotten.
    pub(crate) fn forget(&mut self) {
        self.state = self.gate.fresh();
    }

    pub(crate) fn max_cost(&self) -> Option<Cost> {
        self.gate.policy().limits().iter().filter_map(suimon::Limit::max_cost).min()
    }

    /// Everybody whose turn has come, each as of the instant at which it came.
    pub(crate) fn serve(&mut self, now: Timestamp) {
        while let Some(head) = self.queue.first().copied() {
            let from = self.served.max(head.arrived).max(self.paused_until);
            let outcome = match self.gate.ready(&self.state, from, head.cost) {
                Ok(Some(due)) if due > now => break,
                Ok(Some(_)) => Ok(book(&self.gate, &mut self.state, from, head.cost)),
                Ok(None) => Err(Refusal::RateLimited(None)),
                Err(error) => Err(error.into()),
            };
            if let Ok(booked) = &outcome {
                self.served = booked.start();
            }
            self.queue.remove(0);
            self.fates.insert(head.id, outcome);
        }
        self.served = self.served.max(now);
    }

    pub(crate) fn allow(&mut self, now: Timestamp, cost: Cost) -> Answer {
        let decision = self.peek(now, cost)?;
        if decision.is_allowed() {
            return Ok(self.gate.allow(&mut self.state, now, cost)?);
        }
        Ok(decision)
    }

    pub(crate) fn peek(&self, now: Timestamp, cost: Cost) -> Answer {
        let plain = self.gate.peek(&self.state, now, cost)?;
        if cost.is_zero() || self.queue.is_empty() && self.paused_until <= now {
            return Ok(plain);
        }
        let (ahead, start, retry) = self.start_of_next(now, cost);
        let limit = retry.or(plain.retry()).map_or(0, Retry::limit);
        let retry = match start {
            Some(start) => Retry::After { wait: start.saturating_since(now).max(Duration::from_nanos(1)), limit },
            None => Retry::Never { limit },
        };
        Ok(Decision::Deny(self.gate.status(&ahead, now)?, retry))
    }

    /// The state after all who wait, and when somebody who comes now would start.
    fn start_of_next(&self, now: Timestamp, cost: Cost) -> (State, Option<Timestamp>, Option<Retry>) {
        let mut state = self.state.clone();
        let mut from = self.served;
        for waiter in &self.queue {
            let earliest = from.max(waiter.arrived).max(self.paused_until);
            from = book(&self.gate, &mut state, earliest, waiter.cost).start();
        }
        let from = if self.queue.is_empty() { now } else { from };
        let from = from.max(now).max(self.paused_until);
        let retry = self.gate.peek(&state, from, cost).unwrap().retry();
        let start = match retry {
            None => Some(from),
            Some(retry) => retry.after().map(|wait| from.saturating_add(wait)),
        };
        (state, start, retry)
    }

    pub(crate) fn join(&mut self, id: usize, now: Timestamp, request: Request) -> Result<Joined, Refusal> {
        let cost = request.cost();
        let ready = self.gate.ready(&self.state, now, cost)?.ok_or(Refusal::RateLimited(None))?;
        let free = self.queue.is_empty() && self.paused_until <= now;
        if (cost.is_zero() || free) && ready <= now {
            return Ok(Joined::Now(book(&self.gate, &mut self.state, now, cost)));
        }
        let start = self.start_of_next(now, cost).1.ok_or(Refusal::RateLimited(None))?;
        let deadline = request.max_wait().map(|wait| now.saturating_add(wait));
        if deadline.is_some_and(|deadline| start > deadline) {
            return Err(Refusal::RateLimited(Some(start.saturating_since(now))));
        }
        self.queue.push(Waiter { id, cost, arrived: now, deadline });
        Ok(Joined::Queued(start))
    }

    /// Leaves without a trace; what was granted is given back.
    pub(crate) fn leave(&mut self, id: usize, now: Timestamp) {
        self.queue.retain(|waiter| waiter.id != id);
        if let Some(Ok(booked)) = self.fates.remove(&id) {
            self.settle(now, booked, Cost::ZERO);
        }
    }

    /// Nobody will come for it; it is served all the same.
    pub(crate) fn abandon(&mut self, id: usize) {
        self.queue.iter_mut().filter(|waiter| waiter.id == id).for_each(|waiter| waiter.deadline = None);
    }

    pub(crate) fn settle(&mut self, now: Timestamp, booked: Booked, actual: Cost) -> Settlement {
        let settlement = self.gate.settle(&mut self.state, now, booked, actual).unwrap();
        if matches!(settlement, Settlement::Charged(_)) {
            self.give_up_on_the_late();
        }
        settlement
    }

    /// A place in the queue will cost what is known now.
    pub(crate) fn settle_queued(&mut self, id: usize, actual: Cost) {
        if actual.is_zero() {
            self.queue.retain(|waiter| waiter.id != id);
            return;
        }
        self.abandon(id);
        let mut more = false;
        for waiter in self.queue.iter_mut().filter(|waiter| waiter.id == id) {
            more = actual > waiter.cost;
            waiter.cost = actual;
        }
        if more {
            self.give_up_on_the_late();
        }
    }

    pub(crate) fn pause(&mut self, until: Timestamp) {
        self.paused_until = self.paused_until.max(until);
        self.give_up_on_the_late();
    }

    pub(crate) fn change(&mut self, now: Timestamp, policy: &Policy, carry: Carry) {
        let next = self.gate.changed(policy.clone()).unwrap();
        next.adopt(&mut self.state, &self.gate, now, carry).unwrap();
        self.gate = next;
        self.give_up_on_the_late();
    }

    pub(crate) fn reset(&mut self, now: Timestamp) {
        let policy = self.gate.policy().clone();
        self.change(now, &policy, Carry::Reset);
    }

    /// After something that delays: who cannot be served in time any more, or
    /// never can, fails and takes nothing.
    fn give_up_on_the_late(&mut self) {
        let mut state = self.state.clone();
        let mut from = self.served.max(self.paused_until);
        for waiter in std::mem::take(&mut self.queue) {
            let earliest = from.max(waiter.arrived);
            let failure = match self.gate.ready(&state, earliest, waiter.cost) {
                Ok(Some(start)) => waiter
                    .deadline
                    .filter(|deadline| start > *deadline)
                    .map(|_| Refusal::RateLimited(Some(start.saturating_since(waiter.arrived)))),
                Ok(None) => Some(Refusal::RateLimited(None)),
                Err(error) => Some(error.into()),
            };
            if let Some(failure) = failure {
                self.fates.insert(waiter.id, Err(failure));
            } else {
                from = book(&self.gate, &mut state, earliest, waiter.cost).start();
                self.queue.push(waiter);
            }
        }
    }

    pub(crate) fn stands_in_queue(&self, id: usize) -> bool {
        self.queue.iter().any(|waiter| waiter.id == id)
    }
}

/// Charges for the first instant, not before `from`, at which it is ready.
fn book(gate: &Gate, state: &mut State, from: Timestamp, cost: Cost) -> Booked {
    match gate.reserve(state, from, cost, None).unwrap() {
        Booking::Booked(_, booked) => booked,
        Booking::Denied(..) => unreachable!("it has been ready"),
    }
}
