//! The same for the model checker, which sees locks and not instructions.

use shuttle::sync::Mutex;

use super::{Line, Nest, Portable, Slot, Way};

pub(crate) struct Cell(Mutex<Slot>);

impl Cell {
    pub(crate) fn prefetch(&self) {}
}

pub(super) struct Memory(Vec<Nest>);

impl Memory {
    pub(super) fn new(nests: usize, _huge_pages: bool) -> Memory {
        let cell = || Cell(Mutex::new(Slot::default()));
        let line = || std::array::from_fn(|_| cell());
        Memory((0..nests).map(|_| std::array::from_fn(|_| line())).collect())
    }

    pub(super) fn nests(&self) -> &[Nest] {
        &self.0
    }
}

impl Way for Portable {
    fn load(self, cell: &Cell) -> Slot {
        *cell.0.lock().unwrap()
    }

    fn find(self, line: &Line, tag: u64) -> Option<&Cell> {
        line.iter().find(|cell| self.load(cell).tag == tag)
    }

    fn replace(self, cell: &Cell, old: Slot, new: Slot) -> bool {
        let mut slot = cell.0.lock().unwrap();
        let same = *slot == old;
        if same {
            *slot = new;
        }
        same
    }
}

pub(super) mod wide {
    use super::{Cell, Line, Portable, Slot, Way};

    /// Never there.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Wide {}

    impl Wide {
        pub(crate) fn new() -> Option<Wide> {
            None
        }
    }

    impl Way for Wide {
        fn load(self, cell: &Cell) -> Slot {
            Portable.load(cell)
        }

        fn find(self, line: &Line, tag: u64) -> Option<&Cell> {
            Portable.find(line, tag)
        }

        fn replace(self, cell: &Cell, old: Slot, new: Slot) -> bool {
            Portable.replace(cell, old, new)
        }
    }
}
