//! Deciding about records that a store has locked.

use std::time::Duration;

use suimon_core::{
    Booking, Calendar, Carry, Cost, Decision, Gate, Limit, Policy, Retry, Settlement, State, Status, Timestamp,
};

use super::kept::{Kept, read_ticket, ticket};
use super::leases::LeaseTicket;
use super::{Call, Limits, Outcome, Part, Reply, Settling, Ticket, Verb};
use crate::Error;

/// What a store keeps of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The version of the limits that govern the key.
    pub version: u64,
    /// Those limits as text, for those who come with older ones.
    pub policy: String,
    /// The state and the leases that are out, as bytes.
    pub state: Vec<u8>,
    /// The latest time at which it was decided about: a store's clock may step back.
    pub seen: Timestamp,
    /// From this instant on the record is as good as none, and may be removed.
    pub fresh_at: Timestamp,
}

/// What came of a call, and what is to be written.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The answer.
    pub reply: Reply,
    /// The new record of each part, in their order; `None` where it stays as it is.
    pub records: Vec<Option<Record>>,
}

/// A part with its state under the limits that govern it.
struct Governed {
    /// The gate of a newer version than that of the part.
    newer: Option<Gate>,
    kept: Kept,
    version: u64,
    seen: Timestamp,
}

impl Governed {
    fn gate<'a>(&'a self, limits: &'a Limits) -> &'a Gate {
        self.newer.as_ref().unwrap_or(&limits.gate)
    }

    /// What is to be written when the state has changed.
    fn record(&self, limits: &Limits, now: Timestamp) -> Result<Record, Error> {
        let gate = self.gate(limits);
        let fresh_after = |state: &State| -> Result<Duration, Error> {
            Ok(gate.statuses(state, now)?.iter().map(Status::reset_after).max().unwrap_or_default())
        };
        let end = self.kept.leases.end();
        let fresh_after = if end > now {
            // What is out may be spent until it ends: only then it refills.
            let Kept { mut leases, mut state, .. } = self.kept.clone();
            leases.settle(gate, &mut state, end);
            fresh_after(&state)?
        } else {
            fresh_after(&self.kept.state)?
        };
        Ok(Record {
            version: self.version,
            policy: gate.policy().to_string(),
            state: self.kept.to_bytes(),
            seen: now,
            fresh_at: now.saturating_add(fresh_after).max(end),
        })
    }
}

/// Finds the limits that govern a key, and its state under them at an instant, or at
/// the latest one that the record has seen.
fn govern(
    limits: &Limits,
    record: Option<&Record>,
    now: Timestamp,
    calendar: &dyn Calendar,
) -> Result<Governed, Error> {
    let Some(record) = record else {
        let kept = Kept::fresh(&limits.gate, now);
        return Ok(Governed { newer: None, kept, version: limits.version, seen: Timestamp::ZERO });
    };
    let (seen, version) = (record.seen, record.version.max(limits.version));
    let mut governed = Governed { newer: None, kept: Kept::from_bytes(&record.state)?, version, seen };
    let (kept, now) = (&mut governed.kept, now.max(seen));
    // Of two limits of one version neither is a change: to reset at each would mint.
    let resets = limits.carry == Carry::Reset && limits.version > record.version;
    let is_same = record.policy == limits.gate.policy().to_string();
    if is_same && !resets {
        kept.leases.settle(&limits.gate, &mut kept.state, now);
        return Ok(governed);
    }
    let policy: Policy = record.policy.parse().map_err(Error::unavailable)?;
    let gate = Gate::with_calendar(policy, calendar).map_err(Error::unavailable)?;
    kept.leases.settle(&gate, &mut kept.state, now);
    if record.version > limits.version {
        governed.newer = Some(gate);
    } else {
        let carry = if resets || limits.carry != Carry::Reset { limits.carry } else { Carry::Keep };
        limits.gate.adopt(&mut kept.state, &gate, now, carry).map_err(Error::unavailable)?;
        kept.begin_epoch(now);
        kept.leases.settle(&limits.gate, &mut kept.state, now);
    }
    Ok(governed)
}

/// Decides about a call, given the records of its parts and the store's time.
///
/// # Errors
/// Those of the arguments; [`Error::is_unavailable`] for a record that cannot be read.
pub fn decide(
    call: &Call,
    records: &[Option<Record>],
    now: Timestamp,
    calendar: &dyn Calendar,
) -> Result<Decided, Error> {
    check_keys(&call.parts)?;
    let governed = call.parts.iter().zip(records);
    let mut governed = governed
        .map(|(part, record)| govern(&part.limits, record.as_ref(), now, calendar))
        .collect::<Result<Vec<_>, _>>()?;
    let now = governed.iter().map(|part| part.seen).fold(now, Timestamp::max);
    if let Verb::Lease { lifetime, least } = call.verb {
        return lease(call, &mut governed, now, lifetime, least);
    }
    // The arguments of all parts, before anything is decided.
    let (start, blocked) = earliest(&call.parts, &governed, now)?;
    let reply = |outcome| Reply { outcome, now, replayed: false };
    let unchanged = || vec![None; call.parts.len()];
    if call.verb == Verb::Adopt {
        let status = tightest(&call.parts, &governed, now)?;
        let records = write(call, &governed, now)?;
        return Ok(Decided { reply: reply(Outcome::Allowed(status)), records });
    }
    let max_wait = match call.verb {
        Verb::Reserve { max_wait } => max_wait,
        _ => Some(Duration::ZERO),
    };
    let wait = start.map(|start| start.saturating_since(now));
    let Some(wait) = wait.filter(|wait| max_wait.is_none_or(|most| *wait <= most)) else {
        let (status, limit) = blocked;
        let retry = match wait {
            Some(wait) => Retry::After { wait: wait.saturating_sub(max_wait.unwrap_or_default()), limit },
            None => Retry::Never { limit },
        };
        return Ok(Decided { reply: reply(Outcome::Denied(status, retry)), records: unchanged() });
    };
    if call.verb == Verb::Peek {
        let status = tightest(&call.parts, &governed, now)?;
        return Ok(Decided { reply: reply(Outcome::Allowed(status)), records: unchanged() });
    }
    let start = now.saturating_add(wait);
    let mut places = Vec::new();
    for (part, governed) in call.parts.iter().zip(&mut governed) {
        let gate = governed.newer.as_ref().unwrap_or(&part.limits.gate);
        // Whoever is the reason for the wait is booked from now, to the tick; rounding
        // its start would add up.
        let kept = &mut governed.kept;
        let is_last = gate.ready(&kept.state, now, part.cost)? == Some(start);
        match gate.reserve(&mut kept.state, if is_last { now } else { start }, part.cost, None)? {
            Booking::Booked(_, place) => places.push((part.key.clone(), ticket(kept.epoch, &place))),
            Booking::Denied(..) => unreachable!("`earliest` has found it ready"),
        }
    }
    let status = tightest(&call.parts, &governed, now)?;
    let outcome = match call.verb {
        Verb::Reserve { .. } => Outcome::Booked(status, Ticket { wait, parts: places }),
        _ => Outcome::Allowed(status),
    };
    Ok(Decided { reply: reply(outcome), records: write(call, &governed, now)? })
}

/// Lends tokens, as many as are wanted or a quarter of those that there are.
fn lease(
    call: &Call,
    governed: &mut [Governed],
    now: Timestamp,
    lifetime: Duration,
    least: Cost,
) -> Result<Decided, Error> {
    let ([part], [key]) = (&*call.parts, &mut *governed) else { return Err(Error::no_lease()) };
    let gate = key.newer.as_ref().unwrap_or(&part.limits.gate);
    // Those of the caller too: what governs is not known before the store is asked.
    let is_bucket = |gate: &Gate| matches!(gate.policy().limits(), [Limit::Bucket(_)]);
    if !is_bucket(&part.limits.gate) || !is_bucket(gate) {
        return Err(Error::no_lease());
    }
    let reply = |outcome| Reply { outcome, now, replayed: false };
    let least = least.min(part.cost);
    let before = gate.peek(&key.kept.state, now, least)?;
    if let Decision::Deny(status, retry) = before {
        return Ok(Decided { reply: reply(Outcome::Denied(status, retry)), records: vec![None] });
    }
    let granted = part.cost.min(least.max(Cost::whole(before.status().remaining() / 4)));
    let decision = gate.allow(&mut key.kept.state, now, granted)?;
    let expires = now.saturating_add(lifetime);
    let id = key.kept.leases.add(expires, granted);
    let place = LeaseTicket { id, expires, granted }.to_bytes();
    let ticket = Ticket { wait: Duration::ZERO, parts: vec![(part.key.clone(), place)] };
    let outcome = Outcome::Booked(*decision.status(), ticket);
    Ok(Decided { reply: reply(outcome), records: write(call, governed, now)? })
}

fn write(call: &Call, governed: &[Governed], now: Timestamp) -> Result<Vec<Option<Record>>, Error> {
    let parts = call.parts.iter().zip(governed);
    parts.map(|(part, governed)| governed.record(&part.limits, now).map(Some)).collect()
}

/// Each part is decided on a record of its own: of two with the same key, the one that is
/// written last would forget the other.
fn check_keys(parts: &[Part]) -> Result<(), Error> {
    let twice = |(nth, part): (usize, &Part)| parts[..nth].iter().any(|other| other.key == part.key);
    match parts.iter().enumerate().any(twice) {
        true => {
            Err(Error::unsupported("two parts of a call have the same key; make them one, with the sum of the costs"))
        }
        false => Ok(()),
    }
}

/// The first instant at which all parts pass together, and the limit that holds
/// longest, with its status.
fn earliest(
    parts: &[Part],
    governed: &[Governed],
    now: Timestamp,
) -> Result<(Option<Timestamp>, (Status, usize)), Error> {
    let mut latest = now;
    let mut blocked = (Status::UNLIMITED, 0);
    loop {
        let mut first = 0;
        let mut next = latest;
        for (part, governed) in parts.iter().zip(governed) {
            let gate = governed.gate(&part.limits);
            let decision = gate.peek(&governed.kept.state, latest, part.cost)?;
            if let Some(retry) = decision.retry() {
                let status = gate.peek(&governed.kept.state, now, part.cost)?;
                let at = first + retry.limit();
                match retry.after() {
                    None => return Ok((None, (*status.status(), at))),
                    Some(wait) if latest.saturating_add(wait) > next => {
                        next = latest.saturating_add(wait);
                        blocked = (*status.status(), at);
                    }
                    Some(_) => {}
                }
            }
            first += gate.policy().limits().len();
        }
        if next == latest {
            return Ok((Some(latest), blocked));
        }
        latest = next;
    }
}

/// The status of the part that lets the fewest calls pass.
fn tightest(parts: &[Part], governed: &[Governed], now: Timestamp) -> Result<Status, Error> {
    let mut tightest: Option<Status> = None;
    for (part, governed) in parts.iter().zip(governed) {
        let status = governed.gate(&part.limits).status(&governed.kept.state, now)?;
        if tightest.is_none_or(|least| status.burst_left() < least.burst_left()) {
            tightest = Some(status);
        }
    }
    Ok(tightest.unwrap_or(Status::UNLIMITED))
}

/// Settles a booking, given the records of its parts and the store's time. What
/// is to be written, and what came of it in the first part.
///
/// A record that is gone has been as good as new: nothing is given back to it, nor to the one
/// that has come in its place.
///
/// # Errors
/// [`Error::is_unavailable`] for a record or ticket that cannot be read.
pub fn settle(
    settling: &Settling,
    records: &[Option<Record>],
    now: Timestamp,
    calendar: &dyn Calendar,
) -> Result<(Settlement, Vec<Option<Record>>), Error> {
    let mut first = None;
    let mut written = Vec::new();
    let parts = settling.ticket.parts.iter().zip(&settling.limits).zip(&settling.actual).zip(records);
    for ((((_, bytes), limits), actual), record) in parts {
        let mut governed = govern(limits, record.as_ref(), now, calendar)?;
        let now = now.max(governed.seen);
        let gate = governed.newer.as_ref().unwrap_or(&limits.gate);
        let kept = &mut governed.kept;
        let (settlement, changes) = if let Some(place) = LeaseTicket::from_bytes(bytes) {
            let back = place.granted.saturating_sub(*actual);
            let returned = kept.leases.give_back(gate, &mut kept.state, now, place, back);
            (Settlement::Refunded(back), returned)
        } else {
            let (epoch, place) = read_ticket(bytes)?;
            let unused = place.estimate().saturating_sub(*actual);
            if !unused.is_zero() && (record.is_none() || kept.epoch != epoch) {
                // What was given back since is not known any more.
                (Settlement::Refunded(unused), false)
            } else {
                let at = if unused.is_zero() { now } else { kept.leases.floor(gate, now) };
                let settlement = gate.settle(&mut kept.state, at, place, *actual)?;
                (settlement, settlement != Settlement::Even)
            }
        };
        first.get_or_insert(settlement);
        written.push(if changes { Some(governed.record(limits, now)?) } else { None });
    }
    Ok((first.unwrap_or(Settlement::Even), written))
}
