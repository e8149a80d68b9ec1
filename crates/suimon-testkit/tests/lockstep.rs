//! The core and the model answer every sequence of calls alike: exactly, for
//! every kind of limit and for policies of several.

mod support;

use proptest::prelude::*;
use suimon_core::{Carry, Limit};
use suimon_testkit::model::{self, Model};

use support::pair::Pair;
use support::texts::{self, Rates, Text};
use support::{Call, Gap, amount, any_gap, calls, cases};

fn run(text: &Text, make: fn(Vec<model::Spec>, u64) -> Model, calls: &[Call]) {
    let mut pair = Pair::new(&text.text, text.step, make);
    for call in calls {
        pair.call(call);
    }
}

proptest! {
    #![proptest_config(cases(200))]

    /// Where a token takes whole or half nanoseconds, nothing is rounded at all.
    #[test]
    fn exact_buckets(text in texts::bucket(Rates::Exact), calls in calls(40, any_gap(), amount())) {
        run(&text, Model::new, &calls);
    }

    #[test]
    fn exact_paces(text in texts::pace(Rates::Exact), calls in calls(40, any_gap(), amount())) {
        run(&text, Model::new, &calls);
    }

    #[test]
    fn windows(text in texts::window(), calls in calls(40, any_gap(), amount())) {
        run(&text, Model::new, &calls);
    }

    #[test]
    fn fixed_windows(text in texts::fixed(), calls in calls(40, any_gap(), amount())) {
        run(&text, Model::new, &calls);
    }

    #[test]
    fn exact_policies(text in texts::policy(Rates::Exact), calls in calls(40, any_gap(), amount())) {
        run(&text, Model::new, &calls);
    }

    /// Every rate, against the model that reads its clock in the same ticks.
    #[test]
    fn buckets_in_ticks(text in texts::bucket(Rates::Any), calls in calls(40, any_gap(), amount())) {
        run(&text, Model::in_ticks, &calls);
    }

    #[test]
    fn paces_in_ticks(text in texts::pace(Rates::Any), calls in calls(40, any_gap(), amount())) {
        run(&text, Model::in_ticks, &calls);
    }

    #[test]
    fn policies_in_ticks(text in texts::policy(Rates::Any), calls in calls(40, any_gap(), amount())) {
        run(&text, Model::in_ticks, &calls);
    }

    /// Changes between calls, to limits of the same kind and of others.
    #[test]
    fn changed_policies(
        first in texts::policy(Rates::Any),
        rounds in prop::collection::vec((texts::policy(Rates::Any), carry(), any_gap(), calls(12, any_gap(), amount())), 1..4),
    ) {
        run_changes(&first, &rounds);
    }

    #[test]
    fn changed_buckets(
        first in texts::bucket(Rates::Any),
        rounds in prop::collection::vec((texts::bucket(Rates::Any), carry(), any_gap(), calls(12, any_gap(), amount())), 1..4),
    ) {
        run_changes(&first, &rounds);
    }
}

fn carry() -> impl Strategy<Value = (Carry, model::Carry)> {
    prop::sample::select(vec![
        (Carry::Keep, model::Carry::Keep),
        (Carry::Balance, model::Carry::Balance),
        (Carry::Scale, model::Carry::Scale),
        (Carry::Reset, model::Carry::Reset),
    ])
}

type Round = (Text, (Carry, model::Carry), Gap, Vec<Call>);

fn run_changes(first: &Text, rounds: &[Round]) {
    let mut pair = Pair::new(&first.text, 1, Model::in_ticks);
    for (text, (core, model), gap, calls) in rounds {
        for call in calls {
            pair.call(call);
        }
        pair.now = gap.from(pair.now, pair.retry, pair.reset);
        // What a pace without savings owes is carried in time, not in tokens,
        // and rounded to nanoseconds on the way: see `changes.rs`.
        let owes_time = pair.gate.policy().limits().iter().any(saves_nothing)
            || text.text.parse::<suimon_core::Policy>().unwrap().limits().iter().any(saves_nothing);
        if *core == Carry::Scale && owes_time {
            continue;
        }
        pair.change(&text.text, *core, *model);
    }
}

fn saves_nothing(limit: &Limit) -> bool {
    matches!(limit, Limit::Pace(pace) if pace.savings().is_zero())
}
