//! Public reports of what went wrong where limits are kept per key.

#[path = "support/counted.rs"]
mod counted;

use std::collections::HashSet;
use std::time::Duration;

use counted::{CALLS, LIVE};
use suimon::clock::ManualClock;
use suimon::{Decision, Error, Keyed, KeyedBuilder, KeyedMap, Overflow};

const SECOND: Duration = Duration::from_secs(1);

fn builder(policy: &str, clock: &ManualClock) -> KeyedBuilder {
    Keyed::builder(policy).unwrap().clock(clock.clone())
}

fn allowed(decision: Result<Decision, Error>) -> bool {
    decision.unwrap().is_allowed()
}

/// governor#171: who has many addresses fills the memory of a limiter that forgets
/// no key. Here ten million keys, one hit each within a minute, at 10/s for each: a
/// sixtieth of it, at the same rate.
#[test]
fn governor_171_keys_without_end_take_no_memory_without_end() {
    const ROOM: usize = 100_000;
    // 166,600 a second, fifty at a time.
    const KEYS: u64 = 10_000_000 / 60;
    let quiet_clock = ManualClock::new();
    let quiet = builder("bucket 10/s", &quiet_clock).build().unwrap();
    for in_map in [false, true] {
        let clock = ManualClock::new();
        let flooded = builder("bucket 10/s", &clock).max_keys(ROOM);
        let before = LIVE.get();
        let flooded = if in_map { flooded.in_map() } else { flooded }.build().unwrap();
        let built = LIVE.get() - before;
        assert!(built <= if in_map { 1 << 16 } else { 25 * ROOM }, "{built}");
        let mut most = 0;
        let (mut passed, mut victim_passed) = (0, 0);
        for n in 0..KEYS {
            if n % 50 == 0 {
                clock.advance(Duration::from_micros(300));
                quiet_clock.advance(Duration::from_micros(300));
                most = most.max(LIVE.get() - before - built);
            }
            passed += u64::from(allowed(flooded.allow(&n, 1)));
            // One that comes at thirty times its rate meanwhile, and one like it elsewhere.
            if n % 500 == 0 {
                let (here, there) = (flooded.allow("limited", 1).unwrap(), quiet.allow("limited", 1).unwrap());
                assert_eq!(here, there);
                victim_passed += u64::from(here.is_allowed());
            }
        }
        assert_eq!(passed, KEYS, "nobody is refused on account of others");
        assert!((19..=20).contains(&victim_passed), "{victim_passed} in a second: ten, and ten more");
        // At a time no more than a tenth of a second's arrivals are in use: 16,660.
        assert!(most <= if in_map { 16_660 * 3 * 160 } else { 1 << 16 }, "{most} bytes more");
        let stats = flooded.stats();
        assert!((10_000..25_000).contains(&stats.live_keys()), "{stats:?}");
        assert_eq!((stats.overflows(), stats.evictions()), (0, 0));
        clock.advance(2 * SECOND);
        assert_eq!(flooded.stats().live_keys(), 0);
        // Beside the other limiter, which begins anew.
        quiet_clock.advance(2 * SECOND);
    }
}

/// immich-folio, pull request 56 (and 62, 94, 136, which went back and forth): a full
/// table that refuses all newcomers lets an attacker lock everybody out; one that drops
/// the oldest frees the attacker. Neither happens.
#[test]
fn immich_folio_56_a_full_table_locks_nobody_out_and_frees_nobody() {
    for (policy, in_map) in [("bucket 5/60s", false), ("bucket 5/60s", true), ("window 5/60s", true)] {
        let clock = ManualClock::new();
        let limits = builder(policy, &clock).max_keys(10_000);
        let limits = if in_map { limits.in_map() } else { limits }.build().unwrap();
        assert!((0..5).all(|_| allowed(limits.allow("1", 1))));
        for n in 0..10_000 {
            assert!(allowed(limits.allow(&("fake", n), 1)), "{policy} {n}");
        }
        clock.advance(SECOND);
        assert!(allowed(limits.allow("honest", 1)), "{policy}");
        assert!(!allowed(limits.allow("1", 1)));
        // However many more come.
        let passed = (0..10_001).filter(|n| allowed(limits.allow(&("more", *n), 1))).count();
        let room = limits.stats().capacity() - 10_002.min(limits.stats().capacity());
        assert!(passed <= room + 5, "{passed}: what there is room for, and one quota for all others");
        for _ in 0..5 {
            assert!(!allowed(limits.allow("1", 1)), "{policy}");
        }
        // One of its five is used in a table; in a map it has no room, and shares what is used up.
        assert_eq!(allowed(limits.peek("honest", 1)), !in_map);
        // Its own time frees it, and nothing else.
        clock.advance(if policy.starts_with("window") { 58 * SECOND } else { 10 * SECOND });
        assert!(!allowed(limits.allow("1", 1)));
        clock.advance(SECOND);
        assert!(allowed(limits.allow("1", 1)));
    }
}

/// traefik#8235: at a rate below one a second a computed lifetime of the key overflowed,
/// and the limit was not kept. Here each key lives as long as it owes.
#[test]
fn traefik_8235_slow_rates_are_kept() {
    for in_map in [false, true] {
        for policy in ["bucket 1/10s", "pace 1/10s", "bucket 6/min burst 1"] {
            let clock = ManualClock::new();
            let limits = builder(policy, &clock).max_keys(10);
            let limits = if in_map { limits.in_map() } else { limits }.build().unwrap();
            assert!(allowed(limits.allow("source", 1)));
            let passed: Vec<u32> = (1..=60)
                .filter(|second| {
                    clock.advance(SECOND);
                    // Others come and go beside it.
                    let _ = limits.allow(second, 1);
                    allowed(limits.allow("source", 1))
                })
                .collect();
            assert_eq!(passed, [10, 20, 30, 40, 50, 60], "{policy}");
        }
        // As slow as it gets.
        let clock = ManualClock::new();
        let limits = builder("bucket 1/36525d", &clock).max_keys(10);
        let limits = if in_map { limits.in_map() } else { limits }.build().unwrap();
        assert!(allowed(limits.allow("source", 1)));
        clock.advance(36525 * 86400 * SECOND - Duration::from_nanos(1));
        assert!(!allowed(limits.allow("source", 1)));
        clock.advance(Duration::from_nanos(1));
        assert!(allowed(limits.allow("source", 1)));
    }
}

/// n8n, pull request 24636: keys come from a request's body, as long as the client
/// likes and with whatever is in it; cut off or joined they would meet.
#[test]
fn n8n_24636_keys_may_be_anything() {
    let long = |last: char| {
        let mut key = "k".repeat(150);
        key.extend(std::iter::repeat_n(last, 50));
        key
    };
    let huge = |last: char| {
        let mut key = "x".repeat((1 << 20) - 1);
        key.push(last);
        key
    };
    let keys = [
        huge('a'),
        huge('b'),
        long('a'),
        long('b'),
        long('a')[..150].to_owned(),
        "user@example.com".to_owned(),
        "user@example.com\r\n".to_owned(),
        "user@example.com\r\nX-Forwarded-For: 10.0.0.1".to_owned(),
        "user@example.com\0".to_owned(),
        "\0".to_owned(),
        "\0\0".to_owned(),
        " user@example.com".to_owned(),
        "\u{1F980}".to_owned(),
        "\u{1F980}\u{FE0F}".to_owned(),
        "caf\u{e9}".to_owned(),
        "cafe\u{301}".to_owned(),
        String::new(),
        " ".to_owned(),
        "login:a:b".to_owned(),
        "login:a".to_owned(),
        "__proto__".to_owned(),
    ];
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    let clock = ManualClock::new();
    let flat = builder("bucket 3/h", &clock).max_keys(100).build().unwrap();
    let in_map = builder("window 3/h", &clock).max_keys(100).build().unwrap();
    let exact: KeyedMap<String> = builder("bucket 3/h", &clock).max_keys(100).build_map().unwrap();
    let verbs: [&dyn Fn(&str) -> bool; 3] =
        [&|key| allowed(flat.allow(key, 1)), &|key| allowed(in_map.allow(key, 1)), &|key| allowed(exact.allow(key, 1))];
    for allow in verbs {
        for round in 0..4 {
            for key in &keys {
                assert_eq!(allow(key), round < 3, "{:?}", key.get(..20));
            }
        }
    }
    // Bytes that are no text, pairs that would be the same joined together.
    assert!(allowed(flat.allow(&b"\xff\xfe"[..], 1)));
    assert!(allowed(flat.allow(&("login", "a:b"), 3)) && allowed(flat.allow(&("login:a", "b"), 3)));
}

/// n8n, pull request 24636: what a key takes does not depend on its length, where its
/// hash is kept.
#[test]
fn n8n_24636_long_keys_take_no_more_memory() {
    let clock = ManualClock::new();
    let limits = builder("bucket 3/h", &clock).max_keys(1000).build().unwrap();
    let mut key = "x".repeat(1 << 20);
    assert!(allowed(limits.allow("the first one of this thread", 1)));
    let (bytes, calls) = (LIVE.get(), CALLS.get());
    for n in 0..20_u8 {
        // Another last letter: a new key each time.
        key.pop();
        key.push(char::from(b'a' + n));
        assert!(allowed(limits.allow(key.as_str(), 3)) && !allowed(limits.allow(key.as_str(), 1)));
        assert!(allowed(limits.allow(&n, 3)));
    }
    assert_eq!((LIVE.get(), CALLS.get()), (bytes, calls), "nothing is allocated for a key of a flat table");

    // In a map an entry is as large for a long key as for a short one.
    let map = builder("bucket 3/h", &clock).max_keys(1000).in_map().build().unwrap();
    (0..200_u32).for_each(|n| assert!(allowed(map.allow(&n, 1))));
    let short = LIVE.get();
    for n in 0..20_u8 {
        key.pop();
        key.push(char::from(b'A' + n));
        assert!(allowed(map.allow(key.as_str(), 1)));
    }
    assert!(LIVE.get() - short <= 1 << 16, "{} bytes for twenty keys of a megabyte", LIVE.get() - short);
}

/// coder, pull request 27273: a limit for each route whose key was the path as the client
/// spelt it, while the router took several spellings for the same. A key is what the
/// caller says: the route that was matched, or a path that was made canonical.
#[test]
fn coder_27273_the_caller_says_which_spellings_are_the_same() {
    const SPELLINGS: [&str; 5] = [
        "/api/v2/users/validate-password",
        "/api/v2/users//validate-password",
        "//api/v2/users/validate-password",
        "/api/v2/./users/validate-password",
        "/api/v2/users/42/../validate-password/",
    ];
    fn route(path: &str) -> String {
        let mut parts = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        format!("/{}", parts.join("/"))
    }
    let clock = ManualClock::new();
    let limits = builder("bucket 5/min", &clock).build().unwrap();
    let client = "198.51.100.7";
    for path in SPELLINGS {
        assert!(allowed(limits.allow(&(client, route(path)), 1)));
    }
    for path in SPELLINGS {
        assert!(!allowed(limits.allow(&(client, route(path)), 1)), "one budget for all of them");
        // As keys the spellings themselves are different ones.
        assert_eq!(allowed(limits.allow(&(client, path), 1)), path != route(path));
    }
    assert!(allowed(limits.allow(&("203.0.113.9", route(SPELLINGS[0])), 5)), "another client has its own");
}

/// The same table under each policy of overflow: what a flood does to those who were
/// there before.
#[test]
fn immich_folio_94_who_evicts_says_so() {
    for overflow in [Overflow::Share, Overflow::Deny, Overflow::Evict] {
        for in_map in [false, true] {
            let clock = ManualClock::new();
            let limits = builder("bucket 5/60s", &clock).max_keys(500).overflow(overflow);
            let limits = if in_map { limits.in_map() } else { limits }.build().unwrap();
            assert!(allowed(limits.allow("attacker", 5)));
            for n in 0..8_000 {
                clock.advance(Duration::from_millis(1));
                let _ = limits.allow(&("fake", n), 5).unwrap();
            }
            let freed = allowed(limits.allow("attacker", 1));
            let stats = limits.stats();
            match overflow {
                // Who is nearest to being as good as new goes first: it has been there longest.
                Overflow::Evict => assert!(freed && stats.evictions() > 7_000 && stats.overflows() == 0, "{stats:?}"),
                _ => assert!(!freed && stats.evictions() == 0 && stats.overflows() > 7_000, "{stats:?}"),
            }
        }
    }
}
