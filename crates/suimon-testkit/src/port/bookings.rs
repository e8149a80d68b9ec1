//! Bookings that are settled late, twice, or very often.

use std::time::Duration;

use suimon::store::{Call, Outcome, Part, RequestId, Settling, Verb};
use suimon_core::{Cost, Settlement};

use super::{World, limits};

fn id(text: &str) -> Option<RequestId> {
    RequestId::new(text, Duration::from_secs(600)).ok()
}

/// The second booking reaches forty seconds further, which were given back to the first.
pub fn a_late_settlement_gets_nothing_that_has_been_refilled(world: &mut World) {
    let limits = limits("bucket 1/s burst 100");
    let (first, second) = (world.reserve(&limits, 40), world.reserve(&limits, 40));
    world.settle(&first, &limits, 0);
    world.pass(Duration::from_secs(39));
    assert!(world.allows(&limits, 99));
    world.settle(&second, &limits, 0);
    // What is still unpaid of its stretch: one second.
    assert_eq!(world.remaining(&limits), 1);
}

/// The count of what was given back has no end, and no booking gets back what another got because of it.
pub fn what_is_booked_and_given_back_for_ever_is_counted_for_ever(world: &mut World) {
    let limits = limits("bucket 1/year burst 90");
    let old = world.reserve(&limits, 1);
    for _ in 0..12 {
        let ticket = world.reserve(&limits, 80);
        assert_eq!(world.remaining(&limits), 9);
        world.settle(&ticket, &limits, 0);
        assert_eq!(world.remaining(&limits), 89);
    }
    world.settle(&old, &limits, 0);
    assert_eq!(world.remaining(&limits), 89);
}

/// A retry, and an answer that was lost: it is settled as it was the first time.
pub fn a_settlement_with_an_id_is_done_once(world: &mut World) {
    let limits = limits("bucket 1/day burst 10");
    let reserve = world.call(&limits, 6, Verb::Reserve { max_wait: None });
    let Outcome::Booked(_, ticket) = world.ask(&Call { id: id("one"), ..reserve }).outcome else {
        panic!("it is booked")
    };
    let other = world.reserve(&limits, 4);
    // The id of its booking is not in the way.
    let settle =
        |ticket, actual, text| world.do_settle(&Settling { id: id(text), ..world.settling(ticket, &limits, actual) });
    for actual in [2, 2, 6, 9] {
        assert_eq!(settle(&ticket, actual, "one"), Settlement::Refunded(Cost::whole(4)));
        assert_eq!(world.remaining(&limits), 4);
    }
    // Nothing to settle is an answer too.
    assert_eq!(settle(&other, 4, "two"), Settlement::Even);
    assert_eq!(settle(&other, 5, "two"), Settlement::Even);
    assert_eq!(settle(&other, 5, "three"), Settlement::Charged(Cost::ONE));
    assert_eq!(world.remaining(&limits), 3);
}

/// And not to the others, nor to the call as a whole.
pub fn an_id_belongs_to_the_first_key_of_its_call(world: &mut World) {
    let limits = limits("bucket 1/day burst 10");
    let both = |first: &str, second: &str| {
        let part =
            |name: &str| Part { key: format!("{}:{name}", world.key).into(), limits: limits.clone(), cost: Cost::ONE };
        let parts = vec![part(first), part(second)];
        world.ask(&Call { parts, verb: Verb::Allow, id: id("one"), at: Some(world.now) })
    };
    assert!(!both("a", "b").replayed && both("a", "c").replayed && !both("b", "a").replayed);
    assert_eq!(both("b", "c").outcome.decision().status().remaining(), 8);
}

/// Each would be decided on the same record, and one be forgotten.
pub fn parts_of_a_call_have_keys_of_their_own(world: &mut World) {
    let limits = limits("bucket 1/day burst 10");
    let mut call = world.call(&limits, 1, Verb::Allow);
    call.parts.push(call.parts[0].clone());
    let answer = world.runtime.block_on(world.store.decide(&call));
    assert!(answer.is_err_and(|error| error.is_unsupported()));
    assert_eq!(world.remaining(&limits), 10);
}
