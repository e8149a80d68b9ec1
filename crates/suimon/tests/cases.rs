//! Real situations from public trackers, with the values that would have been right.

mod support;

use std::sync::Barrier;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use suimon::clock::{Clock, ManualClock};
use suimon::{Cost, LocalLimiter, Request, Retry};
use support::{Waiter, limiter, ms, s, wait};

/// world-federation-of-advertisers/cross-media-measurement#4444: a cancelled waiter
/// kept its capacity, or stayed at the head and blocked everybody.
#[test]
fn a_dropped_future_leaves_no_trace() {
    let (limiter, clock) = limiter("bucket 1/s burst 1");
    limiter.consume(1).unwrap();
    clock.go_to(s(0.1));
    let a = wait(&limiter, 1);
    clock.go_to(s(0.2));
    let mut b = wait(&limiter, 1);
    clock.go_to(s(0.5));
    drop(a);
    assert_eq!(clock.alarm(), Some(s(1.0)));
    clock.go_to(s(0.999_999_999));
    assert!(b.is_pending());
    clock.go_to(s(1.0));
    assert!(b.passes());
    clock.go_to(s(1.5));
    let c = wait(&limiter, 1);
    clock.go_to(s(2.0));
    assert_eq!(c.wakes.count(), 1, "granted");
    drop(c);
    let mut d = Waiter::new(limiter.consume_async(1));
    assert!(d.passes());
    let e = wait(&limiter, 1);
    clock.go_to(s(3.0));
    assert_eq!(e.wakes.count(), 1);
}

/// golang/go#56924 and golang/go#69419: cancelling gave back less than was taken,
/// because later reservations were subtracted.
#[test]
fn a_cancelled_reservation_gives_everything_back() {
    let (limiter, clock) = limiter("bucket 10/s burst 20");
    assert!(limiter.allow(15).unwrap().is_allowed());
    clock.go_to(s(0.1));
    let first = limiter.reserve(10).unwrap();
    assert_eq!(first.wait(), ms(400), "due at 0.5 s");
    clock.go_to(s(0.2));
    let mut second = limiter.reserve(2).unwrap();
    assert_eq!(second.wait(), ms(500), "due at 0.7 s");
    first.cancel();
    assert!(matches!(support::poll_once(second.ready()), Poll::Ready(Ok(()))), "it may go at once");
    assert_eq!(limiter.status().remaining(), 5);
    second.cancel();
    assert_eq!(limiter.status().remaining(), 7);
}

/// The same for reservations that are cancelled in any order, also the first one
/// first (mvanhorn/cli-printing-press#4441): all cancelled is untouched.
#[test]
fn all_cancelled_is_untouched() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (limiter, clock) = limiter("bucket 10/s burst 20");
        let (untouched, twin) = support::limiter("bucket 10/s burst 20");
        assert!(limiter.allow(18).unwrap().is_allowed() && untouched.allow(18).unwrap().is_allowed());
        let mut places: Vec<_> = [2, 7, 1].into_iter().map(|cost| limiter.reserve(cost).ok()).collect();
        for (step, index) in order.into_iter().enumerate() {
            clock.go_to(s(0.1 * step as f64));
            places[index].take().unwrap().cancel();
        }
        twin.go_to(clock.now());
        assert_eq!(limiter.status(), untouched.status(), "{order:?}");
    }
}

/// jhurliman/node-rate-limiter#56: small callers took each fresh token, and the
/// large one starved.
#[test]
fn a_large_request_does_not_starve() {
    let (limiter, clock) = limiter("bucket 1/s burst 10");
    assert!(limiter.allow(10).unwrap().is_allowed());
    let mut large = wait(&limiter, 10);
    let mut small = Vec::new();
    for second in 1..=9 {
        clock.go_to(s(f64::from(second)));
        assert!(!limiter.allow(1).unwrap().is_allowed(), "no barging");
        small.push(wait(&limiter, 1));
    }
    assert_eq!(limiter.queued(), Cost::whole(19));
    clock.go_to(s(9.999_999_999));
    assert!(large.is_pending());
    clock.go_to(s(10.0));
    assert!(large.passes());
    for (index, waiter) in small.iter_mut().enumerate() {
        let due = s(11.0 + index as f64);
        assert_eq!(clock.alarm(), Some(due));
        assert!(waiter.is_pending());
        clock.go_to(due);
        assert!(waiter.passes());
    }
    clock.go_to(s(20.0));
    assert!(limiter.allow(1).unwrap().is_allowed());
}

/// tomasbasham/ratelimit#28: a timer that returns a microsecond early let the call
/// through, or made it spin. It is looked at again, and once.
#[test]
fn an_early_timer_lets_nobody_pass_early() {
    let (limiter, clock) = limiter("bucket 20/s burst 1");
    limiter.consume(1).unwrap();
    let mut waiter = wait(&limiter, 1);
    assert_eq!((clock.alarm(), clock.times_set()), (Some(s(0.05)), 1));
    clock.set(s(0.049_999));
    assert!(clock.ring());
    assert!(waiter.is_pending());
    assert_eq!((clock.alarm(), clock.times_set(), waiter.wakes.count()), (Some(s(0.05)), 2, 0));
    clock.set(s(0.05));
    assert!(clock.ring());
    assert_eq!(waiter.wakes.count(), 1);
    assert!(waiter.passes());
    assert!(!clock.ring(), "nobody waits");
    assert!(!limiter.allow(1).unwrap().is_allowed(), "admitted once");
}

/// microsoft/TypeAgent#2827: a caller with 25 ms to spare slept a second, since it
/// looked at its deadline only afterwards. The answer is known at once.
#[test]
fn what_cannot_be_in_time_fails_at_once() {
    let (limiter, clock) = limiter("bucket 1/min burst 1");
    limiter.consume(1).unwrap();
    let minute = Duration::from_secs(60);
    for too_short in [Duration::ZERO, ms(25), minute - Duration::from_nanos(1)] {
        let request = Request::new(Cost::ONE).within(too_short);
        let error = limiter.consume(request).unwrap_err();
        assert!(error.is_rate_limited());
        assert_eq!(error.retry_after(), Some(minute));
        assert_eq!(error.to_string(), format!("rate limited: it would have to wait 60s, and {too_short:?} is allowed"));
        assert_eq!((limiter.queued(), clock.alarm()), (Cost::ZERO, None), "nothing is left");
    }
    let mut in_time = wait(&limiter, Request::new(Cost::ONE).within(minute));
    clock.go_to(s(60.0));
    assert!(in_time.passes());
    clock.go_to(s(120.0));
    assert!(limiter.allow(1).unwrap().is_allowed());
}

/// boinkor-net/governor#203: an interval below a nanosecond became zero.
#[test]
fn more_than_a_billion_a_second() {
    for (rate, micro, milli) in
        [(1_000_000_001_u64, 1000, 1_000_000), (1_000_000_000, 1000, 1_000_000), (999_999_999, 999, 999_999)]
    {
        let clock = ManualClock::new();
        let limiter =
            LocalLimiter::builder(&*format!("bucket {rate}/s")).unwrap().clock(clock.clone()).build().unwrap();
        assert!(limiter.allow(rate).unwrap().is_allowed());
        clock.advance(Duration::from_micros(1));
        assert_eq!(limiter.status().remaining(), micro);
        assert!(limiter.allow(micro).unwrap().is_allowed() && !limiter.allow(1).unwrap().is_allowed());
        clock.advance(Duration::from_millis(1));
        assert!(limiter.allow(milli).unwrap().is_allowed());
    }
    // A million calls of two threads are far below the rate.
    let limiter = LocalLimiter::new("bucket 1000000001/s").unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..500_000).for_each(|_| assert!(limiter.allow(1).unwrap().is_allowed())));
        }
    });
}

/// How many of `threads` calls that begin together pass.
fn passed_together(limiter: &LocalLimiter, threads: usize) -> usize {
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        let calls: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    limiter.allow(1).unwrap().is_allowed()
                })
            })
            .collect();
        calls.into_iter().filter_map(|call| call.join().ok()).filter(|passed| *passed).count()
    })
}

/// letsencrypt/boulder#7780: whoever read the same arrival time passed beside the others.
#[test]
fn ten_of_a_hundred_pass() {
    for _ in 0..20 {
        let (limiter, clock) = limiter("bucket 10/h");
        clock.set(s(1.0));
        assert_eq!(passed_together(&limiter, 100), 10);
        let wait = limiter.allow(1).unwrap().retry().and_then(Retry::after);
        assert_eq!(wait, Some(Duration::from_secs(360)));
    }
}

/// BerriAI/litellm#6938: a check and an increment after it let eight to twelve
/// of five through.
#[test]
fn check_and_count_are_one_step() {
    for policy in ["window 5/60s", "fixed 5/60s", "bucket 5/60s", "window 5/60s and bucket 10/60s"] {
        for threads in [6, 20] {
            let (limiter, _clock) = limiter(policy);
            assert_eq!(passed_together(&limiter, threads), 5, "{policy}");
        }
    }
    for policy in ["window 100/60s", "bucket 100/60s"] {
        let (limiter, _clock) = limiter(policy);
        let calls = thread::scope(|scope| {
            let threads =
                [(); 7].map(|()| scope.spawn(|| (0..146).filter(|_| limiter.allow(1).unwrap().is_allowed()).count()));
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(calls, 100, "of 1022, {policy}");
    }
}

#[cfg(feature = "tokio")]
mod paused_time {
    use std::time::Duration;

    use suimon::LocalLimiter;
    use suimon::clock::TokioClock;

    /// The instants, in seconds, at which tasks that begin together get through.
    async fn instants(policy: &str, tasks: usize) -> Vec<f64> {
        let limiter = LocalLimiter::builder(policy).unwrap().clock(TokioClock::current()).build().unwrap();
        let start = tokio::time::Instant::now();
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    limiter.consume_async(1).await.unwrap();
                    start.elapsed()
                })
            })
            .collect();
        let mut instants = Vec::new();
        for task in tasks {
            instants.push((task.await.unwrap().as_secs_f64() * 100.0).round() / 100.0);
        }
        instants
    }

    /// joshrotenberg/tower-resilience#363: who had to wait a second time was let
    /// through without a permit. Ten pass in each window, the hundredth at 9 s.
    #[tokio::test(start_paused = true)]
    async fn a_second_wait_is_a_wait() {
        for policy in ["fixed 10/1s", "window 10/1s"] {
            let expected: Vec<f64> = (0..100).map(|task| f64::from(task / 10)).collect();
            assert_eq!(instants(policy, 100).await, expected, "{policy}");
        }
        // A bucket of ten lets ten through at once and then one each tenth.
        let expected: Vec<f64> = (0..100).map(|task| f64::from((task - 9).max(0)) / 10.0).collect();
        assert_eq!(instants("bucket 10/1s", 100).await, expected);
    }

    /// tower-rs/tower#438 and tower-rs/tower#454: only the last one that had polled was
    /// woken, and the window never began anew.
    #[tokio::test(start_paused = true)]
    async fn everybody_is_woken_in_every_window() {
        for policy in ["window 2/1s", "fixed 2/1s"] {
            assert_eq!(instants(policy, 6).await, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
            tokio::time::advance(Duration::from_secs(3600)).await;
            assert_eq!(instants(policy, 6).await, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
        }
        let limiter = LocalLimiter::builder("window 2/1s").unwrap().clock(TokioClock::current()).build().unwrap();
        for _ in 0..2 {
            let start = tokio::time::Instant::now();
            let all: Vec<_> = (0..6).map(|_| limiter.consume_async(1)).collect();
            for future in all.into_iter().map(tokio::spawn).collect::<Vec<_>>() {
                future.await.unwrap().unwrap();
            }
            assert_eq!(start.elapsed().as_millis(), 2000);
            tokio::time::advance(Duration::from_secs(3600)).await;
        }
    }
}
