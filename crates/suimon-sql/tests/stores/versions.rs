//! Old and new limits side by side.

use suimon::store::{Store, Verb};
use suimon::{Carry, Cost, Settlement};

use crate::support::{
    Kind, allow, at, block_on, book, call, carried, ok, on_all, part, passes, remaining, settling, together, version,
};

on_all!(
    the_highest_version_governs_whoever_calls,
    a_higher_version_of_the_same_limits_resets_if_it_is_to,
    what_was_booked_under_the_limits_in_force_is_given_back_whoever_settles,
    nothing_is_minted_during_a_roll_out,
);

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

fn a_higher_version_of_the_same_limits_resets_if_it_is_to(kind: Kind) {
    let store = kind.store();
    for (carry, left) in [(Carry::Reset, 10), (Carry::Keep, 3)] {
        let key = format!("{carry:?}");
        let [old, new] = [1, 2].map(|version| carried("bucket 1/day burst 10", version, carry));
        let used = call(Verb::Allow, vec![part(&key, &old, 7)]);
        assert!(passes(&ok(block_on(store.decide(&used)))));
        ok(block_on(store.decide(&call(Verb::Adopt, vec![part(&key, &new, 0)]))));
        assert_eq!(block_on(remaining(&store, &key, &old)), left);
        assert_eq!(block_on(remaining(&store, &key, &new)), left);
    }
}

fn what_was_booked_under_the_limits_in_force_is_given_back_whoever_settles(kind: Kind) {
    let store = kind.store();
    let (old, new) = (version("bucket 1/day burst 10", 1), version("bucket 1/day burst 20", 2));
    assert!(ok(block_on(allow(&store, "key", &new))));
    let ticket = book(&store, "key", &old, 6);
    assert_eq!(ok(block_on(store.settle(&settling(&ticket, &old, 2)))), Settlement::Refunded(Cost::whole(4)));
    assert_eq!(block_on(remaining(&store, "key", &new)), 17);
    // Not when they have changed since.
    let ticket = book(&store, "key", &new, 6);
    ok(block_on(store.decide(&call(Verb::Adopt, vec![part("key", &version("bucket 1/day burst 30", 3), 0)]))));
    ok(block_on(store.settle(&settling(&ticket, &new, 0))));
    assert_eq!(block_on(remaining(&store, "key", &new)), 21);
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
