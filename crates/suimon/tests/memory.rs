//! What waiting takes from the allocator, and gives back.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use suimon::Consume;
use suimon::clock::Clock;
use support::limiter;

/// The system's allocator, counted.
struct Counted;

thread_local! {
    /// Bytes in use and allocations, of this thread alone: the one that runs the
    /// tests allocates when it likes.
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is done by the system's allocator; the counters are beside it.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get().wrapping_add(layout.size()));
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().wrapping_sub(layout.size()));
        // SAFETY: the pointer comes from `alloc` above, hence from the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

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
