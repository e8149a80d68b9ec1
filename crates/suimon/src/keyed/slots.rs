//! Memory of 16-byte slots that are read and replaced as a whole.
//!
//! The only `unsafe` code of the library. Three ways do the same: on x86-64
//! processors with `cmpxchg16b` that instruction; elsewhere the crate
//! portable-atomic, which takes what the platform has and otherwise a lock; and
//! under the model checker its own lock, one for each slot.

use std::fmt;

/// A slot: whose it is, and the word of its limit. All zero when it is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) tag: u64,
    pub(super) word: u64,
}

/// Slots in a line of the processor's cache.
pub(super) const LINE: usize = 4;

#[cfg(not(shuttle))]
pub(super) use memory::Slots;
#[cfg(shuttle)]
pub(super) use modelled::Slots;

#[cfg(not(shuttle))]
mod memory {
    use std::cell::UnsafeCell;

    use portable_atomic::{AtomicU128, Ordering};

    use super::{LINE, Slot};

    /// A fixed number of slots, the first of which begins a cache line.
    ///
    /// The memory comes zeroed from the allocator, which takes it from the system
    /// page by page as it is touched.
    pub(crate) struct Slots {
        memory: Box<[UnsafeCell<u128>]>,
        /// Where the first line begins.
        first: usize,
        /// Does the processor replace and read 16 bytes at once?
        wide: bool,
    }

    // SAFETY: all access to the cells after their creation is atomic.
    unsafe impl Send for Slots {}
    // SAFETY: as above.
    unsafe impl Sync for Slots {}

    impl Slots {
        /// As many free slots, a whole number of lines.
        pub(crate) fn new(len: usize) -> Slots {
            Slots::with(len, wide::is_here())
        }

        /// The same by the way that works on every platform.
        pub(crate) fn portable(len: usize) -> Slots {
            Slots::with(len, false)
        }

        fn with(len: usize, wide: bool) -> Slots {
            assert!(len.is_multiple_of(LINE), "a whole number of lines");
            let memory = Box::into_raw(vec![0_u128; len + LINE - 1].into_boxed_slice());
            // SAFETY: `UnsafeCell<u128>` has the layout of `u128`, and the box is
            // taken back as it was given.
            let memory = unsafe { Box::from_raw(memory as *mut [UnsafeCell<u128>]) };
            // In slots; where it cannot be said, lines are not those of the cache.
            let first = memory.as_ptr().align_offset(LINE * size_of::<u128>()) % LINE;
            Slots { memory, first, wide }
        }

        pub(crate) fn len(&self) -> usize {
            self.memory.len() - (LINE - 1)
        }

        fn cell(&self, index: usize) -> *mut u128 {
            self.memory[self.first + index].get()
        }

        /// Reads a slot, both halves at one instant.
        #[inline(always)]
        pub(crate) fn load(&self, index: usize) -> Slot {
            let cell = self.cell(index);
            let both = if self.wide {
                // SAFETY: the cell lives as long as `self` and is aligned to its 16
                // bytes; `wide` says that the processor has the instruction.
                unsafe { wide::load(cell) }
            } else {
                // SAFETY: the cell lives as long as `self`, is aligned, and all
                // access to it is atomic.
                unsafe { AtomicU128::from_ptr(cell) }.load(Ordering::Acquire)
            };
            unpack(both)
        }

        /// Reads the tag of a slot, to see whether it is worth reading as a whole.
        #[inline(always)]
        pub(crate) fn tag(&self, index: usize) -> u64 {
            let cell = self.cell(index);
            if self.wide {
                // SAFETY: as for `load`.
                unsafe { wide::load_low(cell) }
            } else {
                self.load(index).tag
            }
        }

        /// Puts `new` in the place of `old`; false where something else is there.
        #[inline(always)]
        pub(crate) fn replace(&self, index: usize, old: Slot, new: Slot) -> bool {
            let cell = self.cell(index);
            if self.wide {
                // SAFETY: as for `load`.
                unsafe { wide::compare_exchange(cell, pack(old), pack(new)) }
            } else {
                // SAFETY: as for `load`.
                let atomic = unsafe { AtomicU128::from_ptr(cell) };
                atomic.compare_exchange(pack(old), pack(new), Ordering::AcqRel, Ordering::Relaxed).is_ok()
            }
        }

        /// Asks for the line of a slot, which will be read soon.
        #[inline(always)]
        pub(crate) fn prefetch(&self, index: usize) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a hint, which the processor may take for any address.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(self.cell(index).cast_const().cast());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = index;
        }
    }

    fn pack(slot: Slot) -> u128 {
        u128::from(slot.word) << 64 | u128::from(slot.tag)
    }

    fn unpack(both: u128) -> Slot {
        Slot { tag: both as u64, word: (both >> 64) as u64 }
    }

    #[cfg(target_arch = "x86_64")]
    mod wide {
        use std::arch::asm;

        /// Has the processor `cmpxchg16b`, and with AVX the promise that an aligned
        /// load of 16 bytes is atomic (Intel's manual, volume 3, 9.1.1; AMD's the same)?
        pub(super) fn is_here() -> bool {
            is_x86_feature_detected!("cmpxchg16b") && is_x86_feature_detected!("avx")
        }

        /// # Safety
        /// The cell is live, aligned to 16 bytes and only accessed atomically;
        /// [`is_here`].
        #[inline(always)]
        pub(super) unsafe fn load(cell: *const u128) -> u128 {
            let (low, high): (u64, u64);
            // SAFETY: reads 16 aligned bytes of live memory at once, as the caller
            // promises. Not `pure`: the value changes between two reads.
            unsafe {
                asm!(
                    "movdqa {both}, xmmword ptr [{cell}]",
                    "movq {low}, {both}",
                    "punpckhqdq {both}, {both}",
                    "movq {high}, {both}",
                    cell = in(reg) cell,
                    both = out(xmm_reg) _,
                    low = lateout(reg) low,
                    high = lateout(reg) high,
                    options(nostack, preserves_flags, readonly),
                );
            }
            u128::from(high) << 64 | u128::from(low)
        }

        /// # Safety
        /// As for [`load`].
        #[inline(always)]
        pub(super) unsafe fn load_low(cell: *const u128) -> u64 {
            let low: u64;
            // SAFETY: reads 8 aligned bytes of live memory at once.
            unsafe {
                asm!(
                    "mov {low}, qword ptr [{cell}]",
                    cell = in(reg) cell,
                    low = lateout(reg) low,
                    options(nostack, preserves_flags, readonly),
                );
            }
            low
        }

        /// # Safety
        /// As for [`load`].
        #[inline(always)]
        pub(super) unsafe fn compare_exchange(cell: *mut u128, old: u128, new: u128) -> bool {
            let done: u8;
            // SAFETY: one locked instruction on 16 aligned bytes of live memory. It
            // wants a half of the new value in rbx, which belongs to the compiler, so
            // rbx is exchanged and given back. All other registers are named: any
            // that the compiler chose could be rbx, which is another one in between.
            unsafe {
                asm!(
                    "xchg rsi, rbx",
                    "lock cmpxchg16b xmmword ptr [rdi]",
                    "sete r8b",
                    "mov rbx, rsi",
                    in("rdi") cell,
                    inout("rsi") new as u64 => _,
                    out("r8b") done,
                    in("rcx") (new >> 64) as u64,
                    inout("rax") old as u64 => _,
                    inout("rdx") (old >> 64) as u64 => _,
                    options(nostack),
                );
            }
            done != 0
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    mod wide {
        pub(super) fn is_here() -> bool {
            false
        }

        pub(super) unsafe fn load(_: *const u128) -> u128 {
            unreachable!("never chosen")
        }

        pub(super) unsafe fn load_low(_: *const u128) -> u64 {
            unreachable!("never chosen")
        }

        pub(super) unsafe fn compare_exchange(_: *mut u128, _: u128, _: u128) -> bool {
            unreachable!("never chosen")
        }
    }
}

/// The same for the model checker, which sees locks and not instructions.
#[cfg(shuttle)]
mod modelled {
    use shuttle::sync::Mutex;

    use super::Slot;

    pub(crate) struct Slots(Vec<Mutex<Slot>>);

    impl Slots {
        pub(crate) fn new(len: usize) -> Slots {
            Slots((0..len).map(|_| Mutex::new(Slot::default())).collect())
        }

        pub(crate) fn portable(len: usize) -> Slots {
            Slots::new(len)
        }

        pub(crate) fn len(&self) -> usize {
            self.0.len()
        }

        pub(crate) fn load(&self, index: usize) -> Slot {
            *self.0[index].lock().unwrap()
        }

        pub(crate) fn replace(&self, index: usize, old: Slot, new: Slot) -> bool {
            let mut slot = self.0[index].lock().unwrap();
            let same = *slot == old;
            if same {
                *slot = new;
            }
            same
        }

        pub(crate) fn tag(&self, index: usize) -> u64 {
            self.load(index).tag
        }

        pub(crate) fn prefetch(&self, _: usize) {}
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::thread;

    use super::*;

    fn both() -> [Slots; 2] {
        [Slots::new(64), Slots::portable(64)]
    }

    #[test]
    fn slots_are_free_and_replaced_as_a_whole() {
        for slots in both() {
            let (free, mine) = (Slot::default(), Slot { tag: u64::MAX, word: 1 << 63 | 5 });
            assert!((0..64).all(|index| slots.load(index) == free));
            assert!(slots.replace(63, free, mine));
            assert!(!slots.replace(63, free, mine));
            assert!(!slots.replace(63, Slot { tag: mine.tag, word: 5 }, free), "the word differs");
            assert!(!slots.replace(63, Slot { tag: 1, word: mine.word }, free), "the tag differs");
            assert_eq!(slots.load(63), mine);
            assert_eq!(slots.load(62), free);
            assert!(slots.replace(63, mine, free));
        }
    }

    #[test]
    fn lines_are_lines_of_the_cache() {
        for slots in both() {
            slots.prefetch(0);
            assert_eq!(slots.len(), 64);
            assert_eq!(format!("{slots:?}"), "Slots { len: 64, .. }");
        }
    }

    /// Threads count in one slot, both halves in step: no lost update, and no
    /// reader sees one half without the other.
    #[test]
    fn halves_stay_together_under_threads() {
        for slots in both() {
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for _ in 0..20_000 {
                            loop {
                                let old = slots.load(7);
                                assert_eq!(old.tag, old.word.wrapping_mul(3));
                                let word = old.word + 1;
                                if slots.replace(7, old, Slot { tag: word.wrapping_mul(3), word }) {
                                    break;
                                }
                            }
                        }
                    });
                }
            });
            assert_eq!(slots.load(7).word, 40_000);
        }
    }
}
