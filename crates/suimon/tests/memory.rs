//! What waiting takes from the allocator, and gives back.

#[path = "support/counted.rs"]
mod counted;
mod support;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use counted::{CALLS, LIVE};
use suimon::Consume;
use suimon::clock::Clock;
use support::limiter;

fn live() -> usize {
    LIVE.get()
}

fn poll(future: &mut Consume) -> Poll<Result<(), suimon::Error>> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn places_are_used_again_and_given_back() {
    let (limiter, clock) = limiter("pace 1/s");
    limiter.consume(1).unwrap();
    // One is granted, one leaves the middle, one was granted and never knew.
    let round = || {
        let mut futures = [(); 4].map(|()| limiter.consume_async(1));
        assert!(futures.iter_mut().all(|future| poll(future).is_pending()));
        let [mut first, middle, unpolled, mut last] = futures;
        drop(middle);
        clock.go_to(clock.now().saturating_add(Duration::from_secs(2)));
        assert!(matches!(poll(&mut first), Poll::Ready(Ok(()))));
        drop(unpolled);
        assert!(matches!(poll(&mut last), Poll::Ready(Ok(()))));
    };
    round();
    let (before, calls) = (live(), CALLS.get());
    (0..1000).for_each(|_| round());
    assert_eq!(live(), before, "nothing is left of 4000 who waited");
    let calls = CALLS.get() - calls;
    assert!(calls <= 6000, "{calls} allocations for 4000 who waited");

    // A crowd takes what it needs (a vector may hold twice that), and leaves nothing.
    const CROWD: usize = 20_000;
    let mut crowd: Vec<Consume> = (0..CROWD).map(|_| limiter.consume_async(1)).collect();
    let empty = live();
    for future in &mut crowd {
        assert!(poll(future).is_pending());
    }
    let each = (live() - empty) / CROWD;
    assert!(each <= 2 * 176, "{each} bytes for each of those who wait");
    drop(crowd);
    assert!(live() <= before + 64 * 1024, "{} bytes are left of the crowd", live() - before);
}
