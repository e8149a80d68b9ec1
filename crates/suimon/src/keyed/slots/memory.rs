//! Where the slots lie, and the way to reach them that every platform has.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::slice;

use portable_atomic::{AtomicU128, Ordering};

use super::{Line, Nest, Portable, Slot, Way};

/// One slot. All access to it is atomic.
#[repr(transparent)]
pub(crate) struct Cell(UnsafeCell<u128>);

// SAFETY: all access to a cell after its creation is atomic.
unsafe impl Sync for Cell {}

/// As many nests of zeroes, each of which begins at a multiple of its size.
///
/// The memory comes zeroed from the allocator, which takes it from the system
/// page by page as it is touched.
pub(super) struct Memory {
    /// As the allocator gave it: a nest more, since it aligns to no more than a slot.
    whole: NonNull<[u128]>,
    nests: NonNull<[Nest]>,
}

// SAFETY: it owns its memory, and all access to that is atomic.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

const CELLS: usize = size_of::<Nest>() / size_of::<u128>();

impl Memory {
    pub(super) fn new(nests: usize) -> Memory {
        let whole = Box::leak(vec![0_u128; (nests + 1) * CELLS].into_boxed_slice());
        let whole = NonNull::from(whole);
        let start = whole.cast::<u128>();
        let before = start.align_offset(size_of::<Nest>()).min(CELLS);
        // SAFETY: `before` is at most the one nest more.
        let first = unsafe { start.add(before) };
        Memory { whole, nests: NonNull::slice_from_raw_parts(first.cast(), nests) }
    }

    #[inline(always)]
    pub(super) fn nests(&self) -> &[Nest] {
        // SAFETY: so many nests lie in `whole`, which lives as long as `self`. A nest
        // has the alignment of its cells, which are laid out like `u128`.
        unsafe { slice::from_raw_parts(self.nests.cast().as_ptr(), self.nests.len()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was leaked by `new`, and nobody has a reference to it any more.
        drop(unsafe { Box::from_raw(self.whole.as_ptr()) });
    }
}

impl Cell {
    #[inline(always)]
    pub(super) fn get(&self) -> *mut u128 {
        self.0.get()
    }

    /// Asks for the line of this slot, which will be read soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which the processor may take for any address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.get().cast_const().cast());
        }
    }

    fn atomic(&self) -> &AtomicU128 {
        // SAFETY: the cell lives as long as `self`, is aligned to its 16 bytes, and all
        // access to it is atomic.
        unsafe { AtomicU128::from_ptr(self.get()) }
    }
}

impl Way for Portable {
    fn load(self, cell: &Cell) -> Slot {
        unpack(cell.atomic().load(Ordering::Acquire))
    }

    fn find(self, line: &Line, tag: u64) -> Option<&Cell> {
        line.iter().find(|cell| self.load(cell).tag == tag)
    }

    fn replace(self, cell: &Cell, old: Slot, new: Slot) -> bool {
        cell.atomic().compare_exchange(pack(old), pack(new), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

fn pack(slot: Slot) -> u128 {
    u128::from(slot.word) << 64 | u128::from(slot.tag)
}

fn unpack(both: u128) -> Slot {
    Slot { tag: both as u64, word: (both >> 64) as u64 }
}
