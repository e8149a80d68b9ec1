//! Another policy at run time: what becomes of the used and the saved.

use num_traits::Zero;

use super::fixed::Counter;
use super::gcra::Gcra;
use super::number::{Q, fraction};
use super::policy::{GrainRule, Limit, Model, Used};
use super::spec::Spec;
use super::window::Log;

/// What becomes of the used and the saved when a limit changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// What was used stays used: of 10 used up 10, raised to 20, 10 are left. A
    /// lower limit takes savings away, down to nothing, and makes no debt of them.
    Keep,
    /// The balance stays, as far as it fits.
    Balance,
    /// The share that was used stays. Where there is no share, because one of the
    /// two saves nothing, a debt takes as long to be paid as before.
    Scale,
    /// A new limiter.
    Reset,
}

impl Model {
    /// Puts another policy in place at `now`. Limits of the same index carry over
    /// what was used and saved, the others begin anew. Bookings that were made
    /// before can no longer give anything back.
    pub fn change(&mut self, now: u64, specs: Vec<Spec>, carry: Carry) {
        let mut changed = Model::with_rule(specs, self.origin, self.grain);
        changed.version = self.version + 1;
        for (old, new) in self.limits.iter().zip(&mut changed.limits) {
            if carry != Carry::Reset {
                new.take_over(old, now, carry, self.grain);
            }
        }
        *self = changed;
    }
}

impl Limit {
    fn take_over(&mut self, old: &Limit, now: u64, carry: Carry, grain: GrainRule) {
        match (&mut self.used, &old.used) {
            (Used::Gcra(new), Used::Gcra(old)) => return take_over_rate(new, old, now, carry),
            (Used::Window(new), Used::Window(old)) if carry != Carry::Balance => {
                return take_over_log(new, old, now, carry, grain);
            }
            _ => {}
        }
        // Different kinds have only sums in common.
        let (Some(used), Some(from), Some(to)) = (old.counted(now), old.size(grain), self.size(grain)) else {
            return;
        };
        let used = grain.amount(&used);
        let debt = (&used - &from).max(Q::zero());
        let used = match carry {
            Carry::Keep => used.min(to + debt),
            Carry::Balance => (to - (from - used).max(Q::zero())).max(Q::zero()) + debt,
            Carry::Scale if from.is_zero() => used,
            Carry::Scale => grain.amount(&(used * to / from)),
            Carry::Reset => Q::zero(),
        };
        // What is booked ahead stays ahead.
        let place = old.place(now);
        match &mut self.used {
            Used::Gcra(gcra) => gcra.set_used(place, &used, None),
            Used::Window(log) => drop(log.charge(place, &used)),
            Used::Fixed(counter) => drop(counter.charge(place, &used)),
            Used::Nothing => {}
        }
    }

    /// `now`, or the beginning of what is booked ahead of it.
    fn place(&self, now: u64) -> u64 {
        match &self.used {
            Used::Window(log) => log.not_before(now),
            Used::Fixed(counter) => counter.not_before(now),
            Used::Gcra(_) | Used::Nothing => now,
        }
    }

    /// The most that is at hand; `None` where nothing is counted.
    fn size(&self, grain: GrainRule) -> Option<Q> {
        match &self.used {
            Used::Gcra(gcra) => Some(grain.amount(&gcra.savings())),
            _ => self.spec.size().cloned(),
        }
    }

    /// What is used at `now`; `None` where nothing is counted.
    fn counted(&self, now: u64) -> Option<Q> {
        match &self.used {
            Used::Gcra(gcra) => Some(gcra.used(now)),
            Used::Window(log) => Some(Log::counted(log, now)),
            Used::Fixed(counter) => Some(Counter::counted(counter, now)),
            Used::Nothing => None,
        }
    }
}

fn take_over_rate(new: &mut Gcra, old: &Gcra, now: u64, carry: Carry) {
    let (balance, used) = (old.balance(now), old.used(now));
    let (from, to) = (old.savings(), new.savings());
    let debt = (-&balance).max(Q::zero());
    match carry {
        Carry::Keep if used > &to + &debt => new.set_used(now, &debt, Some(&Q::zero())),
        Carry::Keep => new.set_used(now, &used, None),
        Carry::Balance => new.set_used(now, &debt, Some(&balance.max(Q::zero()))),
        Carry::Scale if from.is_zero() || to.is_zero() => new.owe_as_long_as(old, now),
        Carry::Scale => new.set_used(now, &(used * to / from), None),
        Carry::Reset => {}
    }
}

fn take_over_log(new: &mut Log, old: &Log, now: u64, carry: Carry, grain: GrainRule) {
    let (from, to) = (old.limit().clone(), new.limit().clone());
    let resize = |cost: &Q| if carry == Carry::Scale { grain.amount(&(cost * &to / &from)) } else { cost.clone() };
    *new = old.resized(&to, new.period(), now, resize);
}

impl GrainRule {
    /// An amount of tokens as costs are written: up to the next billionth where
    /// there is a grain at all.
    fn amount(self, tokens: &Q) -> Q {
        let billionth = fraction(1, 1_000_000_000);
        match self {
            GrainRule::Exact => tokens.clone(),
            GrainRule::Ticks => (tokens / &billionth).ceil() * billionth,
        }
    }
}
