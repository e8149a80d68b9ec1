//! Slots by the instructions of x86-64.

use super::{Cell, Line, Slot, Way};

/// The processor replaces and reads 16 bytes at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wide(());

#[cfg(target_arch = "x86_64")]
impl Wide {
    /// Has the processor `cmpxchg16b`, and with AVX the promise that an aligned
    /// load of 16 bytes is atomic (Intel's manual, volume 3, 9.1.1; AMD's the same)?
    pub(super) fn new() -> Option<Wide> {
        (is_x86_feature_detected!("cmpxchg16b") && is_x86_feature_detected!("avx")).then_some(Wide(()))
    }
}

// Cells are live, aligned to 16 bytes and only accessed atomically; a `Wide` exists
// where the processor has the instructions.
#[cfg(target_arch = "x86_64")]
impl Way for Wide {
    #[inline(always)]
    fn load(self, cell: &Cell) -> Slot {
        let (tag, word): (u64, u64);
        // SAFETY: reads 16 aligned bytes of live memory at once. Not `pure`: the value
        // changes between two reads.
        unsafe {
            std::arch::asm!(
                "movdqa {both}, xmmword ptr [{cell}]",
                "movq {tag}, {both}",
                "punpckhqdq {both}, {both}",
                "movq {word}, {both}",
                cell = in(reg) cell.get(),
                both = out(xmm_reg) _,
                tag = lateout(reg) tag,
                word = lateout(reg) word,
                options(nostack, preserves_flags, readonly),
            );
        }
        Slot { tag, word }
    }

    #[inline(always)]
    fn find(self, line: &Line, tag: u64) -> Option<&Cell> {
        let found: *const Cell;
        // SAFETY: reads aligned words of 8 bytes of the line, each at once, and answers with
        // the address of a cell of it, or null.
        unsafe {
            std::arch::asm!(
                "cmp qword ptr [{cell}], {tag}",
                "je 2f",
                "add {cell}, 16",
                "cmp qword ptr [{cell}], {tag}",
                "je 2f",
                "add {cell}, 16",
                "cmp qword ptr [{cell}], {tag}",
                "je 2f",
                "add {cell}, 16",
                "cmp qword ptr [{cell}], {tag}",
                "je 2f",
                "xor {cell:e}, {cell:e}",
                "2:",
                cell = inout(reg) line.as_ptr() => found,
                tag = in(reg) tag,
                options(nostack, readonly),
            );
            found.as_ref()
        }
    }

    #[inline(always)]
    fn replace(self, cell: &Cell, old: Slot, new: Slot) -> bool {
        let done: u8;
        // SAFETY: one locked instruction on 16 aligned bytes of live memory. It
        // wants a half of the new value in rbx, which belongs to the compiler, so
        // rbx is exchanged and given back. All other registers are named: any
        // that the compiler chose could be rbx, which is another one in between.
        unsafe {
            std::arch::asm!(
                "xchg rsi, rbx",
                "lock cmpxchg16b xmmword ptr [rdi]",
                "sete r8b",
                "mov rbx, rsi",
                in("rdi") cell.get(),
                inout("rsi") new.tag => _,
                out("r8b") done,
                in("rcx") new.word,
                inout("rax") old.tag => _,
                inout("rdx") old.word => _,
                options(nostack),
            );
        }
        done != 0
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Wide {
    pub(super) fn new() -> Option<Wide> {
        None
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Way for Wide {
    fn load(self, cell: &Cell) -> Slot {
        super::Portable.load(cell)
    }

    fn find(self, line: &Line, tag: u64) -> Option<&Cell> {
        super::Portable.find(line, tag)
    }

    fn replace(self, cell: &Cell, old: Slot, new: Slot) -> bool {
        super::Portable.replace(cell, old, new)
    }
}
