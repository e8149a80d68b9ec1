use core::fmt;
use core::str::FromStr;

use crate::error::Error;
use crate::int;

/// What a request takes from a limit: a non-negative decimal number of tokens.
///
/// Resolution is one billionth of a token, the whole part goes up to
/// `u64::MAX`. A cost of zero is free: it is always allowed and changes nothing.
///
/// ```
/// use suimon_core::Cost;
///
/// let cost: Cost = "2.5".parse()?;
/// assert_eq!(cost, Cost::new(2, 500_000_000)?);
/// assert_eq!(cost.to_string(), "2.5");
/// assert!("-1".parse::<Cost>().unwrap_err().is_invalid_cost());
/// assert!("NaN".parse::<Cost>().is_err());
/// # Ok::<(), suimon_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost {
    whole: u64,
    nanos: u32,
}

impl Cost {
    /// Free.
    pub const ZERO: Cost = Cost::whole(0);
    /// One token, the cost of an ordinary call.
    pub const ONE: Cost = Cost::whole(1);
    /// The largest cost that can be written down.
    pub const MAX: Cost = Cost { whole: u64::MAX, nanos: 999_999_999 };

    /// A whole number of tokens.
    #[must_use]
    pub const fn whole(tokens: u64) -> Cost {
        Cost { whole: tokens, nanos: 0 }
    }

    /// `whole` tokens and `nanos` billionths of one.
    ///
    /// # Errors
    /// When `nanos` is a whole token or more (at most 999,999,999 is meant).
    pub const fn new(whole: u64, nanos: u32) -> Result<Cost, Error> {
        if nanos < 1_000_000_000 {
            Ok(Cost { whole, nanos })
        } else {
            Err(Error::invalid_cost("the fraction of a cost is at most 999999999 billionths"))
        }
    }

    /// The same where the fraction is known to be one; another is the largest.
    #[inline]
    pub(crate) fn from_parts(whole: u64, nanos: u64) -> Cost {
        let nanos = u32::try_from(nanos).unwrap_or(u32::MAX).min(999_999_999);
        Cost { whole, nanos }
    }

    /// The whole tokens, rounded down.
    #[must_use]
    pub const fn as_whole(self) -> u64 {
        self.whole
    }

    /// The fraction in billionths of a token.
    #[must_use]
    pub const fn subsec_nanos(self) -> u32 {
        self.nanos
    }

    /// Is it free?
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.whole == 0 && self.nanos == 0
    }

    /// The sum, at most [`Cost::MAX`].
    #[must_use]
    pub fn saturating_add(self, other: Cost) -> Cost {
        Cost::from_billionths(self.billionths().saturating_add(other.billionths()))
    }

    /// The difference, at least zero.
    #[must_use]
    pub fn saturating_sub(self, other: Cost) -> Cost {
        Cost::from_billionths(self.billionths().saturating_sub(other.billionths()))
    }

    /// The cost in billionths of a token: below 2^94, so that sums of any
    /// length that fits a memory fit 128 bits.
    pub(crate) fn billionths(self) -> u128 {
        int::widening_mul(self.whole, int::NANOS_PER_SEC).saturating_add(u128::from(self.nanos))
    }

    /// The inverse, at most [`Cost::MAX`].
    pub(crate) fn from_billionths(billionths: u128) -> Cost {
        let (whole, nanos) = int::div_rem(billionths, NANOS);
        match (u64::try_from(whole), u32::try_from(nanos)) {
            (Ok(whole), Ok(nanos)) => Cost { whole, nanos },
            _ => Cost::MAX,
        }
    }
}

const NANOS: core::num::NonZeroU64 = core::num::NonZeroU64::MIN.saturating_add(int::NANOS_PER_SEC - 1);

impl From<u32> for Cost {
    fn from(tokens: u32) -> Cost {
        Cost::whole(u64::from(tokens))
    }
}

impl From<u64> for Cost {
    fn from(tokens: u64) -> Cost {
        Cost::whole(tokens)
    }
}

impl TryFrom<i64> for Cost {
    type Error = Error;

    fn try_from(tokens: i64) -> Result<Cost, Error> {
        u64::try_from(tokens)
            .map(Cost::whole)
            .map_err(|_| Error::invalid_cost("a cost is zero or more; a negative one would mint tokens"))
    }
}

impl FromStr for Cost {
    type Err = Error;

    fn from_str(text: &str) -> Result<Cost, Error> {
        parse(text)
    }
}

/// Digits, `_` between digits, and at most one point with digits on both sides.
fn parse(text: &str) -> Result<Cost, Error> {
    if text.starts_with('-') {
        return Err(Error::invalid_cost("a cost is zero or more; a negative one would mint tokens"));
    }
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let whole = digits(whole)?;
    let mut nanos: u32 = 0;
    let mut scale: u32 = 100_000_000;
    if let Some(fraction) = fraction {
        check_digits(fraction)?;
        for digit in fraction.chars().filter_map(|c| c.to_digit(10)) {
            match (scale, digit) {
                (0, 0) => {}
                (0, _) => return Err(Error::invalid_cost("a cost has at most nine digits after the point")),
                _ => nanos = nanos.saturating_add(digit.saturating_mul(scale)),
            }
            scale = scale.checked_div(10).unwrap_or(0);
        }
    }
    Ok(Cost { whole, nanos })
}

fn check_digits(text: &str) -> Result<(), Error> {
    let inside = |c: char| c.is_ascii_digit() || c == '_';
    if text.is_empty() || !text.chars().all(inside) || text.starts_with('_') || text.ends_with('_') {
        return Err(Error::invalid_cost("a cost is a decimal number such as `3` or `0.25`"));
    }
    Ok(())
}

fn digits(text: &str) -> Result<u64, Error> {
    check_digits(text)?;
    text.chars()
        .filter_map(|c| c.to_digit(10))
        .try_fold(0_u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit)))
        .ok_or(Error::invalid_cost("a cost is at most 18446744073709551615.999999999"))
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.whole)?;
        if self.nanos > 0 {
            let mut nanos = self.nanos;
            let mut width: usize = 9;
            while let Some(shorter) = strip_zero(nanos) {
                nanos = shorter;
                width = width.saturating_sub(1);
            }
            write!(f, ".{nanos:0width$}")?;
        }
        Ok(())
    }
}

/// The number without its last digit, if that is a zero.
fn strip_zero(number: u32) -> Option<u32> {
    let shorter = number.checked_div(10)?;
    (number > 0 && shorter.checked_mul(10)? == number).then_some(shorter)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn text_round_trips_at_both_ends() {
        for text in ["0", "1", "0.000000001", "18446744073709551615.999999999", "2.5", "10.01"] {
            assert_eq!(text.parse::<Cost>().unwrap().to_string(), text);
        }
        assert_eq!("1_000".parse::<Cost>().unwrap(), Cost::whole(1000));
    }

    #[test]
    fn bad_texts_are_invalid_costs() {
        for text in [
            "",
            "-1",
            "-0.5",
            "+1",
            "1.",
            ".5",
            "1e3",
            "NaN",
            "inf",
            "1.0000000001",
            "18446744073709551616",
            "1__0_",
            "_1",
            "0x10",
            "1 ",
        ] {
            assert!(text.parse::<Cost>().unwrap_err().is_invalid_cost(), "{text}");
        }
    }

    #[test]
    fn sums_saturate() {
        assert_eq!(Cost::MAX.saturating_add(Cost::ONE), Cost::MAX);
        assert_eq!(Cost::ONE.saturating_sub(Cost::MAX), Cost::ZERO);
        assert_eq!(Cost::from_billionths(Cost::MAX.billionths()), Cost::MAX);
    }
}
