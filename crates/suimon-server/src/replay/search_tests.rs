use super::*;
use crate::replay::reorder::Event;
use proptest::prelude::*;
use std::collections::HashSet;
use suimon_core::Policy;

type Request = (u64, u32, Cost);

/// Refused requests and keys, by asking for all of them.
fn brute(limit: &Limit, requests: &[Request]) -> (u64, u64) {
    let gate = gate(limit.clone()).unwrap();
    let mut states = vec![gate.fresh(); 4];
    let (mut refused, mut keys) = (0, HashSet::new());
    for &(time, key, cost) in requests {
        let decision = gate.allow(&mut states[key as usize], Timestamp::from_nanos(time), cost);
        if !decision.is_ok_and(|decision| decision.is_allowed()) {
            refused += 1;
            keys.insert(key);
        }
    }
    (refused, keys.len() as u64)
}

fn found(policy: &str, requests: &[Request]) -> (Vec<Found>, u64) {
    let policy: Policy = policy.parse().unwrap();
    let mut engine = Engine::new(vec![Gate::new(policy).unwrap()]);
    let mut spool = Spool::new(true);
    for (order, &(time, key, cost)) in requests.iter().enumerate() {
        let event = Event { time, order: order as u64, key, cost };
        engine.feed(&event);
        spool.push(&event).unwrap();
    }
    let found = search(&engine, &engine.runs[0], &mut spool, &mut |_| ()).unwrap();
    let keys = engine.asked.iter().filter(|asked| asked.requests > 0).count() as u64;
    (found, keys)
}

fn value(smallest: &Smallest) -> Option<u64> {
    match smallest {
        Smallest::Found { value, .. } => Some(*value),
        Smallest::None => None,
    }
}

/// The first number at which the bound holds, trying them all.
fn first(
    limit: &Limit,
    axis: Axis,
    requests: &[Request],
    most: u64,
    holds: impl Fn((u64, u64)) -> bool,
) -> Option<u64> {
    (axis.least()..=most).find(|&value| axis.with(limit, value).is_some_and(|limit| holds(brute(&limit, requests))))
}

fn requests(costs: impl Strategy<Value = u64> + Clone) -> impl Strategy<Value = Vec<Request>> {
    let request =
        (prop_oneof![Just(0), 0_u64..3_000_000_000, (0_u64..5).prop_map(|step| step * 1_000_000_000)], 0_u32..4, costs);
    prop::collection::vec(request, 1..160).prop_map(|steps| {
        let mut time = 1_431_857_103_000_000_000;
        steps
            .into_iter()
            .map(|(step, key, cost)| {
                time += step;
                (time, key, Cost::whole(cost))
            })
            .collect()
    })
}

fn policies() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "bucket 1/s burst 2",
        "bucket 3/7s burst 40",
        "pace 2/s",
        "pace 60/min savings 5",
        "window 3/5s",
        "window 90/min",
        "fixed 4/10s",
        "fixed 100/day",
    ])
}

proptest! {
    #[test]
    fn agrees_with_trying_every_number(policy in policies(), requests in requests(Just(1_u64))) {
        let (found, keys) = found(policy, &requests);
        for found in found {
            // Rates may have to be high, or there is none: the others end at all that was asked.
            let most = if found.axis == Axis::Rate { 300 } else { 160 };
            let first = |holds: &dyn Fn((u64, u64)) -> bool| first(&found.limit, found.axis, &requests, most, holds);
            for (smallest, want) in [
                (&found.nobody, first(&|refused| refused.0 == 0)),
                (&found.percent_of_keys, first(&|refused| refused.1 <= keys / 100)),
                (&found.percent_of_requests, first(&|refused| refused.0 <= requests.len() as u64 / 100)),
            ] {
                let ours = value(smallest).filter(|&value| value <= most);
                prop_assert_eq!(ours, want, "{} {:?}", found.limit, found.axis);
            }
        }
    }

    /// With unequal costs "nobody" and "keys" are still the smallest; "requests"
    /// holds where it was found and not at the next smaller number.
    #[test]
    fn unequal_costs(policy in policies(), requests in requests(0_u64..9)) {
        let (found, keys) = found(policy, &requests);
        for found in found.into_iter().filter(|found| found.axis != Axis::Rate) {
            let total = requests.iter().map(|request| request.2.as_whole()).sum::<u64>().max(1);
            let first = |holds: &dyn Fn((u64, u64)) -> bool| first(&found.limit, found.axis, &requests, total, holds);
            prop_assert_eq!(value(&found.nobody), first(&|refused| refused.0 == 0));
            prop_assert_eq!(value(&found.percent_of_keys), first(&|refused| refused.1 <= keys / 100));
            if let Some(value) = value(&found.percent_of_requests) {
                let allowance = requests.len() as u64 / 100;
                let at = |value| brute(&found.axis.with(&found.limit, value).unwrap(), &requests).0;
                prop_assert!(at(value) <= allowance);
                prop_assert!(value == found.axis.least() || at(value - 1) > allowance);
            }
        }
    }
}

#[test]
fn no_rate_helps_against_one_instant() {
    let at = |seconds: u64| (seconds * 1_000_000_000, 0, Cost::ONE);
    let (found, _) = found("bucket 1/s burst 2", &[at(5), at(5), at(5), at(9)]);
    assert_eq!(value(&found[0].nobody), Some(3));
    assert_eq!(found[0].axis, Axis::Burst);
    assert_eq!(found[1].nobody, Smallest::None);
}

#[test]
fn each_limit_of_a_policy_is_searched_alone() {
    let at = |seconds: u64| (seconds * 1_000_000_000, 0, Cost::ONE);
    let (found, _) = found("bucket 1/s burst 1 and fixed 9/day", &[at(5), at(5), at(6), at(9)]);
    let values: Vec<_> = found.iter().map(|found| (found.axis, value(&found.nobody))).collect();
    assert_eq!(values, [(Axis::Burst, Some(2)), (Axis::Rate, None), (Axis::Limit, Some(4))]);
}

#[test]
fn policies_without_a_number_have_nothing_to_search() {
    let at = |seconds: u64| (seconds * 1_000_000_000, 0, Cost::ONE);
    assert_eq!(found("unlimited", &[at(1)]).0, []);
    assert_eq!(found("block", &[at(1)]).0, []);
}
