//! Real threads on the machine's clock: never more than the limit lets through,
//! nobody forgotten, nothing lost.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use suimon::clock::{Clock, MachineClock};
use suimon::{Carry, Cost, LocalLimiter, Request, Timestamp};
use support::{Waiter, ms, must_end};

/// A generator for each thread, from its number.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// The most that may pass from `start` until now, and one token for rounding.
fn most(start: Timestamp, burst: u64, per_second: u64) -> u64 {
    let elapsed = MachineClock.now().saturating_since(start).as_nanos();
    let refilled = elapsed * u128::from(per_second) / 1_000_000_000;
    burst + u64::try_from(refilled).unwrap() + 1
}

/// As good as new when all is over, at an instant that is brought instead of slept for.
fn assert_full(limiter: &LocalLimiter, burst: u64) {
    let later = MachineClock.now().saturating_add(Duration::from_secs(60));
    assert!(limiter.peek_at(later, burst).unwrap().is_allowed(), "{limiter:?} {:?}", limiter.status());
    assert_eq!(limiter.queued(), Cost::ZERO);
}

/// What 16 threads get that only try, in 400 ms of `bucket 1000/100ms`.
fn got_by_trying() -> u64 {
    const BURST: u64 = 1000;
    let limiter = LocalLimiter::new("bucket 1000/100ms").unwrap();
    let got = AtomicU64::new(0);
    let start = MachineClock.now();
    thread::scope(|scope| {
        for seed in 0..16 {
            let (limiter, got) = (&limiter, &got);
            scope.spawn(move || {
                let mut random = Random(seed);
                while MachineClock.now().saturating_since(start) < ms(400) {
                    let cost = 1 + random.below(8);
                    if limiter.allow(cost).unwrap().is_allowed() {
                        got.fetch_add(cost, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let got = got.into_inner();
    assert!(got <= most(start, BURST, 10_000));
    assert_full(&limiter, BURST);
    got
}

/// udoprog/leaky-bucket#39: many threads that only tried wedged the bucket for ever,
/// tokens were lost, and sometimes there were more than there should have been.
#[test]
fn threads_that_only_try() {
    must_end(|| {
        // A machine that stands still for 100 ms fills the bucket to the brim, and
        // what it stands still for longer is not there to be taken.
        let got: Vec<u64> = (0..3).map(|_| got_by_trying()).collect();
        assert!(got.iter().any(|got| *got >= 5000 * 95 / 100), "{got:?}");
    });
}

#[test]
fn every_consume_returns_and_none_is_early() {
    must_end(|| {
        for policy in ["pace 10000/s", "bucket 10000/s burst 1", "pace 10000/s and bucket 20000/s"] {
            let limiter = LocalLimiter::new(policy).unwrap();
            let start = MachineClock.now();
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| (0..100).for_each(|_| limiter.consume(1).unwrap()));
                }
            });
            // The last of 800 begins when 799 tokens have been paid for.
            assert!(MachineClock.now().saturating_since(start) >= Duration::from_micros(79_900), "{policy}");
            assert_eq!(limiter.queued(), Cost::ZERO);
        }
    });
}

/// What one thread of the mixed load has got, at least: settled at what it really cost.
fn mixed_load(limiter: &LocalLimiter, seed: u64, rounds: u64) -> u64 {
    let mut random = Random(seed);
    let mut got = 0;
    for _ in 0..rounds {
        let cost = 1 + random.below(5);
        match random.below(12) {
            0..4 => got += if limiter.allow(cost).unwrap().is_allowed() { cost } else { 0 },
            4 => {
                limiter.consume(cost).unwrap();
                got += cost;
            }
            5 => {
                let within = Request::new(Cost::whole(cost)).within(Duration::from_micros(random.below(500)));
                match limiter.consume(within) {
                    Ok(()) => got += cost,
                    Err(error) => assert!(error.is_rate_limited(), "{error}"),
                }
            }
            6 | 7 => {
                // Dropped while it waits, or while it has been served and does not know.
                let mut waiter = Waiter::new(limiter.consume_async(cost));
                if random.below(2) == 0 && waiter.is_pending() {
                    thread::yield_now();
                }
            }
            8 => {
                let mut place = limiter.reserve(cost).unwrap();
                place.wait_until_ready().unwrap();
                let actual = random.below(8);
                place.settle(actual).unwrap();
                got += actual;
            }
            9 => limiter.reserve(cost).unwrap().cancel(),
            10 => drop(limiter.reserve(1).unwrap()),
            _ => match random.below(8) {
                0 => limiter.pause_for(Duration::from_micros(200)),
                1 => limiter.change("bucket 50000/s burst 100", Carry::Keep).unwrap(),
                2 => limiter.change("bucket 100000/s burst 100", Carry::Keep).unwrap(),
                _ => assert!(limiter.peek(cost).is_ok() && limiter.status().limit() == 100),
            },
        }
    }
    got
}

#[test]
fn everything_at_once() {
    must_end(|| {
        const BURST: u64 = 100;
        const THREADS: u64 = 6;
        let limiter = LocalLimiter::new("bucket 100000/s burst 100").unwrap();
        let start = MachineClock.now();
        let got: u64 = thread::scope(|scope| {
            let limiter = &limiter;
            let threads: Vec<_> =
                (0..THREADS).map(|seed| scope.spawn(move || mixed_load(limiter, seed, 3000))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        // Each thread may have gone beyond one estimate that has not been paid yet;
        // each change rounds by a tick at most.
        let most = most(start, BURST, 100_000) + THREADS * 8;
        assert!(got <= most, "{got} of {most}");
        assert!(got > BURST, "{got}");
        // Reservations that were dropped may still be in the queue.
        while !limiter.queued().is_zero() {
            limiter.consume(1).unwrap();
        }
        assert_full(&limiter, BURST);
    });
}

#[test]
fn a_window_counts_every_thread_once() {
    must_end(|| {
        let limiter = LocalLimiter::new("window 1000/1h and fixed 1500/100year").unwrap();
        let got: usize = thread::scope(|scope| {
            let threads = [(); 6].map(|()| {
                scope.spawn(|| {
                    let passed = (0..400).filter(|_| limiter.allow(1).unwrap().is_allowed()).count();
                    // Whoever gives back makes room for others, and nothing more.
                    if let Ok(place) = limiter.reserve(Request::new(Cost::ONE).within(Duration::ZERO)) {
                        place.cancel();
                    }
                    passed
                })
            });
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let rest = (0..10).filter(|_| limiter.allow(1).unwrap().is_allowed()).count();
        assert_eq!(got + rest, 1000);
    });
}

/// Closed in the middle of it: everybody returns, with success or with the error.
#[test]
fn closing_ends_all_waits() {
    must_end(|| {
        let limiter = LocalLimiter::new("pace 1000/s").unwrap();
        let closed = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while limiter.consume(1).inspect_err(|error| assert!(error.is_closed())).is_ok() {}
                    assert!(closed.load(Ordering::SeqCst));
                });
            }
            while limiter.queued() < Cost::whole(7) {
                thread::yield_now();
            }
            closed.store(true, Ordering::SeqCst);
            limiter.close();
        });
        assert_eq!(limiter.queued(), Cost::ZERO);
    });
}

/// The rate of a long queue is exact although each wake-up is late.
#[test]
fn who_is_woken_late_catches_up() {
    must_end(|| {
        let limiter = LocalLimiter::new("pace 5000/s").unwrap();
        limiter.consume(1).unwrap();
        let first = MachineClock.now();
        let mut last = limiter.reserve(1).unwrap();
        for _ in 1..500 {
            drop(std::mem::replace(&mut last, limiter.reserve(1).unwrap()));
        }
        last.wait_until_ready().unwrap();
        let elapsed = MachineClock.now().saturating_since(first);
        // The first token was taken a little before `first`.
        assert!(elapsed >= ms(99), "{elapsed:?}");
        assert!(elapsed < ms(100) + ms(900), "{elapsed:?}");
    });
}
