//! Regressions: each test is a way in which waiting has been wrong, here or elsewhere.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use suimon::clock::{Alarm, Clock, CoarseClock};
use suimon::{Carry, Cost, LocalLimiter, Request, Retry, Settlement, Timestamp};
use support::{Waiter, limiter, ms, must_end, poll_once, s, wait};

/// Whoever moves up because another leaves begins at that instant, and is counted
/// there: dated back to its arrival it would be forgotten too early.
#[test]
fn moving_up_in_a_window_is_counted_when_it_happens() {
    let (limiter, clock) = limiter("window 10/1s");
    assert!(limiter.allow(5).unwrap().is_allowed());
    let large = wait(&limiter, 10);
    clock.set(s(0.1));
    let mut small = wait(&limiter, 5);
    clock.set(s(0.5));
    drop(large);
    assert!(small.passes());
    clock.set(s(1.0));
    assert!(limiter.allow(5).unwrap().is_allowed());
    // Five at 0.5 s and five at 1.0 s: nothing is free before 1.5 s.
    clock.set(s(1.1));
    let denied = limiter.allow(1).unwrap();
    assert_eq!(denied.retry().and_then(Retry::after), Some(ms(400)));
}

#[test]
fn what_a_settlement_frees_in_a_window_passes_when_it_is_settled() {
    let (limiter, clock) = limiter("window 10/1s");
    let reserved = limiter.reserve(10).unwrap();
    clock.set(s(0.1));
    let mut next = wait(&limiter, 10);
    clock.set(s(0.9));
    reserved.cancel();
    assert!(next.passes());
    clock.set(s(1.1));
    assert!(!limiter.allow(1).unwrap().is_allowed(), "ten have passed 0.2 s ago");
    clock.set(s(1.9));
    assert!(limiter.allow(10).unwrap().is_allowed());
}

#[test]
fn a_reset_serves_from_then_on() {
    let (limiter, clock) = limiter("bucket 10/s burst 10");
    assert!(limiter.allow(10).unwrap().is_allowed());
    let (mut first, mut second) = (wait(&limiter, 10), wait(&limiter, 10));
    clock.set(s(0.5));
    limiter.change("bucket 10/s burst 10", Carry::Reset).unwrap();
    assert!(first.passes());
    clock.go_to(s(1.4));
    assert!(second.is_pending(), "ten passed at 0.5 s, ten more need a second");
    clock.go_to(s(1.5));
    assert!(second.passes());
}

/// The time of one token is 142857142.857... ns: rounded up for each of those who
/// wait, the last would come late.
#[test]
fn a_long_queue_does_not_drift() {
    let (limiter, clock) = limiter("pace 7/s");
    limiter.consume(1).unwrap();
    let mut waiters: Vec<Waiter> = (1..=7000).map(|_| wait(&limiter, 1)).collect();
    for (index, waiter) in waiters.iter_mut().enumerate() {
        let due = Timestamp::from_nanos(((index as u64 + 1) * 1_000_000_000).div_ceil(7));
        clock.go_to(Timestamp::from_nanos(due.as_nanos() - 1));
        assert_eq!(clock.alarm(), Some(due), "waiter {index}");
        clock.go_to(due);
        assert_eq!(waiter.wakes.count(), 1);
        assert!(waiter.passes());
    }
    assert_eq!(clock.now(), s(1000.0));
}

#[test]
fn a_look_into_the_future_changes_nothing() {
    let (limiter, _clock) = limiter("pace 1/s");
    limiter.consume(1).unwrap();
    let mut waiter = wait(&limiter, 1);
    let _ = limiter.peek_at(s(100.0), 1).unwrap();
    assert!(waiter.is_pending(), "its turn is at 1 s, and it is 0 s");
    assert_eq!(limiter.queued(), Cost::ONE);
}

#[test]
fn a_look_beyond_a_pause_does_not_end_it() {
    let (limiter, clock) = limiter("bucket 10/s");
    limiter.pause_for(Duration::from_secs(10));
    let _ = limiter.peek_at(s(20.0), 1).unwrap();
    clock.set(s(1.0));
    assert!(!limiter.allow(1).unwrap().is_allowed(), "paused until 10 s");
}

/// The same from a call that brings a later time.
#[test]
fn a_call_that_brings_a_later_time_lets_nobody_pass_early() {
    let (limiter, clock) = limiter("bucket 10/s");
    limiter.pause_for(Duration::from_secs(10));
    let mut waiter = wait(&limiter, 1);
    let _ = limiter.allow_at(s(20.0), 1);
    clock.set(s(1.0));
    assert!(waiter.is_pending(), "paused until 10 s");
    assert!(!limiter.allow(1).unwrap().is_allowed(), "paused until 10 s");
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker panics");
    }
}

/// One task's waker is no reason to forget the others that are due at the same instant.
#[test]
fn a_waker_that_panics_takes_nobody_with_it() {
    let (limiter, clock) = limiter("bucket 1/s burst 3");
    limiter.pause_for(Duration::from_secs(1));
    let mut bad = Box::pin(limiter.consume_async(1));
    let waker = Waker::from(Arc::new(Panics));
    assert!(bad.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let mut good = wait(&limiter, 1);
    clock.set(s(1.0));
    let rang = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| clock.ring()));
    assert_eq!(good.wakes.count(), 1, "woken although the one before panicked: {rang:?}");
    assert!(good.passes());
    assert!(matches!(bad.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(()))));
    assert!(limiter.allow(1).unwrap().is_allowed());
}

/// As in small executors, where nothing but its wakers keeps a task alive.
struct Task(#[expect(dead_code, reason = "kept alive")] Mutex<Option<Waiter>>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

/// A waker may be the last that holds a task, and the task may hold a place in
/// the same queue: it must not be dropped under the lock.
#[test]
fn a_waker_that_is_replaced_may_drop_a_task_that_waits() {
    must_end(|| {
        let (limiter, _clock) = limiter("pace 1/s");
        limiter.consume(1).unwrap();
        let task = Arc::new(Task(Mutex::new(Some(wait(&limiter, 1)))));
        let mut moved = Box::pin(limiter.consume_async(1));
        let waker = Waker::from(task);
        assert!(moved.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        // The future moves to another task, and the first one is gone.
        assert!(moved.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(limiter.queued(), Cost::ONE);
    });
}

#[test]
fn a_waker_that_is_dropped_with_its_place_may_drop_a_task_that_waits() {
    must_end(|| {
        let (limiter, _clock) = limiter("pace 1/s");
        limiter.consume(1).unwrap();
        let mut place = limiter.reserve(1).unwrap();
        for give_up in [true, false] {
            let task = Waker::from(Arc::new(Task(Mutex::new(Some(wait(&limiter, 1))))));
            if give_up {
                let mut leaving = Box::pin(limiter.consume_async(1));
                assert!(leaving.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
                drop(task);
                drop(leaving);
            } else {
                let mut ready = Box::pin(place.ready());
                assert!(ready.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
                drop(task);
                drop(ready);
            }
        }
        drop(place);
        assert_eq!(limiter.queued(), Cost::ONE, "the reservation stays in the queue");
    });
}

/// "Waits at most this long" holds also when the limiter is paused after the wait
/// has begun, slowed, or charged: what cannot be met any more fails at once.
#[test]
fn a_longest_wait_holds_when_a_pause_comes() {
    let (limiter, clock) = limiter("pace 1/s");
    limiter.consume(1).unwrap();
    let mut waiter = wait(&limiter, Request::new(Cost::ONE).within(ms(1500)));
    let mut patient = wait(&limiter, 1);
    clock.set(s(0.5));
    limiter.pause_for(Duration::from_secs(10));
    let error = match waiter.poll() {
        Poll::Ready(outcome) => outcome.unwrap_err(),
        Poll::Pending => panic!("it could wait until 1.5 s, and nothing passes before 10.5 s"),
    };
    assert!(error.is_rate_limited());
    assert_eq!(waiter.wakes.count(), 1);
    clock.go_to(s(10.5));
    assert!(patient.passes(), "the one that failed left its place");
}

#[test]
fn a_longest_wait_holds_when_the_limit_is_slowed_or_charged() {
    let (limiter, clock) = limiter("pace 1/s");
    let reserved = limiter.reserve(1).unwrap();
    let mut waiter = wait(&limiter, Request::new(Cost::ONE).within(ms(1500)));
    reserved.settle(3).unwrap();
    assert!(matches!(waiter.poll(), Poll::Ready(Err(error)) if error.is_rate_limited()));

    let mut waiter = wait(&limiter, Request::new(Cost::ONE).within(ms(3000)));
    limiter.change("pace 1/min", Carry::Keep).unwrap();
    assert!(matches!(waiter.poll(), Poll::Ready(Err(error)) if error.is_rate_limited()));
    assert_eq!(limiter.queued(), Cost::ZERO);
    let _ = clock;
}

/// The error of a cost that the new limits can never let pass comes with the
/// change, not when its turn would have come; and nobody is told to wait for it.
#[test]
fn a_change_fails_at_once_whoever_can_never_pass() {
    let (limiter, _clock) = limiter("bucket 10/s burst 10");
    limiter.consume(10).unwrap();
    let mut small = wait(&limiter, 5);
    let mut large = wait(&limiter, 10);
    limiter.change("bucket 10/s burst 5", Carry::Keep).unwrap();
    assert!(matches!(large.poll(), Poll::Ready(Err(error)) if error.is_cost_too_large()));
    assert_eq!(large.wakes.count(), 1);
    assert_eq!(limiter.queued(), Cost::whole(5));
    // Five are owed to `small` at 0.5 s, and five more to this one at 1 s.
    let mut next = Waiter::new(limiter.consume_async(Request::new(Cost::whole(5)).within(ms(1000))));
    assert!(next.is_pending());
    assert!(small.is_pending());
}

#[test]
fn a_reservation_that_failed_stays_failed() {
    let (limiter, _clock) = limiter("pace 1/s");
    limiter.consume(1).unwrap();
    let mut place = limiter.reserve(1).unwrap();
    limiter.close();
    assert!(place.wait_until_ready().unwrap_err().is_closed());
    assert!(place.wait_until_ready().is_err(), "it never got its turn");
    assert!(matches!(poll_once(place.ready()), Poll::Ready(Err(_))));
}

/// What a call cost beyond the largest cost that can pass has still been spent.
#[test]
fn a_queued_reservation_is_settled_in_full() {
    for early in [true, false] {
        let (limiter, clock) = limiter("bucket 10/s burst 10");
        limiter.consume(10).unwrap();
        let mut place = limiter.reserve(10).unwrap();
        if early {
            assert_eq!(place.settle(30).unwrap(), Settlement::Charged(Cost::whole(20)));
            clock.go_to(s(1.0));
        } else {
            clock.go_to(s(1.0));
            place.wait_until_ready().unwrap();
            assert_eq!(place.settle(30).unwrap(), Settlement::Charged(Cost::whole(20)));
        }
        clock.go_to(s(3.0));
        let denied = limiter.allow(1).unwrap();
        assert_eq!(denied.retry().and_then(Retry::after), Some(ms(100)), "settled early: {early}");
    }
}

/// Counts how often the alarm is set on a coarse clock.
#[derive(Clone, Debug)]
struct Counting(CoarseClock, Arc<AtomicUsize>);

impl Clock for Counting {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn set_alarm(&self, at: Timestamp, alarm: Alarm) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.set_alarm(at, alarm);
    }
}

/// Between two ticks the time stands still; asking again and again does not move it.
#[test]
fn a_coarse_clock_does_not_spin() {
    let times = Arc::new(AtomicUsize::new(0));
    let clock = Counting(CoarseClock::new(ms(50)).unwrap(), times.clone());
    let limiter = LocalLimiter::builder("pace 100000/s").unwrap().clock(clock).build().unwrap();
    limiter.consume(1).unwrap();
    limiter.consume(1).unwrap(); // due 10 us after a tick, seen 50 ms after it
    let times = times.load(Ordering::SeqCst);
    assert!(times <= 20, "the alarm was set {times} times for one wait");
}

/// Sums that pass the end of their type must not come back smaller.
#[test]
fn huge_costs_in_the_queue_add_up() {
    let (limiter, _clock) = limiter("unlimited");
    limiter.pause_for(Duration::from_secs(1));
    let first = wait(&limiter, Cost::MAX);
    let second = wait(&limiter, Cost::MAX);
    drop(first);
    assert_eq!(limiter.queued(), Cost::MAX);
    drop(second);
    assert_eq!(limiter.queued(), Cost::ZERO);
}

#[test]
fn a_queue_of_centuries_is_timed_rightly() {
    let (limiter, _clock) = limiter("bucket 1/s burst 3155000000");
    let century = 3_155_000_000_u64;
    limiter.consume(century).unwrap();
    let mut waiters: Vec<Waiter> = (0..8).map(|_| Waiter::new(limiter.consume_async(century))).collect();
    for waiter in &mut waiters {
        let _ = waiter.poll();
    }
    // Whoever is told to wait is still told the truth when those before it have left.
    drop(waiters);
    assert_eq!(limiter.queued(), Cost::ZERO);
    let wait = limiter.reserve(1).unwrap().wait();
    assert_eq!(wait, Duration::from_secs(1));
}
