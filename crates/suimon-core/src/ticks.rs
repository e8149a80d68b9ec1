use core::num::NonZeroU64;
use core::time::Duration;

use crate::CENTURY;
use crate::cost::Cost;
use crate::int;
use crate::quota::Quota;
use crate::time::Timestamp;

/// How a rate is counted: time in whole ticks of 0.5 to 1 ns, and a token in a
/// whole number of ticks.
///
/// Where the time of one token is a whole number of nanoseconds, or of half
/// ones, a tick is a nanosecond or half of one and everything is exact. For all
/// other rates a tick is 2⁻ᵏ of a token, with the least k that makes it no longer
/// than 1 ns. A whole number of tokens is always a whole number of ticks, and an
/// instant is rounded down to ticks *from its own value alone*, so the rounding
/// of one call is never added to that of another: a boundary may come less than
/// one tick early, and that is all, after a century too.
///
/// Sixty-four bits hold a century of saving on top of at least 192 years since
/// the origin. Instants beyond are taken as the last one that can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// Ticks of one token.
    per_token: NonZeroU64,
    /// Ticks of one nanosecond are `2^shift + fraction / 2^128`: 1 to 2.
    shift: u32,
    fraction: u128,
    /// The same ratio for the way back: nanoseconds are ticks * back_num / back_den.
    back_num: u64,
    back_den: NonZeroU64,
    /// The last instant that is counted.
    last: u64,
}

/// The ticks of a century where they are shortest: no span of a limit is longer.
pub(crate) const LONGEST_SPAN: u64 = 2 * int::nanos_const(CENTURY);

/// The last tick that an instant may have: beyond it a full saving or a largest
/// cost still fits the word.
const LAST_TICK: u64 = u64::MAX - LONGEST_SPAN;

impl Ticks {
    /// The ticks in which `quota` is counted.
    #[must_use]
    pub fn of(quota: Quota) -> Ticks {
        let (tokens, period) = quota.reduced();
        let (per_token, num, den) = match tokens.get() {
            // A token takes `period / tokens` ns: a whole number of (half) ns.
            1 | 2 => (period, tokens.get(), NonZeroU64::MIN),
            // 2^k ticks a token make tokens * 2^k / period ticks a ns.
            _ => {
                let (per_token, num) = ticks_of_fractional_interval(tokens, period);
                (per_token, num, period)
            }
        };
        let (whole, rest) = int::div_rem(u128::from(num), den);
        let back_den = NonZeroU64::new(num).unwrap_or(NonZeroU64::MIN);
        Ticks {
            per_token,
            shift: u32::from(whole > 1),
            fraction: fraction_up(rest, den),
            back_num: den.get(),
            back_den,
            last: int::saturate(int::div_rem(int::widening_mul(LAST_TICK, den.get()), back_den).0),
        }
    }

    /// The tick of an instant, rounded down.
    #[inline(always)]
    #[must_use]
    pub fn at(&self, now: Timestamp) -> u64 {
        // A branch that is never taken costs less than a minimum that is always
        // waited for.
        match self.at_counted(now) {
            Some(tick) => tick,
            None => self.last_tick(),
        }
    }

    /// The tick of an instant, rounded down; `None` for one beyond the last that is counted,
    /// for a caller with another way for what never happens.
    #[inline(always)]
    #[must_use]
    pub fn at_counted(&self, now: Timestamp) -> Option<u64> {
        let now = now.as_nanos();
        if now > self.last {
            return None;
        }
        // At most LAST_TICK, by the choice of `last`.
        let whole = now.wrapping_shl(self.shift);
        if self.fraction == 0 {
            return Some(whole);
        }
        // `now * fraction / 2^128` without its lower half's carry: the fraction
        // is rounded up by less than 2^-128, hence the product by less than
        // 2^-64, while the next multiple of 1/period is at least 2^-62 away.
        let below = int::high(int::widening_mul(now, int::low(self.fraction)));
        let part = int::high(int::widening_mul(now, int::high(self.fraction)).wrapping_add(int::widen(below)));
        Some(whole.wrapping_add(part))
    }

    #[cold]
    #[inline(never)]
    fn last_tick(&self) -> u64 {
        self.at_counted(Timestamp::from_nanos(self.last)).unwrap_or(LAST_TICK)
    }

    /// The first instant whose tick is at least `tick`; the exact inverse of
    /// [`Ticks::at`] up to the last instant that is counted.
    #[inline]
    #[must_use]
    pub fn instant(&self, tick: u64) -> Timestamp {
        if self.fraction == 0 && self.shift == 0 {
            return Timestamp::from_nanos(tick);
        }
        Timestamp::from_nanos(int::mul_div_ceil(tick, self.back_num, self.back_den))
    }

    /// The ticks of an amount of tokens, rounded up, or `None` beyond 64 bits.
    ///
    /// Costs and what a limit holds are rounded the same way, so that a cost as
    /// large as the burst passes when the bucket is full.
    #[inline]
    #[must_use]
    pub fn of_cost(&self, cost: Cost) -> Option<u64> {
        let ticks = cost.as_whole().checked_mul(self.per_token.get())?;
        if cost.subsec_nanos() == 0 {
            return Some(ticks);
        }
        let fraction = int::mul_div_ceil(self.per_token.get(), u64::from(cost.subsec_nanos()), BILLIONTHS);
        ticks.checked_add(fraction)
    }

    /// The whole tokens in so many ticks.
    #[inline]
    #[must_use]
    pub fn tokens(&self, ticks: u64) -> u64 {
        int::div(ticks, self.per_token)
    }

    /// The tokens in so many ticks, to the billionth, rounded up.
    pub(crate) fn tokens_up(&self, ticks: u64) -> Cost {
        let rest = int::rem(ticks, self.per_token);
        let nanos = int::div_ceil(int::widening_mul(rest, BILLIONTHS.get()), self.per_token);
        Cost::from_billionths(Cost::whole(self.tokens(ticks)).billionths().saturating_add(nanos))
    }

    /// As many tokens as `ticks` are here, in the ticks of another rate, rounded up.
    pub(crate) fn convert(&self, ticks: u64, to: &Ticks) -> u64 {
        int::mul_div_ceil(ticks, to.per_token.get(), self.per_token)
    }

    /// The time from `now` until `tick`, rounded up; zero where it has passed.
    #[inline]
    #[must_use]
    pub fn until(&self, tick: u64, now: Timestamp) -> Duration {
        self.instant(tick).saturating_since(self.counted(now))
    }

    /// The instant as it is counted: the last one that can be, for all after it.
    #[inline]
    pub(crate) fn counted(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_nanos(now.as_nanos().min(self.last))
    }

    /// The length of a tick in nanoseconds, as a fraction.
    #[inline]
    pub(crate) const fn nanos_of_tick(&self) -> (u64, NonZeroU64) {
        (self.back_num, self.back_den)
    }

    /// [`Ticks::per_token`] as the divisor that it is.
    #[inline]
    pub(crate) const fn ticks_of_token(&self) -> NonZeroU64 {
        self.per_token
    }

    /// The same, rounded down.
    pub(crate) fn convert_down(&self, ticks: u64, to: &Ticks) -> u64 {
        int::saturate(int::div_rem(int::widening_mul(ticks, to.per_token.get()), self.per_token).0)
    }

    /// Is every instant and every whole cost exact in these ticks?
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.fraction == 0
    }

    /// Is the instant early enough to be counted?
    pub(crate) fn counts(&self, at: Timestamp) -> bool {
        at.as_nanos() <= self.last
    }

    /// All of it as plain numbers.
    pub(crate) const fn to_words(self) -> [u64; 7] {
        let shift = int::widen_u32(self.shift);
        let (low, high) = (int::low(self.fraction), int::high(self.fraction));
        [self.per_token.get(), shift, low, high, self.back_num, self.back_den.get(), self.last]
    }

    /// The inverse.
    #[inline]
    pub(crate) fn from_words([per_token, shift, low, high, back_num, back_den, last]: [u64; 7]) -> Ticks {
        Ticks {
            per_token: NonZeroU64::new(per_token).unwrap_or(NonZeroU64::MIN),
            shift: u32::from(shift == 1),
            fraction: int::widen(high) << 64 | int::widen(low),
            back_num,
            back_den: NonZeroU64::new(back_den).unwrap_or(NonZeroU64::MIN),
            last,
        }
    }

    /// The ticks of one token.
    #[must_use]
    pub const fn per_token(&self) -> u64 {
        self.per_token.get()
    }
}

const BILLIONTHS: NonZeroU64 = NonZeroU64::MIN.saturating_add(int::NANOS_PER_SEC - 1);

/// The least power of two that, as ticks of a token, makes a tick at most 1 ns
/// long, and the ticks of a whole period.
fn ticks_of_fractional_interval(tokens: NonZeroU64, period: NonZeroU64) -> (NonZeroU64, u64) {
    let mut per_token = NonZeroU64::MIN;
    let mut per_period = tokens.get();
    // Ends after at most 62 rounds: the period is below 2^62.
    while per_period < period.get() {
        per_token = per_token.saturating_mul(TWO);
        per_period = per_period.saturating_mul(2);
    }
    (per_token, per_period)
}

const TWO: NonZeroU64 = NonZeroU64::MIN.saturating_add(1);

/// `rest / den` in units of 2^-128, rounded up; `rest` is below `den`.
fn fraction_up(rest: u64, den: NonZeroU64) -> u128 {
    let (upper, rest) = int::div_rem(int::widen(rest) << 64, den);
    let lower = int::div_ceil(int::widen(rest) << 64, den);
    (upper << 64).saturating_add(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact_tick(quota: Quota, per_token: u64, now: u64) -> u128 {
        let (tokens, period) = quota.reduced();
        let product = u128::from(tokens.get()) * u128::from(per_token);
        // now * product / period, in two steps that fit.
        let (q, r) = (product / u128::from(period.get()), product % u128::from(period.get()));
        u128::from(now) * q + u128::from(now) * r / u128::from(period.get())
    }

    fn rates() -> impl Iterator<Item = Quota> {
        let odd = [
            (7, 1),
            (3, 1),
            (999_999_937, 1),
            (1_999_999_973, 1),
            (13, 60),
            (1_000_003, 86_400),
            (3, 3_155_760_000),
            (2_000_000_000, 1),
            (1, 1),
            (17, 31_557_600),
        ];
        odd.into_iter().map(|(tokens, secs)| Quota::new(tokens, Duration::from_secs(secs)).unwrap())
    }

    #[test]
    fn a_tick_lasts_half_a_nanosecond_to_one() {
        for quota in rates() {
            let ticks = Ticks::of(quota);
            let second = ticks.at(Timestamp::from_secs(1_000_000_000));
            assert!((1_000_000_000_000_000_000..=2_000_000_000_000_000_000).contains(&second), "{quota:?} {second}");
        }
    }

    #[test]
    fn instants_round_down_exactly_and_the_inverse_is_tight() {
        let mut seed = 1_u64;
        for quota in rates() {
            let ticks = Ticks::of(quota);
            for _ in 0..20_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let now = (seed >> (seed & 63).min(50)).min(6_000_000_000_000_000_000);
                let tick = ticks.at(Timestamp::from_nanos(now));
                assert_eq!(u128::from(tick), exact_tick(quota, ticks.per_token(), now), "{quota:?} {now}");
                let back = ticks.instant(tick).as_nanos();
                assert!(back <= now && ticks.at(Timestamp::from_nanos(back)) == tick);
                assert!(back == 0 || ticks.at(Timestamp::from_nanos(back - 1)) < tick);
            }
        }
    }

    #[test]
    fn time_stands_still_at_the_end() {
        for quota in rates() {
            let ticks = Ticks::of(quota);
            let end = ticks.at(Timestamp::MAX);
            assert!(end <= LAST_TICK && end > LAST_TICK - 3, "{end}");
            let century_from_2026 = Timestamp::from_secs(1_796_000_000 + 3_155_760_000);
            assert!(ticks.at(century_from_2026) < end);
        }
    }
}
