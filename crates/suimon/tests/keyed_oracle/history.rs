//! Random histories of keys: what may happen, and under which policies.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use suimon::{Carry, Cost};

/// One pace or bucket, at rates that ticks count exactly and at others.
pub(crate) const ONE_WORD: [&str; 10] = [
    "bucket 10/s burst 6",
    "pace 10/s",
    "pace 7/s savings 2",
    "bucket 3/s burst 4",
    "bucket 2/3s burst 2.25",
    "pace 13/min savings 0.5",
    "bucket 1/h burst 3",
    "bucket 7/h burst 5",
    FASTEST,
    "pace 1/s savings 4",
];

const FASTEST: &str = "bucket 999999937/s burst 5";

/// What only a map holds.
pub(crate) const OTHERS: [&str; 8] = [
    "window 5/2s",
    "fixed 6/3s",
    "bucket 10/s burst 6 and window 8/2s",
    "pace 7/s and fixed 7/s",
    "window 3/s and bucket 3/s burst 4 and fixed 20/min",
    "window 2.5/s",
    "unlimited",
    "block",
];

pub(crate) fn any_policy(index: usize) -> &'static str {
    if index < ONE_WORD.len() { ONE_WORD[index] } else { OTHERS[(index - ONE_WORD.len()) % OTHERS.len()] }
}

/// A policy whose words show whether the key was evicted: a nanosecond of rounding, a
/// log or a second limit may hide it.
pub(crate) fn one_word(index: usize) -> &'static str {
    ONE_WORD.get(index).copied().filter(|policy| *policy != FASTEST).unwrap_or(ONE_WORD[index % 8])
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Allow {
        key: Index,
        cost: Cost,
        at: At,
        /// If there is no room, come again when there should be.
        chase: bool,
    },
    Peek {
        key: Index,
        cost: Cost,
        at: At,
    },
    Many(Vec<(Index, Cost)>),
    Consume {
        key: Index,
        cost: Cost,
        within: Option<Duration>,
        poll: bool,
    },
    Reserve {
        key: Index,
        cost: Cost,
        within: Option<Duration>,
    },
    Poll(Index),
    Drop(Index),
    Settle(Index, Cost),
    Reset(Index),
    SetPolicy(Index, usize, Carry),
    ClearPolicy(Index, Carry),
    Change(usize, Carry),
    Pause(Index, Duration),
    Advance(Duration),
}

/// Whose time counts, in runs whose callers bring it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    Clock,
    Before(Duration),
    After(Duration),
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        12 => (1_u64..4).prop_map(Cost::whole),
        4 => prop::sample::select(vec!["0.5", "0.1", "0.333333333", "1.25", "2.000000001"])
            .prop_map(|text| text.parse().unwrap()),
        1 => Just(Cost::ZERO),
        1 => (4_u64..9).prop_map(Cost::whole),
    ]
}

/// Spans at which something happens, next to them, and others.
fn span() -> impl Strategy<Value = Duration> {
    let units = [100_000_000_u64, 500_000_000, 333_333_333, 37_000_001, 1_000_000, 3_000_000, 600_000_000_000];
    (prop::sample::select(units.to_vec()), 0_u64..8, 0_u64..3)
        .prop_map(|(unit, times, off)| Duration::from_nanos((unit * times + off).saturating_sub(1)))
}

fn carry() -> impl Strategy<Value = Carry> {
    prop::sample::select(vec![Carry::Keep, Carry::Balance, Carry::Scale, Carry::Reset])
}

/// Any policy but the fastest: a second of debt at a thousand million tokens a second is
/// a debt of centuries at one an hour.
fn change_to() -> impl Strategy<Value = usize> {
    (0_usize..18).prop_map(|policy| if ONE_WORD.get(policy) == Some(&FASTEST) { 0 } else { policy })
}

fn at() -> impl Strategy<Value = At> {
    prop_oneof![4 => Just(At::Clock), 2 => span().prop_map(At::Before), 1 => span().prop_map(At::After)]
}

fn op() -> impl Strategy<Value = Op> {
    let key = any::<Index>;
    let within = || proptest::option::weighted(0.3, span());
    prop_oneof![
        24 => (key(), cost(), at(), prop::bool::weighted(0.6))
            .prop_map(|(key, cost, at, chase)| Op::Allow { key, cost, at, chase }),
        3 => (key(), cost(), at()).prop_map(|(key, cost, at)| Op::Peek { key, cost, at }),
        2 => prop::collection::vec((key(), cost()), 1..24).prop_map(Op::Many),
        5 => (key(), cost(), within(), prop::bool::weighted(0.9))
            .prop_map(|(key, cost, within, poll)| Op::Consume { key, cost, within, poll }),
        3 => (key(), cost(), within()).prop_map(|(key, cost, within)| Op::Reserve { key, cost, within }),
        3 => any::<Index>().prop_map(Op::Poll),
        4 => any::<Index>().prop_map(Op::Drop),
        2 => (any::<Index>(), cost()).prop_map(|(place, actual)| Op::Settle(place, actual)),
        1 => key().prop_map(Op::Reset),
        1 => (key(), change_to(), carry()).prop_map(|(key, policy, carry)| Op::SetPolicy(key, policy, carry)),
        1 => (key(), carry()).prop_map(|(key, carry)| Op::ClearPolicy(key, carry)),
        2 => (change_to(), carry()).prop_map(|(policy, carry)| Op::Change(policy, carry)),
        1 => (key(), span()).prop_map(|(key, pause)| Op::Pause(key, pause)),
        9 => span().prop_map(Op::Advance),
    ]
}

impl Op {
    /// Does it fit a flat table too?
    pub(crate) fn is_for_flat(&self) -> bool {
        !matches!(self, Op::Change(policy, _) if *policy >= ONE_WORD.len())
    }
}

/// An event that prints itself on one line, for histories that one can read.
#[derive(Clone)]
pub(crate) struct Line(pub(crate) Op);

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Histories of up to so many events.
pub(crate) fn histories(most: usize) -> impl Strategy<Value = Vec<Line>> {
    prop::collection::vec(op().prop_map(Line), 1..most)
}
