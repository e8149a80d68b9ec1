//! What is stored, and what becomes of a record that makes no sense.

use std::sync::Arc;

use suimon::store::{Outcome, Settling, Store, Ticket, Verb};
use suimon::{Cost, Settlement};

use crate::support::{Kind, allow, block_on, book, call, limits, ok, on_all, part, passes, remaining, settling};

on_all!(
    any_key_is_a_key,
    nonsense_is_an_outage_and_stays,
    a_peek_and_a_refusal_leave_nothing_behind,
    a_booking_is_settled_by_another_store,
    a_late_settlement_gets_nothing_from_a_record_that_came_later,
    a_ticket_that_makes_no_sense_is_an_error,
);

fn any_key_is_a_key(kind: Kind) {
    let (store, limits) = (kind.store(), limits("bucket 1/day burst 10"));
    let long = "x".repeat(100_000);
    let almost = format!("{}y", &long[..99_999]);
    let keys =
        ["", "\0", "a", "A", "a ", "ä", "a\u{308}", "'; DROP TABLE", "\\", "\"`", "%", "\u{1F980}", &long, &almost];
    for (used, key) in keys.iter().enumerate() {
        let call = call(Verb::Allow, vec![part(key, &limits, u64::try_from(used % 10).unwrap())]);
        assert!(passes(&ok(block_on(store.decide(&call)))));
    }
    for (used, key) in keys.iter().enumerate() {
        assert_eq!(block_on(remaining(&store, key, &limits)), 10 - u64::try_from(used % 10).unwrap(), "{used}");
    }
}

fn nonsense_is_an_outage_and_stays(kind: Kind) {
    let place = kind.place();
    let (store, one) = (place.store(), limits("bucket 1/day burst 10"));
    let bytes = |text: &str| if kind == Kind::Postgres { format!("'\\x{text}'") } else { format!("x'{text}'") };
    for (key, set) in [("state", format!("state = {}", bytes("ff00"))), ("policy", "policy = 'none'".to_owned())] {
        assert!(ok(block_on(allow(&store, key, &one))));
        let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
        block_on(place.run(&format!("UPDATE {{p}}_limits SET {set} WHERE limit_key = {}", bytes(&hex))));
        for verb in [Verb::Allow, Verb::Peek, Verb::Adopt, Verb::Reserve { max_wait: None }] {
            let both = call(verb, vec![part("sound", &one, 1), part(key, &one, 1)]);
            let error = block_on(store.decide(&both)).unwrap_err();
            assert!(error.is_unavailable(), "{key}, {verb:?}: {error}");
        }
    }
    assert_eq!(block_on(remaining(&store, "sound", &one)), 10);
    assert_eq!(block_on(place.count("limits")), 2);
}

fn a_peek_and_a_refusal_leave_nothing_behind(kind: Kind) {
    let place = kind.place();
    let (store, empty, full) = (place.store(), limits("block"), limits("bucket 1/day burst 10"));
    let both = |verb| call(verb, vec![part("a", &full, 1), part("b", &empty, 1)]);
    for verb in [Verb::Allow, Verb::Peek, Verb::Reserve { max_wait: None }] {
        assert!(!passes(&ok(block_on(store.decide(&both(verb))))));
    }
    assert!(passes(&ok(block_on(store.decide(&call(Verb::Peek, vec![part("a", &full, 1)]))))));
    assert_eq!(block_on(place.count("limits")), 0);
}

fn a_booking_is_settled_by_another_store(kind: Kind) {
    let place = kind.place();
    let (one, other, limits) = (place.store(), place.store(), limits("bucket 1/day burst 10"));
    let keys = ["b", "a"];
    let book = call(Verb::Reserve { max_wait: None }, keys.map(|key| part(key, &limits, 4)).into());
    let Outcome::Booked(_, ticket) = ok(block_on(one.decide(&book))).outcome else { panic!("it passes") };
    let settling = |actual: [u64; 2]| Settling {
        ticket: ticket.clone(),
        limits: vec![limits.clone(), limits.clone()],
        actual: actual.map(Cost::whole).into(),
        id: None,
        at: None,
    };
    // What is told is of the first part.
    let settled = ok(block_on(other.settle(&settling([6, 1]))));
    assert_eq!(settled, Settlement::Charged(Cost::whole(2)));
    assert_eq!(block_on(remaining(&one, "b", &limits)), 4);
    assert_eq!(block_on(remaining(&one, "a", &limits)), 9);
}

/// What the first settlement gave back is not known any more when the record is gone.
fn a_late_settlement_gets_nothing_from_a_record_that_came_later(kind: Kind) {
    let place = kind.place();
    let (store, limits) = (place.store(), limits("bucket 1/day burst 10"));
    let (first, second) = (book(&store, "key", &limits, 4), book(&store, "key", &limits, 4));
    ok(block_on(store.settle(&settling(&first, &limits, 0))));
    block_on(place.run("UPDATE {p}_limits SET fresh_at = 0"));
    assert_eq!(ok(block_on(store.clean_up())), 1);
    let call = call(Verb::Allow, vec![part("key", &limits, 10)]);
    assert!(passes(&ok(block_on(store.decide(&call)))));
    assert_eq!(ok(block_on(store.settle(&settling(&second, &limits, 0)))), Settlement::Refunded(Cost::whole(4)));
    assert_eq!(block_on(remaining(&store, "key", &limits)), 0);
}

fn a_ticket_that_makes_no_sense_is_an_error(kind: Kind) {
    let (store, limits) = (kind.store(), limits("bucket 1/day burst 10"));
    assert!(ok(block_on(allow(&store, "key", &limits))));
    let ticket = Ticket { wait: Default::default(), parts: vec![(Arc::from("key"), vec![1, 2, 3])] };
    let settling = Settling { ticket, limits: vec![limits.clone()], actual: vec![Cost::whole(5)], id: None, at: None };
    assert!(block_on(store.settle(&settling)).unwrap_err().is_unavailable());
    assert_eq!(block_on(remaining(&store, "key", &limits)), 9);
}
