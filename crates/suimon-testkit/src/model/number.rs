//! Exact fractions of any size, and the few ways back to whole numbers.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};

/// An exact fraction: tokens, instants and durations in nanoseconds.
pub type Q = BigRational;

/// A whole number as a fraction.
#[must_use]
pub fn whole(number: u64) -> Q {
    Q::from_integer(BigInt::from(number))
}

/// `numerator / denominator`.
///
/// # Panics
/// When the denominator is zero.
#[must_use]
pub fn fraction(numerator: u64, denominator: u64) -> Q {
    Q::new(BigInt::from(numerator), BigInt::from(denominator))
}

/// Reads a decimal number such as `2.5`, with an optional minus.
#[must_use]
pub fn decimal(text: &str) -> Option<Q> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, after) = match digits.split_once('.') {
        Some((whole, after)) if !after.is_empty() => (whole, after),
        Some(_) => return None,
        None => (digits, ""),
    };
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(after) {
        return None;
    }
    let numerator: BigInt = format!("{whole}{after}").parse().ok()?;
    let denominator = BigInt::from(10).pow(u32::try_from(after.len()).ok()?);
    let number = Q::new(numerator, denominator);
    Some(if negative { -number } else { number })
}

/// Rounded down to a whole number from 0 to `u64::MAX`.
pub(super) fn floor_u64(number: &Q) -> u64 {
    if number < &Q::zero() { 0 } else { number.floor().to_integer().to_u64().unwrap_or(u64::MAX) }
}

/// Rounded up to a whole number from 0 to `u64::MAX`.
pub(super) fn ceil_u64(number: &Q) -> u64 {
    if number < &Q::zero() { 0 } else { number.ceil().to_integer().to_u64().unwrap_or(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        assert_eq!(decimal("2.5"), Some(fraction(5, 2)));
        assert_eq!(decimal("0.000000001"), Some(fraction(1, 1_000_000_000)));
        assert_eq!(decimal("-5"), Some(-whole(5)));
        for text in ["", "-", ".5", "1.", "1e3", "NaN", "1 ", "+1"] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }
}
