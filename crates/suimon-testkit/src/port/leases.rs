//! Tokens that are lent: processes spend them at will, and together they stay within the limit
//! over every interval.

use std::sync::Arc;
use std::time::Duration;

use suimon::store::{Call, Limits, Outcome, RequestId, Ticket, Verb};
use suimon_core::{Carry, Cost, Timestamp};

use super::{World, limits, version};

const BURST: u64 = 40;
const RATE: u64 = 10;
const LIFETIME: Duration = Duration::from_secs(2);

fn bucket() -> Arc<Limits> {
    limits(&format!("bucket {RATE}/s burst {BURST}"))
}

fn lease(world: &World, limits: &Arc<Limits>, most: u64, least: u64) -> Option<Ticket> {
    world.book(limits, most, Verb::Lease { lifetime: LIFETIME, least: Cost::whole(least) })
}

fn must_lease(world: &World, limits: &Arc<Limits>, tokens: u64) -> Ticket {
    lease(world, limits, tokens, tokens).unwrap_or_else(|| panic!("{tokens} tokens of {limits:?} can be leased"))
}

fn granted(ticket: &Ticket) -> u64 {
    ticket.leased().unwrap_or_else(|| panic!("{ticket:?} is of no lease")).as_whole()
}

/// Four processes lease, give back, die; others allow, book and settle. Over every
/// interval no more is spent than the burst and what the rate brings.
pub fn the_bound_holds_over_every_interval(world: &mut World) {
    for seed in 0..150 {
        let mut history = History::new(world.anew(), seed);
        let mut acts = Vec::new();
        for _ in 0..60 {
            let act = history.random.act();
            acts.push(act);
            history.act(act);
        }
        history.check(&acts);
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Idle(u64),
    /// A process spends tokens of its lease, or of a new one.
    Spend(usize, u64),
    GiveBack(usize),
    /// It dies, and its lease ends by itself.
    Die(usize),
    Allow(u64),
    Book(u64),
    /// One of the bookings, with so much of its estimate, or less.
    Settle(usize, u64),
}

/// Splitmix64: the same acts for a seed, everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % bound
    }

    fn act(&mut self) -> Act {
        let who = self.below(4) as usize;
        match self.below(24) {
            0..3 => Act::Idle(self.below(1200)),
            3 => Act::Idle(2000 + self.below(7000)),
            4..14 => Act::Spend(who, 1 + self.below(5)),
            14..16 => Act::GiveBack(who),
            16 => Act::Die(who),
            17..19 => Act::Allow(1 + self.below(7)),
            19..22 => Act::Book(1 + self.below(14)),
            _ => Act::Settle(self.below(100) as usize, self.below(15)),
        }
    }
}

struct History {
    world: World,
    limits: Arc<Limits>,
    random: Random,
    /// What each process holds: of which so much is left, until then.
    leases: [Option<(Ticket, u64, Timestamp)>; 4],
    spent: Vec<(Timestamp, u64)>,
    /// Bookings: which of `spent` they are.
    booked: Vec<(Ticket, usize)>,
}

impl History {
    fn new(world: World, seed: u64) -> History {
        let (leases, spent, booked) = (Default::default(), Vec::new(), Vec::new());
        History { world, limits: bucket(), random: Random(seed), leases, spent, booked }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Idle(millis) => self.world.pass(Duration::from_millis(millis)),
            Act::Spend(who, tokens) => self.spend(who, tokens),
            Act::GiveBack(who) => {
                // Also after its end: then nothing comes of it.
                if let Some((ticket, left, _)) = self.leases[who].take() {
                    self.world.settle(&ticket, &self.limits, granted(&ticket) - left);
                }
            }
            Act::Die(who) => self.leases[who] = None,
            Act::Allow(tokens) => {
                if self.world.allows(&self.limits, tokens) {
                    self.spent.push((self.world.now, tokens));
                }
            }
            // It counts from the start that it was told.
            Act::Book(tokens) => {
                if let Some(ticket) = self.world.book(&self.limits, tokens, Verb::Reserve { max_wait: Some(LIFETIME) })
                {
                    let start = self.world.now.saturating_add(ticket.wait);
                    self.booked.push((ticket, self.spent.len()));
                    self.spent.push((start, tokens));
                }
            }
            Act::Settle(which, actual) => {
                if let Some(which) = which.checked_rem(self.booked.len()) {
                    let (ticket, of) = self.booked.swap_remove(which);
                    self.spent[of].1 = self.spent[of].1.min(actual);
                    self.world.settle(&ticket, &self.limits, self.spent[of].1);
                }
            }
        }
    }

    fn spend(&mut self, who: usize, tokens: u64) {
        let now = self.world.now;
        if !self.leases[who].as_ref().is_some_and(|(_, left, ends)| *left >= tokens && now < *ends) {
            if let Some((ticket, left, _)) = self.leases[who].take() {
                self.world.settle(&ticket, &self.limits, granted(&ticket) - left);
            }
            self.leases[who] = lease(&self.world, &self.limits, 20, tokens).map(|ticket| {
                let lent = granted(&ticket);
                assert!((tokens..=20).contains(&lent));
                (ticket, lent, now.saturating_add(LIFETIME))
            });
        }
        if let Some((_, left, _)) = &mut self.leases[who] {
            *left -= tokens;
            self.spent.push((now, tokens));
        }
    }

    fn check(&mut self, acts: &[Act]) {
        self.spent.sort();
        for from in 0..self.spent.len() {
            let mut sum = 0;
            for (at, tokens) in &self.spent[from..] {
                sum += tokens;
                let span = at.saturating_since(self.spent[from].0);
                let bound = u128::from(BURST) * 1_000_000_000 + u128::from(RATE) * span.as_nanos();
                assert!(u128::from(sum) * 1_000_000_000 <= bound, "{sum} within {span:?}: {acts:?}");
            }
        }
    }
}

/// Why what is out still counts as saved: a bucket that refills meanwhile would let
/// the lent and the new ones through at one instant.
pub fn idling_does_not_give_tokens_twice(world: &mut World) {
    let limits = bucket();
    must_lease(world, &limits, 10);
    world.pass(Duration::from_millis(1900));
    assert_eq!(world.remaining(&limits), BURST - 10);
    let passed = |world: &World| (0..100).filter(|_| world.allows(&limits, 1)).count() as u64;
    assert_eq!(passed(world), BURST - 10);
    // What is not given back is void when the lease ends; then it refills again.
    world.pass(Duration::from_secs(60));
    assert_eq!(passed(world), BURST);
}

/// And nothing comes of one that has ended.
pub fn what_is_given_back_counts_again_and_only_once(world: &mut World) {
    let limits = bucket();
    let ticket = must_lease(world, &limits, 10);
    assert_eq!(world.remaining(&limits), 30);
    world.settle(&ticket, &limits, 3);
    assert_eq!(world.remaining(&limits), 37);
    world.settle(&ticket, &limits, 0);
    assert_eq!(world.remaining(&limits), 37);
    let ticket = must_lease(world, &limits, 10);
    world.pass(LIFETIME);
    world.settle(&ticket, &limits, 0);
    // They may have been spent just before.
    assert_eq!(world.remaining(&limits), 30);
}

/// While others are out, too.
pub fn what_is_given_back_counts_again_beside_other_leases(world: &mut World) {
    let limits = bucket();
    let [first, second, third] = [(); 3].map(|()| must_lease(world, &limits, 5));
    assert_eq!(world.remaining(&limits), BURST - 15);
    world.settle(&first, &limits, 2);
    assert_eq!(world.remaining(&limits), BURST - 12);
    // Of two that are alike each is known.
    world.settle(&first, &limits, 0);
    assert_eq!(world.remaining(&limits), BURST - 12);
    world.settle(&second, &limits, 0);
    assert_eq!(world.remaining(&limits), BURST - 7);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.remaining(&limits), BURST - 5);
    world.settle(&third, &limits, 5);
    assert_eq!(world.remaining(&limits), BURST - 5);
}

/// What a lease gives back lies in the stretch of a booking that came after it.
pub fn what_a_lease_gives_back_is_given_to_no_booking_again(world: &mut World) {
    let limits = bucket();
    let lease = must_lease(world, &limits, 10);
    let place = world.reserve(&limits, 10);
    world.pass(Duration::from_millis(1500));
    world.settle(&lease, &limits, 0);
    // It is full again, and that was all.
    assert!(world.allows(&limits, BURST));
    world.settle(&place, &limits, 0);
    assert_eq!(world.remaining(&limits), 0);
}

/// What a lease may have spent just now is not given back to a booking that hid the refill of it.
pub fn a_booking_does_not_hide_what_a_lease_has_spent(world: &mut World) {
    let limits = bucket();
    let lease = must_lease(world, &limits, 10);
    let place = world.reserve(&limits, 11);
    world.pass(Duration::from_millis(700));
    world.settle(&lease, &limits, 8);
    world.settle(&place, &limits, 0);
    assert_eq!(world.remaining(&limits), BURST - 8);
}

/// Nor what one that is out may spend, or one that has ended may have spent just before.
pub fn a_booking_does_not_hide_what_a_lease_may_spend(world: &mut World) {
    let limits = bucket();
    for (estimate, idle) in [(11, Duration::from_millis(700)), (25, LIFETIME)] {
        let mut world = world.anew();
        must_lease(&world, &limits, 10);
        let place = world.reserve(&limits, estimate);
        world.pass(idle);
        assert!(world.allows(&limits, 9));
        world.settle(&place, &limits, 0);
        assert_eq!(world.remaining(&limits), BURST - 10 - 9, "{estimate}");
    }
}

/// Whichever was taken first.
pub fn leases_end_in_their_order(world: &mut World) {
    let limits = bucket();
    for lifetimes in [[4, 1], [1, 4]] {
        let mut world = world.anew();
        for seconds in lifetimes {
            let verb = Verb::Lease { lifetime: Duration::from_secs(seconds), least: Cost::whole(10) };
            assert!(world.book(&limits, 10, verb).is_some());
        }
        for left in [20, 20, 30, 30, 30, 40] {
            assert_eq!(world.remaining(&limits), left);
            world.pass(Duration::from_secs(1));
        }
    }
}

/// So that others get some too; all that is wanted if that is less, the least if it is more.
pub fn a_chunk_is_a_quarter_of_what_there_is(world: &mut World) {
    let limits = bucket();
    let lent = |most, least| lease(world, &limits, most, least).map(|ticket| granted(&ticket));
    let lent =
        [(20, 1), (3, 1), (20, 1), (20, 12), (20, 9), (20, 1), (20, 2), (20, 3)].map(|(most, least)| lent(most, least));
    // Of 40, 30, 27, 21, 9, 9 and so on.
    assert_eq!(lent, [Some(10), Some(3), Some(6), Some(12), Some(9), None, None, None]);
    let denied = world.ask(&world.call(&limits, 20, Verb::Lease { lifetime: LIFETIME, least: Cost::whole(3) }));
    // For the least, not for the most.
    assert_eq!(denied.outcome.decision().retry().and_then(suimon::Retry::after), Some(Duration::from_millis(300)));
}

/// Others do not lend, and say so.
pub fn a_lease_is_of_one_bucket(world: &mut World) {
    let verb = Verb::Lease { lifetime: LIFETIME, least: Cost::ONE };
    let refused =
        |call: &Call| world.runtime.block_on(world.store.decide(call)).is_err_and(|error| error.is_unsupported());
    for policy in ["window 10/60s", "pace 10/s", "fixed 10/h", "bucket 1/s and bucket 2/s", "unlimited", "block"] {
        assert!(refused(&world.call(&limits(policy), 5, verb)), "{policy}");
    }
    let mut two = world.call(&bucket(), 5, verb);
    let mut other = two.parts[0].clone();
    other.key = format!("{}:other", world.key).into();
    two.parts.push(other);
    assert!(refused(&two));
    // More than the bucket holds is no error, if the least fits.
    let ticket = lease(world, &bucket(), 1000, BURST).map(|ticket| granted(&ticket));
    assert_eq!(ticket, Some(BURST));
}

/// As any call.
pub fn a_lease_with_an_id_is_lent_once(world: &mut World) {
    let limits = bucket();
    let call = world.call(&limits, 20, Verb::Lease { lifetime: LIFETIME, least: Cost::ONE });
    let call = Call { id: RequestId::new("lease", Duration::from_secs(60)).ok(), ..call };
    let (first, again) = (world.ask(&call), world.ask(&call));
    assert!(!first.replayed && again.replayed);
    assert_eq!((&first.outcome, first.now), (&again.outcome, again.now));
    let Outcome::Booked(_, ticket) = again.outcome else { panic!("{again:?}") };
    assert_eq!(world.remaining(&limits), 30);
    world.settle(&ticket, &limits, 0);
    assert_eq!(world.remaining(&limits), BURST);
}

/// They still count as saved, in the tokens of the new limits.
pub fn leases_stay_out_when_limits_change(world: &mut World) {
    let old = bucket();
    let ticket = must_lease(world, &old, 10);
    let new = version("bucket 100/s burst 60", 1, Carry::Reset);
    world.adopt(&new);
    assert_eq!(world.remaining(&new), 50);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.remaining(&old), 50);
    // By whoever it is given back.
    world.settle(&ticket, &old, 4);
    assert_eq!(world.remaining(&new), 56);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.remaining(&new), 60);
}

/// From a token a year to billions a second.
pub fn huge_and_tiny_amounts_are_lent_exactly(world: &mut World) {
    for (policy, burst) in [
        ("bucket 1/year burst 99", 99),
        ("bucket 2000000000/s burst 6000000000000000000", 6_000_000_000_000_000_000),
        ("bucket 1000003/day burst 1000003", 1_000_003),
        ("bucket 7/13s burst 123", 123),
    ] {
        let world = world.anew();
        let limits = limits(policy);
        let Some(ticket) = lease(&world, &limits, u64::MAX, 1) else { panic!("{policy}") };
        assert_eq!(granted(&ticket), burst / 4, "{policy}");
        assert_eq!(world.remaining(&limits), burst - burst / 4, "{policy}");
        world.settle(&ticket, &limits, 1);
        assert_eq!(world.remaining(&limits), burst - 1, "{policy}");
    }
}
