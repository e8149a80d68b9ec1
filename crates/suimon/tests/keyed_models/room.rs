//! Newcomers, slots that change hands, keys that are evicted.

use suimon::Overflow;

use super::crowd::{Crowd, SLOTS};
use super::ledger::Ledger;
use super::{A, Table, check, check_so_often, goes_to, hits, meanwhile, passes, remaining, small, two_shards};

#[test]
fn a_new_key_is_entered_once() {
    check(|| {
        let (table, _clock) = small("bucket 1/s burst 2");
        let threads = [hits(&table, A, 2), hits(&table, A, 2), hits(&table, A, 1)];
        let passed: u64 = threads.map(|thread| thread.join().unwrap()).into_iter().sum();
        assert_eq!((passed, remaining(&table, A)), (2, 0));
        let stats = table.stats();
        assert_eq!((stats.live_keys(), stats.allowed(), stats.denied()), (1, 2, 3));
    });
}

/// Two threads bring a new key while slots become free around them, so that each
/// may see another one as the first that is free.
#[test]
fn a_new_key_is_entered_once_where_slots_become_free() {
    let all = Crowd::of(128);
    check_so_often(500, move || {
        let (table, clock) = two_shards("bucket 1/s burst 2", Overflow::Deny);
        let ledger = Ledger::new(1, 2);
        all.fill(&ledger, &table, &clock, |nth| if nth % 3 == 0 { 1 } else { 2 });
        let new = all.first[0];
        assert!(!passes(table.allow(&new, 1)), "the crowd fills its slots");
        // Of the shard of the new key or of the other.
        let leave = [all.keys[15], all.keys[2]];
        let forget = meanwhile(&table, move |table| leave.iter().for_each(|key| table.reset(key).unwrap()));
        let time = goes_to(&clock, &[1003]);
        let threads =
            [ledger.calls(&table, &clock, &[(0, 1), (0, 1)], &[new]), ledger.calls(&table, &clock, &[(0, 2)], &[new])];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        forget.join().unwrap();
        time.join().unwrap();
        ledger.check();
        // Where it was not entered before, there is room for it now.
        ledger.allow(&table, &clock, new, 2);
        ledger.check();
        // Ten of the crowd have not all their tokens back, of which one was forgotten.
        assert_eq!(table.stats().live_keys(), 9 + 1, "it stands in one slot");
    });
}

/// A slot whose key has all its tokens back goes to another, just when its key comes
/// again; the others in the crowd have not got theirs back.
#[test]
fn a_slot_changes_hands_while_its_key_comes_again() {
    let all = Crowd::of(128);
    check_so_often(500, move || {
        let (table, clock) = two_shards("bucket 1/s burst 4", Overflow::Deny);
        let ledger = Ledger::new(1, 4);
        all.fill(&ledger, &table, &clock, |nth| if nth == 3 { 1 } else { 4 });
        let keys = [all.keys[3], all.first[0], all.second[0]];
        let threads = [
            ledger.calls(&table, &clock, &[(0, 3), (0, 1), (0, 4)], &keys),
            ledger.calls(&table, &clock, &[(1, 4), (1, 1)], &keys),
            ledger.calls(&table, &clock, &[(2, 4), (0, 2)], &keys),
            // As good as new after 1 s, or after 4 s where it has come again; and a
            // millisecond or two until nobody can have an older time.
            goes_to(&clock, &[999, 1001, 1003, 4004]),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        for key in keys {
            ledger.allow(&table, &clock, key, 4);
            ledger.allow(&table, &clock, key, 1);
        }
        ledger.check();
        assert!(table.stats().live_keys() <= 3);
    });
}

/// Nobody's charge is lost but that of who was evicted, and nobody pays for another.
fn assert_ledger(ledger: &Ledger, table: &Table, burst: u64, keys: impl Iterator<Item = u64>) {
    let mut forgiven = 0;
    for key in keys {
        let (used, charged) = (burst - remaining(table, key), ledger.charged(key));
        assert!(used <= charged, "key {key} has used {used}, and is charged {charged}");
        forgiven += u64::from(used < charged);
    }
    assert!(forgiven <= table.stats().evictions(), "{forgiven} forgotten, {:?}", table.stats());
}

/// Room is made by eviction while the one that would have to go uses more, so that it
/// is another's turn.
#[test]
fn eviction_and_a_hit_of_who_would_have_to_go() {
    let all = Crowd::of(128);
    check_so_often(500, move || {
        let (table, clock) = two_shards("bucket 1/h burst 100", Overflow::Evict);
        let ledger = Ledger::new(0, 100);
        all.fill(&ledger, &table, &clock, |nth| 10 + nth as u64);
        let keys = [all.keys[0], all.keys[1], all.first[0], all.second[0]];
        let threads = [
            ledger.calls(&table, &clock, &[(0, 30), (0, 30), (1, 7)], &keys),
            ledger.calls(&table, &clock, &[(2, 60), (2, 5)], &keys),
            ledger.calls(&table, &clock, &[(3, 60)], &keys),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_ledger(&ledger, &table, 100, all.keys.iter().copied().chain(keys.into_iter().skip(2)));
        let stats = table.stats();
        assert_eq!((stats.live_keys(), stats.overflows()), (SLOTS, 0), "one went for each that came");
        assert!((2..=4).contains(&stats.evictions()));
        // The two that have used most are not the ones to go.
        assert_eq!((remaining(&table, keys[2]), remaining(&table, keys[3])), (35, 40));
    });
}

/// Two newcomers of different shards and an old key that is reset: whoever is second
/// finds the slot taken and looks for another.
#[test]
fn newcomers_do_not_take_the_same_slot() {
    let all = Crowd::of(128);
    check_so_often(500, move || {
        let (table, clock) = two_shards("bucket 1/h burst 100", Overflow::Deny);
        let ledger = Ledger::new(0, 100);
        all.fill(&ledger, &table, &clock, |nth| 10 + nth as u64);
        let keys = [all.first[0], all.second[0], all.second[1]];
        table.reset(&all.keys[9]).unwrap();
        let threads = [
            ledger.calls(&table, &clock, &[(0, 60), (0, 20)], &keys),
            ledger.calls(&table, &clock, &[(1, 60), (1, 20)], &keys),
            ledger.calls(&table, &clock, &[(2, 60), (2, 20)], &keys),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let others = all.keys.iter().copied().filter(|key| *key != all.keys[9]);
        assert_ledger(&ledger, &table, 100, others.chain(keys));
        let mut charged = keys.map(|key| ledger.charged(key));
        charged.sort_unstable();
        assert_eq!(charged, [0, 0, 80], "one finds room, and keeps it");
        assert_eq!(table.stats().live_keys(), SLOTS);
    });
}

/// Somebody forgets a key while it is charged and another enters: what is forgotten
/// is no more than was there.
#[test]
fn a_reset_takes_nothing_from_others() {
    let all = Crowd::of(128);
    check_so_often(500, move || {
        let (table, clock) = two_shards("bucket 1/h burst 100", Overflow::Evict);
        let ledger = Ledger::new(0, 100);
        all.fill(&ledger, &table, &clock, |nth| 10 + nth as u64);
        let keys = [all.keys[0], all.first[0], all.second[0]];
        let forgotten = keys[0];
        let threads = [
            ledger.calls(&table, &clock, &[(0, 1), (0, 1), (0, 1)], &keys),
            ledger.calls(&table, &clock, &[(1, 60)], &keys),
            ledger.calls(&table, &clock, &[(2, 60)], &keys),
            meanwhile(&table, move |table| table.reset(&forgotten).unwrap()),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_ledger(&ledger, &table, 100, all.keys.iter().copied().skip(1).chain(keys.into_iter().skip(1)));
        // What it used before is forgotten, whoever made it go.
        assert!(remaining(&table, forgotten) >= 100 - 3);
    });
}

/// Everything at once, in the smallest table, where a hit and a slot that changes
/// hands meet most often.
#[test]
fn never_more_than_the_limit_in_a_small_table() {
    let all = Crowd::of(1);
    check_so_often(500, move || {
        let (table, clock) = small("bucket 2/s burst 2");
        let ledger = Ledger::new(2, 2);
        all.fill(&ledger, &table, &clock, |_| 1);
        let come = [all.keys[0], all.more[0], all.more[1]];
        let threads = [
            ledger.calls(&table, &clock, &[(0, 1), (1, 2), (0, 1)], &come),
            ledger.calls(&table, &clock, &[(1, 1), (0, 1), (2, 1)], &come),
            goes_to(&clock, &[500, 503, 1000, 1003]),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        come.iter().for_each(|key| {
            let _ = ledger.allow(&table, &clock, *key, 2);
        });
        ledger.check();
    });
}
