//! Tokens that are lent: four processes spend them at will, and together they stay
//! within the limit over every interval.
#![cfg(feature = "remote")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use futures_executor::block_on;
use proptest::prelude::*;
use suimon::clock::{Clock, ManualClock};
use suimon::store::{Call, Limits, MemoryStore, Outcome, Part, Settling, Store, Ticket, Verb};
use suimon::{Carry, Cost, Remote, Timestamp, Utc};

const BURST: u64 = 40;
const RATE: u64 = 10;
const LIFETIME: Duration = Duration::from_secs(2);

/// A process that holds a lease, or none.
#[derive(Default)]
struct Process {
    lease: Option<(Ticket, u64, Timestamp)>,
}

/// What the processes do at an instant.
#[derive(Clone, Debug)]
enum Act {
    /// Time goes on by so many milliseconds.
    Idle(u64),
    /// A process spends so many tokens, of its lease or of a new one.
    Spend(usize, u64),
    /// It gives back what it has not spent.
    GiveBack(usize),
    /// It dies, and its lease ends by itself.
    Die(usize),
    /// Somebody who does not lease.
    Allow(u64),
    /// Somebody who books a place for an estimate, and may have to wait for it.
    Book(u64),
    /// Settles one of the bookings, with so much of its estimate, or less.
    Settle(usize, u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => (0..1200_u64).prop_map(Act::Idle),
        1 => (2000..9000_u64).prop_map(Act::Idle),
        12 => (0..4_usize, 1..6_u64).prop_map(|(who, n)| Act::Spend(who, n)),
        2 => (0..4_usize).prop_map(Act::GiveBack),
        1 => (0..4_usize).prop_map(Act::Die),
        2 => (1..8_u64).prop_map(Act::Allow),
        2 => (1..15_u64).prop_map(Act::Book),
        2 => (any::<usize>(), 0..15_u64).prop_map(|(which, actual)| Act::Settle(which, actual)),
    ];
    prop::collection::vec(act, 1..120)
}

struct World {
    store: MemoryStore,
    clock: ManualClock,
    limits: Arc<Limits>,
    spent: Vec<(Timestamp, u64)>,
    /// Bookings: which of `spent` they are.
    booked: Vec<(Ticket, usize)>,
}

impl World {
    fn new() -> World {
        let clock = ManualClock::at(Timestamp::from_secs(1000));
        let policy = format!("bucket {RATE}/s burst {BURST}").parse().unwrap();
        let limits = Arc::new(Limits::new(policy, &Utc, 0, Carry::Keep).unwrap());
        World { store: MemoryStore::with_clock(clock.clone()), clock, limits, spent: Vec::new(), booked: Vec::new() }
    }

    fn call(&self, cost: u64, verb: Verb) -> Outcome {
        let part = Part { key: "key".into(), limits: self.limits.clone(), cost: Cost::whole(cost) };
        block_on(self.store.decide(&Call { parts: vec![part], verb, id: None, at: None })).unwrap().outcome
    }

    fn give_back(&self, ticket: Ticket, granted: u64, left: u64) {
        self.settle(ticket, granted - left);
    }

    fn settle(&self, ticket: Ticket, actual: u64) {
        let actual = vec![Cost::whole(actual)];
        let settling = Settling { ticket, limits: vec![self.limits.clone()], actual, id: None, at: None };
        block_on(self.store.settle(&settling)).unwrap();
    }

    fn spend(&mut self, process: &mut Process, tokens: u64) {
        let now = self.clock.now();
        let usable = |lease: &(Ticket, u64, Timestamp)| lease.1 >= tokens && now < lease.2;
        if !process.lease.as_ref().is_some_and(usable) {
            if let Some((ticket, left, ends)) = process.lease.take()
                && now < ends
            {
                let granted = ticket.leased().unwrap().as_whole();
                self.give_back(ticket, granted, left);
            }
            let verb = Verb::Lease { lifetime: LIFETIME, least: Cost::whole(tokens) };
            if let Outcome::Booked(_, ticket) = self.call(20, verb) {
                let granted = ticket.leased().unwrap().as_whole();
                assert!((tokens..=20).contains(&granted));
                process.lease = Some((ticket, granted, now.saturating_add(LIFETIME)));
            }
        }
        if let Some((_, left, _)) = &mut process.lease {
            *left -= tokens;
            self.spent.push((now, tokens));
        }
    }

    /// What was booked counts from the start that it was told, and as much as it was settled with.
    fn book(&mut self, tokens: u64) {
        if let Outcome::Booked(_, ticket) = self.call(tokens, Verb::Reserve { max_wait: Some(LIFETIME) }) {
            let start = self.clock.now().saturating_add(ticket.wait);
            self.booked.push((ticket, self.spent.len()));
            self.spent.push((start, tokens));
        }
    }

    /// Over every interval: no more than the burst and what the rate brings.
    fn check(&mut self) -> Result<(), TestCaseError> {
        self.spent.sort();
        for from in 0..self.spent.len() {
            let mut sum = 0;
            for (at, tokens) in &self.spent[from..] {
                sum += tokens;
                let span = at.saturating_since(self.spent[from].0);
                let bound = u128::from(BURST) * 1_000_000_000 + u128::from(RATE) * span.as_nanos();
                prop_assert!(u128::from(sum) * 1_000_000_000 <= bound, "{sum} within {span:?}");
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_bound_holds_over_every_interval(acts in acts()) {
        let mut world = World::new();
        let mut processes = [(); 4].map(|()| Process::default());
        for act in acts {
            match act {
                Act::Idle(millis) => world.clock.advance(Duration::from_millis(millis)),
                Act::Spend(who, tokens) => world.spend(&mut processes[who], tokens),
                Act::GiveBack(who) => {
                    if let Some((ticket, left, _)) = processes[who].lease.take() {
                        // Also after its end: then nothing comes of it.
                        let granted = ticket.leased().unwrap().as_whole();
                        world.give_back(ticket, granted, left);
                    }
                }
                Act::Book(tokens) => world.book(tokens),
                Act::Settle(which, actual) => {
                    if let Some(which) = which.checked_rem(world.booked.len()) {
                        let (ticket, of) = world.booked.swap_remove(which);
                        world.spent[of].1 = world.spent[of].1.min(actual);
                        world.settle(ticket, world.spent[of].1);
                    }
                }
                Act::Die(who) => processes[who] = Process::default(),
                Act::Allow(tokens) => {
                    if let Outcome::Allowed(_) = world.call(tokens, Verb::Allow) {
                        world.spent.push((world.clock.now(), tokens));
                    }
                }
            }
        }
        world.check()?;
    }
}

/// Why what is out still counts as saved: a bucket that refills meanwhile would let
/// the lent and the new ones through at one instant.
#[test]
fn idling_does_not_give_tokens_twice() {
    let mut world = World::new();
    let mut process = Process::default();
    world.spend(&mut process, 1);
    world.clock.advance(Duration::from_millis(1900));
    // Nine of its ten are left. All others find thirty-one at most.
    assert_eq!(process.lease.as_ref().map(|lease| lease.1), Some(9));
    let found = (0..100).filter(|_| matches!(world.call(1, Verb::Allow), Outcome::Allowed(_))).count();
    assert_eq!(found, 30);
    // What is not given back is void when the lease ends; then it refills again.
    world.clock.advance(Duration::from_secs(60));
    let found = (0..100).filter(|_| matches!(world.call(1, Verb::Allow), Outcome::Allowed(_))).count();
    assert_eq!(found, 40);
}

#[test]
fn what_is_given_back_counts_again_and_only_once() {
    let world = World::new();
    let remaining = || world.call(0, Verb::Peek).decision().status().remaining();
    let Outcome::Booked(_, ticket) = world.call(20, Verb::Lease { lifetime: LIFETIME, least: Cost::ONE }) else {
        panic!()
    };
    assert_eq!((ticket.leased(), remaining()), (Some(Cost::whole(10)), 30));
    world.give_back(ticket.clone(), 10, 7);
    assert_eq!(remaining(), 37);
    world.give_back(ticket, 10, 10);
    assert_eq!(remaining(), 37);
}

/// What a lease gives back lies in the stretch of a booking that came after it, and is not given
/// back to that as well.
#[test]
fn what_a_lease_gives_back_is_given_to_no_booking_again() {
    let world = World::new();
    let verb = Verb::Lease { lifetime: LIFETIME, least: Cost::whole(10) };
    let Outcome::Booked(_, lease) = world.call(10, verb) else { panic!() };
    let Outcome::Booked(_, place) = world.call(10, Verb::Reserve { max_wait: None }) else { panic!() };
    world.clock.advance(Duration::from_millis(1500));
    world.give_back(lease, 10, 10);
    // It is full again, and that was all.
    assert!(matches!(world.call(BURST, Verb::Allow), Outcome::Allowed(_)));
    world.settle(place, 0);
    assert_eq!(world.call(0, Verb::Peek).decision().status().remaining(), 0);
}

/// What a lease may have spent just now is not given back to a booking that hid the refill of it.
#[test]
fn a_booking_does_not_hide_what_a_lease_has_spent() {
    let world = World::new();
    let verb = Verb::Lease { lifetime: LIFETIME, least: Cost::whole(10) };
    let Outcome::Booked(_, lease) = world.call(10, verb) else { panic!() };
    let Outcome::Booked(_, place) = world.call(11, Verb::Reserve { max_wait: None }) else { panic!() };
    world.clock.advance(Duration::from_millis(700));
    world.give_back(lease, 10, 2);
    world.settle(place, 0);
    assert_eq!(world.call(0, Verb::Peek).decision().status().remaining(), BURST - 8);
}

#[test]
fn a_chunk_is_one_question_and_threads_share_it() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let remote = Remote::builder(store, "key", "bucket 100000/h").unwrap().build().unwrap();
    let leased = remote.leased(1000, Duration::from_secs(60)).unwrap();
    let passed: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..50_000).filter(|_| leased.allow(1).unwrap().is_allowed()).count()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(passed, 100_000, "all of them, and not one more");
    let asked = remote.stats().asked();
    assert!(asked < 200, "{asked} questions for 200,000 decisions");
    assert!(leased.allow(1).unwrap().decision().retry().is_some());
    assert!(leased.allow(1_000_000).unwrap_err().is_cost_too_large());
}

#[test]
fn what_a_process_holds_when_it_ends_is_given_back() {
    let store = MemoryStore::new();
    let remote = Remote::builder(store, "key", "bucket 1000/h").unwrap().build().unwrap();
    let leased = remote.leased(200, Duration::from_secs(60)).unwrap();
    assert!(leased.allow(3).unwrap().is_allowed());
    let remaining = || remote.peek(0).unwrap().decision().status().remaining();
    assert_eq!(remaining(), 800);
    drop(leased);
    let start = Instant::now();
    while remaining() < 997 {
        assert!(start.elapsed() < Duration::from_secs(10));
        thread::sleep(Duration::from_millis(1));
    }
    let windows = Remote::builder(MemoryStore::new(), "key", "window 10/60s").unwrap().build().unwrap();
    let error = windows.leased(5, Duration::from_secs(1)).unwrap().allow(1).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
}

/// Two parts of one key would each be decided on the same record, and one be forgotten.
#[test]
fn parts_of_a_call_have_keys_of_their_own() {
    let world = World::new();
    let part = Part { key: "key".into(), limits: world.limits.clone(), cost: Cost::ONE };
    let call = Call { parts: vec![part.clone(), part], verb: Verb::Allow, id: None, at: None };
    assert!(block_on(world.store.decide(&call)).unwrap_err().is_unsupported());
    assert_eq!(world.call(0, Verb::Peek).decision().status().remaining(), BURST);
}
