//! Memory of 16-byte slots that are read and replaced as a whole.
//!
//! The only `unsafe` code of the library. Three ways do the same: on x86-64
//! processors with `cmpxchg16b` that instruction; elsewhere the crate
//! portable-atomic, which takes what the platform has and otherwise a lock; and
//! under the model checker its own lock, one for each slot.

#[cfg(not(shuttle))]
mod memory;
#[cfg(shuttle)]
mod modelled;
#[cfg(not(shuttle))]
mod wide;

use std::fmt;

/// A slot: whose it is, and the word of its limit. All zero when it is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) tag: u64,
    pub(super) word: u64,
}

/// Slots in a line of the processor's cache.
pub(super) const LINE: usize = 4;
/// Slots of a nest, which is two lines.
pub(super) const NEST: usize = 2 * LINE;

#[cfg(not(shuttle))]
pub(super) use memory::Cell;
#[cfg(not(shuttle))]
use memory::Memory;
#[cfg(shuttle)]
pub(super) use modelled::Cell;
#[cfg(shuttle)]
use modelled::{Memory, wide};
pub(super) use wide::Wide;

/// The slots of a line.
pub(super) type Line = [Cell; LINE];
type Nest = [Line; 2];

/// A way to read and replace a slot at once, that this processor has.
pub(super) trait Way: Copy {
    fn load(self, cell: &Cell) -> Slot;
    /// A slot of a line with this tag, which may change hands at any time.
    fn find(self, line: &Line, tag: u64) -> Option<&Cell>;
    /// Puts `new` in the place of `old`; false where something else is there.
    fn replace(self, cell: &Cell, old: Slot, new: Slot) -> bool;
}

/// The way that every processor has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portable;

/// What was asked of the memory of a table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct How {
    /// The way that works on every platform.
    pub(super) portable: bool,
    pub(super) huge_pages: bool,
}

/// A fixed number of nests, each in two lines of the cache that lie together.
pub(super) struct Slots {
    memory: Memory,
    wide: Option<Wide>,
}

impl Slots {
    /// As many nests of free slots.
    pub(super) fn new(nests: usize, how: How) -> Slots {
        let wide = if how.portable { None } else { Wide::new() };
        Slots { memory: Memory::new(nests, how.huge_pages), wide }
    }

    /// How many slots there are.
    pub(super) fn len(&self) -> usize {
        self.memory.nests().len() * NEST
    }

    /// The fast way, where there is one.
    #[inline(always)]
    pub(super) fn wide(&self) -> Option<Wide> {
        self.wide
    }

    /// The lines of a nest: that of this side first.
    #[inline(always)]
    pub(super) fn lines(&self, nest: usize, side: usize) -> [&Line; 2] {
        let nest = &self.memory.nests()[nest];
        [&nest[side & 1], &nest[side & 1 ^ 1]]
    }

    fn cell(&self, index: usize) -> &Cell {
        &self.memory.nests()[index / NEST][index / LINE % 2][index % LINE]
    }

    /// Reads a slot, both halves at one instant.
    pub(super) fn load(&self, index: usize) -> Slot {
        match self.wide {
            Some(wide) => wide.load(self.cell(index)),
            None => Portable.load(self.cell(index)),
        }
    }

    /// Puts `new` in the place of `old`; false where something else is there.
    pub(super) fn replace(&self, index: usize, old: Slot, new: Slot) -> bool {
        match self.wide {
            Some(wide) => wide.replace(self.cell(index), old, new),
            None => Portable.replace(self.cell(index), old, new),
        }
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

    fn slots() -> Slots {
        Slots::new(8, How::default())
    }

    fn both() -> [Slots; 2] {
        [slots(), Slots::new(8, How { portable: true, huge_pages: false })]
    }

    #[test]
    fn huge_pages_hold_the_same() {
        for nests in [1, 8, 16_384, 16_385, 40_000] {
            let slots = Slots::new(nests, How { portable: false, huge_pages: true });
            assert_eq!(slots.len(), nests * NEST);
            for index in [0, slots.len() / 2, slots.len() - 1] {
                let mine = Slot { tag: 5, word: index as u64 };
                assert!(slots.replace(index, Slot::default(), mine));
                assert_eq!(slots.load(index), mine);
            }
            assert_eq!(std::ptr::from_ref(slots.lines(0, 0)[0]).addr() % 128, 0);
        }
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
            assert_eq!(slots.len(), 64);
            assert_eq!(format!("{slots:?}"), "Slots { len: 64, .. }");
            for nest in 0..8 {
                let [first, second] = slots.lines(nest, 0);
                assert_eq!(std::ptr::from_ref(first).addr() % 128, 0);
                assert_eq!(std::ptr::from_ref(second).addr() % 128, 64);
                let [other, one] = slots.lines(nest, 1);
                assert!(std::ptr::eq(one, first) && std::ptr::eq(other, second));
            }
        }
    }

    /// The two ways see the same slot at an index.
    #[test]
    fn a_slot_has_one_place() {
        let slots = slots();
        for index in 0..64 {
            let mine = Slot { tag: 1 + index as u64, word: 7 };
            assert!(slots.replace(index, Slot::default(), mine));
            let cell = &slots.lines(index / NEST, 0)[index / LINE % 2][index % LINE];
            assert_eq!(Portable.load(cell), mine);
            if let Some(wide) = slots.wide() {
                assert_eq!(wide.load(cell), mine);
            }
        }
    }

    #[test]
    fn a_tag_is_found_in_any_slot_of_a_line() {
        fn check(slots: &Slots, way: impl Way) {
            let [line, other] = slots.lines(3, 1);
            for (nth, cell) in line.iter().enumerate() {
                let tag = 1 << 63 | nth as u64;
                assert!(way.find(line, tag).is_none());
                assert!(way.replace(cell, Slot::default(), Slot { tag, word: 1 << 63 }));
                assert!(way.find(line, tag).is_some_and(|found| std::ptr::eq(found, cell)));
                assert!(way.find(other, tag).is_none());
                assert!(way.find(line, tag | 1 << 32).is_none());
            }
            // A word is no tag; of two slots it is the first.
            assert!(way.find(line, 1 << 63).is_some_and(|found| std::ptr::eq(found, &line[0])));
            let twice = Slot { tag: 1 << 63 | 1, word: 0 };
            assert!(way.replace(&line[3], way.load(&line[3]), twice));
            assert!(way.find(line, twice.tag).is_some_and(|found| std::ptr::eq(found, &line[1])));
        }
        check(&slots(), Portable);
        if let Some(wide) = Wide::new() {
            check(&slots(), wide);
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
