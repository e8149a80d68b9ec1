//! Random histories of a queue: what may happen to it, and to which policies.

use proptest::prelude::*;
use proptest::sample::Index;

use crate::reference::Rule;

const SECOND: u128 = 1_000_000_000;

/// The policies, as text and for the reference.
pub(crate) fn policies() -> Vec<(&'static str, Vec<Rule>)> {
    vec![
        ("pace 10/s", vec![Rule::pace(10, SECOND, 0)]),
        ("pace 5/2s savings 2", vec![Rule::pace(5, 2 * SECOND, 2)]),
        ("bucket 10/s burst 6", vec![Rule::bucket(10, SECOND, 6)]),
        ("bucket 2/s burst 9", vec![Rule::bucket(2, SECOND, 9)]),
        ("window 6/1s", vec![Rule::window(6, SECOND)]),
        ("window 8/2s", vec![Rule::window(8, 2 * SECOND)]),
        ("fixed 6/1s", vec![Rule::fixed(6, SECOND)]),
        ("fixed 9/3s", vec![Rule::fixed(9, 3 * SECOND)]),
        ("bucket 10/s burst 6 and window 8/2s", vec![Rule::bucket(10, SECOND, 6), Rule::window(8, 2 * SECOND)]),
        ("pace 10/s and fixed 7/1s", vec![Rule::pace(10, SECOND, 0), Rule::fixed(7, SECOND)]),
        ("pace 5/s and bucket 2/s burst 6", vec![Rule::pace(5, SECOND, 0), Rule::bucket(2, SECOND, 6)]),
        (
            "window 5/1s and fixed 8/2s and pace 10/s savings 3",
            vec![Rule::window(5, SECOND), Rule::fixed(8, 2 * SECOND), Rule::pace(10, SECOND, 3)],
        ),
    ]
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Wait {
        cost: u64,
        within: Option<u64>,
        poll: bool,
    },
    Reserve {
        cost: u64,
        within: Option<u64>,
    },
    Allow(u64),
    Peek(u64),
    Poll(Index),
    /// Drops a future, or a reservation, which is something else.
    Drop(Index),
    Settle(Index, u64),
    Cancel(Index),
    Advance(u64),
    /// The bell rings if it is due; otherwise early, if so wished.
    Ring {
        early: bool,
    },
    Pause(u64),
    Change {
        to: Index,
        keep: bool,
    },
    Close,
}

/// Spans at which something happens, next to them, and others.
fn span() -> impl Strategy<Value = u64> {
    let unit = prop_oneof![Just(100_000_000_u64), Just(500_000_000), Just(50_000_000), Just(37_000_001)];
    (unit, 0_u64..12, 0_u64..3).prop_map(|(unit, times, off)| (unit * times + off).saturating_sub(1))
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let cost = || prop_oneof![8 => 1_u64..6, 2 => 0_u64..11];
    let within = || proptest::option::weighted(0.3, span());
    prop_oneof![
        6 => (cost(), within(), prop::bool::weighted(0.9)).prop_map(|(cost, within, poll)| Op::Wait { cost, within, poll }),
        3 => (cost(), within()).prop_map(|(cost, within)| Op::Reserve { cost, within }),
        2 => cost().prop_map(Op::Allow),
        1 => cost().prop_map(Op::Peek),
        4 => any::<Index>().prop_map(Op::Poll),
        3 => any::<Index>().prop_map(Op::Drop),
        2 => (any::<Index>(), 0_u64..14).prop_map(|(index, actual)| Op::Settle(index, actual)),
        1 => any::<Index>().prop_map(Op::Cancel),
        6 => span().prop_map(Op::Advance),
        5 => prop::bool::weighted(0.2).prop_map(|early| Op::Ring { early }),
        1 => span().prop_map(Op::Pause),
        1 => (any::<Index>(), prop::bool::weighted(0.7)).prop_map(|(to, keep)| Op::Change { to, keep }),
        1 => prop::bool::weighted(0.1).prop_map(|close| if close { Op::Close } else { Op::Ring { early: false } }),
    ]
}
