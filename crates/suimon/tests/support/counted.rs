//! The allocator of a test binary that looks at what is taken and given back. A file of
//! its own: a binary that has it in its modules uses it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counted.
struct Counted;

thread_local! {
    /// Bytes in use and allocations, of this thread alone: the one that runs the
    /// tests allocates when it likes.
    pub(crate) static LIVE: Cell<usize> = const { Cell::new(0) };
    pub(crate) static CALLS: Cell<usize> = const { Cell::new(0) };
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
