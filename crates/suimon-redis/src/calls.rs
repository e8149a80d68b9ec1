//! The two methods of the port: from a call to its answer.

use std::sync::Arc;

use suimon::store::{
    Call, LeaseTicket, Outcome, Reply, Settling, Ticket, Verb, settlement_from_bytes, settlement_to_bytes,
};
use suimon::{Cost, Settlement};

use crate::answer::Answer;
use crate::asking::{Asked, Asking, Does, Heard, Want, split_recorded};
use crate::booked::Booked;
use crate::error::Error;
use crate::keys::{check_parts, check_slots};
use crate::plan::Plan;
use crate::record::Tag;
use crate::store::Shared;

impl Shared {
    pub(crate) async fn decide_call(&self, call: &Call) -> Result<Reply, Error> {
        check_parts(call)?;
        let does = match call.verb {
            Verb::Peek => Does::Peek,
            Verb::Allow => Does::Allow,
            Verb::Reserve { .. } => Does::Reserve,
            Verb::Adopt => Does::Adopt,
            Verb::Lease { .. } => Does::Lease,
        };
        let mut asking = Asking::new(self, does, call.at);
        if let Verb::Reserve { max_wait } = call.verb {
            asking.max_wait = max_wait;
        }
        for part in &call.parts {
            let plan = self.plans.of(&part.limits, &*self.calendar)?;
            let (cost, want) = match call.verb {
                Verb::Lease { .. } if call.parts.len() > 1 || !plan.lends() => return Err(Error::no_lease()),
                Verb::Lease { lifetime, least } => (least.min(part.cost), Want::Lend { most: part.cost, lifetime }),
                _ => (part.cost, Want::Charge),
            };
            plan.check(cost)?;
            let cost = if does == Does::Adopt { Cost::ZERO } else { cost };
            asking.parts.push(Asked::new(&part.limits, plan, cost, want));
        }
        asking.names = call.parts.iter().map(|part| self.names.value(&part.key)).collect();
        self.check_slots(&asking.names)?;
        if let (Some(id), Some(first)) = (&call.id, asking.names.first()) {
            asking.lifetime = id.lifetime();
            asking.names.push(self.names.answer(id, first));
        }
        let (answer, replayed) = match asking.ask().await? {
            Heard::Answer(answer) => (answer, false),
            Heard::Recorded(bytes) => (asking.recorded(&bytes)?, true),
        };
        Ok(Reply { outcome: asking.outcome(call, &answer), now: answer.now(), replayed })
    }

    pub(crate) async fn settle_booking(&self, settling: &Settling) -> Result<Settlement, Error> {
        let mut asking = Asking::new(self, Does::Settle, settling.at);
        asking.max_wait = None;
        let mut first = None;
        let of_parts = settling.ticket.parts.iter().zip(&settling.limits).zip(&settling.actual);
        for (((key, bytes), limits), &actual) in of_parts {
            let own = self.plans.of(limits, &*self.calendar)?;
            let (settlement, plan, want) = self.to_settle(bytes, &own, actual)?;
            first.get_or_insert(settlement);
            let cost = match settlement {
                Settlement::Even => continue,
                Settlement::Charged(cost) | Settlement::Refunded(cost) => cost,
            };
            asking.parts.push(Asked::new(limits, plan, cost, want));
            asking.names.push(self.names.value(key));
        }
        let settlement = first.unwrap_or(Settlement::Even);
        self.check_slots(&asking.names)?;
        if let (Some(id), Some((key, _))) = (&settling.id, settling.ticket.parts.first()) {
            asking.lifetime = id.lifetime();
            asking.names.push(self.names.settlement(id, &self.names.value(key)));
            asking.memo = Some(settlement_to_bytes(settlement));
        }
        if asking.names.is_empty() {
            return Ok(settlement);
        }
        match asking.ask().await? {
            Heard::Answer(_) => Ok(settlement),
            Heard::Recorded(bytes) => settlement_from_bytes(split_recorded(&bytes).map_or(&[], |(_, memo)| memo)),
        }
    }

    /// What comes of a part, and how.
    fn to_settle(&self, ticket: &[u8], own: &Arc<Plan>, spent: Cost) -> Result<(Settlement, Arc<Plan>, Want), Error> {
        if let Some(lease) = LeaseTicket::from_bytes(ticket) {
            let spent = spent.min(lease.granted);
            let unspent = lease.granted.saturating_sub(spent);
            return Ok((Settlement::Refunded(unspent), own.clone(), Want::TakeBack { lease, spent }));
        }
        let booked = Booked::from_bytes(ticket).ok_or_else(|| {
            Error::unavailable("the ticket of a booking cannot be read: it is none of this store, or cut")
        })?;
        let (excess, less) = (spent.saturating_sub(booked.estimate), booked.estimate.saturating_sub(spent));
        if !excess.is_zero() {
            return Ok((Settlement::Charged(excess), own.clone(), Want::Charge));
        }
        let settlement = if less.is_zero() { Settlement::Even } else { Settlement::Refunded(less) };
        Ok((settlement, self.plan_of(&booked.tag, own)?, Want::GiveBack { booked, spent }))
    }

    fn check_slots(&self, names: &[String]) -> Result<(), Error> {
        if self.link.is_cluster() { check_slots(names) } else { Ok(()) }
    }

    /// The plan of a tag that stands in Redis.
    pub(crate) fn plan_of(&self, tag: &Tag, own: &Arc<Plan>) -> Result<Arc<Plan>, Error> {
        if *tag == own.tag {
            return Ok(own.clone());
        }
        if tag.policy == own.tag.policy {
            return Ok(Arc::new(own.with_version(tag.version)));
        }
        let unreadable = |error: Error| {
            Error::unavailable(format!("the limits `{}` that stand in Redis cannot be read: {error}", tag.policy))
        };
        let policy = tag.policy.parse().map_err(|error: suimon::PolicyError| unreadable(error.into()))?;
        Plan::new(policy, tag.version, &*self.calendar).map(Arc::new).map_err(unreadable)
    }
}

impl Asking<'_> {
    fn outcome(&self, call: &Call, answer: &Answer) -> Outcome {
        let passes = answer.passes || self.does == Does::Adopt;
        if !passes {
            let parts = self.parts.iter().map(|part| (&*part.plan, part.cost));
            let (status, retry) = answer.refusal(parts, self.max_wait.unwrap_or_default());
            return Outcome::Denied(status, retry);
        }
        let status = answer.status(self.plans());
        let mut parts = Vec::new();
        for (index, (part, asked)) in call.parts.iter().zip(&self.parts).enumerate() {
            let ticket = match (self.does, answer.lease) {
                (Does::Reserve, _) => answer.booked(index, &asked.plan, asked.cost).to_bytes(),
                (Does::Lease, Some(lease)) => lease.to_bytes(),
                _ => return Outcome::Allowed(status),
            };
            parts.push((part.key.clone(), ticket));
        }
        Outcome::Booked(status, Ticket { wait: answer.wait(), parts })
    }
}
