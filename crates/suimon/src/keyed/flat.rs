//! The flat table: a fixed number of slots, two places of eight for a key.

mod place;

use std::num::NonZeroU64;

use suimon_core::gcra::{FRESH, Gcra, Step};
use suimon_core::{Cost, Timestamp};

use place::Placed;

use super::limits::{Limits, VERSION_BITS};
use super::slots::{How, LINE, Line, NEST, Portable, Slot, Slots, Way};

/// The words of all keys under one pace or bucket.
///
/// A key hashes to two *nests* of two cache lines, eight slots each. It is found by
/// its tag: 56 bits of its hash, and the version of the limit under which its word
/// was last moved on. Hits are one compare-and-swap of the whole slot, without a
/// lock. A key that comes new is entered under the lock of its shard, which the
/// caller holds: so no key is entered twice. A slot is taken only if it is free or
/// its word is as good as new.
#[derive(Debug)]
pub(super) struct Flat {
    slots: Slots,
    nests: u64,
    pub(super) limits: Limits,
}

/// Of a hundred slots so many are filled when the table holds as many keys as were
/// asked for. More would let newcomers overflow; fewer would waste memory.
const FILL: usize = 70;
/// A newcomer goes to its first nest while that has fewer keys than this, so that
/// most hits need to look nowhere else, and then to the emptier one.
const FIRST: usize = 5;
/// A word is as good as new for long enough that no reading of the clock on another
/// core is still before it: a millisecond at least, in ticks.
const MARGIN: u64 = 1 << 21;

/// The word of a key that has a limiter of its own for the time: what lies so late
/// is taken as one tick less. It keeps the key's slot, so that the key can come back to it.
const BUSY: u64 = u64::MAX;

/// What became of a request that found its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hit {
    Admitted { word: u64, tick: u64 },
    Refused { word: u64, tick: u64, ready: u64 },
}

/// What became of a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    Hit(Hit, Gcra, Timestamp),
    /// No slot is free, nor as good as new before this instant.
    Full(Timestamp),
}

/// What to do when every slot of a key is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenFull {
    Tell,
    /// Take the slot that is nearest to being as good as new.
    Evict,
}

/// The two nests of a key, the likelier first, and on which side of each it stands if it
/// can.
#[derive(Clone, Copy)]
struct Home {
    nests: [usize; 2],
    sides: [usize; 2],
}

impl Home {
    /// All slots in which the key may stand, the likeliest first.
    fn slots(self) -> impl Iterator<Item = usize> {
        let lines = |at: usize| [self.sides[at], self.sides[at] ^ 1].map(|side| self.nests[at] * 2 + side);
        let lines = [lines(0), lines(1)];
        lines.into_iter().flatten().flat_map(|line| line * LINE..(line + 1) * LINE)
    }
}

impl Flat {
    pub(super) fn new(gcra: Gcra, max_keys: usize, how: How) -> Flat {
        // Two nests more, so that the smallest tables have a choice too.
        let nests = max_keys.saturating_mul(100).div_ceil(FILL * NEST).saturating_add(2);
        Flat { slots: Slots::new(nests, how), nests: nests as u64, limits: Limits::new(gcra) }
    }

    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> Home {
        let nest = |hash: u64, of: u64| ((u128::from(hash) * u128::from(of)) >> 64) as usize;
        let first = nest(hash, self.nests);
        // Mixed, since the two are to be independent; and one of the others.
        let second = nest((hash ^ hash.rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15), self.nests - 1);
        let second = second + usize::from(second >= first);
        Home { nests: [first, second], sides: [9, 10].map(|bit| (hash >> bit) as usize & 1) }
    }

    /// The four lines of a key, the likeliest first.
    #[inline(always)]
    fn lines(&self, hash: u64) -> [&Line; 4] {
        let Home { nests: [first, second], sides } = self.home(hash);
        let ([own, beside], [other, last]) = (self.slots.lines(first, sides[0]), self.slots.lines(second, sides[1]));
        [own, beside, other, last]
    }

    /// Asks for the memory in which a key is found, if it is there.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        self.lines(hash).into_iter().for_each(|line| line[0].prefetch());
    }

    /// Decides for a key that is in the table under the limit in force; `None` where
    /// it is not there, or the cost is none that a word can decide about.
    ///
    /// The time may be read before the key is sought: for one that is there an
    /// older time refuses a little more, and mints nothing.
    pub(super) fn hit(&self, hash: u64, cost: Cost, now: impl Fn() -> Timestamp) -> Option<(Hit, Gcra, Timestamp)> {
        loop {
            let attempt = match self.slots.wide() {
                Some(wide) => self.attempt(wide, hash, cost, &now),
                None => self.attempt(Portable, hash, cost, &now),
            };
            match attempt {
                Attempt::Hit(hit, gcra, now) => return Some((hit, gcra, now)),
                Attempt::Missing => return None,
                Attempt::Again => {}
            }
        }
    }

    /// The common case of [`hit`](Flat::hit), which is the caller's own code; `None` for
    /// whatever wants to be looked at again.
    #[inline(always)]
    pub(super) fn try_hit(&self, hash: u64, cost: Cost, now: impl Fn() -> Timestamp) -> Option<(Hit, Gcra, Timestamp)> {
        match self.attempt(self.slots.wide()?, hash, cost, now) {
            Attempt::Hit(hit, gcra, now) => Some((hit, gcra, now)),
            Attempt::Missing | Attempt::Again => None,
        }
    }

    #[inline(always)]
    fn attempt(&self, way: impl Way, hash: u64, cost: Cost, now: impl Fn() -> Timestamp) -> Attempt {
        let lines = self.lines(hash);
        // All at once: a miss in the first costs no more than one miss then.
        lines.into_iter().for_each(|line| line[0].prefetch());
        let (version, gcra, now) = self.limits.read_at(now);
        let (Some(cost), Some(tick)) = (word_cost(&gcra, cost), gcra.ticks().at_counted(now)) else {
            return Attempt::Missing;
        };
        let tag = tag(hash, version);
        let Some(cell) = lines.into_iter().find_map(|line| way.find(line, tag)) else { return Attempt::Missing };
        let slot = way.load(cell);
        if slot.tag != tag {
            // It has changed hands since.
            return Attempt::Again;
        }
        match gcra.step(slot.word, tick, cost.get()) {
            Step::Admit(word) if way.replace(cell, slot, Slot { tag, word }) => {
                Attempt::Hit(Hit::Admitted { word, tick }, gcra, now)
            }
            Step::Admit(_) => Attempt::Again,
            // For the time of its being busy.
            Step::Refuse(_) if slot.word == BUSY => Attempt::Missing,
            Step::Refuse(ready) => Attempt::Hit(Hit::Refused { word: slot.word, tick, ready }, gcra, now),
        }
    }

    /// Decides for a key that may not be there, and tells whether another was evicted
    /// for it. The caller holds the lock of the key's shard, and has seen that the
    /// cost can pass.
    pub(super) fn enter(
        &self,
        hash: u64,
        cost: Cost,
        now: impl Fn() -> Timestamp,
        when_full: WhenFull,
    ) -> (Entered, bool) {
        loop {
            let (version, gcra) = self.limits.read();
            let Some((index, slot)) = self.find_any(hash, version) else {
                // Read only now: it is later than the moment at which a slot of this
                // key was last taken by another, so that nothing is forgotten too early.
                let now = now();
                let tick = gcra.ticks().at(now);
                let Some(cost) = word_cost(&gcra, cost) else {
                    return (Entered::Hit(Hit::Admitted { word: FRESH, tick }, gcra, now), false);
                };
                let word = match gcra.step(FRESH, tick, cost.get()) {
                    Step::Admit(word) => word,
                    Step::Refuse(ready) => {
                        return (Entered::Hit(Hit::Refused { word: FRESH, tick, ready }, gcra, now), false);
                    }
                };
                let entered = Entered::Hit(Hit::Admitted { word, tick }, gcra, now);
                match self.place(hash, version, tick, Slot { tag: tag(hash, version), word }, when_full) {
                    Placed::In => return (entered, false),
                    Placed::Evicted => return (entered, true),
                    Placed::Full(ready) => return (Entered::Full(gcra.ticks().instant(ready)), false),
                    Placed::Again => continue,
                }
            };
            if slot.word == BUSY {
                // Another key of the same tag, which is busy elsewhere.
                return (Entered::Full(now()), false);
            }
            if slot.tag == tag(hash, version) {
                let now = now();
                let tick = gcra.ticks().at(now);
                let word = slot.word;
                let hit = match word_cost(&gcra, cost).map(|cost| gcra.step(word, tick, cost.get())) {
                    None => Hit::Admitted { word, tick },
                    Some(Step::Refuse(ready)) => Hit::Refused { word, tick, ready },
                    Some(Step::Admit(word)) if self.slots.replace(index, slot, Slot { tag: slot.tag, word }) => {
                        Hit::Admitted { word, tick }
                    }
                    Some(Step::Admit(_)) => continue,
                };
                return (Entered::Hit(hit, gcra, now), false);
            } else {
                self.renew(index, slot, version);
            }
        }
    }

    /// The word of a key that is not busy, as it is under the limit in force.
    pub(super) fn word(&self, hash: u64) -> u64 {
        let version = self.limits.version();
        match self.find_any(hash, version) {
            Some((_, slot)) if slot.word != BUSY => self.word_under(slot, version),
            _ => FRESH,
        }
    }

    /// Takes the word of a key out of the table, as it is under the limit in force,
    /// and keeps a slot for it, which it asks for if need be, and tells whether another
    /// was evicted for it; the instant before which there is none. The caller holds the
    /// lock of the key's shard.
    pub(super) fn take(&self, hash: u64, now: Timestamp, when_full: WhenFull) -> Result<(u64, bool), Timestamp> {
        loop {
            let (version, gcra) = self.limits.read();
            let busy = Slot { tag: tag(hash, version), word: BUSY };
            match self.find_any(hash, version) {
                // Another key of the same tag.
                Some((_, slot)) if slot.word == BUSY => return Err(now),
                Some((index, slot)) => {
                    if self.slots.replace(index, slot, busy) {
                        return Ok((self.word_under(slot, version), false));
                    }
                }
                None => match self.place(hash, version, gcra.ticks().at(now), busy, when_full) {
                    Placed::In => return Ok((FRESH, false)),
                    Placed::Evicted => return Ok((FRESH, true)),
                    Placed::Full(ready) => return Err(gcra.ticks().instant(ready)),
                    Placed::Again => {}
                },
            }
        }
    }

    /// Gives a word of the version in force back to a key that was busy; false where
    /// there is no room, since it had no slot. The caller holds the lock of the shard.
    pub(super) fn put(&self, hash: u64, word: u64, now: Timestamp) -> bool {
        loop {
            let (version, gcra) = self.limits.read();
            let tick = gcra.ticks().at(now);
            let slot = Slot { tag: tag(hash, version), word: word.min(BUSY - 1) };
            // Kept until nobody has a time from before it any more.
            let new = if word == FRESH || is_spent(word, tick) { Slot::default() } else { slot };
            match self.find_any(hash, version) {
                Some((index, slot)) => {
                    if self.slots.replace(index, slot, new) {
                        return true;
                    }
                }
                None if new.tag == 0 => return true,
                None => match self.place(hash, version, tick, new, WhenFull::Tell) {
                    Placed::In | Placed::Evicted => return true,
                    Placed::Full(_) => return false,
                    Placed::Again => {}
                },
            }
        }
    }

    /// Forgets a key. The caller holds the lock of its shard.
    pub(super) fn forget(&self, hash: u64) {
        while let Some((index, slot)) = self.find_any(hash, self.limits.version()) {
            // Another key of the same tag.
            if slot.word == BUSY || self.slots.replace(index, slot, Slot::default()) {
                return;
            }
        }
    }

    /// Words follow a change of the limit when they are next touched. So that few
    /// changes have to be remembered, all of them are brought to the limit in force
    /// after every sixty-fourth: one by one, while others go on.
    /// No other change comes meanwhile: the caller sees to it.
    pub(super) fn sweep_if_due(&self) {
        let version = self.limits.version();
        if !Limits::wants_sweep(version) {
            return;
        }
        for index in 0..self.slots.len() {
            loop {
                let slot = self.slots.load(index);
                if slot.tag == 0 || is_of(slot.tag, version) || self.renew(index, slot, version) {
                    break;
                }
            }
        }
    }

    /// How many of the slots are in use at an instant: counted in up to `sample`
    /// nests spread over the table, and scaled up. Words of older limits are brought to the
    /// one in force on the way, so that this is slow once. No change comes meanwhile:
    /// the caller sees to it.
    pub(super) fn live(&self, now: Timestamp, sample: u64) -> usize {
        let (version, gcra) = self.limits.read();
        let tick = gcra.ticks().at(now);
        let looked = self.nests.min(sample);
        let mut live = 0_u128;
        for step in 0..looked {
            let nest = (u128::from(step) * u128::from(self.nests) / u128::from(looked)) as usize;
            for index in nest * NEST..(nest + 1) * NEST {
                let slot = self.slots.load(index);
                if slot.tag == 0 {
                    continue;
                }
                let word = self.word_under(slot, version);
                if !is_of(slot.tag, version) {
                    self.renew(index, slot, version);
                }
                live += u128::from(word > tick && word != BUSY);
            }
        }
        (live * u128::from(self.nests) / u128::from(looked.max(1))) as usize
    }

    /// The slot of a key, whatever the version of its word.
    fn find_any(&self, hash: u64, version: u64) -> Option<(usize, Slot)> {
        let bits = tag(hash, version) >> VERSION_BITS;
        let mut slots = self.home(hash).slots().map(|index| (index, self.slots.load(index)));
        slots.find(|(_, slot)| slot.tag >> VERSION_BITS == bits)
    }

    fn word_under(&self, slot: Slot, version: u64) -> u64 {
        if slot.word == BUSY || is_of(slot.tag, version) {
            return slot.word;
        }
        self.limits.carried(slot.word, slot.tag & VERSION_MASK, version).min(BUSY - 1)
    }

    /// Brings the word of a slot to a version; false where somebody was faster.
    fn renew(&self, index: usize, slot: Slot, version: u64) -> bool {
        let tag = slot.tag & !VERSION_MASK | version & VERSION_MASK;
        self.slots.replace(index, slot, Slot { tag, word: self.word_under(slot, version) })
    }
}

/// What became of one look at a key.
enum Attempt {
    Hit(Hit, Gcra, Timestamp),
    /// It is not there, or nothing that can be decided about in passing.
    Missing,
    /// Somebody was faster.
    Again,
}

const VERSION_MASK: u64 = (1 << VERSION_BITS) - 1;

/// What a slot of this key says under a version: never zero.
#[inline(always)]
fn tag(hash: u64, version: u64) -> u64 {
    (hash << VERSION_BITS).max(1 << VERSION_BITS) | version & VERSION_MASK
}

fn is_of(tag: u64, version: u64) -> bool {
    tag & VERSION_MASK == version & VERSION_MASK
}

/// As good as new, for so long that nobody has a time from before that.
fn is_spent(word: u64, tick: u64) -> bool {
    word.saturating_add(MARGIN) <= tick
}

/// The ticks of a cost that is not free and can pass.
#[inline(always)]
fn word_cost(gcra: &Gcra, cost: Cost) -> Option<NonZeroU64> {
    if cost > gcra.max_cost() {
        return None;
    }
    NonZeroU64::new(gcra.ticks().of_cost(cost)?)
}

#[cfg(all(test, not(shuttle)))]
mod tests;
