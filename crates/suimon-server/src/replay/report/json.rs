//! The report for programs: one object.

use crate::replay::search::{Found, Smallest};
use crate::replay::{Outcome, PolicyOutcome, RefusedKey, show, time};
use serde::Serialize;
use serde_json::{Map, Value};
use std::time::Duration;

/// What a replay found, as one JSON object on one line. The counts at the top
/// are those of the first policy.
#[must_use]
pub fn json(outcome: &Outcome) -> String {
    let first = outcome.policies.first();
    let report = Report {
        requests: outcome.requests,
        allowed: first.map_or(0, |policy| policy.allowed),
        denied: first.map_or(0, |policy| policy.denied),
        impossible: first.map_or(0, |policy| policy.impossible),
        keys: outcome.keys,
        unreadable: outcome.unreadable(),
        lines: outcome.lines(),
        out_of_order: outcome.out_of_order(),
        late: outcome.late(),
        from: outcome.span.map(|(first, _)| time::show_rfc3339(first)),
        to: outcome.span.map(|(_, last)| time::show_rfc3339(last)),
        key: &outcome.key_fields,
        cost: outcome.cost_field.as_deref(),
        policies: outcome
            .policies
            .iter()
            .enumerate()
            .map(|(index, policy)| of_policy(outcome, index, policy))
            .collect(),
        files: outcome.files.iter().map(File::of).collect(),
        unreadable_lines: outcome
            .unreadable_lines
            .iter()
            .map(|line| Line { file: &outcome.files[line.file].name, line: line.line, cause: &line.cause })
            .collect(),
    };
    // Maps with text keys and numbers: there is nothing in it that has no JSON.
    serde_json::to_string(&report).unwrap_or_default()
}

#[derive(Serialize)]
struct Report<'a> {
    requests: u64,
    allowed: u64,
    denied: u64,
    impossible: u64,
    keys: u64,
    unreadable: u64,
    lines: u64,
    out_of_order: u64,
    late: u64,
    from: Option<String>,
    to: Option<String>,
    key: &'a [String],
    cost: Option<&'a str>,
    policies: Vec<Policy>,
    files: Vec<File<'a>>,
    unreadable_lines: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Policy {
    policy: String,
    allowed: u64,
    denied: u64,
    impossible: u64,
    denied_percent: f64,
    /// As text: a sum of costs may exceed what numbers hold elsewhere.
    allowed_cost: String,
    denied_cost: String,
    keys_denied: u64,
    most_denied: Vec<Key>,
    longest_stretch: Option<Key>,
    longest_wait: Option<Key>,
    smallest: Option<Vec<Search>>,
    over_time: OverTime,
}

#[derive(Serialize)]
struct Key {
    key: Map<String, Value>,
    requests: u64,
    denied: u64,
    impossible: u64,
    longest_stretch_seconds: f64,
    stretch_from: String,
    longest_wait_seconds: f64,
}

#[derive(Serialize)]
struct Search {
    limit: String,
    axis: &'static str,
    nobody: Option<Number>,
    percent_of_keys: Option<Number>,
    percent_of_requests: Option<Number>,
}

#[derive(Serialize)]
struct Number {
    value: u64,
    limit: String,
}

#[derive(Serialize)]
struct OverTime {
    bar_seconds: f64,
    /// The beginning of each bar, its requests and its refusals; empty ones are left out.
    bars: Vec<(String, u64, u64)>,
}

#[derive(Serialize)]
struct File<'a> {
    name: &'a str,
    format: &'static str,
    compression: &'static str,
    lines: u64,
    unreadable: u64,
    damage: Option<&'a str>,
}

#[derive(Serialize)]
struct Line<'a> {
    file: &'a str,
    line: u64,
    cause: &'a str,
}

fn of_policy(outcome: &Outcome, index: usize, policy: &PolicyOutcome) -> Policy {
    let timeline = outcome.timeline.within(500);
    let key = |key: &RefusedKey| Key::of(&outcome.key_fields, key);
    Policy {
        policy: policy.policy.to_string(),
        allowed: policy.allowed,
        denied: policy.denied,
        impossible: policy.impossible,
        denied_percent: policy.denied_percent(),
        allowed_cost: policy.allowed_cost.to_string(),
        denied_cost: outcome.cost.without(policy.allowed_cost).to_string(),
        keys_denied: policy.keys_denied,
        most_denied: policy.most_denied.iter().map(key).collect(),
        longest_stretch: policy.longest_stretch.as_ref().map(key),
        longest_wait: policy.longest_wait.as_ref().map(key),
        smallest: policy.smallest.as_ref().map(|found| found.iter().map(Search::of).collect()),
        over_time: OverTime {
            bar_seconds: seconds(Duration::from_nanos(timeline.bar())),
            bars: timeline
                .bars(index)
                .filter(|(_, requests, _)| *requests > 0)
                .map(|(start, requests, refused)| (time::show_rfc3339(start), requests, refused))
                .collect(),
        },
    }
}

impl Key {
    fn of(names: &[String], key: &RefusedKey) -> Key {
        let fields = names.iter().zip(&key.fields);
        Key {
            key: fields.map(|(name, field)| (name.clone(), Value::String(text(field)))).collect(),
            requests: key.requests,
            denied: key.denied,
            impossible: key.impossible,
            longest_stretch_seconds: seconds(key.longest_stretch),
            stretch_from: time::show_rfc3339(key.stretch_from),
            longest_wait_seconds: seconds(key.longest_wait),
        }
    }
}

impl Search {
    fn of(found: &Found) -> Search {
        Search {
            limit: found.limit.to_string(),
            axis: found.axis.name(),
            nobody: Number::of(&found.nobody),
            percent_of_keys: Number::of(&found.percent_of_keys),
            percent_of_requests: Number::of(&found.percent_of_requests),
        }
    }
}

impl Number {
    fn of(smallest: &Smallest) -> Option<Number> {
        match smallest {
            Smallest::Found { value, limit } => Some(Number { value: *value, limit: limit.to_string() }),
            Smallest::None => None,
        }
    }
}

impl<'a> File<'a> {
    fn of(file: &'a crate::replay::FileSummary) -> File<'a> {
        File {
            name: &file.name,
            format: file.format.name(),
            compression: file.compression.name(),
            lines: file.lines,
            unreadable: file.unreadable,
            damage: file.damage.as_deref(),
        }
    }
}

/// A field as it is, where it is text; otherwise with its odd bytes escaped.
fn text(field: &[u8]) -> String {
    std::str::from_utf8(field).map_or_else(|_| show::line(field), str::to_string)
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
