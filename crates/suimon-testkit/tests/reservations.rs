//! What bookings, settlements and changes promise beyond the single answer.

mod support;

use std::time::Duration;

use proptest::prelude::*;
use suimon_core::{Booking, Carry, Cost, Gate, Policy, Reservation, Timestamp};

use support::pair::resolve;
use support::texts::{self, Rates, Text};
use support::{Amount, CENTURY, Call, Gap, Verb, amount, calls, cases, forward};

fn one_limit() -> impl Strategy<Value = Text> {
    prop_oneof![texts::bucket(Rates::Any), texts::pace(Rates::Any), texts::window(), texts::fixed(),]
}

/// A booking, and when it is settled with which share of its estimate.
#[derive(Clone, Debug)]
struct Job {
    gap: Gap,
    estimate: Amount,
    actual: Amount,
    /// After how many further bookings.
    settled_after: usize,
}

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let job = (forward(), amount(), amount(), 0..5_usize).prop_map(|(gap, estimate, actual, settled_after)| Job {
        gap,
        estimate,
        actual,
        settled_after,
    });
    prop::collection::vec(job, 1..30)
}

proptest! {
    #![proptest_config(cases(150))]

    /// Estimates that are settled later admit no more than costs that are known
    /// at first: no booking starts earlier.
    #[test]
    fn estimates_start_no_earlier_than_known_costs(text in one_limit(), jobs in jobs()) {
        let gate = gate(&text.text);
        let largest = gate.policy().limits()[0].max_cost().unwrap();
        let (mut estimating, mut knowing) = (gate.fresh(), gate.fresh());
        let mut open: Vec<(usize, Reservation, Cost)> = Vec::new();
        let (mut now, mut reset) = (0, 0);
        for (number, job) in jobs.iter().enumerate() {
            now = job.gap.from(now, 0, reset);
            let time = Timestamp::from_nanos(now);
            while let Some(due) = open.iter().position(|(due, ..)| *due <= number) {
                let (_, booked, actual) = open.swap_remove(due);
                let _ = gate.settle(&mut estimating, time, booked, actual).unwrap();
            }
            reset = nanos(gate.status(&estimating, time).unwrap().reset_after());
            if now + reset > CENTURY {
                break;
            }
            let estimate = resolve(job.estimate, largest, text.step);
            let actual = resolve(job.actual, estimate, text.step);
            let late = booked(gate.reserve(&mut estimating, time, estimate, None).unwrap());
            let early = booked(gate.reserve(&mut knowing, time, actual, None).unwrap());
            prop_assert!(actual.is_zero() || late.start() >= early.start(), "{:?} before {:?}", late.start(), early.start());
            open.push((number + job.settled_after, late, actual));
        }
    }

    /// To put the same policy in place again, as often as one likes, changes no answer.
    #[test]
    fn reloading_the_same_policy_changes_nothing(text in texts::policy(Rates::Any), calls in calls(40, forward(), amount())) {
        let mut reloaded = gate(&text.text);
        let untouched = gate(&text.text);
        let (mut state, mut expected) = (reloaded.fresh(), untouched.fresh());
        let largest = untouched.policy().limits().iter().filter_map(suimon_core::Limit::max_cost).min();
        let (mut now, mut retry, mut reset) = (0, 0, 0);
        for Call { gap, verb, amount, within } in calls {
            now = gap.from(now, retry, reset);
            let time = Timestamp::from_nanos(now);
            let next = reloaded.changed(reloaded.policy().clone()).unwrap();
            next.adopt(&mut state, &reloaded, time, Carry::Keep).unwrap();
            reloaded = next;
            let cost = resolve(amount, largest.unwrap_or(Cost::MAX), text.step);
            match verb {
                Verb::Reserve | Verb::Settle(_) if now + reset > CENTURY => {}
                Verb::Reserve | Verb::Settle(_) => {
                    let within = within.map(Duration::from_nanos);
                    let answer = reloaded.reserve(&mut state, time, cost, within).unwrap();
                    let expected = untouched.reserve(&mut expected, time, cost, within).unwrap();
                    prop_assert_eq!(wait(&answer), wait(&expected));
                    prop_assert_eq!(answer.status(), expected.status());
                }
                Verb::Allow | Verb::Peek => {
                    let answer = reloaded.allow(&mut state, time, cost).unwrap();
                    prop_assert_eq!(answer, untouched.allow(&mut expected, time, cost).unwrap());
                    retry = answer.retry().and_then(suimon_core::Retry::after).map_or(0, nanos);
                }
            }
            let statuses = untouched.statuses(&expected, time).unwrap();
            prop_assert_eq!(&reloaded.statuses(&state, time).unwrap(), &statuses);
            reset = statuses.iter().map(|status| nanos(status.reset_after())).max().unwrap();
        }
    }

    /// Scaled to another rate, a pace without savings owes as long as before: not
    /// less, and at most two nanoseconds more.
    #[test]
    fn what_a_pace_owes_takes_as_long_when_scaled(old in texts::rate(Rates::Any), new in texts::rate(Rates::Any), tokens in 0..1000_u64, start in 0..CENTURY / 4, later in any::<u32>()) {
        let old = gate(&format!("pace {}/{}ns", old.0, old.1));
        let new = old.changed(format!("pace {}/{}ns", new.0, new.1).parse::<Policy>().unwrap()).unwrap();
        let mut state = old.fresh();
        let cost = Cost::whole(tokens).min(old.policy().limits()[0].max_cost().unwrap());
        prop_assert!(old.allow(&mut state, Timestamp::from_nanos(start), cost).unwrap().is_allowed());
        let now = Timestamp::from_nanos(start + u64::from(later));
        let owed = nanos(old.status(&state, now).unwrap().reset_after());
        new.adopt(&mut state, &old, now, Carry::Scale).unwrap();
        let owes = nanos(new.status(&state, now).unwrap().reset_after());
        prop_assert!(owed <= owes && owes <= owed + 2, "{owed} ns before, {owes} ns after");
    }
}

/// A booking that could not be counted is an error that takes nothing; those
/// before it stay.
#[test]
fn bookings_end_where_time_cannot_be_counted() {
    for text in
        ["bucket 1/36525day burst 1", "pace 2000000000/s max_cost 1000000000000000000", "bucket 7/36524day burst 7"]
    {
        let gate = gate(text);
        let largest = gate.policy().limits()[0].max_cost().unwrap();
        let mut state = gate.fresh();
        let mut last = Duration::ZERO;
        let error = loop {
            let before = state.clone();
            match gate.reserve(&mut state, Timestamp::ZERO, largest, None) {
                Ok(Booking::Booked(_, booking)) => {
                    assert!(booking.wait() >= last, "{text}: bookings in order");
                    last = booking.wait();
                }
                Ok(Booking::Denied(..)) => panic!("{text}: nothing limits the wait"),
                Err(error) => {
                    assert_eq!(state, before, "{text}: nothing was taken");
                    break error;
                }
            }
        };
        assert!(error.is_too_far_ahead(), "{text}: {error}");
        assert!(last >= Duration::from_nanos(CENTURY / 2), "{text}: {last:?}");
        let one = gate.reserve(&mut state, Timestamp::ZERO, largest, Some(Duration::ZERO));
        assert!(matches!(one, Ok(Booking::Denied(..))), "{text}: {one:?}");
    }
}

fn gate(text: &str) -> Gate {
    Gate::new(text.parse::<Policy>().unwrap()).unwrap()
}

fn booked(booking: Booking) -> Reservation {
    booking.reservation().expect("nothing limits the wait")
}

/// The wait of a booking, or what a denial says.
fn wait(booking: &Booking) -> (bool, Option<Duration>) {
    match booking {
        Booking::Booked(_, reservation) => (true, Some(reservation.wait())),
        Booking::Denied(_, retry) => (false, retry.after()),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}
