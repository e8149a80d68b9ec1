//! One candidate `n` times, for counting instructions:
//! `valgrind --tool=callgrind target/release/one governor-denied 100000`.

use std::hint::black_box;
use std::time::Duration;

use governor::{Quota, RateLimiter};
use suimon::LocalLimiter;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(n)) = (arguments.next(), arguments.next().and_then(|n| n.parse::<u64>().ok())) else {
        eprintln!("usage: one <governor|suimon>-<allowed|denied> <n>");
        std::process::exit(2);
    };
    let slow = name.ends_with("denied");
    let ours = LocalLimiter::new(if slow { "bucket 1/day" } else { "bucket 1000000000/s" }).unwrap();
    let theirs = RateLimiter::direct(if slow {
        Quota::with_period(Duration::from_secs(86_400)).unwrap()
    } else {
        Quota::per_second(1_000_000_000.try_into().unwrap())
    });
    let mut passed = 0_u64;
    for _ in 0..n {
        passed += u64::from(black_box(match name.as_str().starts_with("suimon") {
            true => ours.allow(1).is_ok_and(|decision| decision.is_allowed()),
            false => theirs.check().is_ok(),
        }));
    }
    println!("{passed} of {n} passed");
}
