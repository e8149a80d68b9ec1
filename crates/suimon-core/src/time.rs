use core::time::Duration;

use crate::int;

/// An instant: nanoseconds since an origin that the caller chooses.
///
/// The core never reads a clock. For pace, bucket and window any origin will
/// do (the start of the process, the creation of the limiter); `fixed` limits
/// are aligned to the calendar, so there the origin must be the Unix epoch.
///
/// Every limit can run for at least a century from the origin, for most rates
/// for 190 years and more. Beyond that, time stands still: nothing is minted and
/// nothing wraps.
///
/// ```
/// use core::time::Duration;
/// use suimon_core::Timestamp;
///
/// let start = Timestamp::from_nanos(1_500_000_000);
/// let later = start.saturating_add(Duration::from_secs(2));
/// assert_eq!(later.saturating_since(start), Duration::from_secs(2));
/// assert_eq!(start.saturating_since(later), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin itself.
    pub const ZERO: Timestamp = Timestamp(0);
    /// The last instant, 584 years after the origin.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// The instant `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Timestamp {
        Timestamp(nanos)
    }

    /// The instant `secs` seconds after the origin, at most [`Timestamp::MAX`].
    #[must_use]
    pub const fn from_secs(secs: u64) -> Timestamp {
        Timestamp(secs.saturating_mul(int::NANOS_PER_SEC))
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant `after` later, at most [`Timestamp::MAX`].
    #[must_use]
    pub fn saturating_add(self, after: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(int::nanos(after)))
    }

    /// The time since `earlier`, or zero where `earlier` is in fact later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The latest instant that has been seen: time that never runs back.
///
/// Put it between a caller who brings the time and a [`Gate`](crate::Gate): an
/// older `now` is then taken as the latest one, so going back and forth neither
/// mints tokens nor locks anybody out for longer than the limit itself would.
/// The machine's monotonic clock does not need it.
///
/// ```
/// use suimon_core::{HighWater, Timestamp};
///
/// let mut seen = HighWater::new();
/// assert_eq!(seen.observe(Timestamp::from_secs(100)), Timestamp::from_secs(100));
/// assert_eq!(seen.observe(Timestamp::from_secs(50)), Timestamp::from_secs(100));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HighWater(Timestamp);

impl HighWater {
    /// Nothing seen yet.
    #[must_use]
    pub const fn new() -> HighWater {
        HighWater(Timestamp::ZERO)
    }

    /// Takes note of `now` and answers the latest instant seen.
    pub fn observe(&mut self, now: Timestamp) -> Timestamp {
        self.0 = self.0.max(now);
        self.0
    }

    /// The latest instant seen.
    #[must_use]
    pub const fn latest(self) -> Timestamp {
        self.0
    }
}
