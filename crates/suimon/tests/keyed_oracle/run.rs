//! A table and its oracle, side by side.

#[path = "waiting.rs"]
mod waiting;
#[path = "who.rs"]
mod who;

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use suimon::clock::{Clock, ManualClock};
use suimon::{Carry, Cost, Decision, Error, Overflow, Policy, Request, Timestamp};

use crate::history::{At, Line, Op, any_policy, one_word};
use crate::one_key::{Answer, OneKey, Refusal};
use crate::table::{Id, Kind, Table};
use waiting::{Held, Place};
use who::Who;

pub(crate) struct Setup {
    pub(crate) kind: Kind,
    pub(crate) policy: &'static str,
    pub(crate) max_keys: usize,
    pub(crate) keys: u64,
    pub(crate) seed: u64,
    pub(crate) overflow: Overflow,
    pub(crate) brings_time: bool,
}

pub(crate) struct Run {
    setup: Setup,
    table: Table,
    clock: ManualClock,
    /// The limits of all keys that have none of their own.
    policy: Policy,
    keys: HashMap<Id, OneKey>,
    common: OneKey,
    places: Vec<Place>,
    /// When the limits were last changed.
    changed: Timestamp,
    overflows: u64,
    /// Answers of a new key to one that was not.
    forgotten: u64,
    allowed: u64,
    denied: u64,
    last: String,
}

/// Whose limiter it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Key(Id),
    /// That of all who have no room.
    Common,
}

type Outcome = Result<(), TestCaseError>;

impl Run {
    pub(crate) fn new(setup: Setup) -> Run {
        // Not at the origin, so that times before the first are different ones.
        let clock = ManualClock::at(Timestamp::from_secs(100_000));
        let Setup { kind, policy, max_keys, seed, overflow, .. } = setup;
        let table = Table::new(kind, policy, max_keys, overflow, seed, &clock);
        let policy: Policy = policy.parse().unwrap();
        Run {
            common: OneKey::new(&policy),
            policy,
            setup,
            table,
            clock,
            keys: HashMap::new(),
            places: Vec::new(),
            changed: Timestamp::ZERO,
            overflows: 0,
            forgotten: 0,
            allowed: 0,
            denied: 0,
            last: String::new(),
        }
    }

    /// Plays a history, which may begin with a crowd of keys that come once.
    pub(crate) fn all(mut self, crowd: Option<u64>, ops: &[Line]) -> Outcome {
        for key in 0..crowd.unwrap_or(0) {
            self.allow(Id(key), Cost::ONE, At::Clock, false)?;
        }
        for Line(op) in ops {
            self.step(op)?;
        }
        self.end()
    }

    pub(crate) fn step(&mut self, op: &Op) -> Outcome {
        self.last.clear();
        if self.setup.brings_time {
            // From here on an older time is taken as this.
            let free = self.table.allow(Some(self.clock.now()), Id(0), Cost::ZERO);
            *if free.unwrap().is_allowed() { &mut self.allowed } else { &mut self.denied } += 1;
        }
        match op {
            Op::Allow { key, cost, at, chase } => self.allow(self.id(key), *cost, *at, *chase),
            Op::Peek { key, cost, at } => self.peek(self.id(key), *cost, *at),
            Op::Many(calls) => self.many(calls),
            Op::Consume { key, cost, within, poll } => {
                let (key, request) = (self.id(key), request(*cost, *within));
                let future = self.table.consume_async(key, request);
                let place =
                    Place { owner: Owner::Key(key), held: Held::New(future, request), cost: *cost, booked: None };
                self.places.push(place);
                if *poll { self.poll(self.places.len() - 1) } else { Ok(()) }
            }
            Op::Reserve { key, cost, within } => self.reserve(self.id(key), request(*cost, *within)),
            Op::Poll(place) => self.place(place).map_or(Ok(()), |at| self.poll(at)),
            Op::Drop(place) => self.place(place).map_or(Ok(()), |at| self.drop_place(at)),
            Op::Settle(place, actual) => self.place(place).map_or(Ok(()), |at| self.settle(at, *actual)),
            Op::Reset(key) => {
                let key = self.id(key);
                self.table.reset(key);
                self.act(Owner::Key(key), OneKey::reset);
                Ok(())
            }
            Op::SetPolicy(key, policy, carry) => {
                let (key, policy) = (self.id(key), any_policy(*policy));
                self.see_whether_evicted(key)?;
                self.table.set_policy(key, policy, *carry);
                self.act(Owner::Key(key), |one, now| {
                    one.own = true;
                    one.change(now, &policy.parse().unwrap(), *carry);
                });
                Ok(())
            }
            Op::ClearPolicy(key, carry) => {
                let key = self.id(key);
                self.table.clear_policy(key, *carry);
                let policy = self.policy.clone();
                if self.one(Owner::Key(key)).own {
                    self.act(Owner::Key(key), |one, now| {
                        one.own = false;
                        one.change(now, &policy, *carry);
                    });
                }
                Ok(())
            }
            Op::Change(policy, carry) => {
                // Which one was evicted is seen from one word, not from a log or several limits.
                let evicts = self.setup.overflow == Overflow::Evict;
                self.change(if evicts { one_word(*policy) } else { any_policy(*policy) }, *carry)
            }
            Op::Pause(key, pause) => {
                let key = self.id(key);
                self.see_whether_evicted(key)?;
                self.table.pause_for(key, *pause);
                self.act(Owner::Key(key), |one, now| one.pause(now.saturating_add(*pause)));
                Ok(())
            }
            Op::Advance(by) => {
                self.clock.advance(*by);
                Ok(())
            }
        }
    }

    pub(crate) fn last_answer(&self) -> &str {
        &self.last
    }

    pub(crate) fn overflows(&self) -> u64 {
        self.table.stats().overflows()
    }

    /// What is left to be seen when all has happened.
    pub(crate) fn end(mut self) -> Outcome {
        for at in 0..self.places.len() {
            self.poll(at)?;
        }
        for at in 0..self.places.len() {
            self.drop_place(at)?;
        }
        let stats = self.table.stats();
        prop_assert_eq!((stats.allowed(), stats.denied()), (self.allowed, self.denied));
        prop_assert!(self.setup.overflow == Overflow::Evict || stats.evictions() == 0);
        // Who was refused by its own limits and passes was evicted meanwhile.
        prop_assert!(self.forgotten <= stats.evictions(), "{} {:?}", self.forgotten, stats);
        self.clock.advance(Duration::from_secs(100 * 3600));
        let live = self.keys.values().filter(|one| !one.is_fresh(self.clock.now()) || one.own).count();
        prop_assert!(live <= self.keys.len());
        Ok(())
    }

    fn allow(&mut self, key: Id, cost: Cost, at: At, chase: bool) -> Outcome {
        let (brought, now) = self.time(key, at);
        let answer = self.table.allow(brought, key, cost);
        if let Ok(decision) = &answer {
            *if decision.is_allowed() { &mut self.allowed } else { &mut self.denied } += 1;
        }
        let answer = self.seen(&answer);
        match self.who(key, now)? {
            Who::Nobody => {
                let wait = Self::refused_for_room(&answer)?;
                if chase {
                    self.clock.advance_to(now);
                    self.chase(key, cost, wait)?;
                }
            }
            Who::Is(owner) => self.compare(owner, now, &answer, |one| one.allow(now, cost))?,
        }
        self.clock.advance_to(now);
        Ok(())
    }

    /// There is room when it was said to be, and not a nanosecond earlier.
    fn chase(&mut self, key: Id, cost: Cost, wait: Duration) -> Outcome {
        // Who can say when a key ends being busy?
        if self.table.stats().busy_keys() > 0 {
            return Ok(());
        }
        let nanosecond = Duration::from_nanos(1);
        self.clock.advance(wait - nanosecond);
        let early = self.table.allow(None, key, cost);
        self.denied += 1;
        let early = self.seen(&early);
        prop_assert_eq!(self.who(key, self.clock.now())?, Who::Nobody);
        prop_assert_eq!(Self::refused_for_room(&early)?, nanosecond);
        self.clock.advance(nanosecond);
        let answer = self.table.allow(None, key, cost);
        self.allowed += 1;
        let (answer, now) = (self.seen(&answer), self.clock.now());
        let who = self.who(key, now)?;
        prop_assert_eq!(who, Who::Is(Owner::Key(key)), "there was to be room");
        prop_assert!(matches!(answer, Ok(Decision::Allow(_))));
        self.compare(Owner::Key(key), now, &answer, |one| one.allow(now, cost))
    }

    fn peek(&mut self, key: Id, cost: Cost, at: At) -> Outcome {
        let (brought, now) = self.time(key, at);
        let answer = self.table.peek(brought, key, cost);
        let answer = self.seen(&answer);
        prop_assert_eq!(self.who(key, now)?, Who::Is(Owner::Key(key)));
        let own = self.compare(Owner::Key(key), now, &answer, |one| one.peek(now, cost));
        // Nothing is counted by which it could be told whether there was room: but who has
        // used something has some, and to look at what is free takes none.
        let needs_room = cost != Cost::ZERO && self.one(Owner::Key(key)).is_fresh(now);
        match self.setup.overflow {
            Overflow::Deny if own.is_err() && needs_room => drop(Self::refused_for_room(&answer)?),
            Overflow::Share if own.is_err() && needs_room => {
                self.compare(Owner::Common, now, &answer, |one| one.peek(now, cost))?;
            }
            _ => own?,
        }
        self.clock.advance_to(now);
        Ok(())
    }

    fn many(&mut self, calls: &[(Index, Cost)]) -> Outcome {
        let calls: Vec<(Id, Cost)> = calls.iter().map(|(key, cost)| (self.id(key), *cost)).collect();
        let mut all: Vec<Id> = calls.iter().map(|(key, _)| *key).chain(self.keys.keys().copied()).collect();
        all.sort_by_key(|id| id.0);
        all.dedup();
        if all.len() > if self.is_flat() { 16 } else { self.setup.max_keys } {
            // It could not be told who of them has no room.
            return calls.into_iter().try_for_each(|(key, cost)| self.allow(key, cost, At::Clock, false));
        }
        let borrowed: Vec<(&Id, Cost)> = calls.iter().map(|(key, cost)| (key, *cost)).collect();
        let answers = self.table.allow_many(&borrowed);
        prop_assert_eq!(answers.len(), calls.len());
        let now = self.clock.now();
        for ((key, cost), answer) in calls.into_iter().zip(answers) {
            if let Ok(decision) = &answer {
                *if decision.is_allowed() { &mut self.allowed } else { &mut self.denied } += 1;
            }
            let answer = self.seen(&answer);
            prop_assert_eq!(self.who(key, now)?, Who::Is(Owner::Key(key)));
            self.compare(Owner::Key(key), now, &answer, |one| one.allow(now, cost))?;
        }
        Ok(())
    }

    fn change(&mut self, text: &str, carry: Carry) -> Outcome {
        let policy: Policy = text.parse().unwrap();
        let now = self.clock.now();
        // A key whose limiter lingers may give it up at any time: let it do so now.
        let mut lingering: Vec<Id> = self.keys.iter().filter(|(_, one)| one.lingers).map(|(id, _)| *id).collect();
        lingering.sort_by_key(|id| id.0);
        for key in lingering {
            self.peek(key, Cost::ZERO, At::Clock)?;
        }
        if let Err(error) = self.table.change(text, carry) {
            prop_assert!(error.is_unsupported() && self.is_flat());
            return Ok(());
        }
        self.policy = policy.clone();
        self.changed = now;
        let keys = self.keys.values_mut().filter(|one| !one.own).map(|one| (one, true));
        for (one, is_key) in keys.chain([(&mut self.common, false)]) {
            one.serve(now);
            // Nobody knows it, or need know it: it is a new key under the new limits.
            let new = is_key && one.is_idle(now) && one.is_fresh(now);
            one.change(now, &policy, carry);
            if new {
                one.forget();
            }
            one.serve(now);
        }
        Ok(())
    }

    /// Acts on the oracle of somebody, as the table has just done.
    fn act(&mut self, owner: Owner, act: impl FnOnce(&mut OneKey, Timestamp)) {
        let now = self.clock.now();
        let one = self.one(owner);
        one.serve(now);
        act(one, now);
        one.serve(now);
        self.done(owner);
    }

    /// After each use a key gives its limiter up if it can.
    fn done(&mut self, owner: Owner) {
        let now = self.clock.now();
        let one = self.one(owner);
        one.serve(now);
        one.lingers = !one.is_idle(now);
    }

    fn one(&mut self, owner: Owner) -> &mut OneKey {
        match owner {
            Owner::Common => &mut self.common,
            Owner::Key(id) => self.keys.entry(id).or_insert_with(|| OneKey::new(&self.policy)),
        }
    }

    /// The time that is brought, and the one that counts.
    fn time(&mut self, key: Id, at: At) -> (Option<Timestamp>, Timestamp) {
        let now = self.clock.now();
        let waits = self.one(Owner::Key(key)).waits() || self.common.waits();
        match at {
            At::Before(by) if self.setup.brings_time => {
                (Some(Timestamp::from_nanos(now.as_nanos().saturating_sub(by.as_nanos() as u64))), now)
            }
            // Those who wait are served by the clock.
            At::After(by) if self.setup.brings_time && !waits => {
                let at = now.saturating_add(by);
                (Some(at), at)
            }
            _ => (None, now),
        }
    }

    fn seen(&mut self, answer: &Result<Decision, Error>) -> Answer {
        let answer = answer.as_ref().copied().map_err(Refusal::from);
        self.last += &format!("{answer:?} ");
        answer
    }

    fn id(&self, key: &Index) -> Id {
        Id(key.index(usize::try_from(self.setup.keys).unwrap()) as u64)
    }

    fn place(&self, place: &Index) -> Option<usize> {
        (!self.places.is_empty()).then(|| place.index(self.places.len()))
    }

    fn is_flat(&self) -> bool {
        matches!(self.setup.kind, Kind::Flat | Kind::Portable)
    }
}

fn request(cost: Cost, within: Option<Duration>) -> Request {
    let request = Request::new(cost);
    within.map_or(request, |within| request.within(within))
}
