use alloc::boxed::Box;
use alloc::vec::Vec;
use core::slice;

use crate::fixed::Count;
use crate::window::Log;

/// What a [`Gate`](crate::Gate) remembers of one key: what has passed so far.
///
/// Made by [`Gate::fresh`](crate::Gate::fresh), and of use only with gates of the
/// same policy and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(crate) version: u32,
    slots: Slots,
}

/// Most policies have one limit, which needs no allocation of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Slots {
    One(Slot),
    Many(Box<[Slot]>),
}

/// What one limit remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The word of a pace or bucket, and the ticks that settling has given back,
    /// counted round 2^64.
    Word {
        word: u64,
        refunded: u64,
    },
    Log(Box<Log>),
    Count(Count),
    /// `unlimited` and `block` remember nothing.
    Nothing,
}

impl State {
    pub(crate) fn new(version: u32, slots: impl IntoIterator<Item = Slot>) -> State {
        let mut slots: Vec<Slot> = slots.into_iter().collect();
        let slots = match (slots.len(), slots.pop()) {
            (1, Some(slot)) => Slots::One(slot),
            (_, last) => {
                slots.extend(last);
                Slots::Many(slots.into_boxed_slice())
            }
        };
        State { version, slots }
    }

    /// The version of the limits under which it was last settled.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The word of the state of one pace or bucket; `None` for other policies.
    #[must_use]
    pub fn word(&self) -> Option<u64> {
        match self.slots() {
            [Slot::Word { word, .. }] => Some(*word),
            _ => None,
        }
    }

    /// Replaces the word of the state of one pace or bucket, which somebody else
    /// has moved on by [`Gcra::step`](crate::gcra::Gcra::step). The states of other
    /// policies stay as they are.
    pub fn set_word(&mut self, new: u64) {
        if let [Slot::Word { word, .. }] = self.slots_mut() {
            *word = new;
        }
    }

    /// Gives back so many ticks of the word of one pace or bucket, and counts them
    /// as given back: settling a reservation gives none of them a second time. The
    /// states of other policies stay as they are.
    ///
    /// For tokens that somebody else keeps account of, and returns unspent.
    ///
    /// ```
    /// use suimon_core::{Cost, Gate, Policy, Timestamp};
    ///
    /// let gate = Gate::new("bucket 10/s".parse::<Policy>()?)?;
    /// let (mut state, now) = (gate.fresh(), Timestamp::from_secs(1));
    /// gate.allow(&mut state, now, Cost::whole(4))?;
    /// let ticks = gate.gcra().and_then(|gcra| gcra.ticks().of_cost(Cost::whole(3)));
    /// state.give_back(ticks.unwrap_or(0));
    /// assert_eq!(gate.status(&state, now)?.remaining(), 9);
    /// # Ok::<(), suimon_core::Error>(())
    /// ```
    pub fn give_back(&mut self, ticks: u64) {
        if let [Slot::Word { word, refunded }] = self.slots_mut() {
            let back = ticks.min(*word);
            *word = word.saturating_sub(back);
            *refunded = refunded.wrapping_add(back);
        }
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        match &self.slots {
            Slots::One(slot) => slice::from_ref(slot),
            Slots::Many(slots) => slots,
        }
    }

    pub(crate) fn slots_mut(&mut self) -> &mut [Slot] {
        match &mut self.slots {
            Slots::One(slot) => slice::from_mut(slot),
            Slots::Many(slots) => slots,
        }
    }
}
