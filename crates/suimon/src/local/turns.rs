//! Whose turn it is: the state of a limiter under its lock.
//!
//! Nothing is charged for those who wait until their turn has come. The head is
//! served as of the instant at which it was due, not at which somebody looked: who
//! is woken late loses nothing, and the mean rate stays exact. Since only the head
//! is timed, a place that is given up needs no correction of the times behind it.

use std::task::Waker;
use std::time::Duration;

use suimon_core::{
    Booking, Calendar, Carry, Cost, Decision, Gate, HighWater, Limit, Policy, Reservation as Booked, Retry, Settlement,
    State, Status, Timestamp,
};

use super::queue::{Key, Phase, Queue, Waiter, billionths, cost_of};
use super::wakers::Wakers;
use crate::{Error, Request};

#[derive(Debug)]
pub(super) struct Turns {
    gate: Gate,
    state: State,
    queue: Queue,
    /// What waits, in the ticks of a pace or bucket.
    queued_ticks: u128,
    /// For other policies: the state after all who wait, and the last one's start.
    ahead: Option<(State, Timestamp)>,
    /// Until this instant everybody has been served whose turn had come; who
    /// becomes due by something that happens later is served as of then.
    served: Timestamp,
    /// When the head is due, as long as nothing has happened that might change it.
    due: Option<Timestamp>,
    paused_until: Timestamp,
    closed: bool,
    max_queue: Option<Cost>,
    /// The latest time that a caller has brought.
    pub(super) seen: HighWater,
    /// When the alarm rings, if it is set.
    pub(super) alarm: Option<Timestamp>,
}

/// A place that was taken.
#[derive(Debug)]
pub(super) enum Place {
    /// Its turn has come already.
    Granted(Booked),
    /// In the queue, with the start that it would have if nothing changed.
    Queued(Key, Timestamp),
}

impl Turns {
    /// A queue that is empty yet, before a limit in this state.
    pub(super) fn new(gate: Gate, state: State, max_queue: Option<Cost>) -> Turns {
        Turns {
            state,
            gate,
            queue: Queue::default(),
            queued_ticks: 0,
            ahead: None,
            served: Timestamp::ZERO,
            due: None,
            paused_until: Timestamp::ZERO,
            closed: false,
            max_queue,
            seen: HighWater::new(),
            alarm: None,
        }
    }

    pub(super) const fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(super) const fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(super) const fn state(&self) -> &State {
        &self.state
    }

    /// The word of a pace or bucket.
    pub(super) fn word(&self) -> Option<u64> {
        self.state.word()
    }

    pub(super) fn set_word(&mut self, word: u64) {
        self.state.set_word(word);
    }

    /// Would the word alone answer rightly?
    pub(super) fn is_plain(&self, now: Timestamp) -> bool {
        self.is_unhindered(now) && !self.closed
    }

    /// Does nothing but the limit itself hold anybody back?
    fn is_unhindered(&self, now: Timestamp) -> bool {
        self.queue.is_empty() && self.paused_until <= now
    }

    /// Serves all whose turn has come by the clock, and answers when the next
    /// one's will.
    pub(super) fn serve(&mut self, now: Timestamp, wakers: &mut Wakers) -> Option<Timestamp> {
        if let Some(due) = self.due.filter(|due| *due > now) {
            self.served = self.served.max(now);
            return Some(due);
        }
        self.due = None;
        while let Some((key, waiter)) = self.queue.head() {
            let from = self.served.max(waiter.arrived).max(self.paused_until);
            let outcome = match self.gate.ready(&self.state, from, waiter.cost) {
                Ok(Some(due)) if due > now => {
                    self.due = Some(due);
                    break;
                }
                Ok(Some(_)) => book(&self.gate, &mut self.state, from, waiter),
                Ok(None) => Err(never()),
                Err(error) => Err(error.into()),
            };
            if let Ok(booked) = &outcome {
                self.served = booked.start();
            }
            self.finish(key, outcome, wakers);
        }
        if self.due.is_none() {
            self.ahead = None;
        }
        self.served = self.served.max(now);
        self.due
    }

    pub(super) fn allow(&mut self, now: Timestamp, cost: Cost) -> Result<Decision, Error> {
        let decision = self.peek(now, cost)?;
        if !decision.is_allowed() {
            return Ok(decision);
        }
        Ok(self.gate.allow(&mut self.state, now, cost)?)
    }

    /// Nobody overtakes those who wait; only what is free passes beside them.
    pub(super) fn peek(&mut self, now: Timestamp, cost: Cost) -> Result<Decision, Error> {
        // The arguments first.
        let decision = self.gate.peek(&self.state, now, cost)?;
        if self.closed {
            return Err(Error::closed());
        }
        if cost.is_zero() || self.is_unhindered(now) {
            return Ok(decision);
        }
        let (start, retry) = self.next_start(now, cost)?;
        let limit = retry.or(decision.retry()).map_or(0, Retry::limit);
        let retry = match start {
            // A time that the caller brings may be ahead of the clock by which the
            // others are served; it is not theirs to pass then either.
            Some(start) => Retry::After { wait: start.saturating_since(now).max(Duration::from_nanos(1)), limit },
            None => Retry::Never { limit },
        };
        Ok(Decision::Deny(self.status(now)?, retry))
    }

    pub(super) fn status(&mut self, now: Timestamp) -> Result<Status, Error> {
        Ok(self.behind(now, |gate, state, _| gate.status(state, now))?)
    }

    /// Takes a place: at once if nobody waits and the limit lets it, else at the end.
    pub(super) fn join(&mut self, now: Timestamp, request: Request) -> Result<Place, Error> {
        let cost = request.cost();
        let deadline = request.max_wait().map(|wait| now.saturating_add(wait));
        let waiter = Waiter { cost, excess: Cost::ZERO, arrived: now, deadline };
        let ready = self.gate.ready(&self.state, now, cost)?;
        if self.closed {
            return Err(Error::closed());
        }
        let ready = ready.ok_or_else(never)?;
        if (cost.is_zero() || self.is_unhindered(now)) && ready <= now {
            return book(&self.gate, &mut self.state, now, waiter).map(Place::Granted);
        }
        let queued = self.queue.billionths();
        if let Some(allowed) = self.max_queue.filter(|allowed| queued + billionths(cost) > billionths(*allowed)) {
            return Err(Error::queue_full(cost, cost_of(queued), allowed));
        }
        let (start, retry) = self.next_start(now, cost)?;
        let start = start.ok_or_else(never)?;
        if deadline.is_some_and(|deadline| start > deadline) {
            let limit = retry.map_or(0, Retry::limit);
            let retry = Retry::After { wait: start.saturating_since(now), limit };
            return Err(Error::rate_limited(retry, request.max_wait()));
        }
        self.push_ahead(waiter)?;
        Ok(Place::Queued(self.queue.push(waiter), start))
    }

    /// What has become of a place; a waker for one who still waits.
    pub(super) fn look(
        &mut self,
        key: Key,
        waker: Option<Waker>,
        wakers: &mut Wakers,
    ) -> Option<Result<Booked, Error>> {
        if self.queue.is_waiting(key) {
            if let Some(waker) = waker {
                self.queue.set_waker(key, waker, wakers);
            }
            return None;
        }
        wakers.to_drop.extend(waker);
        match self.queue.leave(key, wakers) {
            Phase::Granted(booked) => Some(Ok(booked)),
            Phase::Failed(error) => Some(Err(error)),
            Phase::Waiting | Phase::Abandoned | Phase::Free => Some(Err(Error::closed())),
        }
    }

    /// Gives a place up, so that no trace of it is left.
    pub(super) fn give_up(&mut self, now: Timestamp, key: Key, wakers: &mut Wakers) {
        let waiter = self.queue.waiter(key);
        match self.queue.leave(key, wakers) {
            Phase::Waiting | Phase::Abandoned => self.forget_queued(waiter),
            // It was served and never knew. Giving all of it back cannot fail but
            // where the limits have changed, and then nothing is given back.
            Phase::Granted(booked) => drop(self.settle(now, booked, Cost::ZERO, wakers)),
            Phase::Failed(_) | Phase::Free => {}
        }
    }

    /// Leaves a place to be served without its owner.
    pub(super) fn abandon(&mut self, key: Key, wakers: &mut Wakers) {
        self.queue.abandon(key, wakers);
    }

    pub(super) fn settle(
        &mut self,
        now: Timestamp,
        booked: Booked,
        actual: Cost,
        wakers: &mut Wakers,
    ) -> Result<Settlement, Error> {
        self.forget_times();
        let settlement = self.gate.settle(&mut self.state, now, booked, actual)?;
        if matches!(settlement, Settlement::Charged(_)) {
            self.fail_hopeless(wakers);
        }
        Ok(settlement)
    }

    /// Settles a place whose turn has not come yet: it will cost what is known now.
    pub(super) fn settle_queued(&mut self, now: Timestamp, key: Key, actual: Cost, wakers: &mut Wakers) -> Settlement {
        let waiter = self.queue.waiter(key);
        let estimate = waiter.cost;
        if actual.is_zero() {
            self.give_up(now, key, wakers);
        } else {
            // What lies beyond the largest cost is charged when the rest is.
            let largest = self.gate.policy().limits().iter().filter_map(Limit::max_cost).min();
            let cost = largest.map_or(actual, |largest| actual.min(largest));
            self.forget_queued(waiter);
            self.queue.set_cost(key, cost, actual.saturating_sub(cost));
            self.queued_ticks += self.ticks(self.queue.waiter(key));
            self.queue.abandon(key, wakers);
        }
        match actual.cmp(&estimate) {
            std::cmp::Ordering::Equal => Settlement::Even,
            std::cmp::Ordering::Less => Settlement::Refunded(estimate.saturating_sub(actual)),
            std::cmp::Ordering::Greater => {
                self.fail_hopeless(wakers);
                Settlement::Charged(actual.saturating_sub(estimate))
            }
        }
    }

    pub(super) fn change(
        &mut self,
        now: Timestamp,
        policy: Policy,
        calendar: &dyn Calendar,
        carry: Carry,
        wakers: &mut Wakers,
    ) -> Result<(), Error> {
        let next = self.gate.changed_with_calendar(policy, calendar)?;
        next.adopt(&mut self.state, &self.gate, now, carry)?;
        self.gate = next;
        self.queued_ticks = self.queue.waiting().map(|(_, waiter)| self.ticks(waiter)).sum();
        self.fail_hopeless(wakers);
        Ok(())
    }

    pub(super) fn pause(&mut self, until: Timestamp, wakers: &mut Wakers) {
        self.paused_until = self.paused_until.max(until);
        self.fail_hopeless(wakers);
    }

    pub(super) fn close(&mut self, wakers: &mut Wakers) {
        self.closed = true;
        while let Some((key, _)) = self.queue.head() {
            self.finish(key, Err(Error::closed()), wakers);
        }
    }

    /// Takes a waiter out of the queue with what has become of it.
    fn finish(&mut self, key: Key, outcome: Result<Booked, Error>, wakers: &mut Wakers) {
        self.queued_ticks = self.queued_ticks.saturating_sub(self.ticks(self.queue.waiter(key)));
        self.due = None;
        self.queue.finish(key, outcome, wakers);
    }

    /// After something that may delay: whoever can no longer start in time, or
    /// can never pass, fails now and takes nothing; those behind move up.
    fn fail_hopeless(&mut self, wakers: &mut Wakers) {
        self.forget_times();
        // A settlement comes here, and the log of a window is long.
        if self.queue.is_empty() {
            return;
        }
        let mut state = self.state.clone();
        let mut from = self.served.max(self.paused_until);
        let waiting: Vec<_> = self.queue.waiting().collect();
        for (key, waiter) in waiting {
            let earliest = from.max(waiter.arrived);
            let failure = match self.gate.ready(&state, earliest, waiter.cost) {
                Ok(Some(start)) => match waiter.deadline.filter(|deadline| start > *deadline) {
                    Some(deadline) => {
                        let wait = start.saturating_since(waiter.arrived);
                        let allowed = deadline.saturating_since(waiter.arrived);
                        Some(Error::rate_limited(Retry::After { wait, limit: 0 }, Some(allowed)))
                    }
                    None => None,
                },
                Ok(None) => Some(never()),
                Err(error) => Some(error.into()),
            };
            match failure {
                Some(error) => self.finish(key, Err(error), wakers),
                None => from = book(&self.gate, &mut state, earliest, waiter).map_or(from, |booked| booked.start()),
            }
        }
    }

    /// When somebody who comes now would be served, and the limit that holds it back.
    fn next_start(&mut self, now: Timestamp, cost: Cost) -> Result<(Option<Timestamp>, Option<Retry>), Error> {
        let earliest = now.max(self.paused_until);
        let (decision, from) = self.behind(now, |gate, state, from| {
            let from = earliest.max(from);
            (gate.peek(state, from, cost), from)
        });
        Ok(match decision?.retry() {
            None => (Some(from), None),
            Some(retry) => (retry.after().map(|wait| from.saturating_add(wait)), Some(retry)),
        })
    }

    /// Looks at the state as it is when all who wait now have been served, and at
    /// the start of the last of them.
    fn behind<R>(&mut self, now: Timestamp, look: impl FnOnce(&Gate, &State, Timestamp) -> R) -> R {
        if self.queue.is_empty() {
            return look(&self.gate, &self.state, now);
        }
        if let Some(gcra) = self.gate.gcra() {
            // They follow each other without a gap, so their costs just add up.
            let word = self.state.word().unwrap_or_default().max(gcra.ticks().at(self.paused_until));
            let queued = u64::try_from(self.queued_ticks).unwrap_or(u64::MAX);
            let mut state = self.state.clone();
            state.set_word(word.saturating_add(queued));
            return look(&self.gate, &state, now);
        }
        let ahead = match self.ahead.take() {
            Some(ahead) => ahead,
            None => self.play_ahead(),
        };
        let (state, from) = self.ahead.insert(ahead);
        look(&self.gate, state, *from)
    }

    /// Serves everybody on a copy of the state.
    fn play_ahead(&self) -> (State, Timestamp) {
        let mut state = self.state.clone();
        let mut from = self.served.max(self.paused_until);
        for (_, waiter) in self.queue.waiting() {
            let earliest = from.max(waiter.arrived);
            from = book(&self.gate, &mut state, earliest, waiter).map_or(from, |booked| booked.start());
        }
        (state, from)
    }

    /// Adds one at the end to what is known of the state ahead.
    fn push_ahead(&mut self, waiter: Waiter) -> Result<(), Error> {
        if self.queue.is_empty() {
            self.forget_times();
        } else if let Some((state, from)) = &mut self.ahead {
            let earliest = waiter.arrived.max(*from).max(self.paused_until);
            *from = book(&self.gate, state, earliest, waiter)?.start();
        }
        self.queued_ticks += self.ticks(waiter);
        Ok(())
    }

    fn forget_queued(&mut self, waiter: Waiter) {
        self.queued_ticks = self.queued_ticks.saturating_sub(self.ticks(waiter));
        self.forget_times();
    }

    /// Something has happened that may change when others are due.
    fn forget_times(&mut self) {
        self.due = None;
        self.ahead = None;
    }

    /// What a waiter takes from the word of a pace or bucket.
    fn ticks(&self, waiter: Waiter) -> u128 {
        let Some(gcra) = self.gate.gcra() else { return 0 };
        [waiter.cost, waiter.excess].into_iter().filter_map(|cost| gcra.ticks().of_cost(cost)).map(u128::from).sum()
    }
}

/// Charges a waiter for the first instant, not before `from`, at which the cost is ready.
fn book(gate: &Gate, state: &mut State, from: Timestamp, waiter: Waiter) -> Result<Booked, Error> {
    let booked = match gate.reserve(state, from, waiter.cost, None)? {
        Booking::Booked(_, booked) => booked,
        Booking::Denied(_, retry) => return Err(Error::rate_limited(retry, None)),
    };
    if !waiter.excess.is_zero() {
        // A free place, settled with what goes beyond.
        if let Some(more) = gate.reserve(state, booked.start(), Cost::ZERO, None)?.reservation() {
            gate.settle(state, booked.start(), more, waiter.excess)?;
        }
    }
    Ok(booked)
}

/// The answer of `block`.
fn never() -> Error {
    Error::rate_limited(Retry::Never { limit: 0 }, None)
}
