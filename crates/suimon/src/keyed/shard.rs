//! A part of the keys under one lock: those that are busy, and all keys of a
//! policy that does not fit the flat table.

use std::collections::VecDeque;

use hashbrown::HashTable;
use suimon_core::{Carry, Gate, Policy, State, Timestamp};

use crate::Error;
use crate::local::Shared;
use crate::sync::Arc;

/// How a key is known: by its hash alone, or as it is.
pub(super) trait Find<I> {
    /// Is it this one? The hashes are equal already.
    fn is(&self, id: &I) -> bool;
    /// To be kept.
    fn own(&self) -> I;
}

#[derive(Debug)]
pub(super) struct Shard<I> {
    pub(super) rules: Arc<Rules>,
    entries: Vec<Entry<I>>,
    index: HashTable<usize>,
    /// The next one to be looked at for whether it may go.
    hand: usize,
}

#[derive(Debug)]
pub(super) struct Entry<I> {
    hash: u64,
    id: I,
    /// The rules under which the state was last settled.
    version: u64,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Idle(State),
    Busy(Busy),
}

/// A key with a limiter of its own.
#[derive(Debug)]
pub(super) struct Busy {
    pub(super) shared: Arc<Shared>,
    /// Whoever uses it holds it.
    pub(super) holders: usize,
    /// Limits of its own, which changes for all keys do not touch.
    pub(super) own: Option<Policy>,
    /// Counts what was wanted of its limits, so that whoever carries it out sees
    /// whether more has been wanted meanwhile.
    pub(super) wanted: u64,
}

/// The policy of all keys without limits of their own, and what it was before.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) version: u64,
    pub(super) gate: Gate,
    /// A state of the gate that is as good as new.
    pub(super) fresh: State,
    past: VecDeque<Past>,
}

#[derive(Clone, Debug)]
struct Past {
    gate: Gate,
    /// When the next one followed, and how.
    until: Timestamp,
    carry: Carry,
}

/// So many changes are kept; then all states are brought to the last.
const KEPT: usize = 64;

impl Rules {
    pub(super) fn new(gate: Gate) -> Rules {
        Rules { version: 0, fresh: gate.fresh(), gate, past: VecDeque::new() }
    }

    pub(super) fn changed(&self, gate: Gate, at: Timestamp, carry: Carry) -> Rules {
        let mut past = self.past.clone();
        past.push_back(Past { gate: self.gate.clone(), until: at, carry });
        Rules { version: self.version + 1, fresh: gate.fresh(), gate, past }
    }

    pub(super) fn is_long(&self) -> bool {
        self.past.len() >= KEPT
    }

    pub(super) fn without_past(&self) -> Rules {
        let (gate, fresh) = (self.gate.clone(), self.fresh.clone());
        Rules { version: self.version, gate, fresh, past: VecDeque::new() }
    }

    /// Brings a state from its version to this one, each change as of its instant.
    pub(super) fn bring(&self, state: &mut State, version: &mut u64) {
        let behind = usize::try_from(self.version - *version).unwrap_or(usize::MAX);
        if behind == 0 {
            return;
        }
        let skip = self.past.len().saturating_sub(behind);
        let steps: Vec<&Past> = self.past.iter().skip(skip).collect();
        for (nth, step) in steps.iter().enumerate() {
            let next = steps.get(nth + 1).map_or(&self.gate, |past| &past.gate);
            // As good as new then: like a key that was not there. The state is one of the
            // gate before, by its version.
            let new = step.gate.is_fresh(state, step.until).unwrap_or(true);
            if new || next.adopt(state, &step.gate, step.until, step.carry).is_err() {
                *state = next.fresh();
            }
        }
        *version = self.version;
    }
}

impl<I> Shard<I> {
    pub(super) fn new(rules: Arc<Rules>) -> Shard<I> {
        Shard { rules, entries: Vec::new(), index: HashTable::new(), hand: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn find(&self, hash: u64, is: impl Fn(&Entry<I>) -> bool) -> Option<usize> {
        let same = |at: &usize| self.entries[*at].hash == hash && is(&self.entries[*at]);
        self.index.find(hash, same).copied()
    }

    pub(super) fn find_key(&self, hash: u64, key: &impl Find<I>) -> Option<usize> {
        self.find(hash, |entry| key.is(&entry.id))
    }

    /// The entry of a key that is busy with this limiter.
    pub(super) fn find_busy(&self, hash: u64, shared: &Arc<Shared>) -> Option<usize> {
        self.find(hash, |entry| matches!(&entry.what, What::Busy(busy) if Arc::ptr_eq(&busy.shared, shared)))
    }

    pub(super) fn entry(&mut self, at: usize) -> &mut Entry<I> {
        &mut self.entries[at]
    }

    /// The state of an idle key, as it is under the rules in force.
    pub(super) fn idle(&mut self, at: usize) -> Option<(&Rules, &mut State)> {
        let entry = &mut self.entries[at];
        match &mut entry.what {
            What::Idle(state) => {
                self.rules.bring(state, &mut entry.version);
                Some((&self.rules, state))
            }
            What::Busy(_) => None,
        }
    }

    pub(super) fn busy_entries(&mut self) -> impl Iterator<Item = (u64, &mut Busy)> {
        self.entries.iter_mut().filter_map(|entry| match &mut entry.what {
            What::Busy(busy) => Some((entry.hash, busy)),
            What::Idle(_) => None,
        })
    }

    pub(super) fn push(&mut self, hash: u64, id: I, what: What) -> usize {
        let at = self.entries.len();
        self.entries.push(Entry { hash, id, version: self.rules.version, what });
        self.index.insert_unique(hash, at, |at| self.entries[*at].hash);
        at
    }

    pub(super) fn remove(&mut self, at: usize) -> Entry<I> {
        let last = self.entries.len() - 1;
        let hash_of_last = self.entries[last].hash;
        let entry = self.entries.swap_remove(at);
        if let Ok(found) = self.index.find_entry(entry.hash, |index| *index == at) {
            found.remove();
        }
        if at != last
            && let Some(moved) = self.index.find_mut(hash_of_last, |index| *index == last)
        {
            *moved = at;
        }
        // A crowd that has gone does not keep its memory.
        if self.entries.len() * 8 < self.entries.capacity() && self.entries.capacity() > 1024 {
            self.entries.shrink_to(self.entries.len() * 2);
            self.index.shrink_to(self.entries.len() * 2, |at| self.entries[*at].hash);
        }
        entry
    }

    /// The next entries in turn, of which those may go that nobody misses.
    pub(super) fn turn(&mut self) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        self.hand = (self.hand + 1) % self.entries.len();
        Some(self.hand)
    }

    /// How long an idle key takes to be as good as new; `None` for a busy one.
    pub(super) fn until_fresh(&mut self, at: usize, now: Timestamp) -> Option<std::time::Duration> {
        let (rules, state) = self.idle(at)?;
        let statuses = rules.gate.statuses(state, now).ok()?;
        statuses.iter().map(suimon_core::Status::reset_after).max()
    }

    /// Is one of the next `look` entries in turn as good as new, so that it could go? Else
    /// how long the first takes to be, if that can be told.
    pub(super) fn room(&mut self, look: usize, now: Timestamp) -> Result<(), Option<std::time::Duration>> {
        let len = self.entries.len();
        let nearest = (1..=look.min(len)).filter_map(|step| self.until_fresh((self.hand + step) % len, now)).min();
        if nearest.is_some_and(|wait| wait.is_zero()) { Ok(()) } else { Err(nearest) }
    }

    /// Brings all states to the rules in force.
    pub(super) fn bring_all(&mut self) {
        for at in 0..self.entries.len() {
            let _ = self.idle(at);
        }
    }

    /// How many keys have used something that has not come back: counted in up to
    /// `sample` entries spread over all, and scaled up.
    pub(super) fn live(&mut self, now: Timestamp, sample: usize) -> usize {
        let looked = self.entries.len().min(sample);
        let mut live = 0;
        for step in 0..looked {
            let at = step * self.entries.len() / looked;
            live += usize::from(self.until_fresh(at, now).is_none_or(|wait| !wait.is_zero()));
        }
        live * self.entries.len() / looked.max(1)
    }

    /// A key gives up its limiter, whose state was this under the rules in force.
    pub(super) fn make_idle(&mut self, at: usize, state: State) {
        let entry = &mut self.entries[at];
        (entry.version, entry.what) = (self.rules.version, What::Idle(state));
    }
}

impl Busy {
    pub(super) fn new(shared: Arc<Shared>) -> Busy {
        Busy { shared, holders: 0, own: None, wanted: 0 }
    }
}

impl<I> Entry<I> {
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn busy(&mut self) -> Option<&mut Busy> {
        match &mut self.what {
            What::Busy(busy) => Some(busy),
            What::Idle(_) => None,
        }
    }
}

/// What is wanted of a key's limits: its own ones, or those of all.
pub(super) fn wanted_policy(busy: &Busy, rules: &Rules) -> Policy {
    busy.own.clone().unwrap_or_else(|| rules.gate.policy().clone())
}

/// The policy of a flat table is one pace or bucket.
pub(super) fn one_word(gate: &Gate) -> Result<&suimon_core::gcra::Gcra, Error> {
    gate.gcra().ok_or_else(|| Error::not_one_word(gate.policy()))
}
