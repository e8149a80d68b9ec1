//! A limiter that leases. What every store promises about leases is in the testkit.
#![cfg(feature = "remote")]

use std::thread;
use std::time::{Duration, Instant};

use suimon::Remote;
use suimon::clock::ManualClock;
use suimon::store::MemoryStore;

#[test]
fn a_chunk_is_one_question_and_threads_share_it() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let remote = Remote::builder(store, "key", "bucket 100000/h").unwrap().build().unwrap();
    let leased = remote.leased(1000, Duration::from_secs(60)).unwrap();
    assert_eq!(leased.left(), 0);
    let passed: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..50_000).filter(|_| leased.allow(1).unwrap().is_allowed()).count()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(passed, 100_000, "all of them, and not one more");
    let asked = remote.stats().asked();
    assert!(asked < 200, "{asked} questions for 200,000 decisions");
    assert!(leased.allow(1).unwrap().decision().retry().is_some());
    assert_eq!(leased.left(), 0);
    assert!(leased.allow(1_000_000).unwrap_err().is_cost_too_large());
}

#[test]
fn what_a_process_holds_when_it_ends_is_given_back() {
    let store = MemoryStore::new();
    let remote = Remote::builder(store, "key", "bucket 1000/h").unwrap().build().unwrap();
    let leased = remote.leased(200, Duration::from_secs(60)).unwrap();
    assert!(leased.allow(3).unwrap().is_allowed());
    assert_eq!(leased.left(), 197);
    let remaining = || remote.peek(0).unwrap().decision().status().remaining();
    assert_eq!(remaining(), 800);
    drop(leased);
    let start = Instant::now();
    while remaining() < 997 {
        assert!(start.elapsed() < Duration::from_secs(10));
        thread::sleep(Duration::from_millis(1));
    }
    let windows = Remote::builder(MemoryStore::new(), "key", "window 10/60s").unwrap().build().unwrap();
    let error = windows.leased(5, Duration::from_secs(1)).unwrap().allow(1).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
}
