//! What limits promise to those behind them: how much may pass in any stretch of
//! time; and what the answers promise to the caller.

mod support;

use std::time::Duration;

use proptest::prelude::*;
use suimon_core::{Booking, Cost, Decision, Gate, Policy, Reservation, State, Timestamp};
use suimon_testkit::model::{Q, Rate, Spec, whole};

use support::pair::{both, resolve};
use support::texts::{self, Rates, Text};
use support::{CENTURY, Call, Verb, amount, calls, cases, forward};

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn exact_buckets(text in texts::bucket(Rates::Exact), calls in calls(40, forward(), amount())) {
        check(&text, 0, &calls);
    }

    #[test]
    fn exact_paces(text in texts::pace(Rates::Exact), calls in calls(40, forward(), amount())) {
        check(&text, 0, &calls);
    }

    /// For all other rates the interval counts one nanosecond more.
    #[test]
    fn buckets(text in texts::bucket(Rates::Whole), calls in calls(40, forward(), amount())) {
        check(&text, 1, &calls);
    }

    #[test]
    fn paces(text in texts::pace(Rates::Whole), calls in calls(40, forward(), amount())) {
        check(&text, 1, &calls);
    }

    /// A burst that is no whole number of ticks is rounded up to one: one more.
    #[test]
    fn buckets_with_parts_of_tokens(text in texts::bucket(Rates::Any), calls in calls(40, forward(), amount())) {
        check(&text, 2, &calls);
    }

    #[test]
    fn windows(text in texts::window(), calls in calls(40, forward(), amount())) {
        check(&text, 0, &calls);
    }

    #[test]
    fn fixed_windows(text in texts::fixed(), calls in calls(40, forward(), amount())) {
        check(&text, 0, &calls);
    }

    #[test]
    fn policies(text in texts::policy(Rates::Any), calls in calls(40, forward(), amount())) {
        check(&text, 2, &calls);
    }
}

/// Something that passed: when it may begin, and what it really cost.
struct Passed {
    start: u64,
    cost: Q,
}

/// Makes the calls, looks at every answer, and adds up what passed.
fn check(text: &Text, rounding: u64, calls: &[Call]) {
    let gate = Gate::new(text.text.parse::<Policy>().unwrap()).unwrap();
    let largest = gate.policy().limits().iter().filter_map(suimon_core::Limit::max_cost).min().unwrap_or(Cost::MAX);
    let mut state = gate.fresh();
    let (mut now, mut retry, mut reset) = (0, 0, 0);
    let mut passed: Vec<Passed> = Vec::new();
    let mut open: Vec<(Reservation, usize)> = Vec::new();
    for call in calls {
        now = call.gap.from(now, retry, reset);
        let time = Timestamp::from_nanos(now);
        let cost = resolve(call.amount, largest, text.step);
        match call.verb {
            Verb::Allow | Verb::Peek => match gate.allow(&mut state, time, cost).unwrap() {
                Decision::Allow(_) => passed.push(Passed { start: now, cost: both(cost).1 }),
                Decision::Deny(_, denial) => {
                    retry = denial.after().map_or(0, nanos);
                    assert_retry_is_tight(&gate, &state, now, cost, denial.after());
                }
            },
            // The sums are of what the core can count.
            Verb::Reserve if now + reset > CENTURY => {}
            Verb::Reserve => {
                if let Booking::Booked(_, booked) = gate.reserve(&mut state, time, cost, None).unwrap() {
                    if !booked.wait().is_zero() {
                        // This one has been told when to start, whatever those
                        // before it turn out to cost.
                        open.clear();
                    }
                    passed.push(Passed { start: booked.start().as_nanos(), cost: both(cost).1 });
                    open.push((booked, passed.len() - 1));
                }
            }
            Verb::Settle(which) if !open.is_empty() => {
                let (booked, index) = open.swap_remove(which % open.len());
                let (actual, tokens) = both(cost.min(booked.estimate()));
                gate.settle(&mut state, time, booked, actual).unwrap();
                passed[index].cost = tokens;
            }
            Verb::Settle(_) => {}
        }
        assert_status_is_true(&gate, &state, now);
        reset = nanos(gate.status(&state, time).unwrap().reset_after());
    }
    for spec in Spec::parse(&text.text).unwrap() {
        assert_bound(&spec, rounding, &passed);
    }
}

/// At the time that a denial says it passes, and a nanosecond earlier it does not.
fn assert_retry_is_tight(gate: &Gate, state: &State, now: u64, cost: Cost, wait: Option<Duration>) {
    let Some(wait) = wait.map(nanos) else { return };
    assert!(wait > 0, "a denial that says `now`");
    // Beyond this the core's time stands still.
    if now + wait > CENTURY {
        return;
    }
    let passes = |at: u64| gate.peek(state, Timestamp::from_nanos(at), cost).unwrap().is_allowed();
    assert!(passes(now + wait), "not after {wait} ns");
    assert!(!passes(now + wait - 1), "already after {} ns", wait - 1);
}

/// What a status says is what happens.
fn assert_status_is_true(gate: &Gate, state: &State, now: u64) {
    let time = Timestamp::from_nanos(now);
    let status = gate.status(state, time).unwrap();
    let statuses = gate.statuses(state, time).unwrap();
    let remaining = statuses.iter().map(suimon_core::Status::remaining).min().unwrap();
    let blocks = gate.peek(state, time, Cost::ZERO).unwrap().retry().is_some();
    let passes = |cost: u64| gate.peek(state, time, Cost::whole(cost)).is_ok_and(|decision| decision.is_allowed());
    if !blocks {
        assert!(passes(remaining), "{remaining} remain and do not pass");
    }
    assert!(remaining == u64::MAX || !passes(remaining + 1), "more than {remaining} pass");
    if status.burst_left() <= 20 {
        let mut later = state.clone();
        for _ in 0..status.burst_left() {
            assert!(gate.allow(&mut later, time, Cost::ONE).unwrap().is_allowed(), "{status:?}");
        }
        let one_more = gate.allow(&mut later, time, Cost::ONE);
        assert!(one_more.is_err() || one_more.is_ok_and(|decision| !decision.is_allowed()), "{status:?}");
    }
    let reset = statuses.iter().map(|status| nanos(status.reset_after())).max().unwrap();
    if now + reset <= CENTURY {
        let then = Timestamp::from_nanos(now + reset);
        assert_eq!(gate.statuses(state, then).unwrap(), gate.statuses(&gate.fresh(), then).unwrap());
    }
}

/// No stretch of time lets more pass than the limit says; `rounding` is added to
/// the time in which a rate earns.
fn assert_bound(spec: &Spec, rounding: u64, passed: &[Passed]) {
    let mut passed: Vec<&Passed> = passed.iter().filter(|passed| passed.cost != whole(0)).collect();
    passed.sort_by_key(|passed| passed.start);
    for (first, begin) in passed.iter().enumerate() {
        let mut sum = whole(0);
        for end in &passed[first..] {
            let before = sum.clone();
            sum += &end.cost;
            let span = end.start - begin.start;
            // The start of a booking is a whole nanosecond, rounded up, and is paid
            // for as of the instant before.
            let earned = |rate: &Rate| {
                let start = u64::from(!rate.interval().is_integer());
                whole(span + rounding + start) / rate.interval()
            };
            let (most, counted) = match spec {
                Spec::Bucket { rate, burst } => (burst + earned(rate), &sum),
                // The last one is paid by those after it.
                Spec::Pace { rate, savings, .. } => (savings + earned(rate), &before),
                Spec::Window { limit, period } if span < *period => (limit.clone(), &sum),
                Spec::Fixed { limit, windows } if windows.around(end.start) == windows.around(begin.start) => {
                    (limit.clone(), &sum)
                }
                Spec::Block => panic!("something passed"),
                Spec::Window { .. } | Spec::Fixed { .. } | Spec::Unlimited => continue,
            };
            assert!(*counted <= most, "{counted} passed from {} to {}, {most} may", begin.start, end.start);
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}
