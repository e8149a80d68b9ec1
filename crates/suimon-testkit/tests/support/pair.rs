//! The core and the model side by side on the same calls.

use std::time::Duration;

use num_bigint::BigInt;
use suimon_core::{Booking, Carry, Cost, Decision, Error, Gate, Policy, Reservation, State, Status, Timestamp};
use suimon_testkit::model::{self, Fault, Model, Q, Spec, Ticket};

use super::{Amount, CENTURY, Call, Verb};

/// A core and a model that have seen the same.
pub struct Pair {
    pub gate: Gate,
    pub state: State,
    pub model: Model,
    pub now: u64,
    /// What the last denial said, and the last status.
    pub retry: u64,
    pub reset: u64,
    bookings: Vec<(Reservation, Ticket)>,
    step: u32,
}

/// A cost for both.
pub fn both(cost: Cost) -> (Cost, Q) {
    let billionths = BigInt::from(cost.as_whole()) * 1_000_000_000_u64 + cost.subsec_nanos();
    (cost, Q::new(billionths, BigInt::from(1_000_000_000_u64)))
}

impl Pair {
    /// The policy in the core, and in the model that `make` makes of it. Costs
    /// are multiples of `step` billionths.
    pub fn new(text: &str, step: u32, make: fn(Vec<Spec>, u64) -> Model) -> Pair {
        let policy: Policy = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let gate = Gate::new(policy).unwrap();
        let state = gate.fresh();
        let model = make(Spec::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")), 0);
        Pair { gate, state, model, now: 0, retry: 0, reset: 0, bookings: Vec::new(), step }
    }

    /// Moves the time on and makes the call on both; panics where they differ.
    pub fn call(&mut self, call: &Call) {
        self.now = call.gap.from(self.now, self.retry, self.reset);
        let cost = self.cost(call.amount);
        match call.verb {
            Verb::Allow => self.allow(cost),
            Verb::Peek => self.peek(cost),
            Verb::Reserve => self.reserve(cost, call.within),
            Verb::Settle(which) => self.settle(which, call.amount),
        }
        self.compare_statuses();
    }

    pub fn allow(&mut self, cost: Cost) {
        let (cost, tokens) = both(cost);
        let core = self.gate.allow(&mut self.state, Timestamp::from_nanos(self.now), cost);
        let model = self.model.allow(self.now, &tokens);
        self.compare(core, model);
    }

    pub fn peek(&mut self, cost: Cost) {
        let (cost, tokens) = both(cost);
        let before = self.state.clone();
        let core = self.gate.peek(&self.state, Timestamp::from_nanos(self.now), cost);
        assert_eq!(self.state, before, "a peek changes nothing");
        let model = self.model.peek(self.now, &tokens);
        self.compare(core, model);
    }

    pub fn reserve(&mut self, cost: Cost, within: Option<u64>) {
        // Further ahead than a century lies what the core does not count.
        if is_ahead(&self.model, self.now) {
            return;
        }
        let (cost, tokens) = both(cost);
        let max_wait = within.map(Duration::from_nanos);
        let core = self.gate.reserve(&mut self.state, Timestamp::from_nanos(self.now), cost, max_wait);
        match (core, self.model.reserve(self.now, &tokens, within)) {
            (Ok(Booking::Booked(core, reservation)), Ok(model::Booking::Booked { status, wait, ticket })) => {
                self.compare_status(&core, &status);
                assert_eq!(reservation.wait(), Duration::from_nanos(wait));
                assert_eq!(reservation.start().as_nanos(), ticket.start());
                self.bookings.push((reservation, ticket));
            }
            (Ok(Booking::Denied(core, retry)), Ok(model::Booking::Denied { status, retry: expected })) => {
                self.compare_status(&core, &status);
                self.compare_retry(retry, expected);
            }
            (Err(error), Err(fault)) => assert_same_error(&error, &fault),
            (core, model) => panic!("core {core:?}, model {model:?}"),
        }
    }

    /// Settles one of the open bookings, if there is one, with up to twice its
    /// estimate.
    pub fn settle(&mut self, which: usize, amount: Amount) {
        if self.bookings.is_empty() {
            return;
        }
        let (reservation, ticket) = self.bookings.swap_remove(which % self.bookings.len());
        let estimate = reservation.estimate();
        let actual = match amount {
            Amount::Above => estimate.saturating_add(estimate),
            Amount::Largest => estimate,
            amount => resolve(amount, estimate, self.step),
        };
        let (actual, tokens) = both(actual);
        let mut settled = self.model.clone();
        settled.settle(self.now, ticket, &tokens).unwrap();
        if is_ahead(&settled, self.now) && actual > estimate {
            return;
        }
        self.gate.settle(&mut self.state, Timestamp::from_nanos(self.now), reservation, actual).unwrap();
        self.model = settled;
    }

    /// Puts another policy in place in both, unless what is used would then take
    /// longer to come back than the core counts.
    pub fn change(&mut self, text: &str, core: Carry, carry: model::Carry) {
        let mut changed = self.model.clone();
        changed.change(self.now, Spec::parse(text).unwrap(), carry);
        if is_ahead(&changed, self.now) {
            return;
        }
        let gate = self.gate.changed(text.parse::<Policy>().unwrap()).unwrap();
        gate.adopt(&mut self.state, &self.gate, Timestamp::from_nanos(self.now), core).unwrap();
        self.gate = gate;
        self.model = changed;
        self.compare_statuses();
    }

    /// A cost that fits the policy.
    pub fn cost(&self, amount: Amount) -> Cost {
        let largest = self.gate.policy().limits().iter().filter_map(suimon_core::Limit::max_cost).min();
        match (amount, largest) {
            (Amount::Above, Some(largest)) => largest.saturating_add(Cost::new(0, 1).unwrap()),
            (amount, largest) => resolve(amount, largest.unwrap_or(Cost::MAX), self.step),
        }
    }

    pub fn compare_statuses(&mut self) {
        let core = self.gate.statuses(&self.state, Timestamp::from_nanos(self.now)).unwrap();
        let model = self.model.statuses(self.now);
        assert_eq!(core.len(), model.len());
        for (core, model) in core.iter().zip(&model) {
            self.compare_status(core, model);
        }
    }

    fn compare(&mut self, core: Result<Decision, Error>, model: Result<model::Decision, Fault>) {
        match (core, model) {
            (Ok(core), Ok(model)) => {
                assert_eq!(core.is_allowed(), model.is_allowed(), "core {core:?}, model {model:?}");
                self.compare_status(core.status(), &model.status);
                if let (Some(core), Some(model)) = (core.retry(), model.retry) {
                    self.compare_retry(core, model);
                }
            }
            (Err(error), Err(fault)) => assert_same_error(&error, &fault),
            (core, model) => panic!("core {core:?}, model {model:?}"),
        }
    }

    fn compare_retry(&mut self, core: suimon_core::Retry, model: model::Retry) {
        assert_eq!((core.after(), core.limit()), (model.wait.map(Duration::from_nanos), model.limit));
        self.retry = model.wait.unwrap_or(0);
    }

    fn compare_status(&mut self, core: &Status, model: &model::Status) {
        let core = model::Status {
            limit: core.limit(),
            remaining: core.remaining(),
            burst_left: core.burst_left(),
            reset_after: u64::try_from(core.reset_after().as_nanos()).unwrap(),
        };
        assert_eq!(&core, model, "the core's status on the left");
        self.reset = model.reset_after;
    }
}

/// A cost in the words of [`Amount`], at most `largest`, a multiple of `step`
/// billionths.
pub fn resolve(amount: Amount, largest: Cost, step: u32) -> Cost {
    let cost = match amount {
        Amount::Zero => Cost::ZERO,
        Amount::Whole(tokens) => Cost::whole(tokens),
        Amount::Decimal(whole, nanos) => Cost::new(whole, nanos).unwrap(),
        Amount::Share(share) => {
            let whole = (u128::from(largest.as_whole()) * u128::from(share)) >> 32;
            Cost::whole(u64::try_from(whole).unwrap())
        }
        Amount::Largest | Amount::Above => largest,
    };
    let cost = cost.min(largest);
    Cost::new(cost.as_whole(), cost.subsec_nanos() - cost.subsec_nanos() % step).unwrap()
}

/// Does it take until after the century that tests look at before everything is
/// as good as new?
fn is_ahead(model: &Model, now: u64) -> bool {
    model.statuses(now).iter().any(|status| status.reset_after > CENTURY - now)
}

fn assert_same_error(error: &Error, fault: &Fault) {
    let Fault::CostTooLarge { limit } = fault else { panic!("core {error:?}, model {fault:?}") };
    assert!(error.is_cost_too_large(), "{error:?}");
    assert_eq!(error.limit(), Some(*limit));
}
