use core::time::Duration;

use crate::int;
use crate::time::Timestamp;

/// The answer to "may this pass?".
///
/// A refusal is an answer, never an error.
///
/// ```
/// use core::time::Duration;
/// use suimon_core::{Cost, Decision, Gate, Policy, Retry, Timestamp};
///
/// let gate = Gate::new("bucket 1/s burst 2".parse::<Policy>()?)?;
/// let mut state = gate.fresh();
/// let now = Timestamp::ZERO;
///
/// let first = gate.allow(&mut state, now, Cost::whole(2))?;
/// assert!(first.is_allowed());
/// match gate.allow(&mut state, now, Cost::ONE)? {
///     Decision::Allow(_) => panic!("the bucket is empty"),
///     Decision::Deny(status, retry) => {
///         assert_eq!(status.remaining(), 0);
///         assert_eq!(retry.after(), Some(Duration::from_secs(1)));
///         assert_eq!(retry.limit(), 0);
///     }
/// }
/// # Ok::<(), suimon_core::Error>(())
/// ```
// A tag of its own: packed into the nanoseconds of the wait, asking whether it
// passes would first have to divide them out of it.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It passes, and has been charged (unless it was only a peek).
    Allow(Status),
    /// It does not pass; nothing was charged.
    Deny(Status, Retry),
}

impl Decision {
    /// Does it pass?
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allow(_))
    }

    /// How the limit stands after the decision: of a policy, the limit that
    /// refused, or else the one that lets the fewest calls of cost 1 pass (of
    /// several, the one that takes the longest to be as good as new).
    #[must_use]
    pub const fn status(&self) -> &Status {
        match self {
            Decision::Allow(status) | Decision::Deny(status, _) => status,
        }
    }

    /// When to come back, if it was refused.
    #[must_use]
    pub const fn retry(&self) -> Option<Retry> {
        match self {
            Decision::Allow(_) => None,
            Decision::Deny(_, retry) => Some(*retry),
        }
    }
}

/// When the same request would pass, if nothing else happened.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After this time and not one nanosecond earlier.
    After {
        /// The least time after which it passes, rounded up.
        wait: Duration,
        /// The limit of the policy that refused, by its index; of several the
        /// one with the longest wait.
        limit: usize,
    },
    /// Never: the limit is `block`.
    Never {
        /// The limit of the policy that refused, by its index.
        limit: usize,
    },
}

impl Retry {
    /// The time to wait, or `None` where no waiting helps.
    #[must_use]
    pub const fn after(self) -> Option<Duration> {
        match self {
            Retry::After { wait, .. } => Some(wait),
            Retry::Never { .. } => None,
        }
    }

    /// The index of the limit that refused.
    #[must_use]
    pub const fn limit(self) -> usize {
        match self {
            Retry::After { limit, .. } | Retry::Never { limit } => limit,
        }
    }

    /// What is left of the wait at `now`, for an answer given at `asked`: zero
    /// when it is over.
    ///
    /// ```
    /// # use core::time::Duration;
    /// # use suimon_core::{Retry, Timestamp};
    /// let retry = Retry::After { wait: Duration::from_secs(1), limit: 0 };
    /// let asked = Timestamp::ZERO;
    /// assert_eq!(retry.wait_from(asked, Timestamp::from_secs(3)), Some(Duration::ZERO));
    /// ```
    #[must_use]
    pub fn wait_from(self, asked: Timestamp, now: Timestamp) -> Option<Duration> {
        self.after().map(|wait| wait.saturating_sub(now.saturating_since(asked)))
    }

    /// Orders by length, `Never` being the longest.
    pub(crate) fn is_longer_than(self, other: Retry) -> bool {
        match (self.after(), other.after()) {
            (Some(mine), Some(theirs)) => mine > theirs,
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }
}

/// How a limit stands at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) burst_left: u64,
    pub(crate) reset_after: u64,
}

impl Status {
    /// The largest cost that can ever pass, rounded down: the burst of a bucket,
    /// the limit of a window. `u64::MAX` for `unlimited`, 0 for `block`.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The greatest whole cost that would pass at this instant.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// How many calls of cost 1 would pass at this instant. For a pace, whose
    /// calls are paid afterwards, this is less than `remaining`.
    #[must_use]
    pub const fn burst_left(&self) -> u64 {
        self.burst_left
    }

    /// The time until the limit is as good as new, rounded up.
    #[must_use]
    pub const fn reset_after(&self) -> Duration {
        Duration::from_nanos(self.reset_after)
    }

    pub(crate) const UNLIMITED: Status =
        Status { limit: u64::MAX, remaining: u64::MAX, burst_left: u64::MAX, reset_after: 0 };
    pub(crate) const BLOCK: Status = Status { limit: 0, remaining: 0, burst_left: 0, reset_after: 0 };

    /// For a limit on a counted sum: `used` of `limit`, empty again after `reset_after`.
    pub(crate) fn counted(limit: crate::Cost, used: u128, reset_after: Duration) -> Status {
        let left = crate::Cost::from_billionths(limit.billionths().saturating_sub(used)).as_whole();
        Status { limit: limit.as_whole(), remaining: left, burst_left: left, reset_after: int::nanos(reset_after) }
    }

    /// Is this limit nearer to refusing than the other?
    pub(crate) fn is_tighter_than(&self, other: &Status) -> bool {
        (self.burst_left, other.reset_after) < (other.burst_left, self.reset_after)
    }
}
