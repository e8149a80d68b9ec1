//! The limiter over a store, which talks to it in a thread of its own.

use std::time::{Duration, Instant};

use suimon::Remote;
use suimon::store::RequestId;
use tokio::runtime::Runtime;

use crate::support::{Kind, block_on, ok, on_all};

on_all!(a_limiter_uses_a_store_that_was_opened_elsewhere);

fn a_limiter_uses_a_store_that_was_opened_elsewhere(kind: Kind) {
    let place = kind.place();
    let remote = |policy| {
        // In a runtime that has ended when the limiter begins.
        let store = ok(Runtime::new().unwrap().block_on(place.builder().open()));
        ok(ok(Remote::builder(store, "key", policy)).timeout(Duration::from_secs(30)).build())
    };
    let (one, other) = (remote("bucket 10/s burst 2"), remote("bucket 10/s burst 2"));
    let id = || RequestId::new("1", Duration::from_secs(60)).unwrap();
    assert!(!ok(block_on(one.allow_once(id(), 1))).is_replayed());
    assert!(ok(block_on(other.allow_once(id(), 1))).is_replayed());
    // Waits, over both: one is left, and two come in 200 ms.
    let start = Instant::now();
    for remote in [&one, &other, &one] {
        ok(remote.consume(1));
    }
    assert!(start.elapsed() >= Duration::from_millis(100), "{:?}", start.elapsed());
}
