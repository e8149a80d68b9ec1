//! Edges of limits per key that the oracle of `keyed_oracle.rs` has found.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use suimon::clock::ManualClock;
use suimon::{Carry, Decision, Error, Keyed, KeyedBuilder, Overflow, Request, Timestamp};

const SECOND: Duration = Duration::from_secs(1);

fn builder(policy: &str, clock: &ManualClock) -> KeyedBuilder {
    Keyed::builder(policy).unwrap().clock(clock.clone())
}

/// A flat table and a map.
fn both(policy: &str, clock: &ManualClock, max_keys: usize, overflow: Overflow) -> [Keyed; 2] {
    [builder(policy, clock), builder(policy, clock).in_map()]
        .map(|builder| builder.max_keys(max_keys).overflow(overflow).build().unwrap())
}

fn allowed(decision: Result<Decision, Error>) -> bool {
    decision.unwrap().is_allowed()
}

/// A cost that can never pass is no refusal, whichever verb it comes by.
#[test]
fn wrong_arguments_are_not_counted() {
    let clock = ManualClock::new();
    for keyed in both("bucket 1/s", &clock, 10, Overflow::Share) {
        assert!(keyed.allow("a", 2).is_err() && keyed.consume("a", 2).is_err() && keyed.consume("a", -1).is_err());
        keyed.consume("a", 1).unwrap();
        keyed.consume("a", Request::default().within(SECOND / 2)).unwrap_err();
        keyed.close();
        assert!(keyed.allow("a", 1).is_err() && keyed.consume("a", 1).is_err());
        assert_eq!((keyed.stats().allowed(), keyed.stats().denied()), (1, 1));
    }
}

/// The latest time that was brought counts for all keys, those with a limiter of their
/// own among them: going back and forth mints nothing.
#[test]
fn an_older_time_mints_nothing_for_a_busy_key() {
    let at = Timestamp::from_secs;
    let clock = ManualClock::new();
    for keyed in both("bucket 1/s burst 3", &clock, 10, Overflow::Share) {
        keyed.set_policy("own", "bucket 1/s burst 3", Carry::Keep).unwrap();
        assert!(allowed(keyed.allow_at(at(100), "other", 1)));
        assert!(allowed(keyed.allow_at(at(50), "own", 3)));
        assert!(!allowed(keyed.peek_at(at(100), "own", 1)));
        assert!(!allowed(keyed.allow_at(at(100), "own", 1)));
        assert!(allowed(keyed.allow_at(at(101), "own", 1)));
    }
}

/// A key whose tokens have all come back is the same as a new one: also when the
/// limits change, and whether or not its slot has been taken by another.
#[test]
fn who_is_as_good_as_new_is_new_under_new_limits() {
    let clock = ManualClock::new();
    for keyed in both("bucket 10/s burst 10", &clock, 10, Overflow::Share) {
        assert!(allowed(keyed.allow("a", 10)));
        clock.advance(3600 * SECOND);
        assert!(allowed(keyed.allow("in use", 4)));
        for carry in [Carry::Keep, Carry::Balance, Carry::Scale, Carry::Reset] {
            keyed.change("bucket 10/s burst 20", carry).unwrap();
            assert_eq!(keyed.status("never seen").unwrap().remaining(), 20);
            assert_eq!(keyed.status("a").unwrap().remaining(), 20, "{carry:?}");
            keyed.change("bucket 10/s burst 10", Carry::Keep).unwrap();
        }
    }
}

/// For `Evict` there is room for every newcomer, also for one who reserves.
#[test]
fn a_reservation_evicts_as_a_call_does() {
    let clock = ManualClock::new();
    for keyed in both("bucket 5/h", &clock, 8, Overflow::Evict) {
        for n in 0..200_u32 {
            keyed.reserve(&n, 5).unwrap().settle(4).unwrap();
        }
        assert_eq!(keyed.stats().overflows(), 0);
        assert!(keyed.stats().evictions() > 150);
        assert_eq!(keyed.stats().busy_keys(), 0);
    }
}

/// A debt that never ends in the time that is counted is a debt, and no sign that the
/// key is elsewhere.
#[test]
fn a_debt_without_end_keeps_its_slot() {
    let clock = ManualClock::new();
    for overflow in [Overflow::Share, Overflow::Deny, Overflow::Evict] {
        for keyed in both("bucket 10/h", &clock, 10, overflow) {
            keyed.reserve("a", 1).unwrap().settle(u64::MAX).unwrap();
            let decision = keyed.allow("a", 1).unwrap();
            assert!(decision.retry().unwrap().after().unwrap() > 3600 * 24 * 365 * 100 * SECOND, "{decision:?}");
            assert_eq!(keyed.stats().overflows(), 0, "it has a slot");
            // The same by a change, whose carrying saturates.
            keyed.change("pace 1/h", Carry::Keep).unwrap();
            assert!(!allowed(keyed.allow("a", 1)));
            assert_eq!(keyed.stats().overflows(), 0);
            keyed.reset("a").unwrap();
            assert!(allowed(keyed.allow("a", 1)), "reset, it is new");
        }
    }
}

/// A cost that can never pass is an error before anything is looked at.
#[test]
fn arguments_come_before_room() {
    let clock = ManualClock::new();
    for keyed in both("bucket 5/h", &clock, 1, Overflow::Deny) {
        for n in 0..200_u32 {
            let _ = keyed.allow(&n, 5).unwrap();
        }
        assert!(keyed.stats().overflows() > 100);
        assert!(keyed.allow("new", 6).unwrap_err().is_cost_too_large());
        assert!(keyed.consume("new", 6).unwrap_err().is_cost_too_large());
        assert!(keyed.reserve("new", 6).unwrap_err().is_cost_too_large());
    }
}

/// Bringing all words to the limit in force does not bring back those that are under a
/// later one already.
#[test]
fn changes_that_follow_closely_forgive_nothing() {
    const KEYS: u64 = 4_000;
    const ROUNDS: u64 = 4;
    let clock = ManualClock::new();
    let mut used = 0;
    for _ in 0..ROUNDS {
        let keyed = builder("bucket 5/h", &clock).max_keys(2 * KEYS as usize).build().unwrap();
        for n in 0..KEYS {
            let _ = keyed.allow(&n, 1).unwrap();
        }
        // Every sixty-fourth change visits all slots.
        for _ in 0..63 {
            keyed.change("bucket 5/h", Carry::Reset).unwrap();
        }
        let begun = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                begun.store(true, Ordering::Release);
                keyed.change("bucket 6/h", Carry::Reset).unwrap();
            });
            while !begun.load(Ordering::Acquire) || keyed.status(&0).unwrap().limit() != 6 {
                thread::yield_now();
            }
            // Until the visit has begun.
            (0..20_000).for_each(|_| std::hint::spin_loop());
            keyed.change("bucket 5/h", Carry::Keep).unwrap();
            for n in 0..KEYS {
                used += u64::from(allowed(keyed.allow(&n, 5)));
            }
        });
        let free = (0..KEYS).filter(|n| allowed(keyed.peek(n, 1))).count();
        assert_eq!(free, 0, "all of them have used all they had");
    }
    assert_eq!(used, ROUNDS * KEYS);
}

/// A refusal for want of room says that nothing would pass.
#[test]
fn nothing_remains_where_there_is_no_room() {
    let clock = ManualClock::new();
    for keyed in both("pace 60/min", &clock, 1, Overflow::Deny) {
        let refused = (0..200_u32).map(|n| keyed.allow(&n, 60).unwrap()).find(|answer| !answer.is_allowed()).unwrap();
        assert_eq!((refused.status().remaining(), refused.status().burst_left()), (0, 0));
    }
}

/// Who only looks is told what who asks would be: also where there is no room.
#[test]
fn a_look_sees_want_of_room() {
    for overflow in [Overflow::Share, Overflow::Deny, Overflow::Evict] {
        let clock = ManualClock::new();
        for keyed in both("bucket 1/h", &clock, 4, overflow) {
            let mut full = 0;
            for n in 0..200_u32 {
                let peeked = keyed.peek(&n, 1).unwrap();
                let free = keyed.peek(&n, 0).unwrap();
                let before = keyed.stats();
                let decided = keyed.allow(&n, 1).unwrap();
                assert_eq!(peeked.is_allowed(), decided.is_allowed(), "{overflow:?} {n}");
                assert_eq!(peeked.retry(), decided.retry(), "{overflow:?} {n}");
                assert!(free.is_allowed(), "what is free needs no room");
                assert_eq!(before.overflows(), full, "looking is not counted");
                full = keyed.stats().overflows();
            }
            assert_eq!(full > 0, overflow != Overflow::Evict);
        }
    }
}

/// A table whose memory lies in huge pages answers like any other.
#[test]
fn huge_pages_change_no_answer() {
    let clock = ManualClock::new();
    let make = || builder("bucket 3/s burst 2", &clock).max_keys(100_000);
    let (plain, huge) = (make().build().unwrap(), make().huge_pages().build().unwrap());
    for n in 0..200_000_u64 {
        let key = n.wrapping_mul(n) % 60_000;
        assert_eq!(plain.allow(&key, 1).unwrap(), huge.allow(&key, 1).unwrap());
        clock.advance(Duration::from_micros(10));
    }
    assert_eq!(plain.stats().capacity(), huge.stats().capacity());
    assert_eq!(plain.stats().allowed(), huge.stats().allowed());
}
