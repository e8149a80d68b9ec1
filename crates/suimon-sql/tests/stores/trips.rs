//! Round trips: how many, and what a lost one means.

use std::time::Duration;

use suimon::store::{Outcome, RequestId, Settling, Store, Verb};
use suimon::{Cost, Settlement};

use crate::proxy::Proxy;
use crate::support::{
    Kind, allow, block_on, book, call, limits, ok, on_all, part, passes, remaining, settling, with_id,
};

on_all!(servers:
    a_call_takes_two_round_trips_and_a_peek_one,
    an_answer_that_is_lost_before_the_commit_is_asked_for_again,
    an_answer_that_is_lost_with_the_commit_is_an_outage_and_an_id_finds_out,
    a_settlement_whose_answer_is_lost_is_done_once_with_an_id,
    a_cancelled_call_lets_go_of_its_keys,
    a_closed_store_connects_again,
);

fn a_call_takes_two_round_trips_and_a_peek_one(kind: Kind) {
    let (proxy, place) = Proxy::before(&kind.place());
    let (store, limits) = (ok(block_on(place.builder().connections(1).open())), limits("bucket 1/day burst 6"));
    // Connects.
    assert!(ok(block_on(allow(&store, "other", &limits))));
    let trips = |call| {
        proxy.trips();
        let reply = ok(block_on(store.decide(&call)));
        (passes(&reply), proxy.trips())
    };
    let two = |cost| vec![part("a", &limits, cost), part("b", &limits, cost)];
    assert_eq!(trips(call(Verb::Allow, two(1))), (true, 2), "first use");
    assert_eq!(trips(call(Verb::Allow, two(1))), (true, 2));
    assert_eq!(trips(call(Verb::Allow, two(6))), (false, 2));
    assert_eq!(trips(with_id("1", call(Verb::Allow, two(1)))), (true, 2));
    assert_eq!(trips(with_id("1", call(Verb::Allow, two(1)))), (true, 2), "replayed");
    assert_eq!(trips(call(Verb::Peek, two(1))), (true, 1));
    assert_eq!(trips(call(Verb::Adopt, two(0))), (true, 2));
    let reply = ok(block_on(store.decide(&call(Verb::Reserve { max_wait: None }, two(2)))));
    let Outcome::Booked(_, ticket) = reply.outcome else { panic!("{reply:?}") };
    let actual = vec![Cost::whole(1); 2];
    let settling = Settling { ticket, limits: vec![limits.clone(), limits.clone()], actual, id: None, at: None };
    proxy.trips();
    ok(block_on(store.settle(&settling)));
    assert_eq!(proxy.trips(), 2);
}

fn an_answer_that_is_lost_before_the_commit_is_asked_for_again(kind: Kind) {
    let (proxy, place) = Proxy::before(&kind.place());
    let (store, limits) = (place.store(), limits("bucket 1/day burst 10"));
    assert!(ok(block_on(allow(&store, "key", &limits))));
    proxy.cut(1);
    assert!(ok(block_on(allow(&store, "key", &limits))));
    assert_eq!(store.stats().lost, 1);
    assert_eq!(block_on(remaining(&store, "key", &limits)), 8);
}

fn an_answer_that_is_lost_with_the_commit_is_an_outage_and_an_id_finds_out(kind: Kind) {
    let (proxy, place) = Proxy::before(&kind.place());
    let (store, limits) = (place.store(), limits("bucket 1/day burst 10"));
    assert!(ok(block_on(allow(&store, "key", &limits))));
    proxy.cut(2);
    // Charged, and nobody knows: the commit has reached the server.
    assert!(block_on(allow(&store, "key", &limits)).unwrap_err().is_unavailable());
    assert_eq!(block_on(remaining(&store, "key", &limits)), 8);
    proxy.cut(2);
    let known = with_id("1", call(Verb::Allow, vec![part("key", &limits, 1)]));
    let reply = ok(block_on(store.decide(&known)));
    assert!(passes(&reply) && reply.replayed);
    assert_eq!(block_on(remaining(&store, "key", &limits)), 7);
}

fn a_settlement_whose_answer_is_lost_is_done_once_with_an_id(kind: Kind) {
    let (proxy, place) = Proxy::before(&kind.place());
    let (store, limits) = (place.store(), limits("bucket 1/day burst 10"));
    // Lost before the commit, and with it.
    for (trip, actual, left) in [(1, 5, 5), (2, 3, 2)] {
        let ticket = book(&store, "key", &limits, 4);
        let id = Some(RequestId::new(format!("{trip}"), Duration::from_secs(60)).unwrap());
        let once = Settling { id, ..settling(&ticket, &limits, actual) };
        proxy.cut(trip);
        let settled = ok(block_on(store.settle(&once)));
        assert_eq!(settled, if actual > 4 { Settlement::Charged(Cost::ONE) } else { Settlement::Refunded(Cost::ONE) });
        assert_eq!(store.stats().lost, trip as u64);
        assert_eq!(ok(block_on(store.settle(&once))), settled);
        assert_eq!(block_on(remaining(&store, "key", &limits)), left);
    }
    // Without an id it has been done, and nobody knows.
    let third = book(&store, "key", &limits, 1);
    proxy.cut(2);
    assert!(block_on(store.settle(&settling(&third, &limits, 0))).unwrap_err().is_unavailable());
    assert_eq!(block_on(remaining(&store, "key", &limits)), 2);
}

/// Dropped at any moment, with the connection in the middle of something.
fn a_cancelled_call_lets_go_of_its_keys(kind: Kind) {
    let place = kind.place();
    let (store, limits) = (ok(block_on(place.builder().connections(2).open())), limits("bucket 1/day burst 1000"));
    let mut passed = 0;
    block_on(async {
        for round in 0..60 {
            let time = Duration::from_micros(round * 40);
            if let Ok(allowed) = tokio::time::timeout(time, allow(&store, "key", &limits)).await {
                passed += u64::from(ok(allowed));
            }
            // Whoever comes next does not wait for the lock of one who has gone.
            passed += u64::from(ok(tokio::time::timeout(Duration::from_secs(5), allow(&store, "key", &limits))
                .await
                .unwrap()));
        }
    });
    let charged = 1000 - block_on(remaining(&store, "key", &limits));
    assert!((passed..=120).contains(&charged), "{charged} charged, {passed} passed");
}

fn a_closed_store_connects_again(kind: Kind) {
    let place = kind.place();
    let (store, limits) = (place.store(), limits("bucket 1/day burst 10"));
    for left in [9, 8] {
        assert!(ok(block_on(allow(&store, "key", &limits))));
        assert_eq!(block_on(remaining(&store, "key", &limits)), left);
        block_on(store.close());
    }
    assert_eq!(store.stats().lost, 0);
}
