//! Changes of the limits of all keys, while they are decided about.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shuttle::thread;
use suimon::clock::{Clock, ManualClock};
use suimon::{Carry, Overflow, Timestamp};

use super::crowd::{Crowd, shard_of};
use super::ledger::Ledger;
use super::{
    A, B, C, Table, builder, check, check_so_often, flat_and_map, goes_to, hits, meanwhile, ms, passes, remaining,
    small, two_shards,
};

#[test]
fn a_change_counts_what_has_passed() {
    check(|| {
        for (table, _clock) in flat_and_map("bucket 1/s burst 2") {
            let threads = [hits(&table, A, 3), hits(&table, A, 2)];
            let change = meanwhile(&table, |table| table.change("bucket 1/s burst 3", Carry::Keep).unwrap());
            let passed: u64 = threads.map(|thread| thread.join().unwrap()).into_iter().sum();
            change.join().unwrap();
            assert!((2..=3).contains(&passed));
            assert_eq!(remaining(&table, A), 3 - passed);
        }
    });
}

/// Up and down again, while one key is hit and another is new.
#[test]
fn several_changes_lose_nothing() {
    check(|| {
        for (table, _clock) in flat_and_map("bucket 1/s burst 2") {
            assert!(passes(table.allow(&A, 1)));
            let (old, new) = (hits(&table, A, 3), hits(&table, B, 4));
            let changes = meanwhile(&table, |table| {
                for policy in ["bucket 2/s burst 5", "bucket 1/s burst 4", "bucket 3/s burst 3"] {
                    table.change(policy, Carry::Keep).unwrap();
                }
            });
            let (old, new) = (1 + old.join().unwrap(), new.join().unwrap());
            changes.join().unwrap();
            // A lowered limit does not turn savings into debt.
            assert!(old >= 2 && new >= 2);
            assert_eq!((remaining(&table, A), remaining(&table, B)), (3 - old.min(3), 3 - new.min(3)));
        }
    });
}

/// Time passes too, and each change lets more pass than the one before: never more
/// than the last limit allows.
#[test]
fn never_more_than_the_largest_limit() {
    check(|| {
        let (table, clock) = small("bucket 1/s burst 2");
        let ledger = Ledger::new(3, 4);
        let threads = [
            ledger.calls(&table, &clock, &[(0, 2), (0, 2), (1, 1), (0, 1)], &[A, B]),
            ledger.calls(&table, &clock, &[(1, 2), (0, 2), (0, 2)], &[A, B]),
            meanwhile(&table, |table| {
                table.change("bucket 2/s burst 3", Carry::Keep).unwrap();
                table.change("bucket 3/s burst 4", Carry::Keep).unwrap();
            }),
            goes_to(&clock, &[400, 1000]),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        for key in [A, B] {
            while ledger.allow(&table, &clock, key, 1) {}
        }
        ledger.check();
    });
}

/// A decision by the limit before, made after the change: what it has used is not paid
/// back as if the new rate had held before.
#[test]
fn a_decision_that_meets_a_change() {
    check(|| {
        let (table, clock) = small("bucket 1/s burst 4");
        let ledger = Ledger::new(2, 4);
        assert!(ledger.allow(&table, &clock, A, 1));
        let threads = [
            ledger.calls(&table, &clock, &[(0, 4), (0, 3)], &[A]),
            meanwhile(&table, |table| table.change("bucket 2/s burst 4", Carry::Keep).unwrap()),
            goes_to(&clock, &[1000]),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        while ledger.allow(&table, &clock, A, 1) {}
        ledger.check();
    });
}

/// Whoever is second puts its limit in force: for all keys, for one that is busy, and
/// for the limit that those share for which there is no room.
#[test]
fn the_last_of_two_changes_is_in_force_for_all() {
    check(|| {
        let (builder, _clock) = builder("bucket 1/h burst 10");
        let table = builder.in_map().max_keys(2).build().unwrap();
        assert!(passes(table.allow(&A, 2)));
        let place = table.reserve(&B, 2).unwrap();
        let change = |policy: &'static str| meanwhile(&table, move |table| table.change(policy, Carry::Keep).unwrap());
        let changes = [change("bucket 1/h burst 20"), change("bucket 1/h burst 30")];
        let busy = meanwhile(&table, |table| table.reserve(&A, 1).unwrap().settle(1).unwrap());
        changes.into_iter().for_each(|thread| thread.join().unwrap());
        busy.join().unwrap();
        let left = remaining(&table, A);
        assert!(left == 17 || left == 27, "{left}");
        assert_eq!(remaining(&table, B), left + 1);
        drop(place);
        // There is no room for this one.
        let shared = table.allow(&C, 3).unwrap();
        assert_eq!((table.stats().overflows(), shared.status().remaining()), (1, left));
    });
}

/// The same once more for the busy one alone, for whose limiter each of the two changes
/// comes by itself.
#[test]
fn a_busy_key_follows_the_last_of_two_changes() {
    check_so_often(3000, || {
        let (builder, _clock) = builder("bucket 1/h burst 10");
        let table = builder.in_map().max_keys(1).build().unwrap();
        let place = table.reserve(&A, 2).unwrap();
        let change = |policy: &'static str| meanwhile(&table, move |table| table.change(policy, Carry::Keep).unwrap());
        let changes = [change("bucket 1/h burst 20"), change("bucket 1/h burst 30")];
        changes.into_iter().for_each(|thread| thread.join().unwrap());
        let left = remaining(&table, A);
        drop(place);
        table.reset(&A).unwrap();
        assert_eq!(remaining(&table, A), left + 2);
    });
}

/// So many changes before that the second from now on brings all words to the limit
/// in force: of a smaller limit, so that a word which is taken for an old one is seen.
fn changed_so_often(table: &Table) {
    for _ in 0..61 {
        table.change("bucket 1/h burst 1", Carry::Keep).unwrap();
    }
    table.change(POLICY, Carry::Keep).unwrap();
}

const POLICY: &str = "bucket 1/h burst 3";

/// A word that sleeps through all changes, one that is hit, and one that is new, while
/// all words are brought to a limit that is no longer the last.
#[test]
fn no_word_is_lost_by_the_sweep() {
    check_so_often(500, || {
        for (table, _clock) in flat_and_map(POLICY) {
            changed_so_often(&table);
            assert!(passes(table.allow(&A, 3)) && passes(table.allow(&B, 1)));
            let changes = || {
                meanwhile(&table, |table| {
                    table.change(POLICY, Carry::Keep).unwrap();
                    table.change(POLICY, Carry::Keep).unwrap();
                })
            };
            let changes = [changes(), changes()];
            let (spent, hit, new) = (hits(&table, A, 2), hits(&table, B, 2), hits(&table, C, 2));
            changes.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!([spent, hit, new].map(|thread| thread.join().unwrap()), [0, 2, 2]);
            assert_eq!([A, B, C].map(|key| remaining(&table, key)), [0, 0, 1]);
        }
    });
}

/// Two changes at once, of which one is to bring all words to the limit in force: it
/// is not forgotten, so that by the next time no word is so old that nobody knows its
/// limit.
#[test]
fn no_sweep_is_missed() {
    check_so_often(300, || {
        for (table, _clock) in flat_and_map(POLICY) {
            let changed = |times: usize| {
                for _ in 0..times {
                    table.change(POLICY, Carry::Keep).unwrap();
                }
            };
            assert!(passes(table.allow(&A, 3)));
            changed(63);
            let changes = [(); 2].map(|()| meanwhile(&table, |table| table.change(POLICY, Carry::Keep).unwrap()));
            let hit = hits(&table, B, 5);
            changes.into_iter().for_each(|thread| thread.join().unwrap());
            changed(64);
            assert_eq!(hit.join().unwrap(), 3);
            assert_eq!([A, B].map(|key| remaining(&table, key)), [0, 0]);
            assert!(!passes(table.allow(&A, 1)));
        }
    });
}

/// Slots of older versions are in use as long as their limits say, and change hands
/// when they are not.
#[test]
fn newcomers_respect_words_of_older_limits() {
    let all = Crowd::of(128);
    check_so_often(500, move || {
        let (table, clock) = two_shards("bucket 1/s burst 4", Overflow::Deny);
        let ledger = Ledger::new(2, 4);
        all.fill(&ledger, &table, &clock, |nth| if nth == 5 { 2 } else { 4 });
        let come = [all.keys[5], all.first[0], all.second[0], all.keys[0]];
        let threads = [
            ledger.calls(&table, &clock, &[(0, 4), (3, 1), (1, 2)], &come),
            ledger.calls(&table, &clock, &[(1, 4), (2, 4)], &come),
            meanwhile(&table, |table| {
                table.change("bucket 2/s burst 4", Carry::Keep).unwrap();
                table.change("bucket 2/s burst 4", Carry::Keep).unwrap();
            }),
            goes_to(&clock, &[600, 1003]),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        for key in come {
            while ledger.allow(&table, &clock, key, 1) {}
        }
        ledger.check();
        for key in all.keys.iter().filter(|key| !come.contains(key)) {
            assert!(remaining(&table, *key) <= 2, "two of four have come back at most");
        }
    });
}

/// A clock of which one reading, after so many, puts to sleep who has read: until it is
/// woken, and a second later.
#[derive(Clone, Debug)]
struct Sleepy {
    clock: ManualClock,
    readings_before: Arc<AtomicUsize>,
    awake: Arc<AtomicBool>,
}

impl Clock for Sleepy {
    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        if self.readings_before.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.clock.advance_to(ms(1003));
            while !self.awake.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        }
        now
    }
}

/// After a change a key is sought under the lock of its shard. While that sleeps with
/// the time in its hand, its slot goes to one of another shard, and a slot is free.
#[test]
fn a_slot_changes_hands_after_a_change() {
    let all = Crowd::of(128);
    check_so_often(10, move || {
        for nth in 0..4 {
            let clock = ManualClock::new();
            let (readings_before, awake) = (Arc::new(usize::MAX.into()), Arc::default());
            let sleepy = Sleepy { clock: clock.clone(), readings_before, awake };
            let builder = builder("bucket 1/s burst 4").0.max_keys(128).overflow(Overflow::Deny);
            let table = builder.clock(sleepy.clone()).build().unwrap();
            let ledger = Ledger::new(2, 4);
            all.fill(&ledger, &table, &clock, |nth| if nth == 0 { 2 } else { 4 });
            table.change("bucket 2/s burst 4", Carry::Keep).unwrap();
            let key = all.keys[0];
            let new = all.stranger_to(key);
            let leaves = all.keys.iter().find(|leaves| shard_of(**leaves) == shard_of(new)).unwrap();
            sleepy.readings_before.store(nth, Ordering::Relaxed);
            let comes_again = ledger.calls(&table, &clock, &[(0, 4), (0, 4)], &[key]);
            while clock.now() == Timestamp::ZERO {
                thread::yield_now();
            }
            assert!(ledger.allow(&table, &clock, new, 4));
            table.reset(leaves).unwrap();
            sleepy.awake.store(true, Ordering::Relaxed);
            comes_again.join().unwrap();
            while ledger.allow(&table, &clock, key, 1) {}
            ledger.check();
        }
    });
}

/// A key gives its limiter up, and another gets one, while all words are brought to
/// the limit in force: also that which stands for a key with a plan, whom no change
/// holds.
#[test]
fn the_sweep_and_keys_that_come_and_go() {
    check_so_often(300, || {
        for (table, _clock) in flat_and_map(POLICY) {
            changed_so_often(&table);
            assert!(passes(table.allow(&A, 3)) && passes(table.allow(&B, 2)));
            table.set_policy(&A, "bucket 1/h burst 4", Carry::Keep).unwrap();
            table.change(POLICY, Carry::Keep).unwrap();
            let changes = meanwhile(&table, |table| table.change(POLICY, Carry::Keep).unwrap());
            let leaves = meanwhile(&table, |table| table.clear_policy(&A, Carry::Keep).unwrap());
            let comes = meanwhile(&table, |table| table.reserve(&B, 1).unwrap().settle(1).unwrap());
            leaves.join().unwrap();
            comes.join().unwrap();
            changes.join().unwrap();
            assert_eq!(table.stats().busy_keys(), 0);
            assert_eq!([A, B, C].map(|key| remaining(&table, key)), [0, 0, 3]);
            for key in [A, B] {
                assert!(!passes(table.allow(&key, 1)));
                table.reset(&key).unwrap();
                assert!(passes(table.allow(&key, 3)));
            }
            assert_eq!(table.stats().overflows(), 0);
        }
    });
}

/// A change that forgives everything forgives it once.
#[test]
fn a_change_forgives_once() {
    check(|| {
        for (table, _clock) in flat_and_map("bucket 1/h burst 2") {
            let threads = [hits(&table, A, 3), hits(&table, A, 3)];
            let change = meanwhile(&table, |table| table.change("bucket 1/h burst 2", Carry::Reset).unwrap());
            let passed: u64 = threads.map(|thread| thread.join().unwrap()).into_iter().sum();
            change.join().unwrap();
            assert!((2..=4).contains(&passed));
            let left = remaining(&table, A);
            assert!(left <= 4 - passed && hits(&table, A, 3).join().unwrap() == left);
        }
    });
}

/// Room is not made by a change either: what was used under a faster limit has not
/// come back under a slower one.
#[test]
fn a_full_table_stays_full() {
    let all = Crowd::of(1);
    check_so_often(300, move || {
        let (table, clock) = small("bucket 1000/s burst 2");
        all.keys.iter().for_each(|key| assert!(passes(table.allow(key, 2))));
        table.change("bucket 1/h burst 2", Carry::Keep).unwrap();
        let threads = [all.more[0], all.more[1], all.keys[3]].map(|key| hits(&table, key, 2));
        let change = meanwhile(&table, |table| table.change("bucket 1/h burst 3", Carry::Scale).unwrap());
        let time = goes_to(&clock, &[1, 20]);
        let passed = threads.map(|thread| thread.join().unwrap());
        change.join().unwrap();
        time.join().unwrap();
        assert_eq!(passed, [0, 0, 0]);
        assert!(all.keys.iter().all(|key| remaining(&table, *key) == 0));
    });
}
