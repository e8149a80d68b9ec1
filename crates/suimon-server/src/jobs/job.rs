//! Jobs as text: a line of JSON, or the options of the command line.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use suimon_core::Cost;
use suimon_jobs::{Count, Job};

/// A job as it was given: texts that are still to be read.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) handler: String,
    /// JSON.
    pub(crate) payload: Option<String>,
    pub(crate) limit: Option<String>,
    pub(crate) key_limit: Option<String>,
    pub(crate) count: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) cost: Option<String>,
    pub(crate) delay: Option<String>,
    pub(crate) priority: Option<u8>,
    pub(crate) unique: Option<String>,
    pub(crate) attempts: Option<u32>,
}

/// The fields of a line. Their names are part of the interface: serde tells them all when
/// another one is met.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow, default)]
    handler: Option<&'a RawValue>,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default)]
    limit: Option<&'a RawValue>,
    #[serde(borrow, default)]
    key_limit: Option<&'a RawValue>,
    #[serde(borrow, default)]
    count: Option<&'a RawValue>,
    #[serde(borrow, default)]
    key: Option<&'a RawValue>,
    #[serde(borrow, default)]
    cost: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delay: Option<&'a RawValue>,
    #[serde(borrow, default)]
    priority: Option<&'a RawValue>,
    #[serde(borrow, default)]
    unique: Option<&'a RawValue>,
    #[serde(borrow, default)]
    attempts: Option<&'a RawValue>,
}

/// The job of a line of JSON; the error says what is wrong and what is allowed.
pub(crate) fn parse_line(line: &[u8]) -> Result<Job, String> {
    // Serde takes a list for the fields in their order, too.
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err(r#"a line is a JSON object, as {"handler": "call_api", "payload": {"id": 1}}"#.to_string());
    }
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| on_one_line(&error))?;
    let handler = text("handler", line.handler)?;
    Given {
        handler: handler.ok_or("the field `handler` is missing: who is to run it")?,
        payload: line.payload.map(|raw| raw.get().to_string()),
        limit: text("limit", line.limit)?,
        key_limit: text("key_limit", line.key_limit)?,
        count: text("count", line.count)?,
        key: text("key", line.key)?,
        cost: cost(line.cost)?,
        delay: text("delay", line.delay)?,
        priority: number("priority", "a whole number from 0 to 9", line.priority)?,
        unique: text("unique", line.unique)?,
        attempts: number("attempts", "a whole number from 1 to 1000000", line.attempts)?,
    }
    .job()
}

impl Given {
    /// The job, if it can be one.
    pub(crate) fn job(self) -> Result<Job, String> {
        let mut job = Job::from_json(self.handler, self.payload.unwrap_or_else(|| "null".to_string()));
        if let Some(limit) = self.limit {
            job = job.limit(limit);
        }
        if let Some(limit) = self.key_limit {
            job = job.key_limit(limit);
        }
        if let Some(count) = self.count {
            job = job.count(parse_count(&count)?);
        }
        if let Some(key) = self.key {
            job = job.key(key);
        }
        if let Some(text) = self.cost {
            let cost: Cost = text.parse().map_err(|error| format!("cost: `{text}`: {error}"))?;
            job = job.cost(cost);
        }
        if let Some(delay) = self.delay {
            job = job.delay(parse_delay(&delay)?);
        }
        if let Some(priority) = self.priority {
            job = job.priority(priority);
        }
        if let Some(unique) = self.unique {
            job = job.unique(unique);
        }
        if let Some(attempts) = self.attempts {
            job = job.attempts(attempts);
        }
        job.check().map_err(|error| error.to_string())?;
        Ok(job)
    }
}

pub(crate) fn parse_count(text: &str) -> Result<Count, String> {
    match text {
        "started" => Ok(Count::Started),
        "completed" => Ok(Count::Completed),
        _ => Err(format!("count: `{text}`: allowed are `started` and `completed`")),
    }
}

fn parse_delay(text: &str) -> Result<Duration, String> {
    crate::cli::values::parse_time(text).map_err(|error| format!("delay: `{text}`: {error}"))
}

fn text(name: &str, raw: Option<&RawValue>) -> Result<Option<String>, String> {
    let read = |raw: &RawValue| {
        let told = crate::replay::show::short(raw.get().as_bytes());
        serde_json::from_str(raw.get()).map_err(|_| format!("{name}: {told} is no text; write it in double quotes"))
    };
    raw.map(read).transpose()
}

fn number<T: for<'a> Deserialize<'a>>(name: &str, what: &str, raw: Option<&RawValue>) -> Result<Option<T>, String> {
    let read = |raw: &RawValue| {
        let told = crate::replay::show::short(raw.get().as_bytes());
        serde_json::from_str(raw.get()).map_err(|_| format!("{name}: {told}: allowed is {what}"))
    };
    raw.map(read).transpose()
}

/// A number as it was written, or a text: decimals are exact.
fn cost(raw: Option<&RawValue>) -> Result<Option<String>, String> {
    match raw {
        Some(raw) if raw.get().starts_with('"') => text("cost", Some(raw)),
        other => Ok(other.map(|raw| raw.get().to_string())),
    }
}

/// What serde says, with the column alone: there is one line.
fn on_one_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fields_are_read() {
        let job = parse_line(
            br#" {"handler":"a","payload":{"n":12345678901234567890123},"limit":"window 5/2s","key_limit":"pace 1/s","count":"completed",
            "key":"k","cost":0.1,"delay":"5s","priority":3,"unique":"u","attempts":7}"#,
        )
        .unwrap();
        let told = format!("{job:?}");
        for part in [
            r#"handler: "a""#,
            r#"{\"n\":12345678901234567890123}"#,
            "window 5/2s",
            "pace 1/s",
            "Some(Completed)",
            r#"key: Some("k")"#,
            "In(5000000)",
            "priority: 3",
            r#"unique: Some("u")"#,
            "attempts: Some(7)",
        ] {
            assert!(told.contains(part), "{part} is not in {told}");
        }
        let plain = parse_line(br#"{"handler":"a","payload":null,"key":null}"#).unwrap();
        assert!(format!("{plain:?}").contains(r#"payload: Ok("null"), limit: None"#), "{plain:?}");
        assert!(parse_line(br#"{"handler":"a","cost":"2.5"}"#).is_ok());
    }

    #[test]
    fn errors_say_what_is_wrong_and_what_is_allowed() {
        for (line, says) in [
            ("[\"a\"]", "a line is a JSON object"),
            ("hello", "a line is a JSON object"),
            ("{\"handler\":\"a\"", "EOF while parsing an object at column 14"),
            ("{\"handler\":\"a\"} x", "trailing characters at column 17"),
            ("{\"payload\":1}", "`handler` is missing"),
            ("{\"handler\":5}", "handler: 5 is no text"),
            ("{\"handler\":\"\"}", "the handler is empty"),
            (r#"{"handler":"a","handler":"b"}"#, "duplicate field `handler`"),
            (r#"{"handler":"a","prio":1}"#, "unknown field `prio`, expected one of `handler`, `payload`, `limit`"),
            (r#"{"handler":"a","limit":"5/s"}"#, "the limit `5/s`"),
            (r#"{"handler":"a","key_limit":"x"}"#, "the limit `x`"),
            (r#"{"handler":"a","count":"all"}"#, "allowed are `started` and `completed`"),
            (r#"{"handler":"a","key":42}"#, "key: 42 is no text"),
            (r#"{"handler":"a","cost":-1}"#, "cost: `-1`: invalid cost: a cost is zero or more"),
            (r#"{"handler":"a","delay":5}"#, "delay: 5 is no text"),
            (r#"{"handler":"a","delay":"5"}"#, "delay: `5`: a time has a unit"),
            (r#"{"handler":"a","priority":10}"#, "10 was asked for, allowed is 0 to 9"),
            (r#"{"handler":"a","priority":-1}"#, "priority: -1: allowed is a whole number from 0 to 9"),
            (r#"{"handler":"a","attempts":0}"#, "allowed is 1 to 1000000"),
            (r#"{"handler":"a","attempts":"3"}"#, "attempts: \"3\": allowed is a whole number from 1"),
        ] {
            let error = parse_line(line.as_bytes()).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
        assert!(parse_line(b"{\"handler\":\"\xff\"}").is_err());
    }
}
