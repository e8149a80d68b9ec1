//! Random sequences of everything, on a database and on records in a map that nothing is
//! ever removed from: the same answers to the last digit.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use suimon::store::{
    Call, Limits, Outcome, Part, Record, Reply, RequestId, Settling, Store, Ticket, Verb, decide, settle,
};
use suimon::{Carry, Cost, Error, Timestamp, Utc};
use suimon_sql::SqlStore;

use crate::support::{Kind, block_on, on_all};

on_all!(a_database_answers_as_records_in_memory_do);

const POLICIES: [&str; 7] = [
    "pace 60/min",
    "pace 10/s savings 5",
    "bucket 10/s burst 20",
    "bucket 7/min burst 3.5",
    "window 10/60s",
    "fixed 20/min",
    "bucket 5/s burst 10 and window 20/10s and fixed 30/min",
];

#[derive(Clone, Debug)]
struct Step {
    /// On by so many milliseconds; one in a while back.
    gap: i64,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    /// Keys by number, each with a cost in thousandths.
    Call { verb: Verb, parts: Vec<(usize, u32)>, id: Option<u8> },
    /// One of the open bookings, by so many thousandths of each part.
    Settle { which: usize, thousandths: u32, id: Option<u8> },
    /// From now on the key is called with another policy of the next version.
    Change { key: usize, policy: usize, carry: Carry },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![3 => Just(0), 4 => 1..300_i64, 3 => 300..5000_i64, 1 => 5000..120_000_i64, 1 => -2000..0_i64];
    let verb = prop_oneof![
        4 => Just(Verb::Allow),
        1 => Just(Verb::Peek),
        1 => Just(Verb::Adopt),
        2 => Just(Verb::Reserve { max_wait: None }),
        1 => (0..3000_u64).prop_map(|ms| Verb::Reserve { max_wait: Some(Duration::from_millis(ms)) }),
        1 => (1..5000_u64, 0..3_u64).prop_map(|(ms, least)| Verb::Lease {
            lifetime: Duration::from_millis(ms),
            least: Cost::whole(least),
        }),
    ];
    let cost = prop_oneof![4 => (0..4_u32).prop_map(|whole| whole * 1000), 1 => 0..4000_u32, 1 => Just(25_000)];
    let parts = prop_oneof![
        2 => (0..3_usize, cost.clone()).prop_map(|part| vec![part]),
        1 => (0..3_usize, 1..3_usize, cost.clone(), cost)
            .prop_map(|(one, by, a, b)| vec![(one, a), ((one + by) % 3, b)]),
    ];
    let carry = prop::sample::select(vec![Carry::Keep, Carry::Balance, Carry::Scale, Carry::Reset]);
    let action = prop_oneof![
        8 => (verb, parts, prop::option::weighted(0.2, 0..6_u8))
            .prop_map(|(verb, parts, id)| Action::Call { verb, parts, id }),
        2 => (any::<usize>(), 0..2000_u32, prop::option::weighted(0.3, 0..3_u8))
            .prop_map(|(which, thousandths, id)| Action::Settle { which, thousandths, id }),
        1 => (0..3_usize, 0..POLICIES.len(), carry)
            .prop_map(|(key, policy, carry)| Action::Change { key, policy, carry }),
    ];
    prop::collection::vec((gap, action).prop_map(|(gap, action)| Step { gap, action }), 1..25)
}

/// What a store does, in the plainest way.
#[derive(Default)]
struct Plain {
    records: HashMap<Arc<str>, Record>,
    answers: HashMap<(Arc<str>, String), (Timestamp, Reply)>,
    settlements: HashMap<(Arc<str>, String), (Timestamp, suimon::Settlement)>,
}

impl Plain {
    fn decide(&mut self, call: &Call) -> Result<Reply, Error> {
        let now = call.at.unwrap();
        let id = call.id.as_ref().map(|id| (call.parts[0].key.clone(), id.as_str().to_owned()));
        if let Some((expires, reply)) = id.as_ref().and_then(|id| self.answers.get(id))
            && *expires > now
        {
            return Ok(Reply { replayed: true, ..reply.clone() });
        }
        let records: Vec<_> = call.parts.iter().map(|part| self.records.get(&part.key).cloned()).collect();
        let decided = decide(call, &records, now, &Utc)?;
        self.write(call.parts.iter().map(|part| part.key.clone()), decided.records);
        if let (Some(id), Some(request)) = (id, &call.id) {
            self.answers.insert(id, (now.saturating_add(request.lifetime()), decided.reply.clone()));
        }
        Ok(decided.reply)
    }

    fn settle(&mut self, settling: &Settling) -> Result<suimon::Settlement, Error> {
        let (keys, now) = (|| settling.ticket.parts.iter().map(|(key, _)| key.clone()), settling.at.unwrap());
        let id = settling.id.as_ref().map(|id| (keys().next().unwrap(), id.as_str().to_owned()));
        if let Some((expires, settlement)) = id.as_ref().and_then(|id| self.settlements.get(id))
            && *expires > now
        {
            return Ok(*settlement);
        }
        let records: Vec<_> = keys().map(|key| self.records.get(&key).cloned()).collect();
        let (settlement, records) = settle(settling, &records, now, &Utc)?;
        if let (Some(id), Some(request)) = (id, &settling.id) {
            self.settlements.insert(id, (now.saturating_add(request.lifetime()), settlement));
        }
        self.write(keys(), records);
        Ok(settlement)
    }

    fn write(&mut self, keys: impl Iterator<Item = Arc<str>>, records: Vec<Option<Record>>) {
        self.records.extend(keys.zip(records).filter_map(|(key, record)| Some((key, record?))));
    }
}

fn a_database_answers_as_records_in_memory_do(kind: Kind) {
    let store = kind.store();
    let cases = if kind == Kind::MariaDb { 40 } else { 60 };
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let run = Cell::new(0);
    let policies = prop::collection::vec(0..POLICIES.len(), 3);
    runner
        .run(&(policies, steps()), move |(policies, steps)| {
            // Keys of which each run has its own.
            run.set(run.get() + 1);
            compare(&store, run.get(), &policies, &steps);
            Ok(())
        })
        .unwrap();
}

fn compare(store: &SqlStore, run: u32, policies: &[usize], steps: &[Step]) {
    let limits = |policy: usize, version, carry| {
        Arc::new(Limits::new(POLICIES[policy].parse().unwrap(), &Utc, version, carry).unwrap())
    };
    let mut all: Vec<_> = policies.iter().map(|policy| limits(*policy, 0, Carry::Keep)).collect();
    let (mut plain, mut now) = (Plain::default(), 1_000_000_i64);
    let mut bookings: Vec<(Ticket, Vec<Arc<Limits>>, Vec<Cost>)> = Vec::new();
    for step in steps {
        now += step.gap;
        let at = Some(Timestamp::from_nanos(now.cast_unsigned() * 1_000_000));
        match &step.action {
            Action::Call { verb, parts, id } => {
                let parts: Vec<_> = parts
                    .iter()
                    .map(|(key, cost)| Part {
                        key: format!("{run} {key}").into(),
                        limits: all[*key].clone(),
                        cost: thousandths(*cost),
                    })
                    .collect();
                let id = id.map(|id| RequestId::new(id.to_string(), Duration::from_secs(3)).unwrap());
                let call = Call { parts, verb: *verb, id, at };
                let reply = same(block_on(store.decide(&call)), plain.decide(&call));
                if let Some(Reply { outcome: Outcome::Booked(_, ticket), replayed: false, .. }) = reply {
                    let limits = call.parts.iter().map(|part| part.limits.clone()).collect();
                    bookings.push((ticket, limits, call.parts.iter().map(|part| part.cost).collect()));
                }
            }
            Action::Settle { which, thousandths: share, id } => {
                if bookings.is_empty() {
                    continue;
                }
                let (ticket, limits, costs) = bookings.swap_remove(which % bookings.len());
                let actual = costs.iter().map(|cost| of(*cost, *share)).collect();
                let id = id.map(|id| RequestId::new(id.to_string(), Duration::from_secs(3)).unwrap());
                let settling = Settling { ticket, limits, actual, id, at };
                same(block_on(store.settle(&settling)), plain.settle(&settling));
            }
            Action::Change { key, policy, carry } => {
                all[*key] = limits(*policy, all[*key].version() + 1, *carry);
            }
        }
    }
}

fn thousandths(cost: u32) -> Cost {
    Cost::new(u64::from(cost / 1000), cost % 1000 * 1_000_000).unwrap()
}

fn of(cost: Cost, thousandths_of_it: u32) -> Cost {
    let cost = u32::try_from(cost.as_whole()).unwrap() * 1000 + cost.subsec_nanos() / 1_000_000;
    thousandths(cost * thousandths_of_it / 1000)
}

#[track_caller]
fn same<T: PartialEq + std::fmt::Debug>(ours: Result<T, Error>, theirs: Result<T, Error>) -> Option<T> {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => {
            assert_eq!(ours, theirs);
            Some(ours)
        }
        (Err(ours), Err(theirs)) => {
            assert_eq!(ours.to_string(), theirs.to_string());
            None
        }
        (ours, theirs) => panic!("{ours:?} and {theirs:?}"),
    }
}
