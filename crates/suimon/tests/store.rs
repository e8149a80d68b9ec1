//! The store in memory: when it forgets, and ids. What every store promises is in the testkit.

use std::sync::Arc;
use std::time::Duration;

use futures_executor::block_on;
use suimon::clock::ManualClock;
use suimon::store::{Call, Limits, MemoryStore, Outcome, Part, Reply, RequestId, Settling, Store, Ticket, Verb};
use suimon::{Carry, Cost, Settlement, Timestamp, Utc};

struct World {
    store: MemoryStore,
    clock: ManualClock,
}

fn limits(policy: &str, version: u64, carry: Carry) -> Arc<Limits> {
    Arc::new(Limits::new(policy.parse().unwrap(), &Utc, version, carry).unwrap())
}

fn call(key: &str, limits: &Arc<Limits>, cost: u64, verb: Verb) -> Call {
    let part = Part { key: key.into(), limits: limits.clone(), cost: Cost::whole(cost) };
    Call { parts: vec![part], verb, id: None, at: None }
}

fn settling(ticket: &Ticket, limits: &Arc<Limits>, actual: u64) -> Settling {
    let (limits, actual) = (vec![limits.clone()], vec![Cost::whole(actual)]);
    Settling { ticket: ticket.clone(), limits, actual, id: None, at: None }
}

fn id(text: &str) -> Option<RequestId> {
    Some(RequestId::new(text, Duration::from_secs(60)).unwrap())
}

impl World {
    fn new() -> World {
        let clock = ManualClock::at(Timestamp::from_secs(1000));
        World { store: MemoryStore::with_clock(clock.clone()), clock }
    }

    fn ask(&self, call: &Call) -> Reply {
        block_on(self.store.decide(call)).unwrap()
    }

    fn allows(&self, limits: &Arc<Limits>, cost: u64) -> bool {
        matches!(self.ask(&call("key", limits, cost, Verb::Allow)).outcome, Outcome::Allowed(_))
    }

    fn remaining(&self, limits: &Arc<Limits>) -> u64 {
        self.ask(&call("key", limits, 0, Verb::Peek)).outcome.decision().status().remaining()
    }

    fn book(&self, limits: &Arc<Limits>, cost: u64) -> Ticket {
        let reply = self.ask(&call("key", limits, cost, Verb::Reserve { max_wait: None }));
        let Outcome::Booked(_, ticket) = reply.outcome else { panic!("{reply:?}") };
        ticket
    }

    fn settle(&self, ticket: &Ticket, limits: &Arc<Limits>, actual: u64) -> Settlement {
        block_on(self.store.settle(&settling(ticket, limits, actual))).unwrap()
    }

    /// Enough new keys that those which are as good as new are removed.
    fn remove_what_is_fresh(&self) {
        let limits = limits("bucket 1/year", 0, Carry::Keep);
        let keys = 3 * self.store.len() + 70;
        for key in 0..keys {
            self.ask(&call(&format!("other {key} of {keys}"), &limits, 1, Verb::Allow));
        }
    }
}

/// The second booking reaches to 1080 s, and forty seconds of that were given back to the first. The record
/// is as good as new at 1040 s and goes; whoever came then would give those forty back again.
#[test]
fn a_late_settlement_gets_nothing_from_a_record_that_came_later() {
    let (world, limits) = (World::new(), limits("bucket 1/s burst 100", 0, Carry::Keep));
    let (first, second) = (world.book(&limits, 40), world.book(&limits, 40));
    world.settle(&first, &limits, 0);
    world.clock.advance(Duration::from_secs(41));
    world.remove_what_is_fresh();
    assert!(world.allows(&limits, 100));
    world.settle(&second, &limits, 0);
    assert_eq!(world.remaining(&limits), 0);
}

/// Tokens on lease that nobody gives back are void when it ends, and refill from then on.
#[test]
fn a_record_is_kept_until_its_leases_have_refilled() {
    let (world, limits) = (World::new(), limits("bucket 1/s burst 40", 0, Carry::Keep));
    let verb = Verb::Lease { lifetime: Duration::from_secs(20), least: Cost::whole(10) };
    assert!(matches!(world.ask(&call("key", &limits, 10, verb)).outcome, Outcome::Booked(..)));
    world.clock.advance(Duration::from_secs(20));
    world.remove_what_is_fresh();
    // They may have been spent just before.
    assert_eq!(world.remaining(&limits), 30);
    world.clock.advance(Duration::from_secs(10));
    assert_eq!(world.remaining(&limits), 40);
}

#[test]
fn a_settlement_with_an_id_is_done_once() {
    let (world, limits) = (World::new(), limits("bucket 1/day burst 10", 0, Carry::Keep));
    let mut reserve = call("key", &limits, 6, Verb::Reserve { max_wait: None });
    reserve.id = id("one");
    let Outcome::Booked(_, ticket) = world.ask(&reserve).outcome else { panic!() };
    let other = world.book(&limits, 4);
    // The id of its booking is not in the way.
    let settle = |ticket, actual, text| {
        block_on(world.store.settle(&Settling { id: id(text), ..settling(ticket, &limits, actual) })).unwrap()
    };
    for actual in [2, 2, 9] {
        assert_eq!(settle(&ticket, actual, "one"), Settlement::Refunded(Cost::whole(4)));
        assert_eq!(world.remaining(&limits), 4);
    }
    // Another one is another settlement; so is the same one when its time is over.
    assert_eq!(settle(&other, 5, "two"), Settlement::Charged(Cost::ONE));
    assert_eq!(world.remaining(&limits), 3);
    world.clock.advance(Duration::from_secs(60));
    assert_eq!(settle(&other, 5, "two"), Settlement::Charged(Cost::ONE));
    assert_eq!(world.remaining(&limits), 2);
}

#[test]
fn an_id_is_checked_when_it_is_made() {
    let minute = Duration::from_secs(60);
    assert_eq!(RequestId::new("x".repeat(200), minute).unwrap().as_str().len(), 200);
    for length in [0, 201, 100_000] {
        let error = RequestId::new("x".repeat(length), minute).unwrap_err();
        let text = error.to_string();
        assert!(error.is_invalid_id() && text.contains(&format!("{length} bytes")) && text.contains("200"), "{text}");
    }
    // Bytes, not letters.
    assert!(RequestId::new("\u{1F980}".repeat(51), minute).unwrap_err().is_invalid_id());
    for lifetime in [RequestId::MIN_LIFETIME, RequestId::MAX_LIFETIME] {
        assert_eq!(RequestId::new("x", lifetime).unwrap().lifetime(), lifetime);
    }
    for (lifetime, asked) in [(Duration::from_micros(999), "999µs"), (Duration::from_secs(604_801), "604801s")] {
        let error = RequestId::new("x", lifetime).unwrap_err();
        let text = error.to_string();
        assert!(error.is_invalid_id() && text.contains(asked) && text.contains("604800s"), "{text}");
    }
}

/// A time of the test's own says nothing about how long a record is kept.
#[test]
fn records_of_a_made_up_time_are_kept_as_long_as_others() {
    let (world, limits) = (World::new(), limits("bucket 1/s burst 10", 0, Carry::Keep));
    for made_up in [1, 1_000_000] {
        let at = Some(Timestamp::from_secs(made_up));
        let key = format!("made up {made_up}");
        world.ask(&Call { at, ..call(&key, &limits, 10, Verb::Allow) });
        let remaining =
            || world.ask(&Call { at, ..call(&key, &limits, 0, Verb::Peek) }).outcome.decision().status().remaining();
        world.remove_what_is_fresh();
        assert_eq!(remaining(), 0);
        world.clock.advance(Duration::from_secs(11));
        world.remove_what_is_fresh();
        assert_eq!(remaining(), 10);
    }
}
