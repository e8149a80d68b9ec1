//! One limiter, one and two threads: the cost of a decision.
//!
//! Admitted: a rate and burst that never run out. Refused: one token a day.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use suimon::LocalLimiter;
use suimon::clock::{Clock, CoarseClock, MachineClock};
use suimon_bench::{Candidate, medians, print};

const ROUNDS: usize = 15;
const N: u64 = 2_000_000;

fn governor(per_second: u32) -> DefaultDirectRateLimiter {
    RateLimiter::direct(Quota::per_second(NonZeroU32::new(per_second).unwrap()))
}

#[inline(never)]
fn allow(limiter: &LocalLimiter, n: u64) {
    for _ in 0..n {
        black_box(limiter.allow(1).is_ok_and(|decision| decision.is_allowed()));
    }
}

#[inline(never)]
fn check(limiter: &DefaultDirectRateLimiter, n: u64) {
    for _ in 0..n {
        let _ = black_box(limiter.check().is_ok());
    }
}

/// `n` operations on each of two threads.
fn twice(n: u64, run: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        scope.spawn(|| run(n));
        run(n);
    });
}

fn main() {
    let fast = LocalLimiter::new("bucket 1000000000/s").unwrap();
    let odd = LocalLimiter::new("bucket 999999937/s").unwrap();
    let slow = LocalLimiter::new("bucket 1/day").unwrap();
    let policy = LocalLimiter::new("bucket 1000000000/s and bucket 1000000000/min burst 100000000000").unwrap();
    let coarse = LocalLimiter::builder("bucket 1000000000/s")
        .unwrap()
        .clock(CoarseClock::new(Duration::from_millis(1)).unwrap())
        .build()
        .unwrap();
    let (their_fast, their_slow) =
        (governor(1_000_000_000), RateLimiter::direct(Quota::with_period(Duration::from_secs(86_400)).unwrap()));
    let their_coarse = RateLimiter::direct_with_clock(
        Quota::per_second(NonZeroU32::new(1_000_000_000).unwrap()),
        governor::clock::QuantaUpkeepClock::from_interval(Duration::from_millis(1)).unwrap(),
    );
    let _ = slow.allow(1);
    let _ = their_slow.check();
    let ratelimit = ratelimit::Ratelimiter::new(1_000_000_000);
    let word = AtomicU64::new(0);

    let candidates = [
        Candidate::new("governor: check, admitted", |n| check(&their_fast, n)),
        Candidate::new("floor: clock + compare-and-swap", |n| {
            for _ in 0..n {
                let now = MachineClock.now().as_nanos();
                let before = word.load(Ordering::Relaxed);
                let _ = black_box(word.compare_exchange(before, now, Ordering::AcqRel, Ordering::Relaxed));
            }
        }),
        Candidate::new("suimon: allow, admitted", |n| allow(&fast, n)),
        Candidate::new("suimon: allow, admitted, 999999937/s", |n| allow(&odd, n)),
        Candidate::new("suimon: allow, admitted, status read", |n| {
            for _ in 0..n {
                black_box(fast.allow(1).map(|decision| *decision.status()).ok());
            }
        }),
        Candidate::new("suimon: policy of two limits", |n| allow(&policy, n)),
        Candidate::new("ratelimit: try_wait, admitted", |n| {
            for _ in 0..n {
                let _ = black_box(ratelimit.try_wait().is_ok());
            }
        }),
    ];
    print("admitted, one thread", &candidates, &medians(&candidates, ROUNDS, N));

    let candidates = [
        Candidate::new("governor: check, refused", |n| check(&their_slow, n)),
        Candidate::new("floor: clock", |n| {
            for _ in 0..n {
                black_box(MachineClock.now());
            }
        }),
        Candidate::new("suimon: allow, refused", |n| allow(&slow, n)),
    ];
    print("refused, one thread", &candidates, &medians(&candidates, ROUNDS, N));

    let candidates = [
        Candidate::new("governor: upkeep clock", |n| {
            for _ in 0..n {
                let _ = black_box(their_coarse.check().is_ok());
            }
        }),
        Candidate::new("floor: compare-and-swap", |n| {
            for step in 0..n {
                let before = word.load(Ordering::Relaxed);
                let _ = black_box(word.compare_exchange(before, step, Ordering::AcqRel, Ordering::Relaxed));
            }
        }),
        Candidate::new("suimon: coarse clock", |n| allow(&coarse, n)),
    ];
    print("admitted, a clock of 1 ms, one thread", &candidates, &medians(&candidates, ROUNDS, N));

    let candidates = [
        Candidate::new("governor: check, admitted", |n| twice(n / 2, |n| check(&their_fast, n))),
        Candidate::new("suimon: allow, admitted", |n| twice(n / 2, |n| allow(&fast, n))),
    ];
    print("admitted, two threads on one limiter", &candidates, &medians(&candidates, ROUNDS, N));
}
