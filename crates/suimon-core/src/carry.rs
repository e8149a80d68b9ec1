use alloc::boxed::Box;
use core::num::NonZeroU64;

use crate::cost::Cost;
use crate::gcra::Gcra;
use crate::int;
use crate::rule::Rule;
use crate::state::Slot;
use crate::time::Timestamp;
use crate::window::Log;

/// What happens to a balance when its limit changes.
///
/// First the past is settled at the old rate: what idling could save until now
/// is saved, and no more. Then, for example, with 4 of 10 used and a new size of
/// 20:
///
/// | | used afterwards | left |
/// |---|---|---|
/// | `Keep` | 4 | 16 |
/// | `Balance` | 14 | 6 |
/// | `Scale` | 8 | 12 |
/// | `Reset` | 0 | 20 |
///
/// The size is the burst of a bucket, the savings of a pace, the limit of a
/// window. A debt (less than nothing left) is carried over as a debt of as many
/// tokens, scaled where the rest is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Carry {
    /// What was used stays used: a raised limit gives the difference at once, a
    /// lowered one takes it, but never turns savings into debt. A window keeps
    /// its log, and a log that is over the lowered limit drains first.
    #[default]
    Keep,
    /// What is left stays left, up to the new size.
    Balance,
    /// The share that is used stays the same. What a pace without savings owes
    /// takes as long to pay as before.
    Scale,
    /// As good as new.
    Reset,
}

/// The slot of the new limit.
pub(crate) fn carry(new: &Rule, old: &Rule, slot: &Slot, now: Timestamp, carry: Carry) -> Slot {
    match (new, old, slot) {
        (_, _, _) if carry == Carry::Reset => new.fresh(),
        (Rule::Gcra(new), Rule::Gcra(old), Slot::Word { word, .. }) => {
            Slot::Word { word: carry_word(new, old, *word, now, carry), refunded: 0 }
        }
        // The log tells more than its sum.
        (Rule::Window(to), Rule::Window(from), Slot::Log(log)) if matches!(carry, Carry::Keep | Carry::Scale) => {
            let mut log = log.clone();
            log.settle(from, now);
            if carry == Carry::Scale {
                log.map_costs(|cost| scaled(cost, from.limit(), to.limit()));
            }
            Slot::Log(log)
        }
        _ => match measure(old, slot, now) {
            Some(measured) => with_used(new, &measured, carry),
            None => new.fresh(),
        },
    }
}

/// From word to word, in ticks: exact where both rates are, and otherwise
/// rounded up to a tick, so that a change mints nothing.
pub(crate) fn carry_word(new: &Gcra, old: &Gcra, word: u64, now: Timestamp, carry: Carry) -> u64 {
    let start = new.ticks().at(now);
    let used = word.saturating_sub(old.ticks().at(now));
    let debt = used.saturating_sub(old.savings());
    let debt = old.ticks().convert(debt, new.ticks());
    let used = match (carry, NonZeroU64::new(old.savings())) {
        (Carry::Keep, _) => old.ticks().convert(used, new.ticks()).min(new.savings().saturating_add(debt)),
        (Carry::Balance, _) => {
            let left = old.ticks().convert_down(old.savings().saturating_sub(used), new.ticks());
            new.savings().saturating_sub(left).saturating_add(debt)
        }
        (Carry::Scale, Some(savings)) if new.savings() > 0 => int::mul_div_ceil(used, new.savings(), savings),
        (Carry::Scale, _) => {
            // Savings are no debt, and a pace that has none cannot keep them.
            let debt_ends = if new.savings() == 0 { word.saturating_sub(old.savings()) } else { word };
            let time = old.ticks().until(debt_ends, now);
            let paid = now.saturating_add(time);
            // The instant is rounded up and the tick down; a tick more is safe.
            let rounding = u64::from(!new.ticks().is_exact() && !time.is_zero());
            new.ticks().at(paid).saturating_sub(start).saturating_add(rounding)
        }
        (Carry::Reset, _) => 0,
    };
    start.saturating_add(used)
}

/// What a limit has counted.
struct Measure {
    /// Rounded up.
    used: Cost,
    /// Of how much.
    size: Cost,
    /// The instant at which it stands so: later than now where the latest
    /// reservation lies ahead.
    as_of: Timestamp,
}

/// `None` where nothing is counted.
fn measure(rule: &Rule, slot: &Slot, now: Timestamp) -> Option<Measure> {
    match (rule, slot) {
        (Rule::Gcra(gcra), Slot::Word { word, .. }) => {
            let used = word.saturating_sub(gcra.ticks().at(now));
            let size = gcra.ticks().tokens_up(gcra.savings());
            Some(Measure { used: gcra.ticks().tokens_up(used), size, as_of: now })
        }
        (Rule::Window(window), Slot::Log(log)) => {
            let as_of = log.not_before(now);
            Some(Measure { used: Cost::from_billionths(log.used(window, as_of)), size: window.limit(), as_of })
        }
        (Rule::Fixed(rule), Slot::Count(count)) => {
            let (used, as_of) = count.used(rule, now);
            Some(Measure { used, size: rule.limit, as_of })
        }
        _ => None,
    }
}

/// A slot of the new limit in which as much is used as the policy says.
fn with_used(new: &Rule, measured: &Measure, carry: Carry) -> Slot {
    let Measure { used, size, as_of } = *measured;
    let new_size = match new {
        Rule::Gcra(gcra) => gcra.ticks().tokens_up(gcra.savings()),
        Rule::Window(window) => window.limit(),
        Rule::Fixed(rule) => rule.limit,
        Rule::Unlimited | Rule::Block => return new.fresh(),
    };
    let debt = used.saturating_sub(size);
    let used = match carry {
        Carry::Keep => used.min(new_size.saturating_add(debt)),
        Carry::Balance => new_size.saturating_sub(size.saturating_sub(used)).saturating_add(debt),
        Carry::Scale => scaled(used, size, new_size),
        Carry::Reset => Cost::ZERO,
    };
    match new {
        Rule::Gcra(gcra) => {
            let ticks = gcra.ticks().of_cost(used).unwrap_or(u64::MAX);
            Slot::Word { word: gcra.ticks().at(as_of).saturating_add(ticks), refunded: 0 }
        }
        Rule::Window(_) => Slot::Log(Box::new(Log::with_used(used, as_of))),
        Rule::Fixed(rule) => Slot::Count(crate::fixed::Count::with_used(rule, used, as_of)),
        Rule::Unlimited | Rule::Block => new.fresh(),
    }
}

/// `used * to / from`, rounded up; a size of zero has no share to keep.
fn scaled(used: Cost, from: Cost, to: Cost) -> Cost {
    if from.is_zero() {
        return used;
    }
    Cost::from_billionths(mul_div_ceil(used.billionths(), to.billionths(), from.billionths()))
}

/// `a * b / c` for numbers below 2^94, rounded up: long multiplication, one bit
/// of `a` at a time, keeping quotient and remainder.
fn mul_div_ceil(a: u128, b: u128, c: u128) -> u128 {
    let (mut quotient, mut remainder): (u128, u128) = (0, 0);
    let divide = |number: u128| (number.checked_div(c).unwrap_or(0), number.checked_rem(c).unwrap_or(0));
    let (b_quotient, b_remainder) = divide(b);
    for bit in (0..u128::BITS).rev() {
        quotient = quotient.saturating_mul(2);
        remainder = remainder.saturating_mul(2);
        if a >> bit & 1 == 1 {
            quotient = quotient.saturating_add(b_quotient);
            remainder = remainder.saturating_add(b_remainder);
        }
        // Both summands are below c: twice at most.
        let (carry, rest) = divide(remainder);
        quotient = quotient.saturating_add(carry);
        remainder = rest;
    }
    quotient.saturating_add(u128::from(remainder > 0))
}
