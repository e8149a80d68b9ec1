use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;

use crate::cost::Cost;
use crate::int;
use crate::ticks::Ticks;
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
///
/// Its numbers are worked out when they are asked for: most callers only want to
/// know whether they may pass, and each number costs a division.
#[derive(Clone, Copy)]
pub struct Status {
    limit: u64,
    /// What is left, in units of which `per_token` make a token.
    left: u64,
    per_token: NonZeroU64,
    paid: Paid,
    /// When it is as good as new, in units of `nanos.0 / nanos.1` ns.
    full_at: u64,
    nanos: (u64, NonZeroU64),
    now: u64,
}

/// When a call pays.
#[derive(Clone, Copy)]
enum Paid {
    /// Before it passes, from what is left.
    First,
    /// After it has passed: anything that is not owed is enough.
    Later,
    /// Calls before it are still to be paid.
    Owed,
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
    pub fn remaining(&self) -> u64 {
        match self.paid {
            Paid::First => self.tokens_left().min(self.limit),
            Paid::Later => self.limit,
            Paid::Owed => 0,
        }
    }

    /// How many calls of cost 1 would pass at this instant. For a pace, whose
    /// calls are paid afterwards, this is less than `remaining`.
    #[must_use]
    pub fn burst_left(&self) -> u64 {
        match self.paid {
            // A call of cost 1 is too large for ever.
            _ if self.limit == 0 => 0,
            Paid::First => self.tokens_left(),
            Paid::Later => self.tokens_left().saturating_add(1),
            Paid::Owed => 0,
        }
    }

    /// The time until the limit is as good as new, rounded up.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        let full_at = int::mul_div_ceil(self.full_at, self.nanos.0, self.nanos.1);
        Duration::from_nanos(full_at.saturating_sub(self.now))
    }

    fn tokens_left(&self) -> u64 {
        int::div(self.left, self.per_token)
    }

    /// A status of numbers that somebody else has worked out: a store, a server.
    ///
    /// `remaining` is at most `limit`; where it is less than `burst_left` it is the
    /// limit that says so.
    ///
    /// ```
    /// use core::time::Duration;
    /// use suimon_core::Status;
    ///
    /// let status = Status::of(10, 3, 3, Duration::from_secs(7));
    /// assert_eq!((status.limit(), status.remaining(), status.burst_left()), (10, 3, 3));
    /// assert_eq!(status.reset_after(), Duration::from_secs(7));
    /// ```
    #[must_use]
    pub fn of(limit: u64, remaining: u64, burst_left: u64, reset_after: Duration) -> Status {
        let plain = Status::plain(limit, burst_left, int::nanos(reset_after));
        match burst_left.checked_sub(1) {
            // A pace: any cost passes, and is paid afterwards.
            Some(left) if remaining == limit && burst_left != remaining => Status { left, paid: Paid::Later, ..plain },
            _ if limit == 0 => Status { left: 0, ..plain },
            _ => plain,
        }
    }

    /// How `unlimited` stands at every instant.
    pub const UNLIMITED: Status = Status::plain(u64::MAX, u64::MAX, 0);
    pub(crate) const BLOCK: Status = Status::plain(0, 0, 0);

    /// For a limit on a counted sum: `used` of `limit`, empty again after `reset_after`.
    pub(crate) fn counted(limit: Cost, used: u128, reset_after: Duration) -> Status {
        let left = Cost::from_billionths(limit.billionths().saturating_sub(used));
        Status::plain(limit.as_whole(), left.as_whole(), int::nanos(reset_after))
    }

    const fn plain(limit: u64, left: u64, reset_after: u64) -> Status {
        let one = NonZeroU64::MIN;
        Status { limit, left, per_token: one, paid: Paid::First, full_at: reset_after, nanos: (1, one), now: 0 }
    }

    /// For a pace or bucket: what is left of the savings in ticks, or `None` while
    /// it owes, and the tick at which it is full.
    #[inline]
    pub(crate) fn ticking(
        ticks: &Ticks,
        max_cost: Cost,
        pays_first: bool,
        left: Option<u64>,
        full_at: u64,
        now: Timestamp,
    ) -> Status {
        let paid = match left {
            None => Paid::Owed,
            Some(_) if pays_first => Paid::First,
            Some(_) => Paid::Later,
        };
        Status {
            limit: max_cost.as_whole(),
            left: left.unwrap_or(0),
            per_token: ticks.ticks_of_token(),
            paid,
            full_at,
            nanos: ticks.nanos_of_tick(),
            now: ticks.counted(now).as_nanos(),
        }
    }

    /// Is this limit nearer to refusing than the other?
    pub(crate) fn is_tighter_than(&self, other: &Status) -> bool {
        (self.burst_left(), other.reset_after()) < (other.burst_left(), self.reset_after())
    }

    fn numbers(&self) -> (u64, u64, u64, Duration) {
        (self.limit, self.remaining(), self.burst_left(), self.reset_after())
    }
}

/// Equal when all numbers are.
impl PartialEq for Status {
    fn eq(&self, other: &Status) -> bool {
        self.numbers() == other.numbers()
    }
}

impl Eq for Status {}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, remaining, burst_left, reset_after) = self.numbers();
        f.debug_struct("Status")
            .field("limit", &limit)
            .field("remaining", &remaining)
            .field("burst_left", &burst_left)
            .field("reset_after", &reset_after)
            .finish()
    }
}
