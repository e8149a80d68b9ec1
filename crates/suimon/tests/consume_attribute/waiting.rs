//! When a call goes, and that its cost is counted once and first.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use suimon::{Cost, Error, Limiter, LocalLimiter, Recorder, Request, Seen, Timestamp};

use crate::{manual, secs};

#[suimon::consume(limiter = limiter, cost = cost)]
fn call(limiter: &LocalLimiter, cost: u32) -> Result<&'static str, Error> {
    Ok("called")
}

#[suimon::consume(limiter = limiter, cost = cost, within = longest)]
fn call_within(limiter: &LocalLimiter, cost: u32, longest: Duration) -> Result<(), Error> {
    Ok(())
}

#[suimon::consume(limiter = limiter, cost = cost, wait = false)]
fn call_now(limiter: &LocalLimiter, cost: u32) -> Result<(), Error> {
    Ok(())
}

/// Calls on a thread, and lets time pass only when the call is known to wait.
#[test]
fn a_call_waits_for_those_before_it() {
    let (limiter, clock) = manual("pace 60/min");
    assert_eq!(call(&limiter, 3).unwrap(), "called", "the first one goes at once");

    thread::scope(|scope| {
        let second = scope.spawn(|| call(&limiter, 1));
        while clock.next_alarm().is_none() {
            thread::yield_now();
        }
        assert_eq!(clock.next_alarm(), Some(Timestamp::from_secs(3)), "a cost of 3 takes three seconds");
        clock.advance(Duration::from_nanos(2_999_999_999));
        assert_eq!(limiter.queued(), Cost::ONE, "a nanosecond early it still waits");
        clock.advance(Duration::from_nanos(1));
        assert_eq!(second.join().unwrap().unwrap(), "called");
    });
    assert_eq!(limiter.queued(), Cost::ZERO);
}

#[test]
fn an_idle_hour_saves_nothing_up() {
    let (limiter, clock) = manual("pace 60/min");
    call(&limiter, 1).unwrap();
    clock.advance(secs(3600));
    call_now(&limiter, 1).unwrap();
    let refused = call_now(&limiter, 1).unwrap_err();
    assert!(refused.is_rate_limited());
    assert_eq!(refused.retry_after(), Some(secs(1)));
}

#[test]
fn a_cost_that_can_never_pass_is_an_error_at_once() {
    let (limiter, _clock) = manual("pace 60/min");
    let error = call(&limiter, 61).unwrap_err();
    assert!(error.is_cost_too_large(), "{error}");
    assert!(call_now(&limiter, 61).unwrap_err().is_cost_too_large());
    call_within(&limiter, 60, Duration::ZERO).expect("nothing was taken");
}

#[test]
fn a_wait_that_would_be_too_long_ends_at_once() {
    let (limiter, clock) = manual("pace 60/min");
    call_within(&limiter, 3, Duration::ZERO).unwrap();
    let error = call_within(&limiter, 1, Duration::from_millis(2999)).unwrap_err();
    assert_eq!(error.retry_after(), Some(secs(3)));
    assert!(error.to_string().contains("2.999s is allowed"), "{error}");

    clock.advance(secs(1));
    assert_eq!(call_within(&limiter, 1, secs(1)).unwrap_err().retry_after(), Some(secs(2)), "it took nothing");
    clock.advance(secs(2));
    call_within(&limiter, 1, Duration::ZERO).unwrap();
}

#[suimon::consume(limiter = limiter, deadline = until)]
fn call_until(limiter: &impl Limiter, until: Instant) -> Result<(), Error> {
    Ok(())
}

#[test]
fn a_deadline_bounds_the_wait() {
    let (limiter, clock) = manual("pace 60/hour");
    let past = Instant::now();
    call_until(&limiter, past).expect("what does not wait passes whatever the deadline");
    assert_eq!(call_until(&limiter, past).unwrap_err().retry_after(), Some(secs(60)));
    assert!(call_until(&limiter, past + secs(30)).unwrap_err().is_rate_limited());
    clock.advance(secs(60));
    call_until(&limiter, past).unwrap();

    let recorder = Recorder::default();
    call_until(&recorder, Instant::now() + secs(1000)).unwrap();
    call_until(&recorder, past).unwrap();
    let waits: Vec<Duration> = recorder.seen().iter().map(longest_wait).collect();
    assert!(waits[0] > secs(900) && waits[0] <= secs(1000), "{waits:?}");
    assert_eq!(waits[1], Duration::ZERO);
}

fn longest_wait(seen: &Seen) -> Duration {
    match seen {
        Seen::Consume(request) => request.max_wait().expect("a longest wait"),
        other => panic!("{other:?}"),
    }
}

#[suimon::consume(limiter = limiter, cost = request, within = within, deadline = deadline)]
fn call_bounded(limiter: &Recorder, request: Request, within: Duration, deadline: Instant) -> Result<(), Error> {
    Ok(())
}

#[test]
fn of_several_bounds_the_shortest_holds() {
    let (recorder, far) = (Recorder::default(), Instant::now() + secs(1000));
    let request = Request::new(Cost::whole(7));
    call_bounded(&recorder, request, secs(5), far).unwrap();
    call_bounded(&recorder, request.within(secs(3)), secs(5), far).unwrap();
    call_bounded(&recorder, request.within(secs(9)), secs(8), Instant::now()).unwrap();
    let waits: Vec<u64> = recorder.seen().iter().map(|seen| longest_wait(seen).as_secs()).collect();
    assert_eq!(waits, [5, 3, 0]);
}

#[suimon::consume(limiter = limiter, cost = { log.set(log.get() * 10 + 1); cost })]
fn logged(limiter: &impl Limiter, log: &Cell<u32>, cost: f64) -> Result<(), Error> {
    log.set(log.get() * 10 + 3);
    Ok(())
}

/// Writes down that it was asked.
struct Logging<'a>(&'a Cell<u32>, LocalLimiter);

impl Logging<'_> {
    fn consume(&self, request: Request) -> Result<(), Error> {
        self.0.set(self.0.get() * 10 + 2);
        self.1.consume(request)
    }
}

#[suimon::consume(limiter = limiter, cost = { log.set(log.get() * 10 + 1); cost })]
fn logged_by_method(limiter: &Logging<'_>, log: &Cell<u32>, cost: f64) -> Result<(), Error> {
    log.set(log.get() * 10 + 3);
    Ok(())
}

#[test]
fn first_the_cost_once_then_the_wait_then_the_body() {
    let log = Cell::new(0);
    let limiter = Logging(&log, manual("pace 60/min").0);
    logged_by_method(&limiter, &log, 1.5).unwrap();
    assert_eq!(log.take(), 123);

    // Refused, or no cost at all: the body does not run.
    assert!(logged_by_method(&limiter, &log, 61.0).unwrap_err().is_cost_too_large());
    assert_eq!(log.take(), 12);
    assert!(logged(&limiter.1, &log, f64::NAN).unwrap_err().is_invalid_cost());
    assert_eq!(log.take(), 1);
    limiter.1.close();
    assert!(logged(&limiter.1, &log, 1.0).unwrap_err().is_closed());
    assert_eq!(log.take(), 1);
}

/// Appends a digit to the log, and gives the value back.
fn note<T>(log: &Cell<u32>, digit: u32, value: T) -> T {
    log.set(log.get() * 10 + digit);
    value
}

#[suimon::consume(
    limiter = note(log, 4, limiter),
    or = note(log, 5, "refused"),
    deadline = note(log, 3, Instant::now()),
    within = note(log, 2, secs(1)),
    cost = note(log, 1, 1)
)]
fn ordered(limiter: &LocalLimiter, log: &Cell<u32>) -> &'static str {
    note(log, 6, "called")
}

#[test]
fn expressions_are_evaluated_once_and_in_the_documented_order() {
    let ((limiter, _clock), log) = (manual("pace 60/min"), Cell::new(0));
    assert_eq!((ordered(&limiter, &log), log.take()), ("called", 12_346));
    assert_eq!((ordered(&limiter, &log), log.take()), ("refused", 12_345));
}

proptest! {
    /// The attribute decides as the limiter under it does, whatever happens.
    #[test]
    fn as_the_limiter_itself(
        policy in prop::sample::select(vec!["pace 60/min", "bucket 2/s burst 5", "window 4/3s", "pace 7/s savings 3 and fixed 9/min"]),
        steps in prop::collection::vec((0_u32..8, 0_u64..2500, prop::option::of(0_u64..3000)), 1..40),
    ) {
        let ((limiter, clock), (twin, twins_clock)) = (manual(policy), manual(policy));
        for (cost, pause, longest) in steps {
            clock.advance(Duration::from_millis(pause));
            twins_clock.advance(Duration::from_millis(pause));
            let longest = longest.map(Duration::from_millis);
            // A wait of a thread that moves its own clock would never end.
            let wait = twin.peek(cost).ok().and_then(|decision| decision.retry()?.after());
            let (ours, direct) = match longest.filter(|longest| wait.is_none_or(|wait| wait > *longest)) {
                Some(longest) => (
                    call_within(&limiter, cost, longest),
                    twin.consume(Request::new(Cost::whole(u64::from(cost))).within(longest)),
                ),
                None => (call_now(&limiter, cost), match twin.allow(cost) {
                    Ok(decision) if decision.is_allowed() => Ok(()),
                    Ok(decision) => Err(Error::rate_limited(decision.retry().unwrap(), None)),
                    Err(error) => Err(error),
                }),
            };
            prop_assert_eq!(
                ours.as_ref().map_err(ToString::to_string),
                direct.as_ref().map_err(ToString::to_string)
            );
            prop_assert_eq!(limiter.status(), twin.status());
        }
    }
}
