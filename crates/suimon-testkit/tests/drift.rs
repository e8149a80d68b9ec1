//! Against the exact model, for every rate: the core is never late, never early
//! by a nanosecond, and what it is early by never adds up.

mod support;

use std::time::Duration;

use proptest::prelude::*;
use suimon_core::{Booking, Cost, Gate, Policy, Reservation, State, Timestamp};
use suimon_testkit::model::{self, Model, Q, Spec, Ticket, whole};

use support::pair::both;
use support::texts::{self, Rates, Text};
use support::{CENTURY, Call, Verb, amount, any_gap, calls, cases, forward, whole_amount};

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn buckets_do_not_drift(text in texts::bucket(Rates::Whole), calls in calls(150, forward(), whole_amount())) {
        run(&text, &calls);
    }

    #[test]
    fn paces_do_not_drift(text in texts::pace(Rates::Whole), calls in calls(150, forward(), whole_amount())) {
        run(&text, &calls);
    }

    /// Nor when the clock runs back, as long as nothing is given back: what a
    /// booking still holds is measured from an instant that may have been passed.
    #[test]
    fn a_clock_that_runs_back_does_not_drift(
        text in prop_oneof![texts::bucket(Rates::Whole), texts::pace(Rates::Whole)],
        mut calls in calls(150, any_gap(), whole_amount()),
    ) {
        calls.retain(|call| !matches!(call.verb, Verb::Settle(_)));
        run(&text, &calls);
    }

    /// Parts of tokens are rounded up to ticks, each by itself: late by less than
    /// a nanosecond for each of them, early by as much again for a burst.
    #[test]
    fn parts_of_tokens_are_late_by_a_tick_each(
        text in prop_oneof![texts::bucket(Rates::Any), texts::pace(Rates::Any)],
        mut calls in calls(100, forward(), amount()),
    ) {
        calls.retain(|call| !matches!(call.verb, Verb::Settle(_)));
        run(&text, &calls);
    }

    /// Bookings one after the other start where the exact ones do, or one
    /// nanosecond before, also the hundred-thousandth.
    #[test]
    fn a_long_queue_does_not_drift((tokens, period) in texts::rate(Rates::Any)) {
        // The queue may be a century long, and no longer.
        let most = u128::from(CENTURY) * u128::from(tokens) / u128::from(period);
        let count = u64::try_from(most.min(20_000)).unwrap();
        let policy: Policy = format!("pace {tokens}/{period}ns").parse().unwrap();
        let gate = Gate::new(policy).unwrap();
        let mut state = gate.fresh();
        for number in 0..count {
            let Booking::Booked(_, booked) = gate.reserve(&mut state, Timestamp::ZERO, Cost::ONE, None).unwrap() else {
                panic!("nothing limits the wait");
            };
            let exact = (u128::from(number) * u128::from(period)).div_ceil(u128::from(tokens));
            let start = u128::from(booked.start().as_nanos());
            prop_assert!(start == exact || start + 1 == exact, "booking {number} starts at {start}, exactly at {exact}");
        }
    }
}

/// A core, and an exact model that is charged with whatever the core lets pass.
struct Shadow {
    gate: Gate,
    state: State,
    exact: Model,
    now: u64,
    retry: u64,
    reset: u64,
    /// The instant at which it is as good as new.
    new_at: u64,
    bookings: Vec<(Reservation, Ticket)>,
    /// How much earlier and later than exactly the core may be, in nanoseconds.
    early: u64,
    late: u64,
}

fn run(text: &Text, calls: &[Call]) {
    let gate = Gate::new(text.text.parse::<Policy>().unwrap()).unwrap();
    let exact = Model::new(Spec::parse(&text.text).unwrap(), 0);
    let state = gate.fresh();
    let early = if text.step == 1 { 2 } else { 1 };
    let mut shadow =
        Shadow { gate, state, exact, now: 0, retry: 0, reset: 0, new_at: 0, bookings: Vec::new(), early, late: 0 };
    for call in calls {
        shadow.call(call, text.step);
    }
}

impl Shadow {
    fn call(&mut self, call: &Call, step: u32) {
        self.now = call.gap.from(self.now, self.retry, self.reset);
        let largest = self.gate.policy().limits()[0].max_cost().unwrap();
        let (cost, tokens) = both(support::pair::resolve(call.amount, largest, step));
        match call.verb {
            Verb::Allow | Verb::Peek => self.allow(cost, &tokens),
            // Beyond a century of debt the core says that it is too far ahead.
            Verb::Reserve if self.new_at > CENTURY => {}
            Verb::Reserve => self.reserve(cost, &tokens),
            Verb::Settle(which) => self.settle(which, cost),
        }
        self.compare();
    }

    fn allow(&mut self, cost: Cost, tokens: &Q) {
        let core = self.gate.allow(&mut self.state, Timestamp::from_nanos(self.now), cost).unwrap();
        let exact = self.exact.peek(self.now, tokens).unwrap().retry_after().unwrap_or(0);
        let wait = core.retry().map_or(0, |retry| nanos(retry.after().unwrap()));
        self.assert_close("retry", wait, exact, tokens);
        self.retry = wait;
        if core.is_allowed() {
            self.charge(tokens);
        }
    }

    fn reserve(&mut self, cost: Cost, tokens: &Q) {
        let Booking::Booked(_, reservation) =
            self.gate.reserve(&mut self.state, Timestamp::from_nanos(self.now), cost, None).unwrap()
        else {
            panic!("nothing limits the wait");
        };
        let (wait, ticket) = self.charge(tokens);
        self.assert_close("wait", nanos(reservation.wait()), wait, &whole(0));
        self.bookings.push((reservation, ticket));
    }

    fn settle(&mut self, which: usize, cost: Cost) {
        if self.bookings.is_empty() {
            return;
        }
        let (reservation, ticket) = self.bookings.swap_remove(which % self.bookings.len());
        let (actual, tokens) = both(cost.min(reservation.estimate()));
        self.gate.settle(&mut self.state, Timestamp::from_nanos(self.now), reservation, actual).unwrap();
        self.exact.settle(self.now, ticket, &tokens).unwrap();
    }

    /// Charges the exact model as of the instant at which it is ready.
    fn charge(&mut self, tokens: &Q) -> (u64, Ticket) {
        let wait = self.charge_exactly(tokens);
        self.late += u64::from(!tokens.is_integer());
        wait
    }

    fn charge_exactly(&mut self, tokens: &Q) -> (u64, Ticket) {
        match self.exact.reserve(self.now, tokens, None).unwrap() {
            model::Booking::Booked { wait, ticket, .. } => (wait, ticket),
            model::Booking::Denied { .. } => panic!("nothing limits the wait"),
        }
    }

    /// The cost that is asked for is rounded up like those that were charged.
    fn assert_close(&self, what: &str, core: u64, exact: u64, asked: &Q) {
        let late = self.late + u64::from(!asked.is_integer());
        let is_close = core <= exact + late && exact <= core + self.early;
        assert!(is_close, "{what}: core {core}, exactly {exact}, {} parts of tokens", self.late);
    }

    fn compare(&mut self) {
        let core = self.gate.status(&self.state, Timestamp::from_nanos(self.now)).unwrap();
        let exact = self.exact.status(self.now);
        self.reset = nanos(core.reset_after());
        self.new_at = self.now + self.reset;
        self.assert_close("reset", self.reset, exact.reset_after, &whole(0));
        if self.late > 0 || self.early > 1 {
            return;
        }
        // Early by less than a nanosecond: at most two tokens at two a nanosecond.
        for (core, exact) in [(core.remaining(), exact.remaining), (core.burst_left(), exact.burst_left)] {
            assert!(core >= exact, "core {core}, exactly {exact}");
        }
        assert!(core.burst_left() <= exact.burst_left + 2, "core {core:?}, exactly {exact:?}");
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}
