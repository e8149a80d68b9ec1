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
    /// As the allocator gave it: somewhat more, since it aligns to no more than a slot.
    whole: NonNull<[u128]>,
    nests: NonNull<[Nest]>,
}

// SAFETY: it owns its memory, and all access to that is atomic.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

const CELL: usize = size_of::<u128>();
/// What the systems call a huge page, at least where they have them unasked.
const HUGE_PAGE: usize = 1 << 21;

impl Memory {
    /// With `huge_pages` the system is asked for them, if there are nests for more than
    /// one; it may have none.
    pub(super) fn new(nests: usize, huge_pages: bool) -> Memory {
        let bytes = nests * size_of::<Nest>();
        let huge_pages = huge_pages && bytes > HUGE_PAGE;
        let align = if huge_pages { HUGE_PAGE } else { size_of::<Nest>() };
        let whole = Box::leak(vec![0_u128; (bytes + align) / CELL].into_boxed_slice());
        let whole = NonNull::from(whole);
        let start = whole.cast::<u128>();
        let before = start.align_offset(align).min(align / CELL);
        // SAFETY: `before` is at most what there is more of.
        let first = unsafe { start.add(before) };
        if huge_pages {
            ask_for_huge_pages(first, bytes);
        }
        Memory { whole, nests: NonNull::slice_from_raw_parts(first.cast(), nests) }
    }

    #[inline(always)]
    pub(super) fn nests(&self) -> &[Nest] {
        // SAFETY: so many nests lie in `whole`, which lives as long as `self`. A nest
        // has the alignment of its cells, which are laid out like `u128`.
        unsafe { slice::from_raw_parts(self.nests.cast().as_ptr(), self.nests.len()) }
    }
}

/// A hint: where it is not heard, pages are as small as ever.
fn ask_for_huge_pages(first: NonNull<u128>, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: advice about whole pages within memory that is ours, which changes none of
    // it. An end within a page is taken up to the page's end: that page is mapped too.
    unsafe {
        libc::madvise(first.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (first, bytes);
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
