//! Random policies and calls, and the core and the model side by side.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

pub mod pair;
pub mod texts;

use proptest::prelude::*;

/// Nanoseconds of a century: no test goes beyond.
pub const CENTURY: u64 = 3_155_760_000_000_000_000;

/// So many cases, unless `PROPTEST_CASES` says otherwise.
pub fn cases(number: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(number);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() }
}

/// A number of any size up to `most`, small ones as likely as large ones.
pub fn any_size(most: u64) -> impl Strategy<Value = u64> {
    (0..u64::BITS, any::<u64>()).prop_map(move |(bits, number)| (number >> bits).min(most))
}

/// How the time moves on before a call.
#[derive(Clone, Copy, Debug)]
pub enum Gap {
    Same,
    Back(u64),
    Forward(u64),
    /// As long as the last denial said, less so many nanoseconds.
    Retry(u64),
    /// Until the limit is as good as new, less so many nanoseconds.
    Reset(u64),
}

impl Gap {
    pub fn from(self, now: u64, retry: u64, reset: u64) -> u64 {
        let later = match self {
            Gap::Same => now,
            Gap::Back(by) => now.saturating_sub(by),
            Gap::Forward(by) => now.saturating_add(by),
            Gap::Retry(less) => now.saturating_add(retry.saturating_sub(less)),
            Gap::Reset(less) => now.saturating_add(reset.saturating_sub(less)),
        };
        later.min(CENTURY)
    }
}

/// Gaps as an honest clock has them.
pub fn forward() -> impl Strategy<Value = Gap> {
    prop_oneof![
        3 => Just(Gap::Same),
        1 => Just(Gap::Forward(1)),
        2 => (1..20_u64).prop_map(Gap::Forward),
        2 => any_size(CENTURY / 20).prop_map(Gap::Forward),
        3 => (0..2_u64).prop_map(Gap::Retry),
        1 => (0..2_u64).prop_map(Gap::Reset),
    ]
}

/// Gaps of a clock that also runs back.
pub fn any_gap() -> impl Strategy<Value = Gap> {
    prop_oneof![9 => forward(), 1 => (1..3_u64).prop_map(Gap::Back), 1 => any_size(CENTURY).prop_map(Gap::Back)]
}

/// A cost in words that fit every policy.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    Zero,
    /// Whole tokens, at most the largest cost.
    Whole(u64),
    /// A part of the largest cost in 2^-32.
    Share(u32),
    /// Tokens and billionths, at most the largest cost.
    Decimal(u64, u32),
    Largest,
    /// The least cost that can never pass.
    Above,
}

pub fn amount() -> impl Strategy<Value = Amount> {
    prop_oneof![
        1 => Just(Amount::Zero),
        6 => (1..4_u64).prop_map(Amount::Whole),
        2 => any_size(u64::MAX).prop_map(Amount::Whole),
        2 => any::<u32>().prop_map(Amount::Share),
        3 => (0..3_u64, 0..1_000_000_000_u32).prop_map(|(whole, nanos)| Amount::Decimal(whole, nanos)),
        2 => Just(Amount::Largest),
        1 => Just(Amount::Above),
    ]
}

/// Whole tokens only.
pub fn whole_amount() -> impl Strategy<Value = Amount> {
    prop_oneof![
        1 => Just(Amount::Zero),
        8 => (1..4_u64).prop_map(Amount::Whole),
        3 => any_size(u64::MAX).prop_map(Amount::Whole),
        1 => Just(Amount::Largest),
    ]
}

/// A call with everything in it, of which each kind takes what it needs.
#[derive(Clone, Debug)]
pub struct Call {
    pub gap: Gap,
    pub verb: Verb,
    pub amount: Amount,
    pub within: Option<u64>,
}

#[derive(Clone, Debug)]
pub enum Verb {
    Allow,
    Peek,
    Reserve,
    /// One of the bookings that are open.
    Settle(usize),
}

pub fn calls(
    most: usize,
    gap: impl Strategy<Value = Gap>,
    amount: impl Strategy<Value = Amount>,
) -> impl Strategy<Value = Vec<Call>> {
    let verb = prop_oneof![
        6 => Just(Verb::Allow),
        1 => Just(Verb::Peek),
        3 => Just(Verb::Reserve),
        2 => any::<usize>().prop_map(Verb::Settle),
    ];
    let within = prop_oneof![2 => Just(None), 1 => any_size(CENTURY).prop_map(Some)];
    let call = (gap, verb, amount, within).prop_map(|(gap, verb, amount, within)| Call { gap, verb, amount, within });
    prop::collection::vec(call, 1..most)
}
