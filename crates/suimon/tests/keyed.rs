//! Limits per key: the verbs, room and the want of it, changes, plans, waiting.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use suimon::clock::{Clock, ManualClock};
use suimon::{Carry, Decision, Error, Keyed, KeyedBuilder, KeyedMap, Overflow, Timestamp};

fn builder(policy: &str, clock: &ManualClock) -> KeyedBuilder {
    Keyed::builder(policy).unwrap().clock(clock.clone())
}

fn allowed(decision: Result<Decision, Error>) -> bool {
    decision.unwrap().is_allowed()
}

fn wait(decision: Result<Decision, Error>) -> Duration {
    decision.unwrap().retry().unwrap().after().unwrap()
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn keys_do_not_share() {
    let clock = ManualClock::new();
    let flat = builder("bucket 1/s burst 2", &clock).build().unwrap();
    let map = builder("bucket 1/s burst 2", &clock).in_map().build().unwrap();
    let portable = builder("bucket 1/s burst 2", &clock).portable().build().unwrap();
    for keyed in [flat, map, portable] {
        assert!(allowed(keyed.allow("a", 2)) && !allowed(keyed.allow("a", 1)));
        assert_eq!(wait(keyed.allow("a", 1)), SECOND);
        assert!(allowed(keyed.allow("b", 1)) && allowed(keyed.allow(&7_u64, 1)) && allowed(keyed.allow(&("a", 1), 1)));
        assert_eq!(keyed.status("a").unwrap().remaining(), 0);
        assert_eq!(keyed.status("b").unwrap().remaining(), 1);
        assert_eq!(keyed.status("never seen").unwrap().remaining(), 2);
        // A `String` is the key of its `str`.
        assert!(!allowed(keyed.allow(&String::from("a"), 1)));
        assert!(keyed.allow("a", 3).unwrap_err().is_cost_too_large());
        assert!(keyed.allow("new", 3).unwrap_err().is_cost_too_large());
        assert!(keyed.allow("a", -1).unwrap_err().is_invalid_cost());
        assert!(allowed(keyed.allow("a", 0)) && allowed(keyed.allow("free", 0)));
        let stats = keyed.stats();
        assert_eq!((stats.allowed(), stats.denied(), stats.live_keys()), (6, 3, 4));
        clock.advance(SECOND);
        assert!(allowed(keyed.allow("a", 1)) && !allowed(keyed.allow("a", 1)));
        clock.advance(10 * SECOND);
        assert_eq!(keyed.stats().live_keys(), 0, "all has come back");
    }
}

#[test]
fn several_limits_are_taken_together_or_not_at_all() {
    let clock = ManualClock::new();
    let map: KeyedMap<String> = builder("bucket 10/s and fixed 12/day", &clock).build_map().unwrap();
    assert!(allowed(map.allow("a", 10)));
    clock.advance(SECOND);
    let refused = map.allow("a", 3).unwrap();
    assert_eq!(refused.retry().unwrap().limit(), 1);
    // The bucket has not been touched by the refusal.
    assert!(allowed(map.allow("a", 2)));
    assert_eq!(map.status("b").unwrap().remaining(), 10);

    let windows = builder("window 2/10s", &clock).build().unwrap();
    assert!(allowed(windows.allow("a", 2)) && !allowed(windows.allow("a", 1)) && allowed(windows.allow("b", 1)));
    assert_eq!(wait(windows.allow("a", 1)), 10 * SECOND);
}

#[test]
fn a_peek_changes_nothing_and_says_what_allow_would() {
    let clock = ManualClock::new();
    for keyed in [builder("pace 1/s", &clock), builder("pace 1/s", &clock).in_map()].map(|b| b.build().unwrap()) {
        assert!(allowed(keyed.peek("a", 1)) && allowed(keyed.peek("a", 1)));
        assert_eq!(keyed.stats().live_keys(), 0);
        assert!(allowed(keyed.allow("a", 1)));
        assert_eq!(wait(keyed.peek("a", 1)), SECOND);
        assert!(keyed.peek("b", 2).unwrap_err().is_cost_too_large());
    }
}

#[test]
fn an_older_time_mints_nothing() {
    let clock = ManualClock::new();
    for keyed in [builder("bucket 1/s burst 3", &clock), builder("bucket 1/s burst 3", &clock).in_map()]
        .map(|builder| builder.build().unwrap())
    {
        let at = Timestamp::from_secs;
        assert!(allowed(keyed.allow_at(at(100), "a", 3)));
        assert!(!allowed(keyed.allow_at(at(0), "a", 1)));
        // Taken as of 100 s: alternating times save up nothing.
        assert!(allowed(keyed.allow_at(at(50), "b", 3)));
        assert!(!allowed(keyed.allow_at(at(100), "b", 1)));
        assert!(allowed(keyed.allow_at(at(101), "b", 1)) && !allowed(keyed.allow_at(at(101), "b", 1)));
        assert!(allowed(keyed.peek_at(at(102), "b", 1)));
    }
}

#[test]
fn who_waits_for_a_key_is_served_in_turn() {
    let clock = ManualClock::new();
    for keyed in [builder("pace 1/s", &clock), builder("pace 1/s", &clock).in_map()].map(|b| b.build().unwrap()) {
        keyed.consume("a", 1).unwrap();
        let mut first = keyed.consume_async("a", 1);
        let mut second = keyed.consume_async("a", 1);
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        assert_eq!(keyed.stats().busy_keys(), 1);
        // Nobody overtakes; other keys do not notice.
        assert_eq!(wait(keyed.allow("a", 1)), 3 * SECOND);
        assert!(allowed(keyed.allow("b", 1)));
        clock.advance(SECOND);
        assert!(poll(&mut first).is_ready() && poll(&mut second).is_pending());
        drop(second);
        assert_eq!(keyed.stats().busy_keys(), 0, "nobody waits any more");
        assert_eq!(wait(keyed.allow("a", 1)), SECOND, "what was used is still known");
        clock.advance(SECOND);
        assert!(allowed(keyed.allow("a", 1)));
        clock.advance(10 * SECOND);
    }
}

#[test]
fn a_wait_that_cannot_end_in_time_takes_nothing() {
    let clock = ManualClock::new();
    let keyed = builder("pace 1/s", &clock).build().unwrap();
    keyed.consume("a", 1).unwrap();
    let request = suimon::Request::default().within(SECOND / 2);
    assert_eq!(keyed.consume("a", request).unwrap_err().retry_after(), Some(SECOND));
    assert_eq!(keyed.stats().busy_keys(), 0);
    clock.advance(SECOND);
    keyed.consume("a", request).unwrap();
    let stats = keyed.stats();
    assert_eq!((stats.allowed(), stats.denied()), (2, 1));
}

#[test]
fn a_reservation_of_a_key_is_settled() {
    let clock = ManualClock::new();
    for keyed in [builder("bucket 10/s", &clock), builder("bucket 10/s", &clock).in_map()].map(|b| b.build().unwrap()) {
        let place = keyed.reserve("a", 8).unwrap();
        assert_eq!(keyed.status("a").unwrap().remaining(), 2);
        place.settle(3).unwrap();
        assert_eq!(keyed.status("a").unwrap().remaining(), 7);
        drop(keyed.reserve("a", 7).unwrap());
        assert_eq!(keyed.status("a").unwrap().remaining(), 0, "dropped, the estimate is charged");
        assert_eq!(keyed.stats().busy_keys(), 0);
        assert!(!allowed(keyed.allow("a", 1)));
        clock.advance(SECOND);
    }
}

#[test]
fn limits_are_changed_for_all_keys() {
    let clock = ManualClock::new();
    for keyed in [builder("bucket 10/h", &clock), builder("bucket 10/h", &clock).in_map()].map(|b| b.build().unwrap()) {
        assert!(allowed(keyed.allow("a", 10)));
        keyed.change("bucket 100/h", Carry::Keep).unwrap();
        assert_eq!(keyed.status("a").unwrap().remaining(), 90);
        assert_eq!(keyed.status("b").unwrap().remaining(), 100);
        assert!(allowed(keyed.allow("a", 90)) && !allowed(keyed.allow("a", 1)));
        // Two changes while a key sleeps, each as of its own instant.
        keyed.change("bucket 3600/h", Carry::Reset).unwrap();
        clock.advance(SECOND);
        keyed.change("bucket 1/h", Carry::Keep).unwrap();
        assert!(allowed(keyed.allow("a", 1)) && !allowed(keyed.allow("a", 1)));
        assert!(keyed.change("bucket 0/h", Carry::Keep).is_err());
        assert_eq!(wait(keyed.peek("a", 1)), 3600 * SECOND, "a bad change changes nothing");
        for _ in 0..300 {
            keyed.change("bucket 1/h", Carry::Keep).unwrap();
        }
        assert_eq!(wait(keyed.peek("a", 1)), 3600 * SECOND);
        clock.advance(3600 * SECOND);
    }
    let flat = builder("bucket 10/h", &clock).build().unwrap();
    let error = flat.change("window 10/h", Carry::Keep).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("in_map"), "{error}");
    let map = builder("bucket 10/h", &clock).in_map().build().unwrap();
    assert!(allowed(map.allow("a", 4)));
    map.change("window 10/h and bucket 20/h", Carry::Keep).unwrap();
    assert_eq!(map.status("a").unwrap().remaining(), 6);
}

#[test]
fn a_change_reaches_those_who_wait() {
    let clock = ManualClock::new();
    let keyed = builder("pace 1/h", &clock).build().unwrap();
    keyed.consume("a", 1).unwrap();
    let mut waiting = keyed.consume_async("a", 1);
    assert!(poll(&mut waiting).is_pending());
    keyed.change("pace 1/s", Carry::Keep).unwrap();
    clock.advance(SECOND);
    assert!(poll(&mut waiting).is_ready());
    assert_eq!(wait(keyed.allow("a", 1)), SECOND);
    assert_eq!(keyed.stats().busy_keys(), 0);
}

#[test]
fn a_key_may_have_a_plan_of_its_own() {
    let clock = ManualClock::new();
    for keyed in [builder("bucket 10/h", &clock), builder("bucket 10/h", &clock).in_map()].map(|b| b.build().unwrap()) {
        assert!(allowed(keyed.allow("big", 10)));
        keyed.set_policy("big", "bucket 1000/h and window 500/min", Carry::Keep).unwrap();
        assert_eq!(keyed.status("big").unwrap().remaining(), 500);
        assert_eq!(keyed.stats().busy_keys(), 1);
        keyed.change("bucket 20/h", Carry::Keep).unwrap();
        assert_eq!(keyed.status("big").unwrap().remaining(), 500, "a change for all does not touch it");
        assert_eq!(keyed.status("small").unwrap().remaining(), 20);
        assert!(keyed.set_policy("big", "bucket 5 per fortnight", Carry::Keep).is_err());
        assert!(keyed.set_policy("big", "fixed 5/day in Nowhere/City", Carry::Keep).is_err());
        assert_eq!(keyed.status("big").unwrap().remaining(), 500);
        keyed.clear_policy("big", Carry::Keep).unwrap();
        assert_eq!(keyed.status("big").unwrap().remaining(), 10);
        assert_eq!(keyed.stats().busy_keys(), 0);
        keyed.clear_policy("small", Carry::Keep).unwrap();
        clock.advance(3600 * SECOND);
    }
}

#[test]
fn a_key_is_reset_and_paused() {
    let clock = ManualClock::new();
    for keyed in [builder("bucket 10/h", &clock), builder("bucket 10/h", &clock).in_map()].map(|b| b.build().unwrap()) {
        assert!(allowed(keyed.allow("a", 10)));
        keyed.reset("a").unwrap();
        assert_eq!(keyed.status("a").unwrap().remaining(), 10);
        keyed.reset("never seen").unwrap();
        keyed.pause_for("a", 5 * SECOND).unwrap();
        assert_eq!(wait(keyed.allow("a", 1)), 5 * SECOND);
        assert!(allowed(keyed.allow("b", 1)));
        clock.advance(5 * SECOND);
        assert!(allowed(keyed.allow("a", 1)));
        assert_eq!(keyed.stats().busy_keys(), 0);
        keyed.reset("b").unwrap();
    }
}

#[test]
fn closed_limits_wake_everybody() {
    let clock = ManualClock::new();
    for keyed in [builder("pace 1/h", &clock), builder("pace 1/h", &clock).in_map()].map(|b| b.build().unwrap()) {
        keyed.consume("a", 1).unwrap();
        let mut waiting = keyed.consume_async("a", 1);
        assert!(poll(&mut waiting).is_pending());
        keyed.close();
        assert!(matches!(poll(&mut waiting), Poll::Ready(Err(error)) if error.is_closed()));
        for error in
            [keyed.allow("a", 1).unwrap_err(), keyed.allow("new", 1).unwrap_err(), keyed.peek("b", 1).unwrap_err()]
        {
            assert!(error.is_closed(), "{error}");
        }
        assert!(keyed.reserve("b", 1).unwrap_err().is_closed() && keyed.consume("b", 1).unwrap_err().is_closed());
    }
}

/// With room for a hundred keys, ten thousand come that stay in use.
#[test]
fn without_room_the_policy_speaks() {
    let clock = ManualClock::new();
    let flood = |keyed: &Keyed| -> u64 {
        assert!(allowed(keyed.allow("victim", 5)), "the first to come");
        let passed = (0..10_000).map(|n: u32| u64::from(allowed(keyed.allow(&n, 5)))).sum();
        assert_eq!(keyed.stats().allowed(), passed + 1);
        passed
    };
    for in_map in [false, true] {
        let build = |overflow| {
            let builder = builder("bucket 5/h", &clock).max_keys(100).overflow(overflow);
            if in_map { builder.in_map() } else { builder }.build().unwrap()
        };
        let shared = build(Overflow::Share);
        let passed = flood(&shared);
        let stats = shared.stats();
        assert!(passed <= stats.capacity() as u64, "each slot once, and one quota for all others: {passed}");
        assert!(passed >= 99 && stats.overflows() >= 9_800);
        assert_eq!(stats.evictions(), 0);
        assert!(!allowed(shared.allow("victim", 1)), "who is limited is not freed by a flood");

        let closed = build(Overflow::Deny);
        let passed = flood(&closed);
        assert!(passed < closed.stats().capacity() as u64);
        assert!(!allowed(closed.allow("victim", 1)));
        let refused = closed.allow("one more", 5).unwrap();
        let wait = refused.retry().unwrap().after().unwrap();
        assert!(wait >= 3599 * SECOND && refused.status().remaining() == 0, "{wait:?}");

        let evicting = build(Overflow::Evict);
        assert_eq!(flood(&evicting), 10_000, "whoever comes passes");
        assert!(evicting.stats().evictions() >= 9_800);
        assert!(evicting.stats().live_keys() <= evicting.stats().capacity());

        // An hour later all keys are as good as new, and there is room for everybody.
        clock.advance(3601 * SECOND);
        assert_eq!(shared.stats().live_keys(), 0);
        let honest = (0..90).filter(|n| allowed(shared.allow(&("honest", *n), 5))).count();
        assert_eq!(honest, 90);
        clock.advance(3601 * SECOND);
    }
}

#[test]
fn waiting_keys_need_room_only_once() {
    let clock = ManualClock::new();
    for overflow in [Overflow::Share, Overflow::Deny, Overflow::Evict] {
        for in_map in [false, true] {
            let builder = builder("pace 1/h", &clock).max_keys(8).overflow(overflow);
            let keyed = if in_map { builder.in_map() } else { builder }.build().unwrap();
            let passed = (0..100_u32).filter(|n| allowed(keyed.allow(n, 1))).count();
            assert!(passed >= 8, "{passed}");
            let mut futures: Vec<_> = (0..100_u32).map(|n| keyed.consume_async(&n, 1)).collect();
            let waiting = futures.iter_mut().map(poll).filter(Poll::is_pending).count();
            let refused = keyed.reserve("one more", 1).err();
            assert!(refused.is_none_or(|error| error.is_rate_limited()));
            match overflow {
                Overflow::Deny => assert!((5..60).contains(&waiting), "{waiting}"),
                Overflow::Share => assert!(waiting > 60, "{waiting}"),
                // Who comes without having been there passes at the expense of others.
                _ => assert!(waiting < 40, "{waiting}"),
            }
            drop(futures);
            clock.advance(300 * 3600 * SECOND);
            assert!(allowed(keyed.allow("late", 1)));
            assert!(keyed.stats().live_keys() <= 30, "{overflow:?} {in_map} {:?}", keyed.stats());
            clock.advance(3601 * SECOND);
        }
    }
}

#[test]
fn a_batch_is_decided_in_order() {
    let clock = ManualClock::new();
    let keyed = builder("bucket 1/s burst 2", &clock).build().unwrap();
    let names: Vec<String> = (0..100).map(|n| format!("key {}", n % 40)).collect();
    let calls: Vec<(&str, i32)> =
        names.iter().enumerate().map(|(n, name)| (name.as_str(), if n == 99 { -1 } else { 1 })).collect();
    let mut answers = Vec::new();
    keyed.allow_many(&calls, &mut answers);
    assert_eq!(answers.len(), 100);
    for (n, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(decision) => assert_eq!(decision.is_allowed(), n < 80, "{n}"),
            Err(error) => assert!(n == 99 && error.is_invalid_cost()),
        }
    }
    let map: KeyedMap<String> = builder("bucket 1/s", &clock).build_map().unwrap();
    let mut answers = Vec::new();
    map.allow_many(&[("a", 1), ("a", 1), ("b", 1)], &mut answers);
    assert_eq!(answers.into_iter().map(allowed).collect::<Vec<_>>(), [true, false, true]);
}

/// Two keys of the same hash are one in a `Keyed`, and two in a `KeyedMap`.
#[test]
fn keys_that_meet() {
    #[derive(Clone, Default)]
    struct Same;
    impl std::hash::BuildHasher for Same {
        type Hasher = SameHasher;
        fn build_hasher(&self) -> SameHasher {
            SameHasher
        }
    }
    struct SameHasher;
    impl std::hash::Hasher for SameHasher {
        fn finish(&self) -> u64 {
            42
        }
        fn write(&mut self, _: &[u8]) {}
    }
    let clock = ManualClock::new();
    let keyed = builder("bucket 1/h", &clock).hasher(Same).build().unwrap();
    assert!(allowed(keyed.allow("a", 1)) && !allowed(keyed.allow("b", 1)));
    let map: KeyedMap<String, Same> = builder("bucket 1/h", &clock).hasher(Same).build_map().unwrap();
    let names: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    for round in 0..2 {
        assert!(names.iter().all(|name| allowed(map.allow(name.as_str(), 1)) == (round == 0)));
    }
    clock.advance(3601 * SECOND);
    assert!(names.iter().all(|name| allowed(map.allow(name.as_str(), 1))));
}

/// A flat table and a map.
fn both(policy: &str, clock: &ManualClock, max_keys: usize, overflow: Overflow) -> [Keyed; 2] {
    [builder(policy, clock), builder(policy, clock).in_map()]
        .map(|builder| builder.max_keys(max_keys).overflow(overflow).build().unwrap())
}

/// A key that was paused takes no room when the pause is over.
#[test]
fn a_pause_that_is_over_takes_no_room() {
    let clock = ManualClock::new();
    for keyed in both("bucket 5/h", &clock, 8, Overflow::Deny) {
        for n in 0..40_u32 {
            keyed.pause_for(&n, SECOND).unwrap();
        }
        clock.advance(3600 * SECOND);
        let passed = (100..108_u32).filter(|n| allowed(keyed.allow(n, 5))).count();
        assert_eq!((passed, keyed.stats().overflows()), (8, 0));
    }
}

/// A peek at a time to come changes nothing for those who come before that.
#[test]
fn a_peek_ahead_changes_nothing() {
    let at = Timestamp::from_secs;
    let clock = ManualClock::new();
    for keyed in both("bucket 1/s", &clock, 10, Overflow::Share) {
        assert!(allowed(keyed.allow_at(at(10), "a", 1)));
        assert!(allowed(keyed.peek_at(at(20), "a", 1)));
        assert!(!allowed(keyed.allow_at(at(10), "a", 1)), "it is not a second later");
    }
}

/// A time ahead of the clock counts for calls by the clock too: what was found to be as
/// good as new by it is not charged for an earlier time again.
#[test]
fn a_time_ahead_of_the_clock_is_everybodys() {
    let clock = ManualClock::new();
    for keyed in both("bucket 1/min", &clock, 10, Overflow::Deny) {
        assert!(allowed(keyed.allow("a", 1)) && !allowed(keyed.allow("a", 1)));
        let ahead = clock.now().saturating_add(61 * SECOND);
        assert!(allowed(keyed.allow_at(ahead, "b", 1)));
        assert!(allowed(keyed.allow("a", 1)), "it is a minute later");
        assert!(!allowed(keyed.allow("a", 1)));
        clock.advance(60 * SECOND);
        assert!(!allowed(keyed.allow("a", 1)), "the clock has not caught up");
        clock.advance(62 * SECOND);
        assert!(allowed(keyed.allow("a", 1)));
    }
}
