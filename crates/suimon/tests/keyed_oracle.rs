//! Limits per key against one independent limiter for each key, step by step, for
//! random histories in tiny tables, where every path is taken: keys that crowd, no
//! room, slots that are taken again, keys that are forgotten too early.

#[path = "keyed_oracle/history.rs"]
mod history;
#[path = "keyed_oracle/one_key.rs"]
mod one_key;
#[path = "keyed_oracle/run.rs"]
mod run;
#[path = "keyed_oracle/table.rs"]
mod table;

use history::{Line, ONE_WORD, any_policy, histories, one_word};
use proptest::prelude::*;
use run::{Run, Setup};
use suimon::Overflow;
use table::Kind;

/// As many as a few seconds take; `PROPTEST_CASES` asks for more.
fn config(cases: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() }
}

fn overflow() -> impl Strategy<Value = Overflow> {
    prop::sample::select(vec![Overflow::Share, Overflow::Deny, Overflow::Evict])
}

proptest! {
    #![proptest_config(config(600))]

    /// Flat tables of 24 and 32 slots.
    #[test]
    fn a_flat_table_answers_as_one_limiter_for_each_key(
        policy in 0..ONE_WORD.len(),
        (max_keys, keys, seed) in (1_usize..7, 1_u64..48, 0_u64..1 << 40),
        fill in proptest::option::weighted(0.6, 8_u64..48),
        overflow in overflow(),
        (portable, brings_time) in any::<(bool, bool)>(),
        ops in histories(160),
    ) {
        let kind = if portable { Kind::Portable } else { Kind::Flat };
        let policy = if overflow == Overflow::Evict { one_word(policy) } else { ONE_WORD[policy] };
        let keys = fill.map_or(keys, |fill| fill.max(keys));
        Run::new(Setup { kind, policy, max_keys, keys, seed, overflow, brings_time }).all(fill, &ops)?;
    }

    #[test]
    fn a_map_answers_as_one_limiter_for_each_key(
        policy in 0_usize..18,
        (max_keys, keys, seed) in (1_usize..14, 1_u64..24, 0_u64..1 << 40),
        overflow in overflow(),
        (exact, brings_time) in any::<(bool, bool)>(),
        ops in histories(120),
    ) {
        let kind = if exact { Kind::Map } else { Kind::InMap };
        let policy = if overflow == Overflow::Evict { one_word(policy) } else { any_policy(policy) };
        Run::new(Setup { kind, policy, max_keys, keys, seed, overflow, brings_time }).all(None, &ops)?;
    }

    /// Where there is room for all, everything else is the same for all of them.
    #[test]
    fn all_tables_answer_the_same(
        policy in 0..ONE_WORD.len(),
        seed in 0_u64..1 << 40,
        brings_time in any::<bool>(),
        ops in histories(100),
    ) {
        let mut runs = [Kind::Flat, Kind::Portable, Kind::InMap, Kind::Map].map(|kind| {
            let max_keys = if matches!(kind, Kind::Flat | Kind::Portable) { 2 } else { 14 };
            let overflow = Overflow::Deny;
            Run::new(Setup { kind, policy: ONE_WORD[policy], max_keys, keys: 14, seed, overflow, brings_time })
        });
        for Line(op) in &ops {
            // Flat tables hold no windows.
            if !op.is_for_flat() {
                continue;
            }
            for run in &mut runs {
                run.step(op)?;
            }
            let [flat, others @ ..] = &runs;
            for other in others {
                prop_assert_eq!(flat.last_answer(), other.last_answer());
            }
        }
        for run in runs {
            prop_assert_eq!(run.overflows(), 0);
            run.end()?;
        }
    }
}
