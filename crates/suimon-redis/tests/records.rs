//! Random calls of one key or two, in three versions of their limits: Redis answers as the
//! deciding about records does.

mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use suimon::store::{
    Call, Limits, Outcome, Part, Record, Reply, RequestId, Settling, Store, Ticket, Verb, decide, settle,
};
use suimon::{Carry, Cost, Error, Limit, Settlement, Timestamp, Utc};
use suimon_redis::RedisStore;
use support::{cases, fresh_key, limits_in, runtime, store};

/// What is done with one key or two.
#[derive(Clone, Debug)]
struct Step {
    millis: u64,
    verb: u8,
    /// The versions of the limits that the caller knows, and the costs; of the first key alone for a lease.
    first: (usize, u64),
    second: Option<(usize, u64)>,
    within: Option<u64>,
    id: Option<u8>,
    settles: Option<(usize, u64)>,
}

fn step() -> impl Strategy<Value = Step> {
    let gap = prop_oneof![3 => Just(0_u64), 3 => 1..200_u64, 1 => 0..5_000_u64];
    let part = || (0..3_usize, 0..4_u64);
    let within = prop::option::of(0..3000_u64);
    let rare = || prop::option::weighted(0.2, 0..4_u8);
    let settles = prop::option::weighted(0.2, (0..3_usize, 0..6_u64));
    (gap, 0..11_u8, part(), prop::option::of(part()), within, rare(), settles).prop_map(
        |(millis, verb, first, second, within, id, settles)| Step { millis, verb, first, second, within, id, settles },
    )
}

/// Rates and sizes between which every balance is converted without rounding.
fn simple_policy() -> impl Strategy<Value = String> {
    let rate = || select(vec![1, 2, 4, 5, 10]);
    let size = || select(vec![4, 5, 10, 20]);
    let limit = || {
        prop_oneof![
            6 => (rate(), size()).prop_map(|(rate, size)| format!("bucket {rate}/s burst {size}")),
            2 => (rate(), size()).prop_map(|(rate, size)| format!("pace {rate}/s savings {size} max_cost 5")),
            2 => size().prop_map(|size| format!("window {size}/2s")),
            2 => size().prop_map(|size| format!("fixed {size}/3s")),
        ]
    };
    prop_oneof![3 => limit(), 1 => (limit(), limit()).prop_map(|(a, b)| format!("{a} and {b}"))]
}

/// The records that a store would lock, and the answers under an id.
#[derive(Default)]
struct Records {
    of_keys: HashMap<Arc<str>, Record>,
    of_ids: HashMap<String, Reply>,
}

impl Records {
    fn decide(&mut self, call: &Call) -> Result<Reply, Error> {
        if let Some(reply) = call.id.as_ref().and_then(|id| self.of_ids.get(id.as_str())) {
            return Ok(Reply { replayed: true, ..reply.clone() });
        }
        let records: Vec<_> = call.parts.iter().map(|part| self.of_keys.get(&part.key).cloned()).collect();
        let decided = decide(call, &records, call.at.unwrap(), &Utc)?;
        for (part, record) in call.parts.iter().zip(decided.records) {
            self.of_keys.extend(record.map(|record| (part.key.clone(), record)));
        }
        if let Some(id) = &call.id {
            self.of_ids.insert(id.as_str().to_owned(), decided.reply.clone());
        }
        Ok(decided.reply)
    }

    fn settle(&mut self, settling: &Settling) -> Result<Settlement, Error> {
        let keys: Vec<_> = settling.ticket.parts.iter().map(|(key, _)| key.clone()).collect();
        let records: Vec<_> = keys.iter().map(|key| self.of_keys.get(key).cloned()).collect();
        let (settlement, written) = settle(settling, &records, settling.at.unwrap(), &Utc)?;
        for (key, record) in keys.into_iter().zip(written) {
            self.of_keys.extend(record.map(|record| (key, record)));
        }
        Ok(settlement)
    }
}

/// Half tokens, which all of the rates count without rounding.
fn halves(number: u64) -> Cost {
    Cost::new(number / 2, u32::try_from(number % 2).unwrap() * 500_000_000).unwrap()
}

/// A booking in both: the tickets, and the limits it was made under.
type Bookings = Vec<(Ticket, Ticket, Vec<Arc<Limits>>)>;

struct Both {
    redis: RedisStore,
    records: Records,
    keys: [Arc<str>; 2],
    versions: [Vec<Arc<Limits>>; 2],
    bookings: Bookings,
    now: u64,
}

impl Both {
    fn step(&mut self, step: &Step) {
        self.now += step.millis * 1_000_000;
        let at = Some(Timestamp::from_nanos(self.now));
        if let Some((back, actual)) = step.settles {
            self.settle(back, actual, at);
        }
        let verb = match step.verb {
            0 => Verb::Peek,
            1..4 => Verb::Allow,
            4..7 => Verb::Reserve { max_wait: step.within.map(Duration::from_millis) },
            7 => Verb::Adopt,
            _ => Verb::Lease {
                lifetime: Duration::from_millis(step.within.unwrap_or(1000)),
                least: halves(u64::from(step.verb) - 8),
            },
        };
        let is_lease = step.verb >= 8;
        let mut parts = Vec::new();
        for (of, asked) in [Some(step.first), step.second.filter(|_| !is_lease)].into_iter().enumerate() {
            let Some((version, cost)) = asked else { continue };
            let limits = self.versions[of][version].clone();
            let cost = if is_lease { halves(7 * cost) } else { Cost::whole(cost) };
            parts.push(Part { key: self.keys[of].clone(), limits, cost });
        }
        // Redis looks at the arguments first, also where it has been answered already.
        let lends = matches!(parts[0].limits.gate().policy().limits(), [Limit::Bucket(_)]);
        let id = step.id.filter(|_| !is_lease || lends).map(|id| {
            let id = format!("{}:{id}:{}:{is_lease}", self.keys[0], parts.len());
            RequestId::new(id, Duration::from_secs(600)).unwrap()
        });
        let call = Call { parts, verb, id, at };
        let expected = self.records.decide(&call);
        let got = runtime().block_on(self.redis.decide(&call));
        let (Ok(expected), Ok(got)) = (&expected, &got) else {
            assert_eq!(format!("{got:?}"), format!("{expected:?}"), "{call:?}");
            return;
        };
        let wait = |outcome: &Outcome| if let Outcome::Booked(_, ticket) = outcome { Some(ticket.wait) } else { None };
        assert_eq!(got.outcome.decision(), expected.outcome.decision(), "{call:?}");
        assert_eq!(wait(&got.outcome), wait(&expected.outcome), "{call:?}");
        let leased = |outcome: &Outcome| if let Outcome::Booked(_, ticket) = outcome { ticket.leased() } else { None };
        assert_eq!(leased(&got.outcome), leased(&expected.outcome), "{call:?}");
        assert_eq!((got.now, got.replayed), (expected.now, expected.replayed), "{call:?}");
        if got.replayed {
            return;
        }
        if let (Outcome::Booked(_, mine), Outcome::Booked(_, theirs)) = (&got.outcome, &expected.outcome) {
            let limits = call.parts.iter().map(|part| part.limits.clone()).collect();
            self.bookings.push((mine.clone(), theirs.clone(), limits));
        }
    }

    fn settle(&mut self, back: usize, actual: u64, at: Option<Timestamp>) {
        let Some(index) = self.bookings.len().checked_sub(back + 1) else { return };
        let (mine, theirs, limits) = self.bookings.remove(index);
        let actual = vec![Cost::whole(actual); limits.len()];
        let settling = |ticket| Settling { ticket, limits: limits.clone(), actual: actual.clone(), id: None, at };
        let expected = self.records.settle(&settling(theirs)).unwrap();
        let got = runtime().block_on(self.redis.settle(&settling(mine))).unwrap();
        assert_eq!(got, expected);
    }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn two_keys_in_three_versions_as_the_records(
        policies in prop::collection::vec(simple_policy(), 6),
        carry in select(vec![Carry::Keep, Carry::Balance, Carry::Scale, Carry::Reset]),
        steps in prop::collection::vec(step(), 1..50),
    ) {
        let version = |of: usize| -> Vec<_> {
            (0..3).map(|version| limits_in(&policies[3 * of + version], version as u64, carry)).collect()
        };
        let mut both = Both {
            redis: store(),
            records: Records::default(),
            keys: [fresh_key("first"), fresh_key("second")],
            versions: [version(0), version(1)],
            bookings: Vec::new(),
            // The beginning of a window of three seconds.
            now: 1_796_000_001_000_000_000,
        };
        // A key that nobody has met has no version that could govern it.
        let meet = Step { millis: 0, verb: 1, first: (0, 1), second: Some((0, 1)), within: None, id: None, settles: None };
        both.step(&meet);
        for step in &steps {
            both.step(step);
        }
    }
}
