//! Whole numbers for Lua, whose only numbers are doubles: exact below 2^53.
//!
//! The rate of a pace or bucket is `tokens / period`, reduced. Its unit is a nanosecond
//! divided by `tokens`, or by a multiple of it that makes a billionth of a token a whole
//! number of units too. Then every instant, every cost and every saving is a whole
//! number of units, and nothing is ever rounded. Such a number is sent as a pair: whole
//! microseconds, of which 2^53 last until the year 2255, and the units of the rest.

use suimon::{Cost, Quota};

/// The most units of a nanosecond, so that the sum of two rests is below 2^53.
pub(crate) const MOST_PER_NANO: u64 = 4_500_000_000_000;

/// The last microsecond that is counted; a century before it is still one too.
const LAST_MICRO: u128 = 9_000_000_000_000_000;

const BILLION: u128 = 1_000_000_000;

/// How the time and the tokens of a pace or bucket are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Units {
    /// Units of a nanosecond.
    pub(crate) per_nano: u64,
    /// Units of a token.
    pub(crate) per_token: u128,
}

impl Units {
    /// The units of a rate, or `None` where the numbers would be too large.
    pub(crate) fn of(quota: Quota) -> Option<Units> {
        let period = u64::try_from(quota.period().as_nanos()).ok()?;
        let common = gcd(quota.tokens(), period);
        let (tokens, period) = (quota.tokens() / common, period / common);
        // What makes a billionth of a token a whole number of units. Where that is too
        // fine, costs with a fraction are rounded up to a unit.
        let finer = 1_000_000_000 / gcd(1_000_000_000, period);
        let finer = if tokens.checked_mul(finer).is_some_and(|units| units <= MOST_PER_NANO) { finer } else { 1 };
        (tokens <= MOST_PER_NANO)
            .then(|| Units { per_nano: tokens * finer, per_token: u128::from(period) * u128::from(finer) })
    }

    /// The units of a cost, rounded up where a unit is more than a billionth of a token.
    pub(crate) fn of_cost(self, cost: Cost) -> u128 {
        let whole = u128::from(cost.as_whole()).saturating_mul(self.per_token);
        whole.saturating_add((u128::from(cost.subsec_nanos()) * self.per_token).div_ceil(BILLION))
    }

    /// The units from the origin to an instant in nanoseconds.
    pub(crate) fn at(self, nanos: u64) -> u128 {
        u128::from(nanos) * u128::from(self.per_nano)
    }

    /// The first nanosecond that is not before an instant.
    pub(crate) fn nanos_up(self, units: u128) -> u64 {
        u64::try_from(units.div_ceil(u128::from(self.per_nano))).unwrap_or(u64::MAX)
    }

    /// Units of a microsecond: the base of the second number of a pair.
    pub(crate) fn base(self) -> u64 {
        self.per_nano * 1000
    }

    /// As a pair; what is beyond the last microsecond is taken as that.
    pub(crate) fn pair(self, units: u128) -> [f64; 2] {
        pair(units, u128::from(self.base()))
    }

    /// The inverse, for numbers that a script has told.
    pub(crate) fn of_pair(self, [micros, rest]: [f64; 2]) -> u128 {
        whole(micros) * u128::from(self.base()) + whole(rest)
    }
}

/// Nanoseconds as microseconds and the nanoseconds of the rest.
pub(crate) fn nanos_pair(nanos: u64) -> [f64; 2] {
    pair(u128::from(nanos), 1000)
}

/// The inverse.
pub(crate) fn from_nanos_pair([micros, rest]: [f64; 2]) -> u64 {
    u64::try_from(whole(micros) * 1000 + whole(rest)).unwrap_or(u64::MAX)
}

/// Costs are billionths of a token, up to 2^94, to the base 2^47.
const HALF: u128 = 1 << 47;

/// Billionths of a token as a pair.
pub(crate) fn cost_pair(billionths: u128) -> [f64; 2] {
    [double(billionths / HALF), double(billionths % HALF)]
}

/// The inverse.
pub(crate) fn from_cost_pair([high, low]: [f64; 2]) -> u128 {
    whole(high) * HALF + whole(low)
}

/// A cost in billionths of a token.
pub(crate) fn billionths(cost: Cost) -> u128 {
    u128::from(cost.as_whole()) * BILLION + u128::from(cost.subsec_nanos())
}

/// The inverse, at most [`Cost::MAX`].
pub(crate) fn from_billionths(billionths: u128) -> Cost {
    let nanos = u32::try_from(billionths % BILLION).unwrap_or(0);
    match u64::try_from(billionths / BILLION) {
        Ok(whole) => Cost::new(whole, nanos).unwrap_or(Cost::MAX),
        Err(_) => Cost::MAX,
    }
}

fn pair(number: u128, base: u128) -> [f64; 2] {
    if number / base >= LAST_MICRO {
        return [double(LAST_MICRO), 0.0];
    }
    [double(number / base), double(number % base)]
}

/// A whole number below 2^53, which a double holds exactly.
fn double(number: u128) -> f64 {
    debug_assert!(number < 1 << 53, "{number}");
    number as f64
}

/// The inverse. A script tells nothing else; of bytes that somebody else has written,
/// what is no number is taken as zero, and what is too large as 2^53.
fn whole(number: f64) -> u128 {
    number.min(9_007_199_254_740_992.0) as u128
}

/// `a * b / c`, rounded up, for numbers below 2^127: long multiplication, one bit of `a`
/// at a time, keeping quotient and remainder.
pub(crate) fn mul_div_ceil(a: u128, b: u128, c: u128) -> u128 {
    if c == 0 {
        return u128::MAX;
    }
    if let Some(product) = a.checked_mul(b) {
        return product.div_ceil(c);
    }
    let (mut quotient, mut remainder): (u128, u128) = (0, 0);
    for bit in (0..u128::BITS - a.leading_zeros()).rev() {
        quotient = quotient.saturating_mul(2);
        remainder *= 2;
        if a >> bit & 1 == 1 {
            quotient = quotient.saturating_add(b / c);
            remainder += b % c;
        }
        quotient = quotient.saturating_add(remainder / c);
        remainder %= c;
    }
    quotient.saturating_add(u128::from(remainder > 0))
}

/// The same, rounded down.
pub(crate) fn mul_div_floor(a: u128, b: u128, c: u128) -> u128 {
    let up = mul_div_ceil(a, b, c);
    // Exact if and only if nothing was rounded: compare the remainders of both sides.
    let exact = mul_mod(a, b, c) == 0;
    if exact { up } else { up.saturating_sub(1) }
}

fn mul_mod(a: u128, b: u128, c: u128) -> u128 {
    let mut remainder = 0;
    for bit in (0..u128::BITS - a.leading_zeros()).rev() {
        remainder = remainder * 2 % c;
        if a >> bit & 1 == 1 {
            remainder = (remainder + b % c) % c;
        }
    }
    remainder
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use suimon::CENTURY;

    use super::*;

    #[test]
    fn the_whole_range_of_rates_is_exact() {
        let second = |tokens| Quota::per_second(tokens).unwrap();
        for quota in [
            second(1),
            second(7),
            second(999_983),
            second(1_000_000),
            second(999_999_937),
            second(2_000_000_000),
            Quota::per_year(1).unwrap(),
            Quota::new(1, CENTURY).unwrap(),
            Quota::new(7, Duration::from_secs(13)).unwrap(),
            Quota::per_day(10_000_019).unwrap(),
        ] {
            let units = Units::of(quota).unwrap();
            // A billionth of a token, and a nanosecond, are whole numbers of units.
            assert_eq!(units.per_token % BILLION, 0, "{quota:?}");
            let period = quota.period().as_nanos() * u128::from(units.per_nano);
            assert_eq!(units.per_token * u128::from(quota.tokens()), period, "{quota:?}");
            for nanos in [0, 1, 999, 1000, 1_795_996_800_123_456_789, 4_900_000_000_000_000_000] {
                let instant = units.at(nanos) + units.per_token % u128::from(units.per_nano);
                assert_eq!(units.of_pair(units.pair(instant)), instant);
                assert!(units.pair(instant)[1] < 9_007_199_254_740_992.0 / 2.0);
            }
        }
        assert_eq!(Units::of(Quota::new(6_000_000_000_000_000_001, CENTURY).unwrap()), None);
    }

    #[test]
    fn costs_and_products_come_back() {
        for cost in [Cost::ZERO, Cost::ONE, Cost::MAX, Cost::new(3, 5).unwrap()] {
            assert_eq!(from_billionths(from_cost_pair(cost_pair(billionths(cost)))), cost);
        }
        let (large, other) = (u128::MAX / 3, (1_u128 << 100) + 7);
        assert_eq!(mul_div_ceil(large, other, other), large);
        assert_eq!(mul_div_ceil(large, other, other + 1), large - large / (other + 1));
        assert_eq!(mul_div_floor(large, other, other), large);
        assert_eq!(mul_div_floor(7, 3, 2), 10);
        assert_eq!(mul_div_ceil(7, 3, 2), 11);
    }
}
