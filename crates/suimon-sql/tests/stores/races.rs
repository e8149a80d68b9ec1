//! Many at once on the same keys.

use std::time::Duration;

use suimon::store::{Call, Store, Verb};

use crate::support::{Kind, allow, block_on, call, limits, ok, on_all, part, passes, remaining, together};

on_all!(
    first_come_together_and_the_limit_holds,
    the_last_token_goes_to_one,
    eight_with_a_connection_each_admit_exactly_a_hundred,
    policies_that_share_keys_do_not_block_each_other,
    failures_at_once_keep_an_address_locked,
);

/// rafidahmed870/queue-jobs-worker #16: two who look and then write both see nothing. The
/// hard case is a key without a row.
fn first_come_together_and_the_limit_holds(kind: Kind) {
    let place = kind.place();
    // Two processes as the database sees them.
    let stores = [place.store(), place.store()];
    for (policy, callers, right) in [("window 1/60s", 2, 1), ("window 10/60s", 25, 10), ("window 3/60s", 50, 3)] {
        for round in 0..8 {
            let key = format!("{policy} {round}");
            let calls = (0..callers).map(|caller| {
                let (store, key, limits) = (stores[caller % 2].clone(), key.clone(), limits(policy));
                async move { ok(allow(&store, &key, &limits).await) }
            });
            let passed = block_on(together(calls)).into_iter().filter(|passed| *passed).count();
            assert_eq!(passed, right, "{policy}, round {round}");
        }
    }
}

/// The same report: nine of ten are used, ten more come at once.
fn the_last_token_goes_to_one(kind: Kind) {
    let (store, limits) = (kind.store(), limits("window 10/60s"));
    for round in 0..8 {
        let key = format!("{round}");
        let used = call(Verb::Allow, vec![part(&key, &limits, 9)]);
        assert!(passes(&ok(block_on(store.decide(&used)))));
        let calls = (0..10).map(|_| {
            let (store, key, limits) = (store.clone(), key.clone(), limits.clone());
            async move { ok(allow(&store, &key, &limits).await) }
        });
        assert_eq!(block_on(together(calls)).into_iter().filter(|passed| *passed).count(), 1, "round {round}");
    }
}

fn eight_with_a_connection_each_admit_exactly_a_hundred(kind: Kind) {
    let place = kind.place();
    let limits = limits("bucket 1/day burst 100");
    let callers = (0..8).map(|_| {
        let (store, limits) = (ok(block_on(place.builder().connections(1).open())), limits.clone());
        async move {
            let mut passed = 0;
            for _ in 0..1000 {
                passed += u64::from(ok(allow(&store, "one", &limits).await));
            }
            passed
        }
    });
    let callers: Vec<_> = callers.collect();
    assert_eq!(block_on(together(callers)).into_iter().sum::<u64>(), 100);
}

/// In whatever order a call names its keys: they are locked in the same.
fn policies_that_share_keys_do_not_block_each_other(kind: Kind) {
    let store = kind.store();
    let limits = limits("bucket 1/day burst 1000");
    let keys = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["c", "a", "b"]];
    let of = |keys: &[&str]| -> Call { call(Verb::Allow, keys.iter().map(|key| part(key, &limits, 1)).collect()) };
    // There, so that two who are first do not count.
    assert!(passes(&ok(block_on(store.decide(&of(&keys[0]))))));
    let before = store.stats().conflicts;
    let callers = keys.map(|keys| {
        let (store, call) = (store.clone(), of(&keys));
        async move {
            for _ in 0..50 {
                assert!(passes(&ok(store.decide(&call).await)));
            }
        }
    });
    block_on(together(callers));
    assert_eq!(store.stats().conflicts, before, "transactions that were tried again");
    for key in keys[0] {
        assert_eq!(block_on(remaining(&store, key, &limits)), 1000 - 201);
    }
}

/// chobbledotcom/tickets, review of PR #2040: five failures lock an address for a quarter
/// of an hour; a sixth at the same time undid the lock.
fn failures_at_once_keep_an_address_locked(kind: Kind) {
    let (store, limits) = (kind.store(), limits("window 5/15min"));
    for failures in [6, 7, 10] {
        let key = format!("{failures} failures");
        let calls = (0..failures).map(|_| {
            let (store, key, limits) = (store.clone(), key.clone(), limits.clone());
            async move { ok(allow(&store, &key, &limits).await) }
        });
        assert_eq!(block_on(together(calls)).into_iter().filter(|passed| *passed).count(), 5);
        let next = ok(block_on(store.decide(&call(Verb::Allow, vec![part(&key, &limits, 1)]))));
        let wait = next.outcome.decision().retry().and_then(suimon::Retry::after).unwrap();
        let quarter = Duration::from_secs(900);
        assert!(wait <= quarter && wait > quarter - Duration::from_secs(30), "{wait:?}");
    }
}
