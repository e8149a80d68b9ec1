//! One call on its way: what the scripts are told, and asked again under the limits that govern.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use suimon::store::{LeaseTicket, Limits};
use suimon::{Carry, Cost, Timestamp};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::booked::Booked;
use crate::carry::carry;
use crate::error::{self, Error};
use crate::plan::{Ask, Plan, nanos};
use crate::record::{Body, Doubles, Tag, put};
use crate::store::Shared;
use crate::units::{from_nanos_pair, nanos_pair};

/// What a script is to do; the numbers of `decide.lua`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Peek = 0,
    Allow = 1,
    Reserve = 2,
    Adopt = 3,
    Settle = 4,
    Lease = 5,
}

impl Does {
    const ALL: [Does; 6] = [Does::Peek, Does::Allow, Does::Reserve, Does::Adopt, Does::Settle, Does::Lease];
}

/// How often a call is asked anew because others have changed the limits of its keys, or
/// because the windows around the server's time were not among those listed.
const MOST_TRIES: usize = 8;

/// A key of a call.
pub(crate) struct Asked<'a> {
    pub(crate) limits: &'a Arc<Limits>,
    /// Under which it is decided: those of the call, or newer ones.
    pub(crate) plan: Arc<Plan>,
    pub(crate) cost: Cost,
    pub(crate) want: Want,
    /// The value that stands there under older limits, and what it is under these.
    carried: Option<(Vec<u8>, Vec<u8>)>,
}

/// What is to be done with a key.
#[derive(Debug)]
pub(crate) enum Want {
    /// It is charged with the cost, if all pass.
    Charge,
    /// At least the cost is lent.
    Lend { most: Cost, lifetime: Duration },
    /// It gets back what a booking has not spent.
    GiveBack { booked: Booked, spent: Cost },
    /// It gets back what a lease has not spent.
    TakeBack { lease: LeaseTicket, spent: Cost },
    /// Nothing: its limits have changed since the booking.
    Leave,
}

/// A call on its way.
pub(crate) struct Asking<'a> {
    store: &'a Shared,
    pub(crate) does: Does,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) at: Option<Timestamp>,
    pub(crate) parts: Vec<Asked<'a>>,
    /// The names of the values, and then of the recorded answer, if there is to be one.
    pub(crate) names: Vec<String>,
    pub(crate) lifetime: Duration,
    /// What is recorded beside the answer, if it is another than what is asked.
    pub(crate) memo: Option<Vec<u8>>,
    around: Timestamp,
    deadline: Instant,
}

/// What comes of a call.
pub(crate) enum Heard {
    Answer(Answer),
    /// What was recorded of an earlier call of the same id.
    Recorded(Vec<u8>),
}

impl<'a> Asked<'a> {
    pub(crate) fn new(limits: &'a Arc<Limits>, plan: Arc<Plan>, cost: Cost, want: Want) -> Asked<'a> {
        Asked { limits, plan, cost, want, carried: None }
    }
}

impl<'a> Asking<'a> {
    pub(crate) fn new(store: &'a Shared, does: Does, at: Option<Timestamp>) -> Asking<'a> {
        let around = at.unwrap_or_else(|| store.time.guess());
        let deadline = Instant::now() + store.link.timeout();
        let (parts, names, lifetime, memo) = (Vec::new(), Vec::new(), Duration::ZERO, None);
        let max_wait = Some(Duration::ZERO);
        Asking { store, does, max_wait, at, parts, names, lifetime, memo, around, deadline }
    }

    /// Asks until the limits that govern are known, and it is decided under them.
    pub(crate) async fn ask(&mut self) -> Result<Heard, Error> {
        for _ in 0..MOST_TRIES {
            let value = if self.is_one() { self.ask_one().await? } else { self.ask_many().await? };
            match value {
                // The short script says in the fewest bytes that it passes.
                Value::BulkString(bytes) if self.is_one() && bytes.len() % 8 <= 1 && bytes.len() > 8 => {
                    return Ok(Heard::Answer(self.read(&bytes).ok_or_else(nonsense)?));
                }
                Value::BulkString(bytes) => match bytes.split_first() {
                    Some((b'A' | b'D', _)) => {
                        let answer = self.read(&bytes).ok_or_else(nonsense)?;
                        if self.at.is_none() {
                            self.store.time.learn(answer.now());
                        }
                        return Ok(Heard::Answer(answer));
                    }
                    Some((b'R', recorded)) => return Ok(Heard::Recorded(recorded.to_vec())),
                    Some((b'F', _)) => return Err(error::too_far_ahead()),
                    Some((b'N', instant)) => {
                        let pair = Doubles(instant).pair().ok_or_else(nonsense)?;
                        self.around = Timestamp::from_nanos(from_nanos_pair(pair));
                    }
                    _ => return Err(nonsense()),
                },
                Value::Array(values) => self.carry_over(&values)?,
                _ => return Err(nonsense()),
            }
        }
        Err(Error::unavailable(format!(
            "the limits of the keys were changed by others {MOST_TRIES} times while this call was on its way, \
             or the server's time ran away from it"
        )))
    }

    /// Does the short script do?
    fn is_one(&self) -> bool {
        let [part] = self.parts.as_slice() else { return false };
        let plain = part.carried.is_none() && matches!(part.want, Want::Charge) && self.names.len() == 1;
        plain && !part.cost.is_zero() && part.plan.gcra().is_some() && self.does as u8 <= Does::Reserve as u8
    }

    async fn ask_one(&self) -> Result<Value, Error> {
        let (Some(part), scripts) = (self.parts.first(), &self.store.scripts) else { return Err(nonsense()) };
        let gcra = part.plan.gcra().ok_or_else(nonsense)?;
        let [base, cost, slack] = gcra.charge(self.wants(part));
        let mut numbers = Vec::with_capacity(88 + part.plan.tag_bytes.len());
        put(&mut numbers, &[part.plan.number, base[0]]);
        put(&mut numbers, &cost);
        put(&mut numbers, &slack);
        put(&mut numbers, &[f64::from(self.does as u8)]);
        put(&mut numbers, &self.at_pair());
        // What has been given back to a key that is new.
        put(&mut numbers, &[0.0, 0.0]);
        numbers.extend_from_slice(&part.plan.tag_bytes);
        Ok(scripts.one.run(&self.store.link, self.deadline, &self.names, &[&numbers]).await?)
    }

    async fn ask_many(&self) -> Result<Value, Error> {
        let mut head = Vec::with_capacity(56);
        put(&mut head, &[f64::from(self.does as u8)]);
        put(&mut head, &self.at_pair());
        put(&mut head, &nanos_pair(self.max_wait.map_or(u64::MAX, nanos)));
        put(&mut head, &[self.lifetime.as_millis().max(1) as f64, self.parts.len() as f64]);
        let limits = self.parts.iter().map(|part| match &part.want {
            Want::Charge => part.plan.to_charge(self.wants(part)),
            Want::Lend { most, lifetime } => part.plan.to_lend(self.wants(part), *most, *lifetime),
            Want::GiveBack { booked, spent } => part.plan.to_give_back(booked, *spent),
            Want::TakeBack { lease, spent } => part.plan.to_take_back(*lease, *spent, self.around),
            Want::Leave => part.plan.to_leave(self.around),
        });
        let limits: Vec<_> = limits.collect();
        let mut arguments: Vec<&[u8]> = vec![&head];
        for (part, limits) in self.parts.iter().zip(&limits) {
            let (old, new): (&[u8], &[u8]) = part.carried.as_ref().map_or((b"", b""), |(old, new)| (old, new));
            arguments.extend([&*part.plan.tag_bytes, limits, old, new]);
        }
        let memo = self.memo.clone().unwrap_or_else(|| self.what_is_asked());
        if self.names.len() > self.parts.len() {
            arguments.push(&memo);
        }
        let script = &self.store.scripts.decide;
        Ok(script.run(&self.store.link, self.deadline, &self.names, &arguments).await?)
    }

    fn wants(&self, part: &Asked<'_>) -> Ask {
        Ask { cost: part.cost, max_wait: self.max_wait, around: self.around }
    }

    /// The time that the call brings, or the sign that it brings none.
    fn at_pair(&self) -> [f64; 2] {
        self.at.map_or([-1.0, 0.0], |at| nanos_pair(at.as_nanos()))
    }

    fn read(&self, bytes: &[u8]) -> Option<Answer> {
        let many = || Answer::of_many(bytes, self.does, self.plans());
        let [part] = self.parts.as_slice() else { return many() };
        match part.plan.gcra() {
            Some(gcra) if self.is_one() => {
                let ahead = || gcra.units.of_cost(part.cost) + gcra.spare(part.cost);
                Answer::of_one(bytes, gcra, (self.does == Does::Reserve).then(ahead))
            }
            _ => many(),
        }
    }

    pub(crate) fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.parts.iter().map(|part| &*part.plan)
    }

    /// Values under other limits than those that were asked about: finds those that
    /// govern, and what the values are under them.
    fn carry_over(&mut self, values: &[Value]) -> Result<(), Error> {
        let [Value::BulkString(now), Value::Array(values)] = values else {
            return Err(nonsense());
        };
        let now = from_nanos_pair(Doubles(now).pair().ok_or_else(nonsense)?);
        for (part, (value, name)) in self.parts.iter_mut().zip(values.iter().zip(&self.names)) {
            let own = self.store.plans.of(part.limits, &*self.store.calendar)?;
            let is_settled = matches!(part.want, Want::GiveBack { .. } | Want::Leave);
            if !is_settled {
                (part.plan, part.carried) = (own.clone(), None);
            }
            let Value::BulkString(value) = value else { continue };
            let foreign = || {
                Error::unavailable(format!(
                    "the key `{name}` holds something that suimon did not write: choose another prefix, or delete it"
                ))
            };
            let (tag, body) = Tag::split(value).ok_or_else(foreign)?;
            if tag == part.plan.tag || matches!(part.want, Want::Leave) {
                continue;
            }
            let old = self.store.plan_of(&tag, &own)?;
            let body = Body::read(body, &tag, old.layouts()).ok_or_else(foreign)?;
            if let Want::GiveBack { booked, .. } = &part.want {
                // The same limits in another version; under others what was given back is not known.
                if (body.epoch, &tag.policy) == (booked.epoch, &booked.tag.policy) {
                    part.plan = old;
                } else {
                    part.want = Want::Leave;
                }
                continue;
            }
            if tag.version > own.tag.version {
                if matches!(part.want, Want::Lend { .. }) && !old.lends() {
                    return Err(Error::no_lease());
                }
                // What went beyond an estimate has been spent, however much it is.
                if self.does != Does::Settle {
                    old.check(part.cost)?;
                }
                part.plan = old;
                continue;
            }
            // Of two limits of one version neither is a change: to reset at each would mint.
            let resets = part.limits.carry() == Carry::Reset && tag.version < own.tag.version;
            let body = if tag.policy == own.tag.policy && !resets {
                body
            } else {
                let how = if resets || part.limits.carry() != Carry::Reset { part.limits.carry() } else { Carry::Keep };
                carry(&own, &old, &body, self.at.map_or(now, Timestamp::as_nanos), how)
            };
            part.carried = Some((value.clone(), body.write(&own.tag, own.layouts())));
        }
        Ok(())
    }

    /// What is recorded with an answer: what was asked.
    fn what_is_asked(&self) -> Vec<u8> {
        let mut memo = vec![self.does as u8];
        memo.extend_from_slice(&self.max_wait.map_or(u64::MAX, nanos).to_le_bytes());
        for part in &self.parts {
            memo.extend_from_slice(&part.cost.as_whole().to_le_bytes());
            memo.extend_from_slice(&part.cost.subsec_nanos().to_le_bytes());
            memo.extend_from_slice(&(part.plan.tag_bytes.len() as u64).to_le_bytes());
            memo.extend_from_slice(&part.plan.tag_bytes);
        }
        memo
    }

    /// The recorded answer to an earlier call of the same id. From here on this is that
    /// call, whatever was asked now.
    pub(crate) fn recorded(&mut self, bytes: &[u8]) -> Result<Answer, Error> {
        let other = || Error::unavailable("the id of the request was used for another call: take a new one for each");
        let (answer, memo) = split_recorded(bytes).ok_or_else(other)?;
        self.become_what_was_asked(memo).ok_or_else(other)??;
        Answer::of_many(answer, self.does, self.plans()).ok_or_else(other)
    }

    fn become_what_was_asked(&mut self, memo: &[u8]) -> Option<Result<(), Error>> {
        let (&does, memo) = memo.split_first()?;
        self.does = Does::ALL.into_iter().find(|known| *known as u8 == does)?;
        let (wait, mut memo) = memo.split_first_chunk()?;
        let wait = u64::from_le_bytes(*wait);
        self.max_wait = (wait != u64::MAX).then(|| Duration::from_nanos(wait));
        for part in &mut self.parts {
            let (whole, rest) = memo.split_first_chunk()?;
            let (fraction, rest) = rest.split_first_chunk()?;
            let (length, rest) = rest.split_first_chunk()?;
            let (tag, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
            memo = rest;
            part.cost = Cost::new(u64::from_le_bytes(*whole), u32::from_le_bytes(*fraction)).ok()?;
            let tag = Tag::split(tag).filter(|(_, rest)| rest.is_empty())?.0;
            let plan = self.store.plans.of(part.limits, &*self.store.calendar);
            match plan.and_then(|own| self.store.plan_of(&tag, &own)) {
                Ok(plan) => part.plan = plan,
                Err(error) => return Some(Err(error)),
            }
        }
        memo.is_empty().then_some(Ok(()))
    }
}

/// The answer that was recorded, and what beside it.
pub(crate) fn split_recorded(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

fn nonsense() -> Error {
    Error::unavailable("the server answered something that the script does not say: is it Redis or Valkey?")
}
