//! What a replay found, ready to be reported.

use super::engine::{Engine, Run, Sum};
use super::input::{FileSummary, Shared, Unreadable};
use super::keys::{self, Keys};
use super::search::Found;
use super::timeline::Timeline;
use super::{Options, show};
use std::cmp::Reverse;
use std::time::Duration;
use suimon_core::Policy;

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The files.
    pub files: Vec<FileSummary>,
    /// The first lines that could not be read.
    pub unreadable_lines: Vec<Unreadable>,
    /// The fields that make the key; none: one limiter for all.
    pub key_fields: Vec<String>,
    /// The field with the cost.
    pub cost_field: Option<String>,
    /// How far out of order a line could be.
    pub reorder: Duration,
    /// The requests that were replayed.
    pub requests: u64,
    /// Different keys among them.
    pub keys: u64,
    /// What they cost together.
    pub cost: Sum,
    /// The times of the first and the last request, in nanoseconds since the Unix epoch.
    pub span: Option<(u64, u64)>,
    /// What happened over time.
    pub timeline: Timeline,
    /// How each policy fared, in the order in which they were given.
    pub policies: Vec<PolicyOutcome>,
}

impl Outcome {
    /// All lines that could not be read.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.files.iter().map(|file| file.unreadable).sum()
    }

    /// All lines.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.files.iter().map(|file| file.lines).sum()
    }

    /// Requests that came too late to be put in their place.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.files.iter().map(|file| file.late).sum()
    }

    /// Requests that came after a later one.
    #[must_use]
    pub fn out_of_order(&self) -> u64 {
        self.files.iter().map(|file| file.out_of_order).sum()
    }

    /// What the key is called, in the plural: `clients`, `keys`.
    pub(crate) fn key_word(&self) -> String {
        match &self.key_fields[..] {
            [field]
                if field.chars().all(|char| char.is_ascii_alphabetic()) && !field.ends_with(['s', 'y', 'x', 'h']) =>
            {
                format!("{field}s")
            }
            _ => "keys".to_string(),
        }
    }
}

/// How a policy fared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyOutcome {
    /// The policy.
    pub policy: Policy,
    /// Requests that it let through.
    pub allowed: u64,
    /// Requests that it refused.
    pub denied: u64,
    /// Those of them that no waiting would have helped: their cost is more than
    /// the limit ever lets through.
    pub impossible: u64,
    /// What the requests let through cost together.
    pub allowed_cost: Sum,
    /// Keys that were refused something.
    pub keys_denied: u64,
    /// The most refused of them.
    pub most_denied: Vec<RefusedKey>,
    /// The one that was refused for the longest time without being let through once.
    pub longest_stretch: Option<RefusedKey>,
    /// The one that was told the longest wait.
    pub longest_wait: Option<RefusedKey>,
    /// The smallest limits, if they were searched.
    pub smallest: Option<Vec<Found>>,
}

impl PolicyOutcome {
    /// The share of requests that it refused, in percent.
    #[must_use]
    pub fn denied_percent(&self) -> f64 {
        percent(self.denied, self.allowed + self.denied)
    }
}

/// A share in percent; of nothing, 0.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// A key that was refused something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedKey {
    /// Its fields, as bytes of the log.
    pub fields: Vec<Vec<u8>>,
    /// Its requests.
    pub requests: u64,
    /// Those that were refused.
    pub denied: u64,
    /// Those of them that no waiting would have helped.
    pub impossible: u64,
    /// The longest time from a refusal to another with nothing let through in between.
    pub longest_stretch: Duration,
    /// When that began, in nanoseconds since the Unix epoch.
    pub stretch_from: u64,
    /// The longest wait that it was told.
    pub longest_wait: Duration,
}

impl RefusedKey {
    /// The key on one line, safe to print.
    #[must_use]
    pub fn shown(&self) -> String {
        match &self.fields[..] {
            [] => "all requests".to_string(),
            [only] if only.is_empty() => "(empty)".to_string(),
            fields => fields.iter().map(|field| show::line(field)).collect::<Vec<_>>().join(", "),
        }
    }
}

pub(crate) fn build(
    options: &Options,
    engine: Engine,
    shared: Shared,
    files: Vec<FileSummary>,
    found: Vec<Option<Vec<Found>>>,
) -> Outcome {
    let count = options.wanted.key.len();
    let named = Named { engine: &engine, keys: &shared.keys, fields: count };
    let policies =
        engine.runs.iter().zip(found).map(|(run, smallest)| named.policy(run, options.top, smallest)).collect();
    Outcome {
        files,
        unreadable_lines: shared.unreadable,
        key_fields: options.wanted.key.clone(),
        cost_field: options.wanted.cost.clone(),
        reorder: options.reorder,
        requests: engine.requests,
        keys: shared.keys.len() as u64,
        cost: engine.cost,
        span: (engine.requests > 0).then_some((engine.first, engine.last)),
        policies,
        timeline: engine.timeline,
    }
}

struct Named<'a> {
    engine: &'a Engine,
    keys: &'a Keys,
    fields: usize,
}

impl Named<'_> {
    fn policy(&self, run: &Run, top: usize, smallest: Option<Vec<Found>>) -> PolicyOutcome {
        let mut refused: Vec<u32> =
            (0..).zip(&run.tallies).filter(|(_, tally)| tally.denied > 0).map(|(key, _)| key).collect();
        let keys_denied = refused.len() as u64;
        let tally = |key: u32| &run.tallies[key as usize];
        let longest_stretch = refused.iter().copied().max_by_key(|&key| (tally(key).stretch, Reverse(key)));
        let longest_wait = refused
            .iter()
            .copied()
            .filter(|&key| tally(key).wait > 0)
            .max_by_key(|&key| (tally(key).wait, Reverse(key)));
        let rank = |&key: &u32| (Reverse(tally(key).denied), Reverse(tally(key).stretch), self.keys.get(key));
        if top < refused.len() {
            refused.select_nth_unstable_by(top, |left, right| rank(left).cmp(&rank(right)));
            refused.truncate(top);
        }
        refused.sort_unstable_by(|left, right| rank(left).cmp(&rank(right)));
        PolicyOutcome {
            policy: run.gate.policy().clone(),
            allowed: run.allowed,
            denied: run.denied,
            impossible: run.impossible,
            allowed_cost: run.allowed_cost,
            keys_denied,
            most_denied: refused.into_iter().map(|key| self.key(run, key)).collect(),
            longest_stretch: longest_stretch.map(|key| self.key(run, key)),
            longest_wait: longest_wait.map(|key| self.key(run, key)),
            smallest,
        }
    }

    fn key(&self, run: &Run, key: u32) -> RefusedKey {
        let tally = &run.tallies[key as usize];
        let fields = if self.fields == 0 { Vec::new() } else { keys::fields(self.keys.get(key), self.fields) };
        RefusedKey {
            fields: fields.into_iter().map(<[u8]>::to_vec).collect(),
            requests: self.engine.asked[key as usize].requests,
            denied: tally.denied,
            impossible: tally.impossible,
            longest_stretch: Duration::from_nanos(tally.stretch),
            stretch_from: tally.stretch_from,
            longest_wait: Duration::from_nanos(tally.wait),
        }
    }
}
