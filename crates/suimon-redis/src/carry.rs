//! From the limits under which a value was written to those that govern it now.
//!
//! The same rules as [`Carry`] has everywhere; done here, and not in a script, since it
//! happens once for each key and change. Everything is exact, or rounded up to a unit or
//! a billionth of a token, so that a change mints nothing.

use suimon::{Carry, Timestamp};

use crate::leases::Leases;
use crate::plan::{Gcra, Plan, Rule, Windows};
use crate::record::{Body, Slot};
use crate::units::{billionths, mul_div_ceil, mul_div_floor};

/// The body of a value under new limits, as of `now`.
pub(crate) fn carry(new: &Plan, old: &Plan, body: &Body, now: u64, carry: Carry) -> Body {
    let now = now.max(body.seen);
    let mut body = body.clone();
    body.settle_leases(old, now);
    let mut before = old.rules.iter().zip(&body.slots);
    let slots = new.rules.iter().map(|rule| match before.next() {
        Some((old_rule, slot)) => carry_slot(rule, old_rule, slot, now, carry),
        None => rule.fresh(),
    });
    let slots = slots.collect();
    // Nothing is given back any more to who has booked before.
    let epoch = (now / 1000).max(body.epoch + 1);
    let mut body = Body { epoch, seen: now, slots, leases: Leases { floor: 0, out: body.leases.out } };
    body.settle_leases(new, now);
    body
}

impl Body {
    fn settle_leases(&mut self, plan: &Plan, now: u64) {
        if let (Some(gcra), [Slot::Gcra { arrival, .. }]) = (plan.gcra(), &mut *self.slots) {
            self.leases.settle(gcra, arrival, now);
        }
    }
}

fn carry_slot(new: &Rule, old: &Rule, slot: &Slot, now: u64, carry: Carry) -> Slot {
    match (new, old, slot) {
        _ if carry == Carry::Reset => new.fresh(),
        (Rule::Gcra(new), Rule::Gcra(old), Slot::Gcra { arrival, .. }) => {
            Slot::Gcra { arrival: carry_arrival(new, old, *arrival, now, carry), back: 0 }
        }
        // The log tells more than its sum.
        (Rule::Window { limit: to, .. }, Rule::Window { limit: from, period }, Slot::Window { entries })
            if carry != Carry::Balance =>
        {
            let scale = carry == Carry::Scale;
            let cost = |cost: u128| if scale { scaled(cost, billionths(*from), billionths(*to)) } else { cost };
            let at = not_before(entries, now);
            let mut entries: Vec<_> = live(entries, *period, at).map(|&(at, used)| (at, cost(used))).collect();
            if entries.is_empty() {
                // Holds the place in time.
                entries.push((at, 0));
            }
            Slot::Window { entries }
        }
        _ => match measure(old, slot, now) {
            Some(measured) => with_used(new, &measured, carry),
            None => new.fresh(),
        },
    }
}

/// From arrival to arrival, in units.
fn carry_arrival(new: &Gcra, old: &Gcra, arrival: u128, now: u64, carry: Carry) -> u128 {
    let (from, to) = (old.units.per_token, new.units.per_token);
    let used = arrival.saturating_sub(old.units.at(now));
    let debt = mul_div_ceil(used.saturating_sub(old.savings), to, from);
    let used = match carry {
        Carry::Keep => mul_div_ceil(used, to, from).min(new.savings + debt),
        Carry::Balance => {
            let left = mul_div_floor(old.savings.saturating_sub(used), to, from);
            new.savings.saturating_sub(left) + debt
        }
        Carry::Scale if old.savings > 0 && new.savings > 0 => {
            // Tokens used, by the size of the new savings and through that of the old ones.
            mul_div_ceil(used, new.savings, old.savings)
        }
        // A debt takes as long to pay as before.
        Carry::Scale => {
            let debt = used.saturating_sub(old.savings);
            let time = if new.savings == 0 { debt } else { used };
            mul_div_ceil(time, u128::from(new.units.per_nano), u128::from(old.units.per_nano))
        }
        Carry::Reset => 0,
    };
    new.units.at(now) + used
}

/// What a limit has counted, in billionths of a token.
struct Measure {
    /// Rounded up.
    used: u128,
    /// Of how much.
    size: u128,
    /// The instant at which it stands so: later than now where the latest reservation
    /// lies ahead.
    as_of: u64,
}

/// `None` where nothing is counted.
fn measure(rule: &Rule, slot: &Slot, now: u64) -> Option<Measure> {
    match (rule, slot) {
        (Rule::Gcra(gcra), Slot::Gcra { arrival, .. }) => {
            let used = gcra.billionths_up(arrival.saturating_sub(gcra.units.at(now)));
            Some(Measure { used, size: gcra.billionths_up(gcra.savings), as_of: now })
        }
        (Rule::Window { limit, period }, Slot::Window { entries }) => {
            let as_of = not_before(entries, now);
            let used = live(entries, *period, as_of).map(|(_, cost)| cost).sum();
            Some(Measure { used, size: billionths(*limit), as_of })
        }
        (Rule::Fixed { limit, .. }, Slot::Fixed { start, end, used }) => {
            let is_over = now >= *end;
            let (used, start) = if is_over { (0, now) } else { (*used, *start) };
            Some(Measure { used, size: billionths(*limit), as_of: start.max(now) })
        }
        _ => None,
    }
}

/// A slot of the new limit in which as much is used as the policy says.
fn with_used(new: &Rule, measured: &Measure, carry: Carry) -> Slot {
    let Measure { used, size, as_of } = *measured;
    let new_size = match new {
        Rule::Gcra(gcra) => gcra.billionths_up(gcra.savings),
        Rule::Window { limit, .. } | Rule::Fixed { limit, .. } => billionths(*limit),
        Rule::Unlimited | Rule::Block => return Slot::Nothing,
    };
    let debt = used.saturating_sub(size);
    let used = match carry {
        Carry::Keep => used.min(new_size + debt),
        Carry::Balance => new_size.saturating_sub(size.saturating_sub(used)) + debt,
        Carry::Scale => scaled(used, size, new_size),
        Carry::Reset => 0,
    };
    match new {
        Rule::Gcra(gcra) => {
            let units = mul_div_ceil(used, gcra.units.per_token, BILLION);
            Slot::Gcra { arrival: gcra.units.at(as_of) + units, back: 0 }
        }
        Rule::Window { .. } => Slot::Window { entries: vec![(as_of, used)] },
        Rule::Fixed { windows, .. } => {
            let (start, end) = windows.at(as_of);
            Slot::Fixed { start, end, used }
        }
        Rule::Unlimited | Rule::Block => Slot::Nothing,
    }
}

const BILLION: u128 = 1_000_000_000;

/// `used * to / from`, rounded up; a size of zero has no share to keep.
fn scaled(used: u128, from: u128, to: u128) -> u128 {
    if from == 0 { used } else { mul_div_ceil(used, to, from) }
}

/// Time does not run back within a log.
fn not_before(entries: &[(u64, u128)], now: u64) -> u64 {
    entries.last().map_or(now, |(last, _)| now.max(*last))
}

fn live(entries: &[(u64, u128)], period: u64, from: u64) -> impl Iterator<Item = &(u64, u128)> {
    entries.iter().skip_while(move |(at, _)| from.saturating_sub(*at) >= period)
}

impl Gcra {
    /// The tokens in so many units, in billionths, rounded up.
    fn billionths_up(&self, units: u128) -> u128 {
        mul_div_ceil(units, BILLION, self.units.per_token)
    }
}

impl Rule {
    fn fresh(&self) -> Slot {
        match self {
            Rule::Gcra(_) => Slot::Gcra { arrival: 0, back: 0 },
            Rule::Window { .. } => Slot::Window { entries: Vec::new() },
            Rule::Fixed { .. } => Slot::Fixed { start: 0, end: 0, used: 0 },
            Rule::Unlimited | Rule::Block => Slot::Nothing,
        }
    }
}

impl Windows {
    /// The window that holds an instant.
    fn at(&self, nanos: u64) -> (u64, u64) {
        match self {
            Windows::Micros(length) => {
                let length = length * 1000;
                let start = nanos - nanos % length;
                (start, start.saturating_add(length))
            }
            Windows::Listed(boundaries) => {
                let span = boundaries.window(Timestamp::from_nanos(nanos));
                (span.start.as_nanos(), span.end.as_nanos())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use suimon::{Cost, Policy, Utc};

    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::new(text.parse::<Policy>().unwrap(), 0, &Utc).unwrap()
    }

    #[test]
    fn what_was_used_stays_used_in_another_kind_of_limit() {
        let (bucket, window, fixed) = (plan("bucket 10/s burst 10"), plan("window 20/min"), plan("fixed 30/min"));
        let second = 1_000_000_000;
        let Rule::Gcra(gcra) = &bucket.rules[0] else { panic!() };
        // Four of ten are used at 100 s.
        let arrival = gcra.units.at(100 * second) + gcra.units.of_cost(Cost::whole(4));
        let slots = vec![Slot::Gcra { arrival, back: 0 }];
        let body = Body { epoch: 7, seen: 100 * second, slots, leases: Leases::default() };
        let to_window = carry(&window, &bucket, &body, 100 * second, Carry::Keep);
        assert_eq!(to_window.slots, [Slot::Window { entries: vec![(100 * second, 4 * BILLION)] }]);
        let to_fixed = carry(&fixed, &window, &to_window, 110 * second, Carry::Balance);
        // Sixteen of twenty were left, and stay left of thirty.
        assert_eq!([to_window.epoch, to_fixed.epoch], [100_000_000, 110_000_000]);
        assert_eq!(to_fixed.slots, [Slot::Fixed { start: 60 * second, end: 120 * second, used: 14 * BILLION }]);
        let back = carry(&bucket, &fixed, &to_fixed, 110 * second, Carry::Scale);
        let used = gcra.units.of_cost(Cost::new(4, 666_666_667).unwrap());
        assert_eq!(back.slots, [Slot::Gcra { arrival: gcra.units.at(110 * second) + used, back: 0 }]);
        assert_eq!(back.epoch, 110_000_001);
    }
}
