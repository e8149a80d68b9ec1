use alloc::vec::Vec;
use core::time::Duration;

use crate::calendar::{Calendar, Utc};
use crate::carry::{self, Carry};
use crate::cost::Cost;
use crate::decision::{Decision, Retry, Status};
use crate::error::Error;
use crate::gcra::Gcra;
use crate::policy::Policy;
use crate::reserve::{Booking, Marks, Reservation, Settlement};
use crate::rule::Rule;
use crate::state::{Slot, State};
use crate::time::Timestamp;

/// A policy ready to decide: rates counted in ticks, calendars resolved.
///
/// A gate does not change; what has passed is in a [`State`], one for each key.
/// Every verb takes the time from the caller.
///
/// ```
/// use core::time::Duration;
/// use suimon_core::{Cost, Gate, Policy, Timestamp};
///
/// let gate = Gate::new("pace 60/min".parse::<Policy>()?)?;
/// let mut state = gate.fresh();
///
/// // The first call goes at once, and may be large: it is paid afterwards.
/// assert!(gate.allow(&mut state, Timestamp::ZERO, Cost::whole(3))?.is_allowed());
/// let denied = gate.allow(&mut state, Timestamp::from_secs(1), Cost::ONE)?;
/// assert_eq!(denied.retry().and_then(|retry| retry.after()), Some(Duration::from_secs(2)));
///
/// // A cost that can never pass is an error, and nothing is taken.
/// let error = gate.allow(&mut state, Timestamp::from_secs(9), Cost::whole(61)).unwrap_err();
/// assert!(error.is_cost_too_large());
/// # Ok::<(), suimon_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gate {
    policy: Policy,
    rules: Vec<Rule>,
    version: u32,
}

impl Gate {
    /// A gate whose calendars are in UTC.
    ///
    /// # Errors
    /// [`Error::is_unknown_zone`] when a `fixed` limit names another zone: give
    /// [`Gate::with_calendar`] a calendar that knows it.
    pub fn new(policy: impl Into<Policy>) -> Result<Gate, Error> {
        Gate::with_calendar(policy, &Utc)
    }

    /// A gate whose time zones the given calendar knows.
    ///
    /// # Errors
    /// [`Error::is_unknown_zone`] when it does not.
    pub fn with_calendar(policy: impl Into<Policy>, calendar: &dyn Calendar) -> Result<Gate, Error> {
        let policy = policy.into();
        let rules = policy.limits().iter().map(|limit| Rule::new(limit, calendar)).collect::<Result<_, _>>()?;
        Ok(Gate { policy, rules, version: 0 })
    }

    /// The policy behind it.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// How often the limits have been changed: see [`Gate::changed`].
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The state of a key that has never been seen: everything is free.
    #[must_use]
    pub fn fresh(&self) -> State {
        State::new(self.version, self.rules.iter().map(Rule::fresh))
    }

    /// A state that has this balance at `now` in every limit, for instance zero
    /// to start without a burst.
    ///
    /// # Errors
    /// [`Error::is_out_of_range`] when a limit cannot hold that much.
    pub fn with_balance(&self, now: Timestamp, balance: Cost) -> Result<State, Error> {
        let slots = self.rules.iter().map(|rule| rule.with_balance(now, balance)).collect::<Result<Vec<_>, _>>()?;
        Ok(State::new(self.version, slots))
    }

    /// May `cost` pass now? If so it is charged to every limit; if not, to none.
    ///
    /// # Errors
    /// [`Error::is_cost_too_large`] when it can never pass, [`Error::is_stale`]
    /// when the state is of another version or policy. Nothing is charged.
    pub fn allow(&self, state: &mut State, now: Timestamp, cost: Cost) -> Result<Decision, Error> {
        self.check(state, cost)?;
        if let Some((status, retry)) = self.refusal(state.slots(), now, cost)? {
            return Ok(Decision::Deny(status, retry));
        }
        for (rule, slot) in self.rules.iter().zip(state.slots_mut()) {
            if let Some(start) = rule.ready(slot, now, cost)? {
                rule.charge(slot, start, cost);
            }
        }
        Ok(Decision::Allow(self.tightest(state.slots(), now)?))
    }

    /// What [`Gate::allow`] would answer, without charging anything.
    ///
    /// # Errors
    /// As for [`Gate::allow`].
    pub fn peek(&self, state: &State, now: Timestamp, cost: Cost) -> Result<Decision, Error> {
        self.check(state, cost)?;
        Ok(match self.refusal(state.slots(), now, cost)? {
            Some((status, retry)) => Decision::Deny(status, retry),
            None => Decision::Allow(self.tightest(state.slots(), now)?),
        })
    }

    /// The first instant, not before `now`, at which `cost` would pass if nothing
    /// else happened; `None` where it never does (`block`).
    ///
    /// # Errors
    /// As for [`Gate::allow`].
    pub fn ready(&self, state: &State, now: Timestamp, cost: Cost) -> Result<Option<Timestamp>, Error> {
        self.check(state, cost)?;
        let mut latest = now;
        for (rule, slot) in self.rules.iter().zip(state.slots()) {
            match rule.ready(slot, now, cost)? {
                Some(start) => latest = latest.max(start.at),
                None => return Ok(None),
            }
        }
        Ok(Some(latest))
    }

    /// Charges `cost` now for a start as soon as all limits let it, in the order
    /// of the reservations, unless that is later than `max_wait` from now.
    ///
    /// ```
    /// use core::time::Duration;
    /// use suimon_core::{Booking, Cost, Gate, Policy, Settlement, Timestamp};
    ///
    /// let gate = Gate::new("bucket 1000/min".parse::<Policy>()?)?;
    /// let mut state = gate.fresh();
    /// let now = Timestamp::ZERO;
    ///
    /// // The estimate is charged first, and what was not needed comes back.
    /// let Booking::Booked(_, reservation) = gate.reserve(&mut state, now, Cost::whole(600), None)? else { unreachable!() };
    /// assert_eq!(reservation.wait(), Duration::ZERO);
    /// let settled = gate.settle(&mut state, now, reservation, Cost::whole(200))?;
    /// assert_eq!(settled, Settlement::Refunded(Cost::whole(400)));
    /// assert_eq!(gate.status(&state, now)?.remaining(), 800);
    /// # Ok::<(), suimon_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Gate::allow`], and [`Error::is_too_far_ahead`] when the start
    /// could not be written down.
    pub fn reserve(
        &self,
        state: &mut State,
        now: Timestamp,
        cost: Cost,
        max_wait: Option<Duration>,
    ) -> Result<Booking, Error> {
        self.check(state, cost)?;
        let mut latest = now;
        let mut last = 0;
        for (index, (rule, slot)) in self.rules.iter().zip(state.slots()).enumerate() {
            let Some(start) = rule.ready(slot, now, cost)? else {
                return Ok(Booking::Denied(rule.status(slot, now)?, Retry::Never { limit: index }));
            };
            if start.at > latest {
                (latest, last) = (start.at, index);
            }
        }
        let wait = latest.saturating_since(now);
        if let Some(excess) = max_wait.and_then(|most| wait.checked_sub(most)).filter(|excess| !excess.is_zero()) {
            let status = self.status_of(state.slots(), last, now)?;
            return Ok(Booking::Denied(status, Retry::After { wait: excess, limit: last }));
        }
        let own_start =
            |rule: &Rule, slot: &Slot| rule.ready(slot, now, cost).map(|own| own.map(|own| rule.start_at(own, latest)));
        for (rule, slot) in self.rules.iter().zip(state.slots()) {
            if !own_start(rule, slot)?.is_some_and(|start| rule.can_charge(slot, start, cost)) {
                return Err(Error::too_far_ahead());
            }
        }
        for (rule, slot) in self.rules.iter().zip(state.slots_mut()) {
            if let Some(start) = own_start(rule, slot)? {
                rule.charge(slot, start, cost);
            }
        }
        let marks = Marks::of(state.slots().iter().map(Rule::mark));
        let reservation = Reservation { version: self.version, asked: now, start: latest, estimate: cost, marks };
        Ok(Booking::Booked(self.tightest(state.slots(), now)?, reservation))
    }

    /// Settles a reservation with what it really cost: charges or gives back the
    /// difference, in every limit.
    ///
    /// What went beyond the estimate is charged at `now`, even into debt. What
    /// was not needed is given back as far as that mints nothing: the balance
    /// never rises above what it would be if the actual cost had been known at
    /// first. After a change of the limits nothing is given back. A reservation
    /// of a window that lies ahead keeps its place in time, whatever it cost:
    /// nobody passes before its start.
    ///
    /// `now` must not run back between a booking and its settlement
    /// ([`HighWater`](crate::HighWater)): what has been refilled is measured by it.
    ///
    /// Starts that were told to others do not move up. What is given back serves
    /// those who come later, and they may begin before a booking that was made
    /// while the balance was lower. Whoever keeps a queue and books each place
    /// when its turn has come has none of that.
    ///
    /// # Errors
    /// [`Error::is_stale`] when the state is of another version or policy.
    #[expect(clippy::needless_pass_by_value, reason = "a reservation is settled once")]
    pub fn settle(
        &self,
        state: &mut State,
        now: Timestamp,
        reservation: Reservation,
        actual: Cost,
    ) -> Result<Settlement, Error> {
        self.check_state(state)?;
        let estimate = reservation.estimate;
        let excess = actual.saturating_sub(estimate);
        if !excess.is_zero() {
            for (rule, slot) in self.rules.iter().zip(state.slots_mut()) {
                rule.charge_excess(slot, now, excess);
            }
            return Ok(Settlement::Charged(excess));
        }
        let back = estimate.saturating_sub(actual);
        if back.is_zero() {
            return Ok(Settlement::Even);
        }
        if reservation.version == self.version {
            for ((rule, slot), mark) in self.rules.iter().zip(state.slots_mut()).zip(reservation.marks.as_slice()) {
                rule.refund(slot, *mark, reservation.start, now, estimate, actual);
            }
        }
        Ok(Settlement::Refunded(back))
    }

    /// How the tightest limit stands at `now`.
    ///
    /// # Errors
    /// [`Error::is_stale`] when the state is of another version or policy.
    pub fn status(&self, state: &State, now: Timestamp) -> Result<Status, Error> {
        self.check_state(state)?;
        self.tightest(state.slots(), now)
    }

    /// How each limit stands at `now`, in the order of the policy.
    ///
    /// # Errors
    /// [`Error::is_stale`] when the state is of another version or policy.
    pub fn statuses(&self, state: &State, now: Timestamp) -> Result<Vec<Status>, Error> {
        self.check_state(state)?;
        self.rules.iter().zip(state.slots()).map(|(rule, slot)| rule.status(slot, now)).collect()
    }

    /// Is the state as good as new at `now`? Then forgetting it changes no answer.
    ///
    /// # Errors
    /// [`Error::is_stale`] when the state is of another version or policy.
    pub fn is_fresh(&self, state: &State, now: Timestamp) -> Result<bool, Error> {
        self.check_state(state)?;
        for (rule, slot) in self.rules.iter().zip(state.slots()) {
            if !rule.status(slot, now)?.reset_after().is_zero() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The gate of a changed policy: the next version of this one, with calendars
    /// in UTC. States follow with [`Gate::adopt`].
    ///
    /// # Errors
    /// As for [`Gate::new`].
    pub fn changed(&self, policy: impl Into<Policy>) -> Result<Gate, Error> {
        self.changed_with_calendar(policy, &Utc)
    }

    /// The same with a calendar that knows the zones.
    ///
    /// # Errors
    /// As for [`Gate::with_calendar`].
    pub fn changed_with_calendar(&self, policy: impl Into<Policy>, calendar: &dyn Calendar) -> Result<Gate, Error> {
        let next = Gate::with_calendar(policy, calendar)?;
        Ok(Gate { version: self.version.wrapping_add(1), ..next })
    }

    /// The algorithm behind the policy, where it is one pace or bucket: then its
    /// state is one word that can be kept in an atomic ([`State::word`]).
    #[must_use]
    pub fn gcra(&self) -> Option<&Gcra> {
        match self.rules.as_slice() {
            [Rule::Gcra(gcra)] => Some(gcra),
            _ => None,
        }
    }

    /// Brings a state from the gate `old` under which it was last settled to
    /// this one: the past is settled at the old rate, then carried over.
    ///
    /// Limits correspond by their place in the policy; one that has no
    /// predecessor begins fresh.
    ///
    /// ```
    /// use suimon_core::{Carry, Cost, Gate, Policy, Timestamp};
    ///
    /// let old = Gate::new("bucket 10/h".parse::<Policy>()?)?;
    /// let mut state = old.fresh();
    /// old.allow(&mut state, Timestamp::ZERO, Cost::whole(10))?;
    ///
    /// // Ten of ten are used; after the change it is ten of a hundred, less
    /// // the sixth of a token that came back in the first minute.
    /// let now = Timestamp::from_secs(60);
    /// let new = old.changed("bucket 100/h".parse::<Policy>()?)?;
    /// new.adopt(&mut state, &old, now, Carry::Keep)?;
    /// assert_eq!(new.status(&state, now)?.remaining(), 90);
    /// # Ok::<(), suimon_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::is_stale`] when the state is not one of `old`; it stays as it is.
    pub fn adopt(&self, state: &mut State, old: &Gate, now: Timestamp, carry: Carry) -> Result<(), Error> {
        old.check_state(state)?;
        let mut before = old.rules.iter().zip(state.slots());
        let slots = self.rules.iter().map(|rule| match before.next() {
            Some((old_rule, slot)) => carry::carry(rule, old_rule, slot, now, carry),
            None => rule.fresh(),
        });
        *state = State::new(self.version, slots.collect::<Vec<_>>());
        Ok(())
    }

    /// The errors of the arguments, before anything is decided.
    fn check(&self, state: &State, cost: Cost) -> Result<(), Error> {
        for (index, rule) in self.rules.iter().enumerate() {
            match rule.max_cost() {
                Some(allowed) if cost > allowed => return Err(Error::cost_too_large(cost, allowed, index)),
                _ => {}
            }
        }
        self.check_state(state)
    }

    /// Does the state belong to this policy, in this version?
    fn check_state(&self, state: &State) -> Result<(), Error> {
        if state.version != self.version {
            return Err(Error::stale(state.version, self.version));
        }
        let fits = |(rule, slot): (&Rule, &Slot)| rule.fits(slot);
        if state.slots().len() != self.rules.len() || !self.rules.iter().zip(state.slots()).all(fits) {
            return Err(Error::mismatch());
        }
        Ok(())
    }

    /// The refusal with the longest wait, if any limit refuses.
    fn refusal(&self, slots: &[Slot], now: Timestamp, cost: Cost) -> Result<Option<(Status, Retry)>, Error> {
        let mut longest: Option<Retry> = None;
        for (limit, (rule, slot)) in self.rules.iter().zip(slots).enumerate() {
            let retry = match rule.ready(slot, now, cost)? {
                Some(start) if start.at <= now => continue,
                Some(start) => Retry::After { wait: start.at.saturating_since(now), limit },
                None => Retry::Never { limit },
            };
            if longest.is_none_or(|longest| retry.is_longer_than(longest)) {
                longest = Some(retry);
            }
        }
        longest.map(|retry| Ok((self.status_of(slots, retry.limit(), now)?, retry))).transpose()
    }

    /// The status of the limit that is nearest to refusing.
    fn tightest(&self, slots: &[Slot], now: Timestamp) -> Result<Status, Error> {
        let mut tightest = Status::UNLIMITED;
        for (index, (rule, slot)) in self.rules.iter().zip(slots).enumerate() {
            let status = rule.status(slot, now)?;
            if index == 0 || status.is_tighter_than(&tightest) {
                tightest = status;
            }
        }
        Ok(tightest)
    }

    fn status_of(&self, slots: &[Slot], limit: usize, now: Timestamp) -> Result<Status, Error> {
        match self.rules.get(limit).zip(slots.get(limit)) {
            Some((rule, slot)) => rule.status(slot, now),
            None => Err(Error::mismatch()),
        }
    }
}
