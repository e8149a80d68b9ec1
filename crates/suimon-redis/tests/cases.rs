//! Public reports of what went wrong in limiters over Redis, on a real server.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use suimon::store::{Call, Limits, Outcome, Reply, Settling, Store, Ticket, Verb};
use suimon::{Cost, Gate, Outage, Remote, Settlement, Status, Timestamp};
use suimon_redis::RedisStore;
use suimon_testkit::servers::Redis;
use support::{allow, allow_at, call, cases, fresh_key, limits, part, passes, remaining, runtime, server, store};

/// 2026-11-30T00:00:00Z.
const THEN: u64 = 1_795_996_800_000_000_000;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(THEN + nanos)
}

/// The milliseconds that a key still has.
fn expires_in(key: &str) -> i64 {
    let mut connection = redis::Client::open(server().url()).unwrap().get_connection().unwrap();
    redis::cmd("PTTL").arg(format!("suimon:{key}")).query(&mut connection).unwrap()
}

fn allow_now(store: &RedisStore, key: &Arc<str>, policy: &str, cost: u64) -> Reply {
    runtime().block_on(allow(store, key, &limits(policy), cost)).unwrap()
}

fn status(reply: &Reply) -> Status {
    *reply.outcome.decision().status()
}

/// brandur/redis-cell#50: the time to be full was cut to whole seconds, and what was below one was
/// never stored.
#[test]
fn fast_limits_are_stored() {
    let store = store();
    for (policy, burst) in [("bucket 1000/min burst 1001", 1001), ("bucket 6000/s burst 6001", 6001)] {
        let (key, gate) = (fresh_key("fast"), Gate::new(policy.parse::<suimon::Policy>().unwrap()).unwrap());
        let mut state = gate.fresh();
        for call in 1..=3 {
            let reply = allow_now(&store, &key, policy, 1);
            // As the core says for the instants at which the server decided.
            let expected = gate.allow(&mut state, reply.now, Cost::ONE).unwrap();
            assert_eq!(remaining(&reply), expected.status().remaining());
            assert!(remaining(&reply) >= burst - call, "{policy}");
        }
    }
    let key = fresh_key("fast");
    let reply = allow_now(&store, &key, "bucket 1000/min burst 1001", 3);
    let full = status(&reply).reset_after();
    assert!(full > Duration::from_millis(179) && expires_in(&key) >= 100, "{full:?}");
}

/// brandur/redis-cell#80: more than a thousand a second were taken for none.
#[test]
fn thousands_a_second_are_exact() {
    let store = store();
    // Tokens each second, burst, and how many pass in a tenth of a second of asking every 50 us.
    for (rate, burst) in [(2000, 1), (1500, 21), (8000, 2), (3_000_000, 1)] {
        let (key, limits) = (fresh_key("thousands"), limits(&format!("bucket {rate}/s burst {burst}")));
        let passed = runtime().block_on(async {
            let mut passed = 0;
            for step in 0..=2000 {
                passed += u64::from(passes(&allow_at(&store, &key, &limits, 1, at(step * 50_000)).await));
            }
            passed
        });
        // Those of the burst, and what came back; one at each instant at most.
        let expected = (burst + rate / 10).min(2001);
        assert_eq!(passed, expected, "{rate}");
    }
}

/// throttled/throttled#26: an expiry of nothing left a key for ever, or took it away.
#[test]
fn expiries_are_rounded_up() {
    let (store, key) = (store(), fresh_key("expiry"));
    let policy = limits("bucket 10000/s burst 4");
    runtime().block_on(async {
        assert_eq!(remaining(&allow_at(&store, &key, &policy, 4, at(0)).await), 0);
        assert!(!passes(&allow_at(&store, &key, &policy, 4, at(399_999)).await));
        assert!(passes(&allow_at(&store, &key, &policy, 4, at(400_000)).await));
    });
    let key = fresh_key("expiry");
    allow_now(&store, &key, "bucket 10000/s burst 4", 4);
    let left = expires_in(&key);
    assert!((-2..=1002).contains(&left) && left != -1, "{left}");
}

proptest! {
    #![proptest_config(cases(100))]

    /// The same for any rate: a key lives until it is as good as new, and a second more at most.
    #[test]
    fn a_key_lives_until_it_is_as_good_as_new(bits in 0..30_u32, tokens in any::<u64>(), burst in 1..1000_u64) {
        let (store, key) = (store(), fresh_key("ttl"));
        let policy = format!("bucket {}/s burst {burst}", 1 + tokens % (1 << bits));
        let reply = allow_now(&store, &key, &policy, burst);
        let left = expires_in(&key);
        let full = i64::try_from(status(&reply).reset_after().as_millis()).unwrap();
        prop_assert!(left != -1 && left <= full + 1002, "{policy}: {left} for {full}");
        // It was asked for a little later.
        prop_assert!(left == -2 && full < 1000 || left >= full - 1000 && left > 0, "{policy}: {left} for {full}");
    }
}

/// tj/node-ratelimiter#11: windows ended in whole seconds, sometimes before they began.
#[test]
fn windows_are_no_whole_seconds() {
    let (store, key, limits) = (store(), fresh_key("fraction"), limits("fixed 4/1000ms"));
    let now = Timestamp::from_nanos(1_441_268_386_507_000_000);
    let reply = runtime().block_on(allow_at(&store, &key, &limits, 1, now));
    assert_eq!(status(&reply).reset_after(), Duration::from_millis(493));
    for _ in 0..3 {
        assert!(passes(&runtime().block_on(allow_at(&store, &key, &limits, 1, now))));
    }
    assert!(!passes(&runtime().block_on(allow_at(&store, &key, &limits, 1, now))));
}

/// apache/shenyu#6649: every hit renewed the expiry, and the window never ended.
#[test]
fn a_window_ends_however_often_it_is_hit() {
    let (store, key, policy) = (store(), fresh_key("renewed"), limits("fixed 60/60s"));
    runtime().block_on(async {
        for hit in 0..180 {
            assert!(passes(&allow_at(&store, &key, &policy, 1, at(hit * 20_000_000_000)).await), "{hit}");
        }
    });
    // At the server's own time.
    let key = fresh_key("renewed");
    let end = Instant::now() + Duration::from_millis(2200);
    let mut passed = 0;
    while Instant::now() < end {
        passed += u64::from(passes(&allow_now(&store, &key, "fixed 2/500ms", 1)));
        assert!(expires_in(&key) <= 1502);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!((8..=12).contains(&passed), "{passed}");
}

/// redis/redis#1118: scripts rounded the digits of an instant away.
#[test]
fn no_digit_is_lost() {
    let (store, key) = (store(), fresh_key("digits"));
    let policy = limits("bucket 1000000/s burst 3");
    let steps = [(1, true), (1, true), (1, true), (1, false), (1000, false), (1001, true), (1001, false), (2001, true)];
    runtime().block_on(async {
        for (nanos, expected) in steps {
            assert_eq!(passes(&allow_at(&store, &key, &policy, 1, at(nanos)).await), expected, "{nanos}");
        }
    });
}

/// Kong/kong#2382: a store that was away gave errors in place of the policy for it, each
/// after the full time-out.
#[test]
fn an_outage_is_what_was_chosen_and_does_not_cost_a_deadline_each() {
    let mut own = Redis::start();
    let store = RedisStore::open(&own.url()).unwrap().timeout(Duration::from_millis(100)).build().unwrap();
    let limiter = Remote::builder(store, "user:42", "bucket 1/year burst 5").unwrap();
    let limiter = limiter.outage(Outage::Allow).timeout(Duration::from_millis(100)).build().unwrap();
    assert!(!limiter.allow(1).unwrap().is_degraded());
    own.pause();
    let asked = Instant::now();
    for _ in 0..100 {
        let answer = limiter.allow(1).unwrap();
        assert!(answer.is_allowed() && answer.is_degraded());
    }
    assert!(asked.elapsed() < Duration::from_millis(2500), "{:?}", asked.elapsed());
    own.resume();
    own.restart();
    let end = Instant::now() + Duration::from_secs(10);
    while limiter.allow(1).unwrap().is_degraded() {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut passed = 0;
    while limiter.allow(1).unwrap().is_allowed() {
        passed += 1;
    }
    assert!(passed < 5, "{passed}");
}

/// A clock that steps back mints nothing: neither refills, nor windows, nor what is given
/// back.
#[test]
fn a_clock_that_steps_back_mints_nothing() {
    let store = store();
    for policy in ["bucket 10/s burst 10", "window 10/1s", "fixed 10/1s", "bucket 10/s burst 10 and window 10/1s"] {
        let (key, limits) = (fresh_key("back"), limits(policy));
        runtime().block_on(async {
            let second = 1_000_000_000;
            assert!(passes(&allow_at(&store, &key, &limits, 10, at(10 * second)).await));
            for back in [9, 5, 1, 10] {
                let reply = allow_at(&store, &key, &limits, 1, at(back * second)).await;
                assert!(!passes(&reply), "{policy} {back}");
                assert_eq!(reply.now, at(10 * second));
            }
            assert!(passes(&allow_at(&store, &key, &limits, 10, at(11 * second)).await), "{policy}");
        });
    }
}

/// Rates that cannot be counted are refused before anything is sent, with the reason.
#[test]
fn a_rate_beyond_the_range_is_refused() {
    let (store, key) = (store(), fresh_key("range"));
    let policy = limits("bucket 6000000000000000001/36525day burst 1");
    let error = runtime().block_on(allow(&store, &key, &policy, 1)).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("4500000000000"), "{error}");
    assert_eq!(expires_in(&key), -2);
    for policy in
        ["bucket 1/year burst 1", "bucket 1000000/s burst 1", "bucket 2000000000/s burst 1", "pace 1/36525day"]
    {
        assert!(passes(&allow_now(&store, &fresh_key("range"), policy, 1)), "{policy}");
    }
}

#[test]
fn a_call_without_parts_or_with_a_key_twice_is_refused() {
    let (store, key, limits) = (store(), fresh_key("twice"), limits("bucket 1/year burst 5"));
    for parts in [vec![], vec![part(&key, &limits, 3), part(&key, &limits, 3)]] {
        let error = runtime().block_on(store.decide(&call(parts, Verb::Allow))).unwrap_err();
        assert!(error.is_unsupported(), "{error}");
    }
    assert_eq!(expires_in(&key), -2);
}

#[test]
fn an_id_of_another_call_is_told_so() {
    let (store, limits) = (store(), limits("bucket 1/year burst 5"));
    let (one, two): (Arc<str>, Arc<str>) = ("{tag}:one".into(), "{tag}:two".into());
    let id = suimon::store::RequestId::new(fresh_key("id"), Duration::from_secs(9)).unwrap();
    runtime().block_on(async {
        let ask = |parts| Call { id: Some(id.clone()), ..call(parts, Verb::Allow) };
        store.decide(&ask(vec![part(&one, &limits, 1)])).await.unwrap();
        let error = store.decide(&ask(vec![part(&one, &limits, 1), part(&two, &limits, 1)])).await.unwrap_err();
        assert!(error.is_unavailable() && error.to_string().contains("another call"), "{error}");
    });
}

fn book(store: &RedisStore, key: &Arc<str>, limits: &Arc<Limits>, cost: u64, verb: Verb) -> Ticket {
    let reply = runtime().block_on(store.decide(&call(vec![part(key, limits, cost)], verb))).unwrap();
    let Outcome::Booked(_, ticket) = reply.outcome else { panic!("{reply:?}") };
    ticket
}

fn settle(store: &RedisStore, ticket: &Ticket, limits: &Arc<Limits>, actual: u64) -> Settlement {
    let (limits, actual) = (vec![limits.clone()], vec![Cost::whole(actual)]);
    let settling = Settling { ticket: ticket.clone(), limits, actual, id: None, at: None };
    runtime().block_on(store.settle(&settling)).unwrap()
}

/// What settling gave back is not known any more when the key has gone: who booked before gets nothing.
/// So a key lives until it is as good as new, and no longer.
#[test]
fn a_late_settlement_gets_nothing_from_a_key_that_came_later() {
    let (store, key, limits) = (store(), fresh_key("late"), limits("bucket 1/s burst 100"));
    let reserve = Verb::Reserve { max_wait: None };
    let (first, second) = (book(&store, &key, &limits, 40, reserve), book(&store, &key, &limits, 40, reserve));
    settle(&store, &first, &limits, 0);
    let left = expires_in(&key);
    assert!(left > 38_000 && left <= 41_002, "{left}");
    let mut connection = redis::Client::open(server().url()).unwrap().get_connection().unwrap();
    redis::cmd("DEL").arg(format!("suimon:{key}")).exec(&mut connection).unwrap();
    assert!(passes(&runtime().block_on(allow(&store, &key, &limits, 100)).unwrap()));
    assert_eq!(settle(&store, &second, &limits, 0), Settlement::Refunded(Cost::whole(40)));
    assert_eq!(remaining(&runtime().block_on(allow(&store, &key, &limits, 0)).unwrap()), 0);
}

/// However much was given back, a key lives no longer than it takes to be as good as new.
#[test]
fn an_expiry_does_not_grow_with_what_was_given_back() {
    let (store, key, limits) = (store(), fresh_key("given back"), limits("bucket 1/s burst 100"));
    for _ in 0..50 {
        let ticket = book(&store, &key, &limits, 90, Verb::Reserve { max_wait: None });
        settle(&store, &ticket, &limits, 0);
    }
    let left = expires_in(&key);
    assert!(left > 0 && left <= 1002, "{left}");
    for (cost, most) in [(9, 10), (9, 19)] {
        runtime().block_on(allow(&store, &key, &limits, cost)).unwrap();
        let left = expires_in(&key);
        assert!(left > 1000 * (most - 3) && left <= 1000 * most + 2, "{left}");
    }
}

/// A key with leases lives until they have ended and their tokens have refilled.
#[test]
fn a_key_outlives_its_leases() {
    let (store, key, limits) = (store(), fresh_key("leased"), limits("bucket 1/s burst 40"));
    let verb = Verb::Lease { lifetime: Duration::from_secs(20), least: Cost::whole(10) };
    let ticket = book(&store, &key, &limits, 10, verb);
    // Also when the short script writes it.
    for cost in [0, 1, 1] {
        runtime().block_on(allow(&store, &key, &limits, cost)).unwrap();
        let left = expires_in(&key);
        assert!(left > 28_000 && left <= 31_002, "{left}");
    }
    settle(&store, &ticket, &limits, 0);
    let left = expires_in(&key);
    assert!(left > 0 && left <= 3002, "{left}");
}

/// Also where the time is a test's own, which adds ten minutes; and under limits that do not lend.
#[test]
fn a_key_outlives_its_leases_whatever_writes_it() {
    let (store, limits) = (store(), limits("bucket 1/s burst 40"));
    let verb = Verb::Lease { lifetime: Duration::from_secs(20), least: Cost::whole(10) };
    let ask = |call: Call| runtime().block_on(store.decide(&call)).unwrap();
    let key = fresh_key("leased at");
    for verb in [verb, Verb::Allow] {
        ask(Call { at: Some(at(0)), ..call(vec![part(&key, &limits, 10)], verb) });
        let left = expires_in(&key);
        assert!(left > 629_000 && left <= 630_001, "{left}");
    }
    let key = fresh_key("leased before");
    ask(call(vec![part(&key, &limits, 10)], verb));
    let windows = support::limits_in("window 20/1s", 1, suimon::Carry::Reset);
    ask(call(vec![part(&key, &windows, 0)], Verb::Adopt));
    let left = expires_in(&key);
    assert!(left > 18_000 && left <= 21_002, "{left}");
}

/// Also beside leases a plain call is one script and one round trip; a lease and its return are.
#[test]
fn a_lease_is_one_round_trip_and_so_is_a_call_beside_it() {
    let own = Redis::start();
    let (store, key, limits) = (support::store_at(&own.url()), fresh_key("trips"), limits("bucket 1/day burst 40"));
    runtime().block_on(allow(&store, &key, &limits, 1)).unwrap();
    let verb = Verb::Lease { lifetime: Duration::from_secs(20), least: Cost::ONE };
    // Both scripts are known from here on.
    settle(&store, &book(&store, &key, &limits, 5, verb), &limits, 5);
    let mut connection = redis::Client::open(own.url()).unwrap().get_connection().unwrap();
    redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut connection).unwrap();
    let ticket = book(&store, &key, &limits, 5, verb);
    for _ in 0..5 {
        assert!(passes(&runtime().block_on(allow(&store, &key, &limits, 1)).unwrap()));
    }
    assert_eq!(remaining(&runtime().block_on(allow(&store, &key, &limits, 0)).unwrap()), 24);
    settle(&store, &ticket, &limits, 0);
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
    assert!(stats.contains("cmdstat_evalsha:calls=8,") && !stats.contains("cmdstat_eval:"), "{stats}");
}

/// Processes that lease share a bucket to the token.
#[test]
fn processes_that_lease_share_a_bucket() {
    let (key, policy) = (fresh_key("leasing"), "bucket 1/day burst 1000");
    let passed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let remote = Remote::builder(store(), &key, policy).unwrap();
                let remote = remote.timeout(Duration::from_secs(10)).build().unwrap();
                let leased = remote.leased(40, Duration::from_secs(60)).unwrap();
                while leased.allow(1).unwrap().is_allowed() {
                    passed.fetch_add(1, Ordering::Relaxed);
                }
                // Far fewer questions than decisions.
                assert!(remote.stats().asked() < 200, "{}", remote.stats().asked());
            });
        }
    });
    assert_eq!(passed.into_inner(), 1000);
}

#[test]
fn an_expiry_follows_what_is_used() {
    let (store, key) = (store(), fresh_key("follows"));
    for (cost, seconds) in [(10, 10), (1, 11), (50, 61), (30, 91)] {
        allow_now(&store, &key, "bucket 1/s burst 100", cost);
        let left = expires_in(&key);
        assert!(left > 1000 * seconds - 2000 && left <= 1000 * seconds + 1002, "{cost}: {left}");
    }
}

/// Two processes with other limits in the same version: each decides by its own, and what was used
/// stays used.
#[test]
fn other_limits_of_the_same_version_carry_the_balance_over() {
    let (store, key) = (store(), fresh_key("same"));
    assert_eq!(remaining(&allow_now(&store, &key, "bucket 1/year burst 10", 4)), 6);
    assert_eq!(remaining(&allow_now(&store, &key, "bucket 1/year burst 20", 1)), 15);
    assert_eq!(remaining(&allow_now(&store, &key, "bucket 1/year burst 10", 1)), 4);
}
