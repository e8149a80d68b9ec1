//! The limits of a handler and of its keys: rows that are locked while jobs are claimed.
//!
//! Whether a job may start is decided by the core on the locked rows, at a time that was
//! read after the locks; see [`suimon::store::decide`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use suimon::store::{Call, Limits, Outcome, Part, Record, Settling, Ticket, Verb, decide, settle};
use suimon::{Calendar, Cost};

use crate::config::Count;
use crate::db::{NEVER, timestamp};
use crate::rules::{Opens, Rule, is_counted, largest, limits, limits_of, opens_for, passes_at, rules};

/// Whose limit it is: a handler's (with an empty key), or that of a key of a handler.
pub(crate) type Name = (String, String);

/// The rows that are locked, by name; handlers come before their keys, and all are locked in
/// this order.
pub(crate) type Locked = BTreeMap<Name, Limited>;

/// One row: a limit, what it has counted, when it lets something pass again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limited {
    pub(crate) policy: Option<String>,
    pub(crate) count: Count,
    /// For each key that has no limit of its own.
    pub(crate) key_policy: Option<String>,
    pub(crate) key_count: Count,
    pub(crate) concurrency: Option<i64>,
    pub(crate) record: Option<Record>,
    /// What those that run hold of a limit that counts completed runs.
    pub(crate) held: Cost,
    /// What has completed and is to be charged.
    pub(crate) completed: Cost,
    /// How many run, where that is limited.
    pub(crate) running: i64,
    /// Nothing can start before, in microseconds since 1970. A guess that is never too late.
    pub(crate) open_at: i64,
    pub(crate) paused_until: i64,
    pub(crate) pause_reason: Option<String>,
    /// Has to be written.
    pub(crate) is_changed: bool,
    /// Is not in the table yet.
    pub(crate) is_new: bool,
    /// The limits of a text in a version, made ready.
    pub(crate) ready: RefCell<Option<(String, Arc<Limits>)>>,
}

/// Which of the two limits of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scope {
    Handler,
    Key,
}

/// What a running job has taken of its limits, kept in its row until it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Booking {
    /// Held of a limit that counts completed runs, as decimal numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) held: Vec<(Scope, String)>,
    /// Booked of a limit that counts starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) booked: Vec<Booked>,
    /// Is it counted among those that run?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_counted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Booked {
    scope: Scope,
    /// The place in hexadecimal digits.
    place: String,
    /// Is it given back when the run fails?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_returned: bool,
}

impl Booking {
    /// As it is kept in the job's row, for those who end it in place of its worker: what has to be
    /// undone then. What can only be settled is known to the worker that has the job.
    pub(crate) fn kept(&self) -> Option<String> {
        let kept = self.holds() || self.returns();
        kept.then(|| serde_json::to_string(self).unwrap_or_default())
    }

    /// Is there something to be undone, whatever comes of the job?
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty() || self.is_counted
    }

    /// Is there something to be given back if it fails?
    pub(crate) fn returns(&self) -> bool {
        self.booked.iter().any(|booked| booked.is_returned)
    }
}

/// May a job start?
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Start(Booking),
    /// This limit lets nothing pass before a time, `NEVER` if something else has to happen.
    Closed(Scope, i64),
    /// It can never start, for this reason.
    Impossible(String),
    /// What is known of this limit cannot be read.
    Broken(Scope, String),
}

/// How a run ended, as far as limits are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With what it really cost, if that was told.
    Completed(Option<Cost>),
    Failed(Option<Cost>),
}

/// A job as far as its limits are concerned.
#[derive(Clone, Debug)]
pub(crate) struct Asking<'a> {
    pub(crate) handler: &'a Name,
    pub(crate) key: Option<&'a Name>,
    pub(crate) cost: Cost,
}

impl Asking<'_> {
    /// The name of the limit of a scope.
    pub(crate) fn name(&self, scope: Scope) -> &Name {
        match (scope, self.key) {
            (Scope::Key, Some(key)) => key,
            _ => self.handler,
        }
    }
}

/// Decides whether a job may start now, and takes what it needs; all of it or nothing.
pub(crate) fn start(locked: &mut Locked, job: &Asking<'_>, now: i64, calendar: &dyn Calendar) -> Answer {
    for (scope, name) in [(Scope::Handler, Some(job.handler)), (Scope::Key, job.key)] {
        let Some(row) = name.and_then(|name| locked.get(name)) else { continue };
        if row.paused_until > now {
            return Answer::Closed(scope, row.paused_until);
        }
        if scope == Scope::Handler && row.concurrency.is_some_and(|most| row.running >= most) {
            return Answer::Closed(scope, NEVER);
        }
    }
    let mut booking = Booking::default();
    let mut held = Vec::new();
    let mut parts: Vec<(Rule<'_>, Part)> = Vec::new();
    for rule in rules(locked, job.handler, job.key) {
        let row = locked.get(rule.name);
        let limits = match limits(&rule.text, row, calendar) {
            Ok(limits) => limits,
            Err(why) => return Answer::Broken(rule.scope, why),
        };
        if let Some(largest) = largest(limits.gate().policy())
            && job.cost > largest
        {
            let cost = job.cost;
            return Answer::Impossible(format!(
                "the cost is {cost}; the limit `{}` allows at most {largest}",
                rule.text
            ));
        }
        if rule.counts_completed(limits.gate().policy()) {
            let wanted = row.map_or(Cost::ZERO, |row| row.held).saturating_add(job.cost);
            match opens_for(row, &limits, wanted, now, calendar) {
                Opens::Now => held.push((rule.scope, rule.name.clone())),
                Opens::At(at) => return Answer::Closed(rule.scope, at),
                Opens::Broken(why) => return Answer::Broken(rule.scope, why),
            }
        } else {
            let key: Arc<str> = format!("{}\0{}", rule.name.0, rule.name.1).into();
            parts.push((rule, Part { key, limits, cost: job.cost }));
        }
    }
    match book(locked, &parts, now, calendar) {
        Ok(booked) => booking.booked = booked,
        Err(answer) => return answer,
    }
    for (scope, name) in held {
        let row = locked.entry(name).or_insert_with(Limited::unknown);
        row.held = row.held.saturating_add(job.cost);
        row.is_changed = true;
        booking.held.push((scope, job.cost.to_string()));
    }
    if let Some(row) = locked.get_mut(job.handler)
        && row.concurrency.is_some()
    {
        row.running += 1;
        row.is_changed = true;
        booking.is_counted = true;
    }
    Answer::Start(booking)
}

/// Books places in the limits that count starts.
fn book(
    locked: &mut Locked,
    parts: &[(Rule<'_>, Part)],
    now: i64,
    calendar: &dyn Calendar,
) -> Result<Vec<Booked>, Answer> {
    if parts.is_empty() {
        return Ok(Vec::new());
    }
    let records: Vec<_> =
        parts.iter().map(|(rule, _)| locked.get(rule.name).and_then(|row| row.record.clone())).collect();
    let all = parts.iter().map(|(_, part)| part.clone()).collect();
    let call = Call { parts: all, verb: Verb::Reserve { max_wait: Some(Duration::ZERO) }, id: None, at: None };
    let decided = decide(&call, &records, timestamp(now), calendar).map_err(|why| {
        // Which of them it is, is found by asking each alone.
        let is_broken = |(rule, part): &&(Rule<'_>, Part)| {
            matches!(opens_for(locked.get(rule.name), &part.limits, Cost::ZERO, now, calendar), Opens::Broken(_))
        };
        let scope = parts.iter().find(is_broken).map_or(Scope::Handler, |(rule, _)| rule.scope);
        Answer::Broken(scope, why.to_string())
    })?;
    let ticket = match decided.reply.outcome {
        Outcome::Booked(_, ticket) => ticket,
        Outcome::Allowed(_) => return Ok(Vec::new()),
        Outcome::Denied(_, retry) => {
            let mut index = retry.limit();
            let mut scope = Scope::Handler;
            for (rule, part) in parts {
                let limits = part.limits.gate().policy().limits().len();
                scope = rule.scope;
                if index < limits {
                    break;
                }
                index -= limits;
            }
            return Err(Answer::Closed(scope, passes_at(decided.reply.now, retry, now)));
        }
    };
    let mut booked = Vec::new();
    for (((rule, part), (_, place)), record) in parts.iter().zip(ticket.parts).zip(decided.records) {
        let row = locked.entry(rule.name.clone()).or_insert_with(Limited::unknown);
        if record.is_some() {
            row.record = record;
            row.is_changed = true;
        }
        let is_returned = rule.count == Count::Completed && !is_counted(part.limits.gate().policy());
        booked.push(Booked { scope: rule.scope, place: hex(&place), is_returned });
    }
    Ok(booked)
}

/// Undoes or settles what a job has taken, when it has ended. [`close_books`] follows when all have.
pub(crate) fn end(
    locked: &mut Locked,
    job: &Asking<'_>,
    booking: &Booking,
    ended: Ended,
    now: i64,
    calendar: &dyn Calendar,
) {
    for (scope, held) in &booking.held {
        let held: Cost = held.parse().unwrap_or_default();
        let Some(row) = locked.get_mut(job.name(*scope)) else { continue };
        row.held = row.held.saturating_sub(held);
        row.is_changed = true;
        if let Ended::Completed(actual) = ended {
            row.completed = row.completed.saturating_add(actual.unwrap_or(held));
        }
    }
    for booked in &booking.booked {
        let actual = match ended {
            Ended::Completed(actual) => actual,
            Ended::Failed(actual) => actual.or(booked.is_returned.then_some(Cost::ZERO)),
        };
        let name = job.name(booked.scope);
        let (Some(actual), Some(limits)) = (actual, limits_of(locked, name, calendar)) else { continue };
        let Some(row) = locked.get_mut(name) else { continue };
        row.settle(&limits, unhex(&booked.place), actual, now, calendar);
    }
    if booking.is_counted
        && let Some(row) = locked.get_mut(job.handler)
    {
        row.running = (row.running - 1).max(0);
        row.is_changed = true;
    }
}

/// Charges what has completed, and writes down when something may start again, which may be
/// earlier than before by what was given back.
pub(crate) fn close_books(locked: &mut Locked, now: i64, calendar: &dyn Calendar) {
    let changed: Vec<Name> = locked.iter().filter(|(_, row)| row.is_changed).map(|(name, _)| name.clone()).collect();
    for name in changed {
        let limits = limits_of(locked, &name, calendar);
        let Some(row) = locked.get_mut(&name) else { continue };
        let mut completed = mem::take(&mut row.completed);
        row.open_at = 0;
        if let Some(limits) = limits {
            // At one instant all of it is one charge, unless it cost more than was held.
            let most = largest(limits.gate().policy()).unwrap_or(Cost::MAX);
            while !completed.is_zero() {
                let cost = completed.min(most);
                row.charge(&limits, cost, now, calendar);
                completed = completed.saturating_sub(cost);
            }
            if let Opens::At(at) = opens_for(Some(row), &limits, row.held_at_least(Cost::ONE, &limits), now, calendar) {
                row.open_at = at;
            }
        }
        if row.concurrency.is_some_and(|most| row.running >= most) {
            row.open_at = NEVER;
        }
    }
}

impl Limited {
    /// A row that is not in the table yet.
    pub(crate) fn unknown() -> Limited {
        Limited { is_new: true, ..Limited::default() }
    }

    /// Charges what completed; for that it held its place, so that it passes at once.
    fn charge(&mut self, limits: &Arc<Limits>, cost: Cost, now: i64, calendar: &dyn Calendar) {
        let most = largest(limits.gate().policy()).unwrap_or(cost);
        let part = Part { key: "".into(), limits: limits.clone(), cost: cost.min(most) };
        // Later than now only if the limit was lowered meanwhile, or it cost more than was held.
        let call = Call { parts: vec![part], verb: Verb::Reserve { max_wait: None }, id: None, at: None };
        if let Ok(decided) = decide(&call, slice::from_ref(&self.record), timestamp(now), calendar)
            && let Some(Some(record)) = decided.records.into_iter().next()
        {
            self.record = Some(record);
            self.is_changed = true;
        }
    }

    fn settle(&mut self, limits: &Arc<Limits>, place: Vec<u8>, actual: Cost, now: i64, calendar: &dyn Calendar) {
        let ticket = Ticket { wait: Duration::ZERO, parts: vec![("".into(), place)] };
        let settling = Settling { ticket, limits: vec![limits.clone()], actual: vec![actual], id: None, at: None };
        if let Ok((_, records)) = settle(&settling, slice::from_ref(&self.record), timestamp(now), calendar)
            && let Some(Some(record)) = records.into_iter().next()
        {
            self.record = Some(record);
            self.is_changed = true;
        }
    }

    /// What is held and one more, or just more than can be if that is too much.
    pub(crate) fn held_at_least(&self, more: Cost, limits: &Limits) -> Cost {
        let more = more.min(largest(limits.gate().policy()).unwrap_or(more));
        self.held.saturating_add(more)
    }

    /// Charges runs of the past, oldest first, into limits that were not there at the time.
    pub(crate) fn charge_past(&mut self, text: &str, runs: &[(i64, Cost)], calendar: &dyn Calendar) {
        for (at, cost) in runs {
            let Ok(limits) = limits(text, Some(self), calendar) else { return };
            self.charge(&limits, *cost, *at, calendar);
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok()).unwrap_or_default();
    text.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
