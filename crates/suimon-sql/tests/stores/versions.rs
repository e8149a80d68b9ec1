//! Old and new limits side by side.

use suimon::store::{Store, Verb};

use crate::support::{Kind, allow, at, block_on, call, ok, on_all, part, passes, together, version};

on_all!(the_highest_version_governs_whoever_calls, nothing_is_minted_during_a_roll_out);

fn the_highest_version_governs_whoever_calls(kind: Kind) {
    let store = kind.store();
    let (old, new) = (version("bucket 1/day burst 10", 1), version("bucket 1/day burst 4", 2));
    let left = |limits, cost| {
        let reply = ok(block_on(store.decide(&at(100, call(Verb::Allow, vec![part("key", limits, cost)])))));
        let status = *reply.outcome.decision().status();
        (passes(&reply), status.limit(), status.remaining())
    };
    assert_eq!(left(&old, 2), (true, 10, 8));
    // The two that are used stay used.
    assert_eq!(left(&new, 1), (true, 4, 1));
    assert_eq!(left(&old, 1), (true, 4, 0));
    let above = at(100, call(Verb::Allow, vec![part("key", &old, 5)]));
    assert!(block_on(store.decide(&above)).unwrap_err().is_cost_too_large());
    assert_eq!(left(&new, 3), (false, 4, 0));
    // A change that does not wait for a call that passes.
    let newest = version("bucket 1/day burst 6", 3);
    let adopt = at(100, call(Verb::Adopt, vec![part("key", &newest, 0)]));
    assert_eq!(ok(block_on(store.decide(&adopt))).outcome.decision().status().remaining(), 2);
    assert_eq!(left(&old, 2), (true, 6, 0));
}

fn nothing_is_minted_during_a_roll_out(kind: Kind) {
    let place = kind.place();
    let (old, new) = (version("bucket 1/day burst 100", 1), version("bucket 1/day burst 50", 2));
    let callers = (0..6).map(|caller| {
        let (store, old, new) = (place.store(), old.clone(), new.clone());
        async move {
            let mut passed = 0;
            for turn in 0..60 {
                // Half of them are replaced on the way.
                let limits = if caller % 2 == 0 && turn > 10 { &new } else { &old };
                passed += u64::from(ok(allow(&store, "key", limits).await));
            }
            passed
        }
    });
    let callers: Vec<_> = callers.collect();
    let passed: u64 = block_on(together(callers)).into_iter().sum();
    // What passed before the change, and 50 at most after it.
    assert!((50..=100).contains(&passed), "{passed}");
}
