//! Requests with an id are answered alike and charged once.

use std::time::Duration;

use suimon::store::{Call, Outcome, RequestId, Settling, Store, Verb};
use suimon::{Cost, Settlement};

use crate::support::{
    Kind, at, block_on, book, call, limits, ok, on_all, part, passes, remaining, settling, together, with_id,
};

on_all!(
    a_retry_gets_the_same_answer_and_is_charged_once,
    twins_are_charged_once,
    an_id_belongs_to_a_key,
    an_id_expires,
    a_refusal_is_recorded_too,
    settlements_of_one_id_are_done_once,
    an_error_is_not_recorded,
    an_answer_that_cannot_be_read_is_an_outage,
);

fn a_retry_gets_the_same_answer_and_is_charged_once(kind: Kind) {
    let (store, limits) = (kind.store(), limits("bucket 1/day burst 10"));
    for (verb, id) in [
        (Verb::Allow, "allow"),
        (Verb::Reserve { max_wait: None }, "reserve"),
        (Verb::Peek, "peek"),
        (Verb::Adopt, "adopt"),
    ] {
        let parts = || vec![part(&format!("{id} one"), &limits, 3), part(&format!("{id} two"), &limits, 1)];
        let call = with_id(id, call(verb, parts()));
        let first = ok(block_on(store.decide(&call)));
        assert!(!first.replayed);
        let second = ok(block_on(store.decide(&call)));
        assert!(second.replayed);
        assert_eq!((&second.outcome, second.now), (&first.outcome, first.now));
        let charged = if matches!(verb, Verb::Peek | Verb::Adopt) { 0 } else { 3 };
        assert_eq!(block_on(remaining(&store, &format!("{id} one"), &limits)), 10 - charged, "{id}");
    }
}

fn twins_are_charged_once(kind: Kind) {
    let place = kind.place();
    let (stores, limits) = ([place.store(), place.store()], limits("bucket 1/day burst 100"));
    for round in 0..8 {
        let key = format!("{round}");
        let twins = (0..10).map(|twin| {
            let call = with_id("the same", call(Verb::Allow, vec![part(&key, &limits, 1)]));
            let store = stores[twin % 2].clone();
            async move { ok(store.decide(&call).await) }
        });
        let replies = block_on(together(twins));
        assert_eq!(replies.iter().filter(|reply| !reply.replayed).count(), 1);
        assert!(replies.iter().all(|reply| reply.outcome == replies[0].outcome));
        assert_eq!(block_on(remaining(&stores[0], &key, &limits)), 99);
    }
}

fn an_id_belongs_to_a_key(kind: Kind) {
    let (store, limits) = (kind.store(), limits("bucket 1/day burst 10"));
    // The longest that there is.
    let id = "i".repeat(RequestId::MAX_LEN);
    for key in ["a", "b"] {
        let call = with_id(&id, call(Verb::Allow, vec![part(key, &limits, 1)]));
        assert!(!ok(block_on(store.decide(&call))).replayed);
        assert!(ok(block_on(store.decide(&call))).replayed);
        assert_eq!(block_on(remaining(&store, key, &limits)), 9);
    }
}

fn an_id_expires(kind: Kind) {
    let place = kind.place();
    let (store, limits) = (place.store(), limits("bucket 1/day burst 10"));
    let id = RequestId::new("1", Duration::from_secs(10)).unwrap();
    let call = Call { id: Some(id), ..call(Verb::Allow, vec![part("key", &limits, 1)]) };
    for (secs, replayed, left) in [(100, false, 9), (109, true, 9), (110, false, 8), (119, true, 8), (120, false, 7)] {
        let reply = ok(block_on(store.decide(&at(secs, call.clone()))));
        assert_eq!((reply.replayed, reply.outcome.decision().status().remaining()), (replayed, left), "at {secs} s");
    }
    assert_eq!(block_on(place.count("requests")), 1);
}

fn settlements_of_one_id_are_done_once(kind: Kind) {
    let place = kind.place();
    let (stores, limits) = ([place.store(), place.store()], limits("bucket 1/day burst 10"));
    let ticket = book(&stores[0], "key", &limits, 8);
    let id = RequestId::new("the same", Duration::from_secs(60)).unwrap();
    // The id of a call is not in the way.
    let call = Call { id: Some(id.clone()), ..call(Verb::Allow, vec![part("key", &limits, 1)]) };
    assert!(!ok(block_on(stores[0].decide(&call))).replayed);
    let twins = (0..10).map(|twin| {
        let settling = Settling { id: Some(id.clone()), ..settling(&ticket, &limits, 3) };
        let store = stores[twin % 2].clone();
        async move { ok(store.settle(&settling).await) }
    });
    let twins: Vec<_> = twins.collect();
    assert!(block_on(together(twins)).iter().all(|settled| *settled == Settlement::Refunded(Cost::whole(5))));
    assert_eq!(block_on(remaining(&stores[0], "key", &limits)), 6);
    assert_eq!(block_on(place.count("requests")), 2);
}

fn a_refusal_is_recorded_too(kind: Kind) {
    let (store, limits) = (kind.store(), limits("bucket 1/s burst 1"));
    let call = call(Verb::Allow, vec![part("key", &limits, 1)]);
    assert!(passes(&ok(block_on(store.decide(&at(100, call.clone()))))));
    let refused = with_id("1", call);
    assert!(!passes(&ok(block_on(store.decide(&at(100, refused.clone()))))));
    // It would pass by now.
    let reply = ok(block_on(store.decide(&at(102, refused))));
    assert!(reply.replayed && matches!(reply.outcome, Outcome::Denied(..)));
}

fn an_error_is_not_recorded(kind: Kind) {
    let place = kind.place();
    let (store, limits) = (place.store(), limits("bucket 1/day burst 10"));
    let too_large = with_id("1", call(Verb::Allow, vec![part("a", &limits, 1), part("b", &limits, 11)]));
    assert!(block_on(store.decide(&too_large)).unwrap_err().is_cost_too_large());
    let twice = with_id("2", call(Verb::Allow, vec![part("a", &limits, 1), part("a", &limits, 1)]));
    assert!(block_on(store.decide(&twice)).unwrap_err().to_string().contains("same key"));
    assert_eq!(block_on(place.count("requests")) + block_on(place.count("limits")), 0);
}

fn an_answer_that_cannot_be_read_is_an_outage(kind: Kind) {
    let place = kind.place();
    let (store, limits) = (place.store(), limits("bucket 1/day burst 10"));
    let call = with_id("1", call(Verb::Allow, vec![part("key", &limits, 1)]));
    assert!(passes(&ok(block_on(store.decide(&call)))));
    let nonsense = if kind == Kind::Postgres { "'\\x07'" } else { "x'07'" };
    block_on(place.run(&format!("UPDATE {{p}}_requests SET reply = {nonsense}")));
    assert!(block_on(store.decide(&call)).unwrap_err().is_unavailable());
    assert_eq!(block_on(remaining(&store, "key", &limits)), 9);
}
