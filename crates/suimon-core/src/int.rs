//! Integer helpers whose results are defined for every input, so that no
//! caller needs an operator that could overflow or divide by zero.

use core::num::NonZeroU64;
use core::time::Duration;

pub(crate) const NANOS_PER_SEC: u64 = 1_000_000_000;

/// The full product; two 64-bit factors always fit.
pub(crate) const fn widening_mul(a: u64, b: u64) -> u128 {
    widen(a).wrapping_mul(widen(b))
}

#[expect(clippy::as_conversions, reason = "widening; `From` is not const")]
pub(crate) const fn widen(a: u64) -> u128 {
    a as u128
}

#[expect(clippy::as_conversions, reason = "widening; `From` is not const")]
pub(crate) const fn widen_u32(a: u32) -> u64 {
    a as u64
}

/// The value, or the largest one where it does not fit.
pub(crate) fn saturate(a: u128) -> u64 {
    u64::try_from(a).unwrap_or(u64::MAX)
}

/// The upper 64 bits.
#[expect(clippy::as_conversions, reason = "a value below 2^64 after the shift")]
pub(crate) const fn high(a: u128) -> u64 {
    (a >> 64) as u64
}

/// The lower 64 bits.
#[expect(clippy::as_conversions, reason = "the truncation is the point")]
pub(crate) const fn low(a: u128) -> u64 {
    a as u64
}

/// Quotient and remainder of a division by a number that is not zero.
#[expect(clippy::integer_division_remainder_used, clippy::arithmetic_side_effects, reason = "the divisor is not zero")]
pub(crate) const fn div_rem(a: u128, b: NonZeroU64) -> (u128, u64) {
    let b = widen(b.get());
    (a / b, low(a % b))
}

/// `a / b`, rounded up.
pub(crate) fn div_ceil(a: u128, b: NonZeroU64) -> u128 {
    let (quotient, remainder) = div_rem(a, b);
    quotient.saturating_add(u128::from(remainder > 0))
}

/// `a / b` in 64 bits, rounded down.
#[expect(clippy::integer_division_remainder_used, clippy::arithmetic_side_effects, reason = "the divisor is not zero")]
pub(crate) const fn div(a: u64, b: NonZeroU64) -> u64 {
    a / b.get()
}

/// `a % b` in 64 bits.
#[expect(clippy::integer_division_remainder_used, clippy::arithmetic_side_effects, reason = "the divisor is not zero")]
pub(crate) const fn rem(a: u64, b: NonZeroU64) -> u64 {
    a % b.get()
}

/// `a * b / c`, rounded up and saturating.
pub(crate) fn mul_div_ceil(a: u64, b: u64, c: NonZeroU64) -> u64 {
    saturate(div_ceil(widening_mul(a, b), c))
}

/// Whole nanoseconds, or the largest number where they do not fit (584 years).
pub(crate) fn nanos(duration: Duration) -> u64 {
    saturate(duration.as_nanos())
}

/// The same in `const` contexts.
pub(crate) const fn nanos_const(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if high(nanos) > 0 { u64::MAX } else { low(nanos) }
}

/// Greatest common divisor of two numbers that are not zero.
pub(crate) const fn gcd(a: NonZeroU64, b: NonZeroU64) -> NonZeroU64 {
    let (mut a, mut b) = (a, b);
    while let Some(next) = NonZeroU64::new(rem(a.get(), b)) {
        a = b;
        b = next;
    }
    b
}
