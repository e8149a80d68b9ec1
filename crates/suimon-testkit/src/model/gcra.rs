//! Pace and bucket: one instant, at which the balance is zero.

use num_traits::Zero;

use super::answer::Status;
use super::number::{Q, ceil_u64, floor_u64, whole};
use super::spec::{Grain, Rate};

/// A pace or a bucket in use. Inside, time counts from `origin`.
#[derive(Clone, Debug)]
pub(super) struct Gcra {
    interval: Q,
    /// The time that a full saving is worth.
    reach: Q,
    max_cost: Q,
    pays_first: bool,
    grain: Option<Grain>,
    origin: u64,
    /// `Z`, the instant at which the balance is zero.
    zero: Q,
    /// All time given back by settlements so far.
    refunded: Q,
}

/// What one booking took, for its settlement.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// The instant at which the limit is full again if nothing else happens.
    full_at: Q,
    /// What had been refunded before it.
    refunded: Q,
}

impl Gcra {
    /// Full at `origin`.
    pub(super) fn new(
        rate: Rate,
        savings: &Q,
        max_cost: &Q,
        pays_first: bool,
        grain: Option<Grain>,
        origin: u64,
    ) -> Gcra {
        let interval = rate.interval();
        let reach = savings * &interval;
        let reach = grain.as_ref().map_or(reach.clone(), |grain| grain.up(&reach));
        let (zero, refunded) = (-reach.clone(), Q::zero());
        Gcra { interval, reach, max_cost: max_cost.clone(), pays_first, grain, origin, zero, refunded }
    }

    /// The instant at which the cost passes, if it does not pass at `now`.
    pub(super) fn ready(&self, now: u64, cost: &Q) -> Option<Q> {
        let seen = self.seen(&whole(now));
        let mut ready = self.zero_as_of(&seen);
        if self.pays_first {
            ready += self.length(cost);
        }
        (ready > seen).then(|| ready + whole(self.origin))
    }

    /// Takes the cost as of an instant.
    pub(super) fn charge(&mut self, as_of: &Q, cost: &Q) -> Held {
        self.zero = self.zero_as_of(&self.seen(as_of)) + self.length(cost);
        Held { full_at: &self.zero + &self.reach, refunded: self.refunded.clone() }
    }

    /// Gives back what a booking did not need.
    ///
    /// What is given back is at most what the booking still holds back: the time
    /// from now until the limit would have been full again after it. The rest has
    /// been earned anew meanwhile, or was lost in an idle time that the real cost
    /// would have lost as well.
    pub(super) fn refund(&mut self, now: u64, held: &Held, estimate: &Q, actual: &Q) {
        let holds_back = &held.full_at - (&self.refunded - &held.refunded) - self.seen(&whole(now));
        let refund = (self.length(estimate) - self.length(actual)).min(holds_back).max(Q::zero());
        self.zero -= &refund;
        self.refunded += refund;
    }

    pub(super) fn status(&self, now: u64) -> Status {
        let balance = self.balance(now);
        let max_cost = floor_u64(&self.max_cost);
        let (remaining, burst_left) = if balance < Q::zero() {
            (0, 0)
        } else if self.pays_first {
            (floor_u64(&balance).min(max_cost), floor_u64(&balance))
        } else {
            (max_cost, floor_u64(&(balance + whole(1))))
        };
        // A call of cost 1 that is above the largest cost never passes.
        let burst_left = if max_cost == 0 { 0 } else { burst_left };
        let full_at = &self.zero + &self.reach + whole(self.origin);
        Status { limit: max_cost, remaining, burst_left, reset_after: ceil_u64(&(full_at - whole(now))) }
    }

    /// Tokens at hand at `now`; negative while a debt is paid.
    pub(super) fn balance(&self, now: u64) -> Q {
        let seen = self.seen(&whole(now));
        (&seen - self.zero_as_of(&seen)) / &self.interval
    }

    /// The most tokens that idling saves up.
    pub(super) fn savings(&self) -> Q {
        &self.reach / &self.interval
    }

    /// Starts with this balance at `now`.
    pub(super) fn start_with(&mut self, now: u64, balance: &Q) {
        self.zero = self.seen(&whole(now)) - self.length(balance);
    }

    /// The tokens that are missing to be full at `now`, a debt included.
    pub(super) fn used(&self, now: u64) -> Q {
        self.savings() - self.balance(now)
    }

    /// Lets this be missing at `now`: `taken` rounded up, and `left` of the
    /// savings at hand, rounded down.
    pub(super) fn set_used(&mut self, now: u64, taken: &Q, left: Option<&Q>) {
        let missing = left.map_or(Q::zero(), |left| (&self.reach - self.length_down(left)).max(Q::zero()));
        self.zero = self.seen(&whole(now)) + missing + self.length(taken) - &self.reach;
    }

    /// Lets no more be missing at `now` than the debt of `other`, which takes as
    /// long to be paid as before.
    pub(super) fn owe_as_long_as(&mut self, other: &Gcra, now: u64) {
        let debt = (-other.balance(now)).max(Q::zero()) * &other.interval;
        self.set_used(now, &(debt / &self.interval), None);
    }

    fn length_down(&self, tokens: &Q) -> Q {
        let time = tokens * &self.interval;
        self.grain.as_ref().map_or(time.clone(), |grain| grain.down(&time))
    }

    /// An instant as the clock shows it.
    fn seen(&self, instant: &Q) -> Q {
        let since_origin = instant - whole(self.origin);
        self.grain.as_ref().map_or(since_origin.clone(), |grain| grain.down(&since_origin))
    }

    /// `Zc`: the savings reach back no further than this.
    fn zero_as_of(&self, seen: &Q) -> Q {
        self.zero.clone().max(seen - &self.reach)
    }

    /// The time that a cost takes to be earned.
    fn length(&self, cost: &Q) -> Q {
        let time = cost * &self.interval;
        self.grain.as_ref().map_or(time.clone(), |grain| grain.up(&time))
    }
}
