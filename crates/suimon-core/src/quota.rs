use core::num::NonZeroU64;
use core::time::Duration;

use crate::CENTURY;
use crate::error::OutOfRange;
use crate::int;

/// A rate: so many tokens in each period.
///
/// From 1 token a century to 2,000,000,000 tokens a second; the period is from
/// 1 ns to a century. Tokens are whole: half a token a second is
/// one token each two seconds.
///
/// ```
/// use core::time::Duration;
/// use suimon_core::Quota;
///
/// let quota = Quota::per_minute(60)?;
/// assert_eq!(quota, Quota::new(60, Duration::from_secs(60))?);
/// assert_eq!(quota.interval(), Duration::from_secs(1));
/// assert!(Quota::per_second(0).is_err());
///
/// // In a constant a bad rate does not compile.
/// const API: Quota = match Quota::per_second(4000) {
///     Ok(quota) => quota,
///     Err(_) => panic!("out of range"),
/// };
/// assert_eq!(API.interval(), Duration::from_micros(250));
/// # Ok::<(), suimon_core::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    tokens: NonZeroU64,
    period: NonZeroU64,
}

/// Nanoseconds of the usual periods.
const SECOND: u64 = int::NANOS_PER_SEC;
const DAY: u64 = SECOND * 86_400;

impl Quota {
    /// `tokens` in each second.
    ///
    /// # Errors
    /// When the rate is zero or above 2,000,000,000 a second; the same holds for
    /// the other constructors.
    pub const fn per_second(tokens: u64) -> Result<Quota, OutOfRange> {
        Quota::from_nanos(tokens, SECOND)
    }

    /// `tokens` in each minute.
    ///
    /// # Errors
    /// As for [`Quota::per_second`].
    pub const fn per_minute(tokens: u64) -> Result<Quota, OutOfRange> {
        Quota::from_nanos(tokens, SECOND * 60)
    }

    /// `tokens` in each hour.
    ///
    /// # Errors
    /// As for [`Quota::per_second`].
    pub const fn per_hour(tokens: u64) -> Result<Quota, OutOfRange> {
        Quota::from_nanos(tokens, SECOND * 3600)
    }

    /// `tokens` in each day of 24 hours.
    ///
    /// # Errors
    /// As for [`Quota::per_second`].
    pub const fn per_day(tokens: u64) -> Result<Quota, OutOfRange> {
        Quota::from_nanos(tokens, DAY)
    }

    /// `tokens` in each seven days.
    ///
    /// # Errors
    /// As for [`Quota::per_second`].
    pub const fn per_week(tokens: u64) -> Result<Quota, OutOfRange> {
        Quota::from_nanos(tokens, DAY * 7)
    }

    /// `tokens` in each 365.25 days.
    ///
    /// # Errors
    /// As for [`Quota::per_second`].
    pub const fn per_year(tokens: u64) -> Result<Quota, OutOfRange> {
        Quota::from_nanos(tokens, SECOND * 31_557_600)
    }

    /// `tokens` in each `period`.
    ///
    /// # Errors
    /// When `tokens` is zero, the period is zero or above a century, or the rate
    /// is above 2,000,000,000 tokens a second.
    pub const fn new(tokens: u64, period: Duration) -> Result<Quota, OutOfRange> {
        Quota::from_nanos(tokens, int::nanos_const(period))
    }

    const fn from_nanos(tokens: u64, period: u64) -> Result<Quota, OutOfRange> {
        let Some(tokens) = NonZeroU64::new(tokens) else {
            return Err(OutOfRange::ZERO_TOKENS);
        };
        let Some(period) = checked_period(period) else {
            return Err(OutOfRange::period(Duration::from_nanos(period)));
        };
        if int::widen(tokens.get()) > int::widening_mul(period.get(), 2) {
            return Err(OutOfRange::too_fast(tokens.get(), Duration::from_nanos(period.get())));
        }
        Ok(Quota { tokens, period })
    }

    /// The tokens of a period.
    #[must_use]
    pub const fn tokens(self) -> u64 {
        self.tokens.get()
    }

    /// The period.
    #[must_use]
    pub const fn period(self) -> Duration {
        Duration::from_nanos(self.period.get())
    }

    /// The time that one token takes, rounded up to a nanosecond.
    #[must_use]
    pub fn interval(self) -> Duration {
        Duration::from_nanos(int::mul_div_ceil(self.period.get(), 1, self.tokens))
    }

    /// Tokens and nanoseconds without a common factor.
    pub(crate) const fn reduced(self) -> (NonZeroU64, NonZeroU64) {
        let common = int::gcd(self.tokens, self.period);
        match (
            NonZeroU64::new(int::div(self.tokens.get(), common)),
            NonZeroU64::new(int::div(self.period.get(), common)),
        ) {
            (Some(tokens), Some(period)) => (tokens, period),
            // A divisor of a positive number is never larger than the number.
            _ => (self.tokens, self.period),
        }
    }

    /// The most tokens that a century brings, rounded down.
    pub(crate) fn per_century(self) -> u64 {
        int::saturate(int::div_rem(int::widening_mul(self.tokens.get(), int::nanos(CENTURY)), self.period).0)
    }
}

/// A period in nanoseconds, from 1 ns to a century.
pub(crate) const fn checked_period(nanos: u64) -> Option<NonZeroU64> {
    match NonZeroU64::new(nanos) {
        Some(period) if nanos <= int::nanos_const(CENTURY) => Some(period),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_the_range() {
        let slow = Quota::new(1, CENTURY).unwrap();
        assert_eq!(slow.interval(), CENTURY);
        assert!(Quota::new(1, CENTURY + Duration::from_nanos(1)).is_err());
        assert!(Quota::new(1, Duration::MAX).is_err());
        assert!(Quota::new(1, Duration::ZERO).is_err());
        assert!(Quota::per_second(2_000_000_000).is_ok());
        assert!(Quota::per_second(2_000_000_001).is_err());
        assert!(Quota::per_second(u64::MAX).is_err());
        assert_eq!(Quota::per_year(1).unwrap().period(), Duration::from_secs(31_557_600));
    }

    #[test]
    fn a_century_of_tokens() {
        assert_eq!(Quota::per_second(2_000_000_000).unwrap().per_century(), 6_311_520_000_000_000_000);
        assert_eq!(Quota::per_year(1).unwrap().per_century(), 100);
    }
}
