//! Which limits apply to a job, and when they let it pass.

use std::sync::Arc;
use std::time::Duration;

use suimon::store::{Call, Limits, Outcome, Part, Verb, decide};
use suimon::{Calendar, Carry, Cost, Limit, Policy, Retry, Timestamp};

use crate::config::Count;
use crate::db::{NEVER, micros, timestamp};
use crate::limits::{Limited, Locked, Name, Scope};

/// A limit that applies to a job.
pub(crate) struct Rule<'a> {
    pub(crate) scope: Scope,
    pub(crate) name: &'a Name,
    pub(crate) text: String,
    pub(crate) count: Count,
}

impl Rule<'_> {
    pub(crate) fn counts_completed(&self, policy: &Policy) -> bool {
        self.count == Count::Completed && is_counted(policy)
    }
}

/// Windows of either kind: what they count can be held and charged at the end.
pub(crate) fn is_counted(policy: &Policy) -> bool {
    policy.limits().iter().all(|limit| matches!(limit, Limit::Window(_) | Limit::Fixed(_) | Limit::Block))
}

/// The limits that apply to a job, the handler's first.
pub(crate) fn rules<'a>(locked: &Locked, handler: &'a Name, key: Option<&'a Name>) -> Vec<Rule<'a>> {
    let mut rules = Vec::new();
    let of_handler = locked.get(handler);
    if let Some(row) = of_handler
        && let Some(text) = &row.policy
    {
        rules.push(Rule { scope: Scope::Handler, name: handler, text: text.clone(), count: row.count });
    }
    if let Some(name) = key {
        let own = locked.get(name).and_then(|row| row.policy.clone().map(|text| (text, row.count)));
        let all = of_handler.and_then(|row| row.key_policy.clone().map(|text| (text, row.key_count)));
        if let Some((text, count)) = own.or(all) {
            rules.push(Rule { scope: Scope::Key, name, text, count });
        }
    }
    rules
}

/// The limits that apply to a handler, or to a key of one.
pub(crate) fn limits_of(locked: &Locked, name: &Name, calendar: &dyn Calendar) -> Option<Arc<Limits>> {
    let handler = (name.0.clone(), String::new());
    let rules = rules(locked, &handler, Some(name).filter(|name| !name.1.is_empty()));
    let rule = rules.into_iter().find(|rule| rule.name == name)?;
    limits(&rule.text, locked.get(name), calendar).ok()
}

/// When would one of cost 1 pass? In microseconds since 1970, not before `now`.
pub(crate) fn opens_at(locked: &Locked, name: &Name, now: i64, calendar: &dyn Calendar) -> i64 {
    let handler = (name.0.clone(), String::new());
    let key = (!name.1.is_empty()).then_some(name);
    let mut at = now;
    for rule in rules(locked, &handler, key) {
        let row = locked.get(rule.name);
        let Ok(limits) = limits(&rule.text, row, calendar) else { continue };
        let wanted = match row {
            Some(row) if rule.counts_completed(limits.gate().policy()) => row.held_at_least(Cost::ONE, &limits),
            _ => Cost::ONE.min(largest(limits.gate().policy()).unwrap_or(Cost::ONE)),
        };
        if let Opens::At(opens) = opens_for(row, &limits, wanted, now, calendar) {
            at = at.max(opens);
        }
    }
    for (name, row) in [(&handler, locked.get(&handler)), (name, locked.get(name))] {
        let Some(row) = row else { continue };
        at = at.max(row.paused_until);
        if name.1.is_empty() && row.concurrency.is_some_and(|most| row.running >= most) {
            at = NEVER;
        }
    }
    at
}

pub(crate) enum Opens {
    Now,
    At(i64),
    Broken(String),
}

/// When a cost would pass a limit, if nothing else happens.
pub(crate) fn opens_for(
    row: Option<&Limited>,
    limits: &Arc<Limits>,
    cost: Cost,
    now: i64,
    calendar: &dyn Calendar,
) -> Opens {
    if largest(limits.gate().policy()).is_some_and(|largest| cost > largest) {
        // Until one of those that run has ended.
        return Opens::At(NEVER);
    }
    let part = Part { key: "".into(), limits: limits.clone(), cost };
    let call = Call { parts: vec![part], verb: Verb::Peek, id: None, at: None };
    match decide(&call, &[row.and_then(|row| row.record.clone())], timestamp(now), calendar) {
        Err(why) => Opens::Broken(why.to_string()),
        Ok(decided) => match decided.reply.outcome {
            Outcome::Denied(_, retry) => Opens::At(passes_at(decided.reply.now, retry, now)),
            _ => Opens::Now,
        },
    }
}

/// The largest cost that can ever pass.
pub(crate) fn largest(policy: &Policy) -> Option<Cost> {
    policy.limits().iter().filter_map(Limit::max_cost).min()
}

/// The limits of a text in the version of a row, or in the next one if they are others than before.
pub(crate) fn limits(text: &str, row: Option<&Limited>, calendar: &dyn Calendar) -> Result<Arc<Limits>, String> {
    let record = row.and_then(|row| row.record.as_ref());
    let version_of = |normal: &str| match record {
        Some(record) if record.policy == normal => record.version,
        Some(record) => record.version.saturating_add(1),
        None => 1,
    };
    // Texts in the table are in their normal form, unless somebody wrote them by hand.
    if let Some((of, limits)) = row.and_then(|row| row.ready.borrow().clone())
        && of == text
        && limits.version() == version_of(text)
    {
        return Ok(limits);
    }
    let policy: Policy = text.parse().map_err(|why| format!("the limit `{text}` cannot be read: {why}"))?;
    let version = version_of(&policy.to_string());
    let limits = Limits::new(policy, calendar, version, Carry::Keep).map(Arc::new).map_err(|why| why.to_string())?;
    if let Some(row) = row {
        row.ready.replace(Some((text.to_owned(), limits.clone())));
    }
    Ok(limits)
}

/// The longest period over which windows of a policy count; `None` for other limits.
pub(crate) fn counted_period(text: &str) -> Option<Duration> {
    let policy: Policy = text.parse().ok()?;
    let window = |limit: &Limit| match limit {
        Limit::Window(window) => Some(window.period()),
        _ => None,
    };
    policy.limits().iter().filter_map(window).max()
}

/// When what was refused passes, in microseconds since 1970: `NEVER` if no waiting helps. The clock of the record, by which
/// it was decided, may be ahead of the database's.
pub(crate) fn passes_at(decided_at: Timestamp, retry: Retry, now: i64) -> i64 {
    let seen = i64::try_from(decided_at.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX);
    retry.after().map_or(NEVER, |wait| seen.max(now).saturating_add(micros(wait)))
}
