//! What a command says about its job: by its exit code, and by its last line.

use std::time::Duration;

use serde_json::Value;
use suimon_core::Cost;

use crate::pace::exec::{LONGEST_PAUSE, TRY_LATER, retry_after};

/// `EX_DATAERR` of sysexits.h: with this input it will never work.
const NEVER: i32 = 65;

/// The pause of a command that met a limit and did not say for how long.
pub(crate) const PAUSE: Duration = Duration::from_secs(60);

/// So many lines of standard error are kept as the error of a job.
const LINES: usize = 5;

/// What came of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Done,
    /// It met a limit of somebody else.
    Limited(Duration),
    /// It is not tried again.
    Permanent(String),
    /// It is tried again.
    Failed(String),
}

/// How a command ended.
#[derive(Debug)]
pub(super) struct End<'a> {
    /// Its exit code; none if a signal ended it.
    pub(super) code: Option<i32>,
    /// The same in words.
    pub(super) told: String,
    /// The ends of what it has printed.
    pub(super) out: &'a [u8],
    pub(super) err: &'a [u8],
}

/// The verdict, and what the job really cost if that was told.
pub(super) fn read(end: &End<'_>) -> (Verdict, Option<Cost>) {
    let said = last_line(end.out).and_then(|line| serde_json::from_slice(line).ok());
    let said: Value = said.filter(Value::is_object).unwrap_or_default();
    let cost = said.get("cost").and_then(cost);
    let is_limited = said.get("limited") == Some(&Value::Bool(true));
    if is_limited || end.code == Some(TRY_LATER) {
        let pause = said.get("retry_after").and_then(seconds);
        let pause = pause.or_else(|| retry_after(end.err)).or_else(|| retry_after(end.out)).unwrap_or(PAUSE);
        return (Verdict::Limited(pause.min(LONGEST_PAUSE)), cost);
    }
    let verdict = match end.code {
        Some(0) => Verdict::Done,
        Some(NEVER) => Verdict::Permanent(error(&end.told, end.err)),
        _ => Verdict::Failed(error(&end.told, end.err)),
    };
    (verdict, cost)
}

/// How it ended, and its last words.
pub(super) fn error(told: &str, err: &[u8]) -> String {
    let text = String::from_utf8_lossy(err);
    let lines: Vec<_> = text.trim_end().lines().collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
    if last.is_empty() { told.to_string() } else { format!("{told}: {last}") }
}

fn last_line(output: &[u8]) -> Option<&[u8]> {
    output.trim_ascii_end().rsplit(|byte| *byte == b'\n').next()
}

/// A decimal, written as a number or as text.
fn cost(value: &Value) -> Option<Cost> {
    match value {
        Value::Number(number) => number.to_string().parse().ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn seconds(value: &Value) -> Option<Duration> {
    let seconds = value.as_f64().filter(|seconds| *seconds >= 0.0)?;
    // More than a duration can be is for long.
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(code: i32, out: &str, err: &str) -> (Verdict, Option<Cost>) {
        let told = format!("exit status: {code}");
        read(&End { code: Some(code), told, out: out.as_bytes(), err: err.as_bytes() })
    }

    fn pause(code: i32, out: &str, err: &str) -> Option<f64> {
        match verdict(code, out, err).0 {
            Verdict::Limited(pause) => Some(pause.as_secs_f64()),
            _ => None,
        }
    }

    #[test]
    fn exit_codes() {
        assert_eq!(verdict(0, "", "told\n"), (Verdict::Done, None));
        assert_eq!(verdict(75, "", ""), (Verdict::Limited(PAUSE), None));
        assert_eq!(verdict(65, "", "").0, Verdict::Permanent("exit status: 65".into()));
        assert_eq!(verdict(1, "out\n", "a\nb\n\n").0, Verdict::Failed("exit status: 1: a\nb".into()));
        assert_eq!(verdict(1, "", "1\n2\n3\n4\n5\n6\n").0, Verdict::Failed("exit status: 1: 2\n3\n4\n5\n6".into()));
        let killed = End { code: None, told: "signal: 9 (SIGKILL)".into(), out: b"", err: b"\xff" };
        assert_eq!(read(&killed).0, Verdict::Failed("signal: 9 (SIGKILL): \u{fffd}".into()));
    }

    #[test]
    fn a_last_line_says_for_how_long() {
        assert_eq!(pause(75, "x\n{\"retry_after\": 12.5}\n", ""), Some(12.5));
        assert_eq!(pause(0, r#"{"limited": true, "retry_after": 0}"#, ""), Some(0.0));
        assert_eq!(pause(1, "{\"limited\":true}\r\n", ""), Some(60.0));
        assert_eq!(pause(65, r#"{"limited":true,"retry_after":1e300}"#, ""), Some(86_400.0));
        assert_eq!(pause(75, r#"{"retry_after":-1}"#, ""), Some(60.0));
        assert_eq!(pause(75, r#"{"retry_after":"soon"}"#, ""), Some(60.0));
        // As `suimon pace` has it.
        assert_eq!(pause(75, "", "busy\nRetry-After: 3\n"), Some(3.0));
        assert_eq!(pause(75, "retry-after: 2\n", ""), Some(2.0));
        // What an API answered is not an answer about the job.
        assert_eq!(pause(0, r#"{"retry_after": 5}"#, ""), None);
        assert_eq!(pause(1, r#"{"retry_after": 5}"#, ""), None);
        assert_eq!(pause(0, "{\"limited\":true}\ndone\n", ""), None);
        assert_eq!(pause(0, r#"{"limited":"true"}"#, ""), None);
        assert_eq!(pause(0, "[true]", ""), None);
    }

    #[test]
    fn a_last_line_says_what_it_cost() {
        for (out, nanos) in [
            (r#"{"cost": 123}"#, Some((123, 0))),
            (r#"{"cost": 0.5}"#, Some((0, 500_000_000))),
            (r#"{"cost": "2.25", "model": "x"}"#, Some((2, 250_000_000))),
            (r#"{"cost": -1}"#, None),
            (r#"{"cost": null}"#, None),
            ("cost: 3", None),
        ] {
            let cost = verdict(0, out, "").1.map(|cost| (cost.as_whole(), cost.subsec_nanos()));
            assert_eq!(cost, nanos, "{out}");
            assert_eq!(verdict(1, out, "").1, verdict(0, out, "").1);
        }
    }
}
