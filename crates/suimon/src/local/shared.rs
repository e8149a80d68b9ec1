use std::any::Any;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use suimon_core::gcra::Gcra;
use suimon_core::{
    Calendar, Carry, Cost, Decision, Gate, Policy, Reservation as Booked, Retry, State, Status, Timestamp,
};

use super::queue::{Key, cost_of};
use super::turns::Turns;
use super::wakers::Wakers;
use super::word::{Fast, Word};
use crate::Error;
use crate::clock::{Alarm, Clock, CoarseClock, MachineClock, Ring};
use crate::sync::{Arc, Mutex, Weak, lock};

/// What all copies of a limiter share.
pub(crate) struct Shared {
    clock: Source,
    /// The algorithm of the word, if the policy is one pace or bucket.
    fast: Option<Gcra>,
    word: Word,
    turns: Mutex<Turns>,
    alarm: Alarm,
    calendar: AnyCalendar,
}

/// The rules of time zones, for as many limiters as need them.
pub(crate) type AnyCalendar = std::sync::Arc<dyn Calendar + Send + Sync>;

/// The clock, without a detour for those whose reading is a good part of a decision.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Machine,
    Coarse(CoarseClock),
    Other(std::sync::Arc<dyn Clock>),
}

impl Source {
    pub(crate) fn new<C: Clock>(clock: C) -> Source {
        let any: &dyn Any = &clock;
        if any.is::<MachineClock>() {
            return Source::Machine;
        }
        match any.downcast_ref::<CoarseClock>() {
            Some(coarse) => Source::Coarse(coarse.clone()),
            None => Source::Other(std::sync::Arc::new(clock)),
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Source::Machine => MachineClock.now(),
            Source::Coarse(clock) => clock.now(),
            Source::Other(clock) => clock.now(),
        }
    }

    fn set_alarm(&self, at: Timestamp, alarm: Alarm) {
        match self {
            Source::Machine => MachineClock.set_alarm(at, alarm),
            Source::Coarse(clock) => clock.set_alarm(at, alarm),
            Source::Other(clock) => clock.set_alarm(at, alarm),
        }
    }
}

impl Shared {
    /// A limiter in this state, which is one of the gate.
    pub(crate) fn new(
        gate: Gate,
        state: State,
        clock: Source,
        max_queue: Option<Cost>,
        calendar: AnyCalendar,
    ) -> Arc<Shared> {
        let fast = gate.gcra().copied();
        let word = state.word().filter(|_| fast.is_some());
        Arc::new_cyclic(|shared: &Weak<Shared>| {
            let ring: Weak<dyn Ring> = shared.clone();
            Shared {
                clock,
                word: word.map_or_else(Word::kept, Word::new),
                fast,
                turns: Mutex::new(Turns::new(gate, state, max_queue)),
                alarm: Alarm::new(ring),
                calendar,
            }
        })
    }

    #[inline(always)]
    pub(crate) fn allow(&self, cost: Cost) -> Result<Decision, Error> {
        if let Some((gcra, ticks)) = self.fast_cost(cost) {
            let now = self.clock.now();
            let tick = gcra.ticks().at(now);
            match self.word.step(gcra, tick, ticks) {
                Fast::Admitted(word) => return Ok(Decision::Allow(gcra.status_at(word, now, tick))),
                Fast::Refused { word, ready } => {
                    let retry = Retry::After { wait: gcra.ticks().until(ready, now), limit: 0 };
                    return Ok(Decision::Deny(gcra.status_at(word, now, tick), retry));
                }
                Fast::Kept => {}
            }
        }
        self.allow_at(None, cost)
    }

    /// Takes the cost if nobody waits and it passes at once.
    #[inline]
    pub(super) fn try_take(&self, cost: Cost) -> bool {
        // Most who come to wait find others waiting: no need to know the time for that.
        self.word.get().is_some()
            && self.fast_cost(cost).is_some_and(|(gcra, ticks)| {
                let now = gcra.ticks().at(self.clock.now());
                matches!(self.word.step(gcra, now, ticks), Fast::Admitted(_))
            })
    }

    /// The algorithm and the ticks of a cost that the word alone can decide about.
    #[inline(always)]
    fn fast_cost(&self, cost: Cost) -> Option<(&Gcra, NonZeroU64)> {
        let gcra = self.fast.as_ref().filter(|gcra| cost <= gcra.max_cost())?;
        Some((gcra, NonZeroU64::new(gcra.ticks().of_cost(cost)?)?))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn allow_at(&self, at: Option<Timestamp>, cost: Cost) -> Result<Decision, Error> {
        self.locked(at, |turns, now, _| turns.allow(now, cost))
    }

    pub(crate) fn peek(&self, at: Option<Timestamp>, cost: Cost) -> Result<Decision, Error> {
        self.locked(at, |turns, now, _| turns.peek(now, cost))
    }

    pub(crate) fn status(&self) -> Status {
        if let Some((gcra, word)) = self.fast.as_ref().zip(self.word.get()) {
            return gcra.status(word, self.clock.now());
        }
        self.locked(None, |turns, now, _| turns.status(now))
            .unwrap_or_else(|_| unreachable!("the state is always that of the gate"))
    }

    /// What has become of a place, if it has been served or cannot be: so much can
    /// be told without the time and without serving others.
    pub(super) fn outcome(&self, key: Key) -> Option<Result<Booked, Error>> {
        let mut wakers = Wakers::default();
        let outcome = lock(&self.turns).look(key, None, &mut wakers);
        wakers.wake();
        outcome
    }

    /// Begins anew: nothing has been used. Who waits is served as far as that goes.
    pub(crate) fn reset(&self) -> Result<(), Error> {
        self.locked(None, |turns, now, wakers| {
            let policy = turns.gate().policy().clone();
            turns.change(now, policy, &*self.calendar, Carry::Reset, wakers)
        })
    }

    /// The state, as one of a gate with the same limits, if nothing but it would
    /// decide about the next call: nobody waits, nothing is paused or closed.
    pub(crate) fn plain_state(&self, gate: &Gate) -> Option<State> {
        self.locked(None, |turns, now, _| {
            let mut state = turns.is_plain(now).then(|| turns.state().clone())?;
            if state.version() != gate.version() {
                gate.adopt(&mut state, turns.gate(), now, Carry::Keep).ok()?;
            }
            Some(state)
        })
    }

    pub(crate) fn queued(&self) -> Cost {
        cost_of(lock(&self.turns).queue().billionths())
    }

    pub(crate) fn change(&self, policy: Policy, carry: Carry) -> Result<(), Error> {
        self.locked(None, |turns, now, wakers| turns.change(now, policy, &*self.calendar, carry, wakers))
    }

    pub(crate) fn pause(&self, pause: Duration) {
        self.locked(None, |turns, now, wakers| turns.pause(now.saturating_add(pause), wakers));
    }

    pub(super) fn pause_until(&self, until: Timestamp) {
        self.locked(None, |turns, _, wakers| turns.pause(until, wakers));
    }

    pub(crate) fn close(&self) {
        self.locked(None, |turns, _, wakers| turns.close(wakers));
    }

    /// Acts under the lock: with the word in its keeping, after those whose turn
    /// has come have been served, and with the alarm set for the next one.
    ///
    /// `at` is a time that the caller brings for the act; turns follow the clock.
    pub(super) fn locked<R>(
        &self,
        at: Option<Timestamp>,
        act: impl FnOnce(&mut Turns, Timestamp, &mut Wakers) -> R,
    ) -> R {
        let mut wakers = Wakers::default();
        let mut turns = lock(&self.turns);
        if let Some(word) = self.word.take() {
            turns.set_word(word);
        }
        let now = self.clock.now();
        turns.serve(now, &mut wakers);
        let acts_at = at.map_or(now, |at| turns.seen.observe(at));
        let result = act(&mut turns, acts_at, &mut wakers);
        let due = turns.serve(now, &mut wakers);
        if let Some(due) = due.filter(|due| turns.alarm.is_none_or(|set| *due < set)) {
            self.clock.set_alarm(due, self.alarm.clone());
            turns.alarm = Some(due);
        }
        if let Some(word) = turns.word().filter(|_| self.is_fast(&turns) && turns.is_plain(now)) {
            self.word.publish(word);
        }
        drop(turns);
        wakers.wake();
        result
    }

    /// Does the word still follow the algorithm that decides without the lock?
    /// After a change of the limits all decisions take the lock, until it is changed
    /// back.
    fn is_fast(&self, turns: &Turns) -> bool {
        self.fast.is_some() && (turns.gate().version() == 0 || self.fast.as_ref() == turns.gate().gcra())
    }
}

impl Ring for Shared {
    fn ring(&self) {
        self.locked(None, |turns, _, _| turns.alarm = None);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turns = lock(&self.turns);
        f.debug_struct("LocalLimiter")
            .field("policy", &turns.gate().policy().to_string())
            .field("clock", &self.clock)
            .field("waiting", &turns.queue().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes that the documentation of the limiter states.
    #[test]
    fn memory_of_a_limiter() {
        let size = size_of::<Shared>();
        assert!(size <= 560, "{size}");
    }
}
