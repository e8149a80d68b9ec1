//! Which slot a newcomer gets.

use suimon_core::Timestamp;

use super::{BUSY, FIRST, Flat, MARGIN, WhenFull, is_spent};
use crate::keyed::slots::{NEST, Slot};

pub(super) enum Placed {
    In,
    Evicted,
    /// The tick at which the first slot is as good as new.
    Full(u64),
    /// Somebody was faster.
    Again,
}

impl Flat {
    /// Finds a slot for a newcomer and takes it.
    pub(super) fn place(&self, hash: u64, version: u64, tick: u64, new: Slot, when_full: WhenFull) -> Placed {
        match self.choose(hash, version, tick, when_full) {
            Ok((index, old, placed)) if self.slots.replace(index, old, new) => placed,
            Ok(_) => Placed::Again,
            Err(ready) => Placed::Full(ready),
        }
    }

    /// Is there room for a key, if it is not there? Else the instant before which there is none.
    pub(in crate::keyed) fn room(&self, hash: u64, now: Timestamp, when_full: WhenFull) -> Result<(), Timestamp> {
        let (version, gcra) = self.limits.read();
        match self.find_any(hash, version) {
            // Another key of the same tag, which is busy elsewhere.
            Some((_, slot)) if slot.word == BUSY => Err(now),
            Some(_) => Ok(()),
            None => match self.choose(hash, version, gcra.ticks().at(now), when_full) {
                Ok(_) => Ok(()),
                Err(ready) => Err(gcra.ticks().instant(ready)),
            },
        }
    }

    /// The slot for a newcomer: a free one if there is one, so that keys which come again
    /// find their slot, else one that is as good as new; in the nest where fewer are in use.
    /// Else the tick at which the first is as good as new.
    fn choose(&self, hash: u64, version: u64, tick: u64, when_full: WhenFull) -> Result<(usize, Slot, Placed), u64> {
        let mut free = [None; 2];
        let mut spent = [None; 2];
        let mut live = [0; 2];
        let mut nearest: Option<(u64, usize, Slot)> = None;
        for (nth, index) in self.home(hash).slots().enumerate() {
            let nest = nth / NEST;
            let slot = self.slots.load(index);
            if slot.tag == 0 {
                free[nest].get_or_insert((index, slot));
                continue;
            }
            let word = self.word_under(slot, version);
            if is_spent(word, tick) {
                spent[nest].get_or_insert((index, slot));
                continue;
            }
            live[nest] += 1;
            if word != BUSY && nearest.is_none_or(|(least, ..)| word < least) {
                nearest = Some((word, index, slot));
            }
        }
        let prefers_first = live[0] < FIRST || live[0] <= live[1];
        let either = |[first, second]: [Option<_>; 2]| if prefers_first { first.or(second) } else { second.or(first) };
        match (either(free).or(either(spent)), nearest) {
            (Some((index, old)), _) => Ok((index, old, Placed::In)),
            (None, Some((_, index, old))) if when_full == WhenFull::Evict => Ok((index, old, Placed::Evicted)),
            (None, nearest) => Err(nearest.map_or(tick, |(word, ..)| word).saturating_add(MARGIN)),
        }
    }
}
