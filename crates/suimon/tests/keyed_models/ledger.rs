//! What has passed, and when: so much that it can be said whether it was too much.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use shuttle::thread;
use suimon::clock::{Clock, ManualClock};
use suimon::{Keyed, Timestamp};

use super::{Fixed, passes};

/// One `bucket <rate>/s burst <burst>` for each key.
#[derive(Clone)]
pub(super) struct Ledger {
    rate: u64,
    burst: u64,
    passed: Arc<Mutex<BTreeMap<u64, Vec<Passed>>>>,
}

#[derive(Clone, Copy, Debug)]
struct Passed {
    cost: u64,
    /// The time before the call and after it.
    from: Timestamp,
    until: Timestamp,
}

impl Ledger {
    pub(super) fn new(rate: u64, burst: u64) -> Ledger {
        Ledger { rate, burst, passed: Arc::default() }
    }

    /// Asks, and writes down what passes.
    pub(super) fn allow(&self, table: &Keyed<Fixed>, clock: &ManualClock, key: u64, cost: u64) -> bool {
        let from = clock.now();
        let passed = passes(table.allow(&key, cost));
        if passed {
            let passed = Passed { cost, from, until: clock.now() };
            self.passed.lock().unwrap().entry(key).or_default().push(passed);
        }
        passed
    }

    /// The same for several calls, in a thread of its own.
    pub(super) fn calls(
        &self,
        table: &Keyed<Fixed>,
        clock: &ManualClock,
        calls: &'static [(usize, u64)],
        keys: &[u64],
    ) -> thread::JoinHandle<()> {
        let (ledger, table, clock, keys) = (self.clone(), table.clone(), clock.clone(), keys.to_vec());
        thread::spawn(move || {
            for (key, cost) in calls {
                ledger.allow(&table, &clock, keys[*key], *cost);
            }
        })
    }

    /// What a key has been charged, all in all.
    pub(super) fn charged(&self, key: u64) -> u64 {
        self.passed.lock().unwrap().get(&key).into_iter().flatten().map(|passed| passed.cost).sum()
    }

    /// In no interval more than the burst and what comes in that time.
    pub(super) fn check(&self) {
        for (key, all) in &*self.passed.lock().unwrap() {
            for begin in all {
                for end in all {
                    let (from, until) = (begin.from, end.until);
                    let within = all.iter().filter(|passed| passed.from >= from && passed.until <= until);
                    let sum = u128::from(within.map(|passed| passed.cost).sum::<u64>());
                    let most = u128::from(self.burst) * 1_000_000_000
                        + u128::from(self.rate) * until.saturating_since(from).as_nanos();
                    assert!(sum * 1_000_000_000 <= most, "key {key}: {sum} from {from:?} until {until:?}, {all:?}");
                }
            }
        }
    }
}
