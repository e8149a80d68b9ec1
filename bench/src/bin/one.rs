//! One candidate `n` times, for counting instructions:
//! `valgrind --tool=callgrind target/release/one governor-denied 100000`.
//! What a call costs is the difference between two `n`.

use std::hint::black_box;
use std::time::Duration;

use foldhash::fast::RandomState as FoldHash;
use governor::{Quota, RateLimiter};
use suimon::{Keyed, LocalLimiter};
use suimon_bench::keyed::Key;

/// Few keys, so that filling the table is not what is counted.
const KEYS: u64 = 1000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(n)) = (arguments.next(), arguments.next().and_then(|n| n.parse::<u64>().ok())) else {
        usage();
    };
    let slow = name.ends_with("denied");
    let second = 1_000_000_000.try_into().unwrap();
    let passed = match name.as_str() {
        "suimon-allowed" | "suimon-denied" => {
            let limiter = LocalLimiter::new(if slow { "bucket 1/day" } else { "bucket 1000000000/s" }).unwrap();
            count(n, |_| limiter.allow(1).is_ok_and(|decision| decision.is_allowed()))
        }
        "governor-allowed" | "governor-denied" => {
            let limiter = RateLimiter::direct(if slow {
                Quota::with_period(Duration::from_secs(86_400)).unwrap()
            } else {
                Quota::per_second(second)
            });
            count(n, |_| limiter.check().is_ok())
        }
        "suimon-keyed" => {
            let builder = Keyed::builder("bucket 1000000000/s").unwrap().max_keys(KEYS as usize);
            let limiter = builder.hasher(FoldHash::default()).build().unwrap();
            count(n, |key| limiter.allow(key, 1).is_ok_and(|decision| decision.is_allowed()))
        }
        "governor-keyed" => {
            let limiter = RateLimiter::dashmap_with_hasher(Quota::per_second(second), FoldHash::default());
            count(n, |key| limiter.check_key(key).is_ok())
        }
        _ => usage(),
    };
    println!("{passed} of {n} passed");
}

fn count(n: u64, allow: impl Fn(&u64) -> bool) -> u64 {
    (0..n).map(|number| u64::from(black_box(allow(black_box(&u64::of(number % KEYS)))))).sum()
}

fn usage() -> ! {
    eprintln!("usage: one <governor|suimon>-<allowed|denied|keyed> <n>");
    std::process::exit(2);
}
