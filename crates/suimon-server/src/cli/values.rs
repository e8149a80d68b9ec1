//! Values that several commands take.

use super::Failure;
use std::time::Duration;
use suimon_core::Policy;

/// Reads a policy; the error shows where it is wrong.
pub(super) fn parse_policy(option: &str, text: &str) -> Result<Policy, Failure> {
    text.parse().map_err(|error: suimon_core::Error| {
        let mut message = format!("{option}: {error}");
        if let Some(at) = error.at() {
            let shown = crate::replay::show::line(text.as_bytes());
            let before = crate::replay::show::line(&text.as_bytes()[..at.min(text.len())]);
            let column = unicode_width::UnicodeWidthStr::width(&before[..]);
            message.push_str(&format!("\n  {shown}\n  {:column$}^", ""));
        }
        Failure::Usage(message)
    })
}

/// `90s`, `1.5min`: a decimal and a unit.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit.trim() {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        "day" | "d" => 86_400.0,
        _ if text == "0" => 1.0,
        _ => return Err("a time has a unit: ns, us, ms, s, min, h or day, as in `90s`".to_string()),
    };
    let number: f64 = number.parse().map_err(|_| "a time is a number with a unit, as in `90s`".to_string())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}
