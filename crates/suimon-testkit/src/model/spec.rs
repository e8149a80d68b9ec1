//! What a limit is, in plain numbers.

use std::fmt;
use std::sync::Arc;

use num_traits::{One, Zero};

use super::number::{Q, fraction, whole};

/// One limit of a policy.
#[derive(Clone, Debug)]
pub enum Spec {
    /// Go while the balance is not negative, pay afterwards.
    Pace {
        /// How fast the balance grows.
        rate: Rate,
        /// The most that idling saves up.
        savings: Q,
        /// The largest cost.
        max_cost: Q,
    },
    /// Go while the balance covers the cost.
    Bucket {
        /// How fast the balance grows.
        rate: Rate,
        /// The most that it holds, and the largest cost.
        burst: Q,
    },
    /// At most `limit` in any stretch as long as `period`.
    Window {
        /// The most in a period, and the largest cost.
        limit: Q,
        /// Nanoseconds for which a call counts.
        period: u64,
    },
    /// At most `limit` in each of the windows that follow each other.
    Fixed {
        /// The most in a window, and the largest cost.
        limit: Q,
        /// Where one window ends and the next begins.
        windows: Windows,
    },
    /// Everything passes.
    Unlimited,
    /// Nothing passes.
    Block,
}

impl Spec {
    /// The largest cost that can ever pass; `None` if the cost does not matter.
    #[must_use]
    pub fn max_cost(&self) -> Option<&Q> {
        match self {
            Spec::Pace { max_cost, .. } => Some(max_cost),
            Spec::Bucket { burst, .. } => Some(burst),
            Spec::Window { limit, .. } | Spec::Fixed { limit, .. } => Some(limit),
            Spec::Unlimited | Spec::Block => None,
        }
    }

    /// The most that is at hand when nothing has been used: the savings, the
    /// burst, the limit.
    #[must_use]
    pub fn size(&self) -> Option<&Q> {
        match self {
            Spec::Pace { savings, .. } => Some(savings),
            _ => self.max_cost(),
        }
    }
}

/// So many tokens in so many nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Tokens of a period, at least 1.
    pub tokens: u64,
    /// Nanoseconds of a period, at least 1.
    pub period: u64,
}

impl Rate {
    /// `T`, the nanoseconds that one token takes.
    #[must_use]
    pub fn interval(self) -> Q {
        fraction(self.period, self.tokens)
    }
}

/// How coarsely a limit with a rate reads its clock and counts its tokens.
///
/// With `ticks_per_ns` = r, an instant `t` counts as `floor(t * r) / r`, and a cost
/// and a saving are rounded up to whole ticks of `1 / r` nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grain {
    ticks_per_ns: Q,
}

impl Grain {
    /// The grain of so many ticks in a nanosecond.
    #[must_use]
    pub fn new(ticks_per_ns: Q) -> Grain {
        Grain { ticks_per_ns }
    }

    /// The grain of a counter whose token is a whole number of ticks of at most
    /// a nanosecond: (half) nanoseconds where a token takes a whole number of
    /// them, and otherwise the largest that halving a token again and again gives.
    #[must_use]
    pub fn of(rate: Rate) -> Grain {
        let interval = rate.interval();
        if interval.is_integer() {
            return Grain::new(Q::one());
        }
        if (&interval * whole(2)).is_integer() {
            return Grain::new(whole(2));
        }
        let mut ticks_per_ns = interval.recip();
        while ticks_per_ns < Q::one() {
            ticks_per_ns *= whole(2);
        }
        Grain::new(ticks_per_ns)
    }

    /// The last tick that is not after `time`.
    #[must_use]
    pub fn down(&self, time: &Q) -> Q {
        (time * &self.ticks_per_ns).floor() / &self.ticks_per_ns
    }

    /// The first tick that is not before `time`.
    #[must_use]
    pub fn up(&self, time: &Q) -> Q {
        (time * &self.ticks_per_ns).ceil() / &self.ticks_per_ns
    }
}

/// Windows that follow each other without a gap.
#[derive(Clone)]
pub enum Windows {
    /// All of the same length in nanoseconds, one of them beginning at 0.
    Every(u64),
    /// Beginning at these instants in ascending order, and at 0.
    At(Vec<u64>),
    /// The window that holds an instant: its first, and the first beyond it.
    Rule(Arc<dyn Fn(u64) -> (u64, u64) + Send + Sync>),
}

impl Windows {
    /// The window that holds an instant: its first, and the first beyond it.
    #[must_use]
    pub fn around(&self, instant: u64) -> (u64, u64) {
        match self {
            Windows::Every(length) => {
                let begin = instant - instant % length;
                (begin, begin.saturating_add(*length))
            }
            Windows::At(starts) => {
                let begin = starts.iter().copied().filter(|start| *start <= instant).max();
                let end = starts.iter().copied().filter(|start| *start > instant).min();
                (begin.unwrap_or(0), end.unwrap_or(u64::MAX))
            }
            Windows::Rule(around) => around(instant),
        }
    }
}

impl fmt::Debug for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Windows::Every(length) => f.debug_tuple("Every").field(length).finish(),
            Windows::At(starts) => f.debug_tuple("At").field(starts).finish(),
            Windows::Rule(_) => f.write_str("Rule"),
        }
    }
}

/// Zero as a fraction, for those who compare with it.
pub(super) fn zero() -> Q {
    Q::zero()
}
