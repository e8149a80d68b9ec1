//! Any shared store as a subject, with the time of the scenario in place of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use suimon::store::{Call, Limits, Outcome as Told, Part, Settling, Store, Ticket, Verb};
use suimon_core::{Carry, Cost, HighWater, Limit, Policy, Timestamp, Utc};
use tokio::runtime::Handle;

use super::core::{answer, carry_of, cost, decision, since};
use crate::golden::{Action, Clock, Feature, Opening, Outcome, Refusal, Subject, Verdict};

/// A store, and the key of the limiter that is open.
///
/// It cannot start with another balance than the full one, nor take instants that run
/// back as they are.
#[derive(Debug)]
pub struct StoreSubject {
    name: String,
    store: Arc<dyn Store>,
    runtime: Handle,
    in_ticks: bool,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    key: Arc<str>,
    limits: Arc<Limits>,
    seen: HighWater,
    origin: Timestamp,
    bookings: HashMap<String, (Ticket, Arc<Limits>)>,
}

impl StoreSubject {
    /// A store whose futures run on this runtime, from which the tests must not be
    /// called. Does it count in ticks, as the core does?
    #[must_use]
    pub fn new(name: impl Into<String>, store: Arc<dyn Store>, runtime: Handle, in_ticks: bool) -> StoreSubject {
        StoreSubject { name: name.into(), store, runtime, in_ticks, open: None }
    }
}

impl Subject for StoreSubject {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn counts_in_ticks(&self) -> bool {
        self.in_ticks
    }

    fn open(&mut self, opening: &Opening<'_>) -> Result<(), Refusal> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        self.open = None;
        if opening.balance.is_some() {
            return Err(Refusal::Unsupported(Feature::Balance));
        }
        if opening.clock == Clock::Raw {
            return Err(Refusal::Unsupported(Feature::RawClock));
        }
        let policy: Policy = opening.policy.parse()?;
        let follows_calendar = policy.limits().iter().any(|limit| matches!(limit, Limit::Fixed(_)));
        let origin = if follows_calendar { Timestamp::ZERO } else { Timestamp::from_nanos(opening.start) };
        let limits = Limits::new(policy, &Utc, 0, Carry::Keep).map_err(refusal)?;
        let key = format!("{{golden}}:{}:{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)).into();
        let (limits, bookings) = (Arc::new(limits), HashMap::new());
        self.open = Some(Open { key, limits, seen: HighWater::new(), origin, bookings });
        Ok(())
    }

    fn act(&mut self, now: u64, action: &Action) -> Result<Outcome, Refusal> {
        let open = self.open.as_mut().ok_or_else(|| Refusal::Broken("nothing is open".to_owned()))?;
        let now = since(open.origin, now).max(open.seen.latest());
        let outcome = open.act(now, action, &*self.store, &self.runtime)?;
        open.seen.observe(now);
        Ok(outcome)
    }
}

impl Open {
    fn act(
        &mut self,
        now: Timestamp,
        action: &Action,
        store: &dyn Store,
        runtime: &Handle,
    ) -> Result<Outcome, Refusal> {
        let call = |limits: &Arc<Limits>, cost: Cost, verb: Verb| {
            let part = Part { key: self.key.clone(), limits: limits.clone(), cost };
            let call = Call { parts: vec![part], verb, id: None, at: Some(now) };
            runtime.block_on(store.decide(&call)).map(|reply| reply.outcome).map_err(refusal)
        };
        let done = |limits: &Arc<Limits>, verb: Verb| {
            let told = call(limits, Cost::ZERO, verb)?;
            Ok(answer(Verdict::Done, told.decision().status(), None))
        };
        match action {
            Action::Allow { cost: tokens } => {
                call(&self.limits, cost(tokens)?, Verb::Allow).map(|told| decision(told.decision()))
            }
            Action::Peek { cost: tokens } => {
                call(&self.limits, cost(tokens)?, Verb::Peek).map(|told| decision(told.decision()))
            }
            Action::Reserve { cost: tokens, within, name } => {
                match call(&self.limits, cost(tokens)?, Verb::Reserve { max_wait: *within })? {
                    Told::Booked(status, ticket) => {
                        let verdict = Verdict::Booked { wait: ticket.wait };
                        if let Some(name) = name {
                            self.bookings.insert(name.clone(), (ticket, self.limits.clone()));
                        }
                        Ok(answer(verdict, &status, None))
                    }
                    told => Ok(decision(told.decision())),
                }
            }
            Action::Settle { name, cost: tokens } => {
                let actual = vec![cost(tokens)?];
                let booking = self.bookings.remove(name);
                let (ticket, limits) =
                    booking.ok_or_else(|| Refusal::Broken(format!("there is no booking `{name}`")))?;
                let settling = Settling { ticket, limits: vec![limits], actual, id: None, at: Some(now) };
                runtime.block_on(store.settle(&settling)).map_err(refusal)?;
                done(&self.limits, Verb::Peek)
            }
            Action::Change { carry, policy } => {
                let (version, carry) = (self.limits.version() + 1, carry_of(*carry));
                let limits = Arc::new(Limits::new(policy.parse()?, &Utc, version, carry).map_err(refusal)?);
                let outcome = done(&limits, Verb::Adopt)?;
                self.limits = limits;
                Ok(outcome)
            }
        }
    }
}

/// An error of the arguments, or a store that is broken.
#[expect(clippy::needless_pass_by_value, reason = "mapped over results")]
fn refusal(error: suimon::Error) -> Refusal {
    match error.core() {
        Some(core) => core.clone().into(),
        None => Refusal::Broken(error.to_string()),
    }
}
