//! Random sequences of calls: Redis answers as the exact model does.

mod support;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use suimon::store::Store;
use suimon_testkit::golden::{Action, Clock, Opening, Outcome, Refusal, Retry, Subject};
use suimon_testkit::model;
use suimon_testkit::subjects::{ModelSubject, StoreSubject};
use support::{cases, runtime, store};

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
    /// A debt of more than the years that can be counted: from there on they may differ.
    is_beyond: bool,
}

impl Pair {
    fn new(policy: &str) -> Pair {
        let store: Arc<dyn Store> = Arc::new(store());
        let (model, redis) =
            (ModelSubject::exact(), StoreSubject::new("Redis", store, runtime().handle().clone(), false));
        let mut pair = Pair { model, redis, now: START, retry: 0, reset: 0, booked: Vec::new(), is_beyond: false };
        let opening = Opening { policy, clock: Clock::HighWater, start: START, balance: None };
        pair.model.open(&opening).unwrap();
        pair.redis.open(&opening).unwrap();
        pair
    }

    fn act(&mut self, gap: Gap, act: &Act) {
        const FIFTY_YEARS: Duration = Duration::from_secs(50 * 31_557_600);
        if self.is_beyond {
            return;
        }
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
        self.is_beyond = model.as_ref().is_ok_and(|model| model.reset.is_some_and(|reset| reset > FIFTY_YEARS));
        if self.is_beyond {
            return;
        }
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
fn plain(answered: &Result<Outcome, Refusal>) -> String {
    match answered {
        Err(Refusal::Error { kind, .. }) => format!("{kind:?}"),
        other => format!("{other:?}"),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
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
        for (policy, carry, steps) in rounds {
            pair.act(Gap::Same, &Act::Do(Action::Change { carry, policy }));
            for (gap, act) in &steps {
                pair.act(*gap, act);
            }
        }
    }
}
