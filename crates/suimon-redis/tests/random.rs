//! Random sequences of calls: Redis answers as the exact model does, and two keys at once
//! as the deciding about records does.

mod support;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use suimon::store::{
    Call, Limits, Outcome, Part, Record, Reply, RequestId, Settling, Store, Ticket, Verb, decide, settle,
};
use suimon::{Carry, Cost, Error, Settlement, Timestamp, Utc};
use suimon_redis::RedisStore;
use suimon_testkit::golden::{Action, Clock, Opening, Outcome as Answered, Refusal, Retry, Subject};
use suimon_testkit::model;
use suimon_testkit::subjects::{ModelSubject, StoreSubject};
use support::{fresh_key, limits_in, runtime, store};

/// 2026-11-30, and no whole number of milliseconds.
const START: u64 = 1_796_000_000_123_456_789;

/// How the time moves on before a call.
#[derive(Clone, Copy, Debug)]
enum Gap {
    Same,
    Forward(u64),
    /// As long as the last denial said, less so many nanoseconds.
    Retry(u64),
    /// Until the limit is as good as new, less so many.
    Reset(u64),
}

fn gap() -> impl Strategy<Value = Gap> {
    prop_oneof![
        3 => Just(Gap::Same),
        2 => (1..20_u64).prop_map(Gap::Forward),
        3 => (0..40_u32, any::<u64>()).prop_map(|(bits, number)| Gap::Forward(number % (1 << bits))),
        3 => (0..2_u64).prop_map(Gap::Retry),
        1 => (0..2_u64).prop_map(Gap::Reset),
    ]
}

fn rate() -> impl Strategy<Value = String> {
    let odd = ["7/13s", "3/min", "1/100000s", "1000003/day", "1/year", "5/7ms", "2/3ns"].map(str::to_owned);
    prop_oneof![
        2 => (1..=20_u64).prop_map(|tokens| format!("{tokens}/s")),
        1 => (1..=2_000_000_000_u64).prop_map(|tokens| format!("{tokens}/s")),
        1 => (1..=1000_u64).prop_map(|tokens| format!("{tokens}/min")),
        2 => select(odd.to_vec()),
    ]
}

/// Of a second, so that a change converts every balance exactly.
fn rate_of_a_second() -> impl Strategy<Value = String> {
    (0..31_u32, any::<u64>()).prop_map(|(bits, number)| format!("{}/s", 1 + number % (1 << bits)))
}

fn size() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (1..20_u64).prop_map(|size| size.to_string()),
        1 => (1..3_u64, 1..1_000_000_000_u32).prop_map(|(whole, nanos)| format!("{whole}.{nanos:09}")),
    ]
}

fn limit(rate: impl Strategy<Value = String> + Clone + 'static) -> impl Strategy<Value = String> {
    let period = select(vec!["1ns", "999ns", "7us", "10ms", "1s", "90s", "1h"]);
    let every = select(vec!["1500ns", "10ms", "1s", "7s", "day", "week", "month at 02:30"]);
    prop_oneof![
        4 => (rate.clone(), size()).prop_map(|(rate, size)| format!("bucket {rate} burst {size}")),
        2 => rate.clone().prop_map(|rate| format!("pace {rate} max_cost 20")),
        2 => (rate, size()).prop_map(|(rate, size)| format!("pace {rate} savings {size} max_cost 20")),
        3 => (size(), period).prop_map(|(size, period)| format!("window {size}/{period}")),
        2 => (size(), every).prop_map(|(size, every)| format!("fixed {size}/{every}")),
        1 => Just("unlimited".to_owned()),
    ]
}

fn policy(rate: impl Strategy<Value = String> + Clone + 'static) -> impl Strategy<Value = String> {
    let several = prop::collection::vec(limit(rate.clone()), 2..4).prop_map(|limits| limits.join(" and "));
    prop_oneof![3 => limit(rate), 2 => several]
}

fn cost() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("1".to_owned()),
        2 => (0..6_u64).prop_map(|cost| cost.to_string()),
        1 => (0..3_u64, 1..1_000_000_000_u32).prop_map(|(whole, nanos)| format!("{whole}.{nanos:09}")),
        1 => Just("0.000000001".to_owned()),
    ]
}

#[derive(Clone, Debug)]
enum Act {
    Do(Action),
    /// Settles the last booking but so many.
    Settle(usize, String),
}

fn act() -> impl Strategy<Value = Act> {
    let within = prop_oneof![Just(None), (0..40_u32, any::<u64>()).prop_map(|(bits, nanos)| Some(nanos % (1 << bits)))];
    prop_oneof![
        5 => cost().prop_map(|cost| Act::Do(Action::Allow { cost })),
        1 => cost().prop_map(|cost| Act::Do(Action::Peek { cost })),
        3 => (cost(), within).prop_map(|(cost, within)| {
            Act::Do(Action::Reserve { cost, within: within.map(Duration::from_nanos), name: None })
        }),
        2 => (0..3_usize, cost()).prop_map(|(back, cost)| Act::Settle(back, cost)),
    ]
}

/// The model and Redis, which have seen the same.
struct Pair {
    model: ModelSubject,
    redis: StoreSubject,
    now: u64,
    retry: u64,
    reset: u64,
    booked: Vec<String>,
}

impl Pair {
    fn new(policy: &str) -> Pair {
        let store: Arc<dyn Store> = Arc::new(store());
        let (model, redis) =
            (ModelSubject::exact(), StoreSubject::new("Redis", store, runtime().handle().clone(), false));
        let mut pair = Pair { model, redis, now: START, retry: 0, reset: 0, booked: Vec::new() };
        let opening = Opening { policy, clock: Clock::HighWater, start: START, balance: None };
        pair.model.open(&opening).unwrap();
        pair.redis.open(&opening).unwrap();
        pair
    }

    fn act(&mut self, gap: Gap, act: &Act) {
        self.now += match gap {
            Gap::Same => 0,
            Gap::Forward(by) => by,
            Gap::Retry(less) => self.retry.saturating_sub(less),
            Gap::Reset(less) => self.reset.saturating_sub(less),
        };
        // Further on there is no time left to count.
        self.now = self.now.min(START + 1_000_000_000_000_000_000);
        let action = match act {
            Act::Do(Action::Reserve { cost, within, .. }) => {
                let name = Some(format!("booking {}", self.now + self.booked.len() as u64));
                Action::Reserve { cost: cost.clone(), within: *within, name }
            }
            Act::Do(action) => action.clone(),
            Act::Settle(back, cost) => {
                let Some(at) = self.booked.len().checked_sub(back + 1) else { return };
                Action::Settle { name: self.booked.remove(at), cost: cost.clone() }
            }
        };
        let (model, redis) = (self.model.act(self.now, &action), self.redis.act(self.now, &action));
        assert_eq!(plain(&redis), plain(&model), "{action:?} at {}", self.now);
        let Ok(answered) = model else { return };
        self.retry = match answered.retry {
            Some(Retry::After(wait)) => nanos(wait),
            _ => 0,
        };
        self.reset = nanos(answered.reset.unwrap_or_default());
        if let (Action::Reserve { name: Some(name), .. }, true) = (action, answered.retry.is_none()) {
            self.booked.push(name);
        }
    }
}

/// What is to be equal: all of an answer, the kind of an error.
fn plain(answered: &Result<Answered, Refusal>) -> String {
    match answered {
        Err(Refusal::Error { kind, .. }) => format!("{kind:?}"),
        other => format!("{other:?}"),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

fn cases(number: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, max_shrink_iters: 4000, ..ProptestConfig::with_cases(number) }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn as_the_exact_model(policy in policy(rate().boxed()), steps in prop::collection::vec((gap(), act()), 1..60)) {
        let mut pair = Pair::new(&policy);
        for (gap, act) in &steps {
            pair.act(*gap, act);
        }
    }

    #[test]
    fn as_the_exact_model_through_changes(
        first in policy(rate_of_a_second().boxed()),
        rounds in prop::collection::vec(
            (policy(rate_of_a_second().boxed()), select(vec![model::Carry::Keep, model::Carry::Balance, model::Carry::Reset]),
             prop::collection::vec((gap(), act()), 1..12)),
            1..5,
        ),
    ) {
        // With a limit of the calendar the subject takes instants as they are.
        let mut pair = Pair::new(&format!("{first} and fixed 1000000/year"));
        // A key that nobody has met has no balance that could be carried over.
        pair.act(Gap::Same, &Act::Do(Action::Allow { cost: "1".to_owned() }));
        let mut last = String::new();
        for (policy, carry, steps) in rounds {
            // The same limits in a higher version are no change.
            if policy == last {
                continue;
            }
            last.clone_from(&policy);
            pair.act(Gap::Same, &Act::Do(Action::Change { carry, policy }));
            for (gap, act) in &steps {
                pair.act(*gap, act);
            }
        }
    }
}

/// What is done with one key or two.
#[derive(Clone, Debug)]
struct Step {
    millis: u64,
    verb: u8,
    /// The versions of the limits that the caller knows, and the costs.
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
    (gap, 0..8_u8, part(), prop::option::of(part()), within, rare(), settles).prop_map(
        |(millis, verb, first, second, within, id, settles)| Step { millis, verb, first, second, within, id, settles },
    )
}

/// Rates and sizes between which every balance is converted without rounding.
fn simple_policy() -> impl Strategy<Value = String> {
    let rate = || select(vec![1, 2, 4, 5, 10]);
    let size = || select(vec![4, 5, 10, 20]);
    let limit = || {
        prop_oneof![
            4 => (rate(), size()).prop_map(|(rate, size)| format!("bucket {rate}/s burst {size}")),
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

/// A booking in both: the tickets, and the limits it was made under.
type Bookings = Vec<(Ticket, Ticket, Vec<Arc<Limits>>)>;

struct Both {
    redis: RedisStore,
    records: Records,
    keys: [Arc<str>; 2],
    versions: [Vec<Arc<Limits>>; 2],
    /// The highest version that a key has met.
    met: [usize; 2],
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
            _ => Verb::Adopt,
        };
        let mut parts = Vec::new();
        for (of, asked) in [Some(step.first), step.second].into_iter().enumerate() {
            let Some((version, cost)) = asked else { continue };
            // A booking under limits that do not govern is not given back there, and is here.
            let version = if step.verb >= 4 { version.max(self.met[of]) } else { version };
            let limits = self.versions[of][version].clone();
            parts.push(Part { key: self.keys[of].clone(), limits, cost: Cost::whole(cost) });
        }
        let id = step
            .id
            .map(|id| RequestId::new(format!("{}:{id}:{}", self.keys[0], parts.len()), Duration::from_secs(600)));
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
        assert_eq!((got.now, got.replayed), (expected.now, expected.replayed), "{call:?}");
        if got.replayed {
            return;
        }
        let is_written = matches!(got.outcome, Outcome::Booked(..))
            || matches!(verb, Verb::Allow | Verb::Adopt) && support::passes(got);
        for part in call.parts.iter().filter(|_| is_written) {
            let of = usize::from(part.key != self.keys[0]);
            let version = usize::try_from(part.limits.version()).unwrap();
            self.met[of] = self.met[of].max(version);
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
        let settling = |ticket| Settling { ticket, limits: limits.clone(), actual: actual.clone(), at };
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
        thread_local! {
            static STORE: RefCell<Option<RedisStore>> = const { RefCell::new(None) };
        }
        let redis = STORE.with_borrow_mut(|store| store.get_or_insert_with(support::store).clone());
        let version = |of: usize| -> Vec<_> {
            (0..3).map(|version| limits_in(&policies[3 * of + version], version as u64, carry)).collect()
        };
        let mut both = Both {
            redis,
            records: Records::default(),
            keys: [fresh_key("first"), fresh_key("second")],
            versions: [version(0), version(1)],
            met: [0, 0],
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
