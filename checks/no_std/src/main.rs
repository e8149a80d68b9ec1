//! The core in a program without the standard library.
//!
//! If anything in the core's tree linked `std`, this would not build: its panic
//! handler and allocator would be there twice. It also decides something, so that
//! the linker has to keep the code, and exits with 0 if the answers are right.

#![no_std]
#![no_main]

extern crate alloc;

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

use suimon_core::{Cost, Gate, Policy, Timestamp};

/// Hands out a fixed piece of memory and takes nothing back.
struct Arena {
    memory: UnsafeCell<[u8; SIZE]>,
    used: AtomicUsize,
}

const SIZE: usize = 64 * 1024;

// SAFETY: every byte of `memory` is handed out at most once, by an atomic counter.
unsafe impl Sync for Arena {}

// SAFETY: blocks lie inside `memory`, are aligned as asked and never overlap.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = self.memory.get().cast::<u8>();
        let size = layout.size() + layout.align();
        let start = self.used.fetch_add(size, Ordering::Relaxed);
        if start + size > SIZE {
            return core::ptr::null_mut();
        }
        // SAFETY: `start + size` lies inside the memory, so the aligned start does too.
        unsafe {
            let block = base.add(start);
            block.add(block.align_offset(layout.align()))
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ARENA: Arena = Arena { memory: UnsafeCell::new([0; SIZE]), used: AtomicUsize::new(0) };

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

fn decides() -> Result<bool, suimon_core::Error> {
    let gate = Gate::new("bucket 10/s burst 2 and window 3/min and fixed 100/month".parse::<Policy>()?)?;
    let mut state = gate.fresh();
    let now = Timestamp::from_secs(1_700_000_000);
    let mut passed = 0;
    for _ in 0..5 {
        passed += i32::from(gate.allow(&mut state, now, Cost::ONE)?.is_allowed());
    }
    Ok(passed == 2)
}

/// Called by the C runtime's start code.
#[unsafe(no_mangle)]
extern "C" fn main() -> i32 {
    match decides() {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(_) => 2,
    }
}
