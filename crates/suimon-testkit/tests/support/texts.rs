//! Policies as texts, which the core and the model read each for themselves.

use num_bigint::BigUint;
use proptest::prelude::*;

use super::{CENTURY, any_size};

/// Which rates a test wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rates {
    /// A token takes a whole number of nanoseconds or half nanoseconds.
    Exact,
    /// Every rate that there is.
    Any,
    /// Every rate, but only whole tokens: of savings, of bursts, of costs.
    Whole,
}

impl Rates {
    fn step(self, rate: (u64, u64)) -> u32 {
        match self {
            Rates::Exact => cost_step(rate),
            Rates::Any => 1,
            Rates::Whole => 1_000_000_000,
        }
    }
}

/// Tokens and nanoseconds.
pub fn rate(rates: Rates) -> BoxedStrategy<(u64, u64)> {
    // Down to one a century, up to two a nanosecond.
    let whole = (any_size(1_000_000), any_size(CENTURY)).prop_map(|(tokens, interval)| {
        let tokens = tokens.max(1);
        (tokens, tokens * interval.clamp(1, CENTURY / tokens))
    });
    let half = (any_size(1_000_000), any_size(CENTURY / 2_000_000)).prop_map(|(half, interval)| {
        let half = half.max(1);
        (2 * half, half * (2 * (interval / 2) + 1))
    });
    if rates == Rates::Exact {
        return prop_oneof![3 => whole, 1 => half].boxed();
    }
    let any = (any_size(u64::MAX), any_size(CENTURY))
        .prop_map(|(tokens, period)| (tokens.clamp(1, 2 * period.max(1)), period.max(1)));
    let each_second = (1..=2_000_000_000_u64).prop_map(|tokens| (tokens, 1_000_000_000));
    let usual =
        (1..200_u64, prop::sample::select(vec![1_000_000_000, 60_000_000_000, 3_600_000_000_000, 86_400_000_000_000]));
    let primes = (
        prop::sample::select(vec![3, 7, 13, 997, 65_537, 999_999_937, 1_999_999_973]),
        prop::sample::select(vec![999_999_937, 1_000_000_007, 1_000_000_000, 59_999_999_999, 31_557_600_000_000_011]),
    )
        .prop_map(|(tokens, period): (u64, u64)| (tokens.min(2 * period), period));
    let slow = (1..10_u64, CENTURY / 10..=CENTURY);
    prop_oneof![1 => whole, 1 => half, 3 => any, 2 => each_second, 2 => usual, 3 => primes, 1 => slow].boxed()
}

/// The tokens that a century brings, rounded down.
fn per_century((tokens, period): (u64, u64)) -> u64 {
    let tokens = BigUint::from(tokens) * BigUint::from(CENTURY) / BigUint::from(period);
    u64::try_from(tokens).unwrap_or(u64::MAX)
}

/// How large a burst or a saving is.
#[derive(Clone, Copy, Debug)]
enum Size {
    Whole(u64),
    Decimal(u64, u32),
    Most,
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![
        4 => (1..20_u64).prop_map(Size::Whole),
        2 => any_size(u64::MAX).prop_map(Size::Whole),
        2 => (0..4_u64, 1..1_000_000_000_u32).prop_map(|(whole, nanos)| Size::Decimal(whole, nanos)),
        1 => Just(Size::Most),
    ]
}

impl Size {
    /// In tokens, at most `most`, which is at least 1.
    fn text(self, most: u64, step: u32) -> String {
        match self {
            Size::Whole(tokens) => tokens.clamp(1, most).to_string(),
            Size::Decimal(whole, nanos) if whole < most && nanos - nanos % step > 0 => {
                format!("{whole}.{:09}", nanos - nanos % step)
            }
            Size::Decimal(whole, _) => whole.clamp(1, most).to_string(),
            Size::Most => most.to_string(),
        }
    }
}

/// The billionths of a token of which a cost has to be a multiple to be a whole
/// number of (half) nanoseconds; a whole token where the rate has none.
fn cost_step((tokens, period): (u64, u64)) -> u32 {
    let common = gcd(tokens, period);
    let per_token = if tokens / common <= 2 { period / common } else { 1 };
    u32::try_from(1_000_000_000 / gcd(1_000_000_000, per_token)).unwrap_or(1_000_000_000)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A limit, and of what its costs have to be a multiple to be exact.
#[derive(Clone, Debug)]
pub struct Text {
    pub text: String,
    pub step: u32,
}

pub fn bucket(rates: Rates) -> impl Strategy<Value = Text> {
    (rate(rates), size()).prop_map(move |(rate, burst)| {
        let step = rates.step(rate);
        let text = format!("bucket {}/{}ns burst {}", rate.0, rate.1, burst.text(per_century(rate), step));
        Text { text, step }
    })
}

pub fn pace(rates: Rates) -> impl Strategy<Value = Text> {
    (rate(rates), prop::option::of(size()), size()).prop_map(move |(rate, savings, max_cost)| {
        let step = rates.step(rate);
        let most = per_century(rate);
        // One of them may be as large as a century, together they may not be more.
        let text = match savings.filter(|_| most >= 2) {
            Some(savings) => format!(
                "pace {}/{}ns max_cost {} savings {}",
                rate.0,
                rate.1,
                max_cost.text(most / 2, step),
                savings.text(most - most / 2, step)
            ),
            None => format!("pace {}/{}ns max_cost {}", rate.0, rate.1, max_cost.text(most, step)),
        };
        Text { text, step }
    })
}

/// The largest limit of a window here: changes add sizes up.
const MOST: u64 = u64::MAX / 4;

pub fn window() -> impl Strategy<Value = Text> {
    (size(), any_size(CENTURY)).prop_map(|(limit, period)| {
        let text = format!("window {}/{}ns", limit.text(MOST, 1), period.max(1));
        Text { text, step: 1 }
    })
}

pub fn fixed() -> impl Strategy<Value = Text> {
    let plain = any_size(CENTURY).prop_map(|period| format!("{}ns", period.max(1)));
    let calendar = (prop::sample::select(vec!["day", "week", "month", "year"]), 0..24_u32, 0..60_u32)
        .prop_map(|(unit, hour, minute)| format!("{unit} at {hour:02}:{minute:02}"));
    (size(), prop_oneof![plain, calendar]).prop_map(|(limit, every)| {
        let text = format!("fixed {}/{every}", limit.text(MOST, 1));
        Text { text, step: 1 }
    })
}

/// A limit of any kind, the constant ones now and then.
pub fn limit(rates: Rates) -> impl Strategy<Value = Text> {
    let constant = prop::sample::select(vec!["unlimited", "unlimited", "block"]);
    prop_oneof![
        5 => bucket(rates),
        5 => pace(rates),
        3 => window(),
        3 => fixed(),
        1 => constant.prop_map(|text| Text { text: text.to_owned(), step: 1 }),
    ]
}

/// One to four limits.
pub fn policy(rates: Rates) -> impl Strategy<Value = Text> {
    prop::collection::vec(limit(rates), 1..5).prop_map(|limits| {
        let texts: Vec<String> = limits.iter().map(|limit| limit.text.clone()).collect();
        // The steps divide a billion, so the least common multiple does too.
        let step = limits.iter().fold(1_u64, |step, limit| {
            let next = u64::from(limit.step);
            step / gcd(step, next) * next
        });
        Text { text: texts.join(" and "), step: u32::try_from(step).unwrap_or(1_000_000_000) }
    })
}
