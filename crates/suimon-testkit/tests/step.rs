//! The algorithm on a bare word ([`suimon_core::gcra`]) answers as the gate does.

use std::time::Duration;

use proptest::prelude::*;
use suimon_core::gcra::{FRESH, Step};
use suimon_core::{Bucket, Cost, Decision, Gate, Limit, Pace, Policy, Quota, Retry, Timestamp};

fn limits() -> impl Strategy<Value = Limit> {
    let rate = (1_u64..5_000_000_000, 1_u64..100_000_000_000_000)
        .prop_filter_map("a rate", |(tokens, period)| Quota::new(tokens, Duration::from_nanos(period)).ok());
    (rate, 1_u64..2_000, any::<bool>()).prop_filter_map("a limit", |(quota, size, bucket)| {
        if bucket {
            Bucket::new(quota).with_burst(Cost::whole(size)).ok().map(Limit::Bucket)
        } else {
            let pace = Pace::new(quota).with_max_cost(Cost::whole(size)).ok()?;
            pace.with_savings(Cost::whole(size / 2)).ok().map(Limit::Pace)
        }
    })
}

proptest! {
    #[test]
    fn a_word_is_stepped_as_a_state_is(
        limit in limits(),
        calls in proptest::collection::vec((0_u64..4, 0_u64..2_500, 0_u32..1_000_000_000), 1..60),
    ) {
        let gate = Gate::new(Policy::from(limit)).unwrap();
        let gcra = *gate.gcra().unwrap();
        let (mut state, mut word, mut now) = (gate.fresh(), FRESH, Timestamp::from_secs(1_700_000_000));
        let mut told = Duration::ZERO;
        for (pause, whole, nanos) in calls {
            // At random, at the told time, or a nanosecond before it.
            now = now.saturating_add(match pause {
                0 => Duration::from_nanos(u64::from(nanos)),
                1 => told,
                2 => told.saturating_sub(Duration::from_nanos(1)),
                _ => Duration::ZERO,
            });
            let cost = if nanos % 5 == 0 { Cost::new(whole, nanos).unwrap() } else { Cost::whole(whole) };
            let Ok(decision) = gate.allow(&mut state, now, cost) else { continue };
            let ticks = gcra.ticks();
            match (gcra.step(word, ticks.at(now), ticks.of_cost(cost).unwrap()), decision) {
                (Step::Admit(next), Decision::Allow(_)) => word = next,
                (Step::Refuse(ready), Decision::Deny(_, Retry::After { wait, .. })) => {
                    prop_assert_eq!(ticks.until(ready, now), wait);
                    told = wait;
                }
                (step, decision) => prop_assert!(false, "{step:?} but {decision:?}"),
            }
            prop_assert_eq!(state.word(), Some(word));
            prop_assert_eq!(decision.status(), &gcra.status(word, now));
        }
    }
}
