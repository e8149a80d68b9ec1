//! One call, from its arguments to its answer.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use suimon::store::{Call, Limits, Outcome, Reply, Settling, Ticket, Verb};
use suimon::{Cost, Settlement, Timestamp};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::carry::carry;
use crate::error::{self, Error};
use crate::keys::{check_parts, check_slots};
use crate::plan::{Ask, Booked, Plan, nanos};
use crate::record::{Body, Doubles, Tag, put};
use crate::store::Shared;
use crate::units::{from_nanos_pair, nanos_pair};

/// What a script is to do; the numbers of `decide.lua`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Peek = 0,
    Allow = 1,
    Reserve = 2,
    Adopt = 3,
    Settle = 4,
}

impl Does {
    const ALL: [Does; 5] = [Does::Peek, Does::Allow, Does::Reserve, Does::Adopt, Does::Settle];
}

/// How often a call is asked anew because others have changed the limits of its keys, or
/// because the windows around the server's time were not among those listed.
const MOST_TRIES: usize = 8;

/// A key of a call.
struct Asked<'a> {
    limits: &'a Arc<Limits>,
    /// Under which it is decided: those of the call, or newer ones.
    plan: Arc<Plan>,
    cost: Cost,
    /// What it gives back instead of being charged.
    gives_back: Option<(Booked, Cost)>,
    /// The value that stands there under older limits, and what it is under these.
    carried: Option<(Vec<u8>, Vec<u8>)>,
}

/// A call on its way.
struct Asking<'a> {
    store: &'a Shared,
    does: Does,
    max_wait: Option<Duration>,
    at: Option<Timestamp>,
    parts: Vec<Asked<'a>>,
    /// The names of the values, and then of the recorded answer, if there is to be one.
    names: Vec<String>,
    lifetime: Duration,
    around: Timestamp,
    deadline: Instant,
}

impl Shared {
    pub(crate) async fn decide_call(&self, call: &Call) -> Result<Reply, Error> {
        check_parts(call)?;
        let (does, max_wait) = match call.verb {
            Verb::Peek => (Does::Peek, Some(Duration::ZERO)),
            Verb::Allow => (Does::Allow, Some(Duration::ZERO)),
            Verb::Reserve { max_wait } => (Does::Reserve, max_wait),
            Verb::Adopt => (Does::Adopt, Some(Duration::ZERO)),
            Verb::Lease { .. } => return Err(Error::no_lease()),
        };
        let mut parts = Vec::with_capacity(call.parts.len());
        for part in &call.parts {
            let plan = self.plans.of(&part.limits, &*self.calendar)?;
            plan.check(part.cost)?;
            let cost = if does == Does::Adopt { Cost::ZERO } else { part.cost };
            parts.push(Asked { limits: &part.limits, plan, cost, gives_back: None, carried: None });
        }
        let mut names: Vec<_> = call.parts.iter().map(|part| self.names.value(&part.key)).collect();
        self.check_slots(&names)?;
        let mut lifetime = Duration::ZERO;
        if let (Some(id), Some(first)) = (&call.id, names.first()) {
            lifetime = id.lifetime();
            names.push(self.names.answer(id, first));
        }
        let mut asking = Asking::new(self, does, max_wait, call.at, parts, names, lifetime);
        let (answer, replayed) = asking.ask().await?;
        let outcome = asking.outcome(call, &answer);
        Ok(Reply { outcome, now: answer.now(), replayed })
    }

    pub(crate) async fn settle_booking(&self, settling: &Settling) -> Result<Settlement, Error> {
        let (mut parts, mut names) = (Vec::new(), Vec::new());
        let mut first = None;
        let of_parts = settling.ticket.parts.iter().zip(&settling.limits).zip(&settling.actual);
        for (((key, bytes), limits), &actual) in of_parts {
            let booked = Booked::from_bytes(bytes).ok_or_else(|| {
                Error::unavailable("the ticket of a booking cannot be read: it is none of this store, or cut")
            })?;
            let estimate = booked.estimate;
            let (excess, less) = (actual.saturating_sub(estimate), estimate.saturating_sub(actual));
            let settlement = match (excess.is_zero(), less.is_zero()) {
                (true, true) => Settlement::Even,
                (true, false) => Settlement::Refunded(less),
                _ => Settlement::Charged(excess),
            };
            first.get_or_insert(settlement);
            if settlement == Settlement::Even {
                continue;
            }
            let own = self.plans.of(limits, &*self.calendar)?;
            let asked = if excess.is_zero() {
                let plan = self.plan_of(&booked.tag, &own)?;
                Asked { limits, plan, cost: less, gives_back: Some((booked, actual)), carried: None }
            } else {
                Asked { limits, plan: own, cost: excess, gives_back: None, carried: None }
            };
            parts.push(asked);
            names.push(self.names.value(key));
        }
        if !parts.is_empty() {
            self.check_slots(&names)?;
            Asking::new(self, Does::Settle, None, settling.at, parts, names, Duration::ZERO).ask().await?;
        }
        Ok(first.unwrap_or(Settlement::Even))
    }

    fn check_slots(&self, names: &[String]) -> Result<(), Error> {
        if self.link.is_cluster() { check_slots(names) } else { Ok(()) }
    }

    /// The plan of a tag that stands in Redis.
    fn plan_of(&self, tag: &Tag, own: &Arc<Plan>) -> Result<Arc<Plan>, Error> {
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

impl<'a> Asking<'a> {
    fn new(
        store: &'a Shared,
        does: Does,
        max_wait: Option<Duration>,
        at: Option<Timestamp>,
        parts: Vec<Asked<'a>>,
        names: Vec<String>,
        lifetime: Duration,
    ) -> Asking<'a> {
        let around = at.unwrap_or_else(|| store.time.guess());
        let deadline = Instant::now() + store.link.timeout();
        Asking { store, does, max_wait, at, parts, names, lifetime, around, deadline }
    }

    /// The answer, and is it a recorded one?
    async fn ask(&mut self) -> Result<(Answer, bool), Error> {
        for _ in 0..MOST_TRIES {
            let value = if self.is_one() { self.ask_one().await? } else { self.ask_many().await? };
            match value {
                // The short script says in the fewest bytes that it passes.
                Value::BulkString(bytes) if self.is_one() && bytes.len() % 8 <= 1 && bytes.len() > 8 => {
                    return Ok((self.read(&bytes).ok_or_else(nonsense)?, false));
                }
                Value::BulkString(bytes) => match bytes.split_first() {
                    Some((b'A' | b'D', _)) => {
                        let answer = self.read(&bytes).ok_or_else(nonsense)?;
                        if self.at.is_none() {
                            self.store.time.learn(answer.now());
                        }
                        return Ok((answer, false));
                    }
                    Some((b'R', recorded)) => return Ok((self.recorded(recorded)?, true)),
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
        let plain = part.carried.is_none() && part.gives_back.is_none() && self.names.len() == 1;
        plain && !part.cost.is_zero() && part.plan.gcra().is_some() && self.does as u8 <= Does::Reserve as u8
    }

    async fn ask_one(&self) -> Result<Value, Error> {
        let (Some(part), scripts) = (self.parts.first(), &self.store.scripts) else { return Err(nonsense()) };
        let gcra = part.plan.gcra().ok_or_else(nonsense)?;
        let [base, cost, slack] = gcra.charge(self.wants(part));
        let mut numbers = Vec::with_capacity(72 + part.plan.tag_bytes.len());
        put(&mut numbers, &[part.plan.number, base[0]]);
        put(&mut numbers, &cost);
        put(&mut numbers, &slack);
        put(&mut numbers, &[f64::from(u8::from(self.does != Does::Peek))]);
        put(&mut numbers, &self.at_pair());
        numbers.extend_from_slice(&part.plan.tag_bytes);
        Ok(scripts.one.run(&self.store.link, self.deadline, &self.names, &[&numbers]).await?)
    }

    async fn ask_many(&self) -> Result<Value, Error> {
        let mut head = Vec::with_capacity(56);
        put(&mut head, &[f64::from(self.does as u8)]);
        put(&mut head, &self.at_pair());
        put(&mut head, &nanos_pair(self.max_wait.map_or(u64::MAX, nanos)));
        put(&mut head, &[self.lifetime.as_millis().max(1) as f64, self.parts.len() as f64]);
        let limits = self.parts.iter().map(|part| match &part.gives_back {
            Some((booked, actual)) => part.plan.to_give_back(booked, *actual),
            None => part.plan.to_charge(self.wants(part)),
        });
        let limits: Vec<_> = limits.collect();
        let mut arguments: Vec<&[u8]> = vec![&head];
        for (part, limits) in self.parts.iter().zip(&limits) {
            let (old, new): (&[u8], &[u8]) = part.carried.as_ref().map_or((b"", b""), |(old, new)| (old, new));
            arguments.extend([&*part.plan.tag_bytes, limits, old, new]);
        }
        let memo = self.memo();
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
        let [part] = self.parts.as_slice() else { return Answer::of_many(bytes, self.plans()) };
        match part.plan.gcra() {
            Some(gcra) if self.is_one() => {
                let ahead = || gcra.units.of_cost(part.cost) + gcra.spare(part.cost);
                Answer::of_one(bytes, gcra, (self.does == Does::Reserve).then(ahead))
            }
            _ => Answer::of_many(bytes, self.plans()),
        }
    }

    fn plans(&self) -> impl Iterator<Item = &Plan> {
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
            if part.gives_back.is_some() {
                continue;
            }
            let own = self.store.plans.of(part.limits, &*self.store.calendar)?;
            (part.plan, part.carried) = (own.clone(), None);
            let Value::BulkString(value) = value else { continue };
            let foreign = || {
                Error::unavailable(format!(
                    "the key `{name}` holds something that suimon did not write: choose another prefix, or delete it"
                ))
            };
            let (tag, body) = Tag::split(value).ok_or_else(foreign)?;
            if tag == own.tag {
                continue;
            }
            let old = self.store.plan_of(&tag, &own)?;
            let body = Body::read(body, &tag, old.layouts()).ok_or_else(foreign)?;
            if tag.version > own.tag.version {
                // What went beyond an estimate has been spent, however much it is.
                if self.does != Does::Settle {
                    old.check(part.cost)?;
                }
                part.plan = old;
                continue;
            }
            let body = if tag.policy == own.tag.policy {
                body
            } else {
                carry(&own, &old, &body, self.at.map_or(now, Timestamp::as_nanos), part.limits.carry())
            };
            part.carried = Some((value.clone(), body.write(&own.tag, own.layouts())));
        }
        Ok(())
    }

    /// What is recorded with an answer: what was asked.
    fn memo(&self) -> Vec<u8> {
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
    fn recorded(&mut self, bytes: &[u8]) -> Result<Answer, Error> {
        let other = || Error::unavailable("the id of the request was used for another call: take a new one for each");
        let answer = self.read_recorded(bytes).ok_or_else(other)??;
        Answer::of_many(answer, self.plans()).ok_or_else(other)
    }

    fn read_recorded<'b>(&mut self, bytes: &'b [u8]) -> Option<Result<&'b [u8], Error>> {
        let (length, rest) = bytes.split_first_chunk()?;
        let (answer, memo) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
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
        memo.is_empty().then_some(Ok(answer))
    }

    fn outcome(&self, call: &Call, answer: &Answer) -> Outcome {
        let passes = answer.passes || self.does == Does::Adopt;
        if !passes {
            let parts = self.parts.iter().map(|part| (&*part.plan, part.cost));
            let (status, retry) = answer.refusal(parts, self.max_wait.unwrap_or_default());
            return Outcome::Denied(status, retry);
        }
        let status = answer.status(self.plans());
        if self.does != Does::Reserve {
            return Outcome::Allowed(status);
        }
        let places = call.parts.iter().zip(&self.parts).enumerate();
        let places = places
            .map(|(index, (part, asked))| (part.key.clone(), answer.booked(index, &asked.plan, asked.cost).to_bytes()));
        Outcome::Booked(status, Ticket { wait: answer.wait(), parts: places.collect() })
    }
}

fn nonsense() -> Error {
    Error::unavailable("the server answered something that the script does not say: is it Redis or Valkey?")
}
