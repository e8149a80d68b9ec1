//! Keys that crowd the same slots, found by trying.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex};

use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, MaxSteps, Runner};
use suimon::Overflow;
use suimon::clock::ManualClock;

use super::ledger::Ledger;
use super::{Fixed, Table, builder, passes};

/// Keys that can stand in the same sixteen slots of a table and nowhere else: so many
/// as fill them, and more; of these, those of the first shard of two and of the second.
#[derive(Clone)]
pub(super) struct Crowd {
    pub(super) keys: Vec<u64>,
    pub(super) more: Vec<u64>,
    pub(super) first: Vec<u64>,
    pub(super) second: Vec<u64>,
}

pub(super) const SLOTS: usize = 16;
const MORE: usize = 24;

impl Crowd {
    /// Of a table with room for so many keys.
    pub(super) fn of(room: usize) -> Crowd {
        static FOUND: Mutex<BTreeMap<usize, Crowd>> = Mutex::new(BTreeMap::new());
        FOUND.lock().unwrap().entry(room).or_insert_with(|| Crowd::find(room)).clone()
    }

    fn find(room: usize) -> Crowd {
        let found = Arc::new(Mutex::new(Vec::new()));
        let keys = found.clone();
        // One thread only; but slots are known to the model checker.
        let mut config = Config::new();
        config.max_steps = MaxSteps::None;
        Runner::new(RandomScheduler::new(1), config).run(move || *keys.lock().unwrap() = crowding_keys(room));
        let keys = found.lock().unwrap().clone();
        let (keys, more) = keys.split_at(SLOTS);
        let of = |shard| more.iter().copied().filter(|key| shard_of(*key) == shard).collect::<Vec<_>>();
        let (first, second) = (of(0), of(1));
        assert!(first.len() >= 2 && second.len() >= 2);
        Crowd { keys: keys.to_vec(), more: more.to_vec(), first, second }
    }

    /// One more key, which is not in the shard of this one.
    pub(super) fn stranger_to(&self, key: u64) -> u64 {
        if shard_of(key) == 0 { self.second[0] } else { self.first[0] }
    }

    /// The keys come in turn, each for what `cost` says.
    pub(super) fn fill(&self, ledger: &Ledger, table: &Table, clock: &ManualClock, cost: impl Fn(usize) -> u64) {
        for (nth, key) in self.keys.iter().enumerate() {
            assert!(ledger.allow(table, clock, *key, cost(nth)));
        }
    }
}

fn crowding_keys(room: usize) -> Vec<u64> {
    let table = builder("bucket 1/h burst 1").0.max_keys(room).overflow(Overflow::Deny).build().unwrap();
    let enters = |key: &u64| passes(table.allow(key, 1));
    let leaves = |key: &u64| table.reset(key).unwrap();
    let mut keys = 0_u64..;
    // Every slot is taken.
    let residents: Vec<u64> = keys.by_ref().filter(enters).take(table.stats().capacity()).collect();
    // Whose slots one more key could have.
    let one = keys.by_ref().next().unwrap();
    let (beside, elsewhere): (Vec<_>, Vec<_>) = residents.into_iter().partition(|resident| {
        leaves(resident);
        let fits = enters(&one);
        if fits {
            leaves(&one);
        }
        assert!(enters(resident), "into the only slot that is free");
        fits
    });
    assert_eq!(beside.len(), SLOTS);
    // With all other slots free, only those find none that could have the same ones.
    elsewhere.iter().for_each(leaves);
    let crowds = |key: &u64| {
        !enters(key) || {
            leaves(key);
            false
        }
    };
    keys.filter(crowds).take(SLOTS + MORE).collect()
}

/// In which of the two shards of [`two_shards`](super::two_shards) a key is: the
/// arithmetic of the table itself, which shows nowhere.
pub(super) fn shard_of(key: u64) -> u64 {
    Fixed::default().hash_one(key) >> 40 & 1
}
