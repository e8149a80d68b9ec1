//! The exact model as a subject.

use std::collections::HashMap;
use std::time::Duration;

use crate::golden::{Action, Clock, ErrorKind, Opening, Outcome, Refusal, Retry, Subject, Verdict};
use crate::model::{self, Booking, Fault, Model, Q, Spec, Status, Ticket, decimal};

/// The exact model, or the one that counts in ticks.
#[derive(Debug, Default)]
pub struct ModelSubject {
    in_ticks: bool,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    model: Model,
    clock: Clock,
    latest: u64,
    bookings: HashMap<String, Ticket>,
}

impl ModelSubject {
    /// The model without any rounding: every scenario has to hold exactly.
    #[must_use]
    pub fn exact() -> ModelSubject {
        ModelSubject::default()
    }

    /// The model that reads its clock in ticks.
    #[must_use]
    pub fn in_ticks() -> ModelSubject {
        ModelSubject { in_ticks: true, open: None }
    }
}

impl Subject for ModelSubject {
    fn name(&self) -> String {
        if self.in_ticks { "model in ticks" } else { "exact model" }.to_owned()
    }

    fn counts_in_ticks(&self) -> bool {
        self.in_ticks
    }

    fn open(&mut self, opening: &Opening<'_>) -> Result<(), Refusal> {
        self.open = None;
        let specs = Spec::parse(opening.policy)?;
        // A clock that runs back may show instants before the start.
        let origin = if opening.clock == Clock::Raw { 0 } else { opening.start };
        let make = if self.in_ticks { Model::in_ticks } else { Model::new };
        let mut model = make(specs, origin);
        if let Some(balance) = opening.balance {
            model.start_with(opening.start, &cost(balance)?)?;
        }
        let (clock, latest) = (opening.clock, opening.start);
        self.open = Some(Open { model, clock, latest, bookings: HashMap::new() });
        Ok(())
    }

    fn act(&mut self, now: u64, action: &Action) -> Result<Outcome, Refusal> {
        let open = self.open.as_mut().ok_or_else(|| Refusal::Broken("nothing is open".to_owned()))?;
        let now = match open.clock {
            Clock::HighWater => now.max(open.latest),
            Clock::Raw => now,
        };
        let outcome = open.act(now, action)?;
        // What was an argument error has not been seen by the clock.
        open.latest = now;
        Ok(outcome)
    }
}

impl Open {
    fn act(&mut self, now: u64, action: &Action) -> Result<Outcome, Refusal> {
        match action {
            Action::Allow { cost: tokens } => Ok(decision(&self.model.allow(now, &cost(tokens)?)?)),
            Action::Peek { cost: tokens } => Ok(decision(&self.model.peek(now, &cost(tokens)?)?)),
            Action::Reserve { cost: tokens, within, name } => {
                let within = within.map(|within| u64::try_from(within.as_nanos()).unwrap_or(u64::MAX));
                match self.model.reserve(now, &cost(tokens)?, within)? {
                    Booking::Booked { status, wait, ticket } => {
                        if let Some(name) = name {
                            self.bookings.insert(name.clone(), ticket);
                        }
                        Ok(answer(Verdict::Booked { wait: Duration::from_nanos(wait) }, status, None))
                    }
                    Booking::Denied { status, retry } => Ok(answer(Verdict::Denied, status, Some(retry))),
                }
            }
            Action::Settle { name, cost: tokens } => {
                let tokens = cost(tokens)?;
                let ticket = self.bookings.remove(name);
                let ticket = ticket.ok_or_else(|| Refusal::Broken(format!("there is no booking `{name}`")))?;
                self.model.settle(now, ticket, &tokens)?;
                Ok(answer(Verdict::Done, self.model.status(now), None))
            }
            Action::Change { carry, policy } => {
                self.model.change(now, Spec::parse(policy)?, *carry);
                Ok(answer(Verdict::Done, self.model.status(now), None))
            }
        }
    }
}

fn cost(text: &str) -> Result<Q, Refusal> {
    decimal(text).ok_or_else(|| Fault::InvalidCost.into())
}

fn decision(decision: &model::Decision) -> Outcome {
    let verdict = if decision.is_allowed() { Verdict::Allowed } else { Verdict::Denied };
    answer(verdict, decision.status, decision.retry)
}

fn answer(verdict: Verdict, status: Status, retry: Option<model::Retry>) -> Outcome {
    Outcome {
        verdict,
        retry: retry.map(|retry| retry.wait.map_or(Retry::Never, |wait| Retry::After(Duration::from_nanos(wait)))),
        by: retry.map(|retry| retry.limit),
        limit: Some(status.limit),
        remaining: Some(status.remaining),
        burst_left: Some(status.burst_left),
        reset: Some(Duration::from_nanos(status.reset_after)),
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        let kind = match fault {
            Fault::CostTooLarge { .. } => ErrorKind::CostTooLarge,
            Fault::InvalidCost => ErrorKind::InvalidCost,
            Fault::OutOfRange(_) => ErrorKind::OutOfRange,
            Fault::Syntax(_) => ErrorKind::Syntax,
        };
        Refusal::error(kind, fault.to_string())
    }
}
