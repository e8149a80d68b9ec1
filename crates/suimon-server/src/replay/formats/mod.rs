//! What a line says: its time, its key and its cost.

mod combined;
mod csv;
mod detect;
mod json;

pub(crate) use csv::{CsvParser, record_end};
pub(crate) use detect::{Detected, detect};

use super::time::{Decimal, Unit, power};
use super::{Cause, keys};
use combined::CombinedParser;
use json::JsonParser;
use suimon_core::Cost;

/// How the lines of a log are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Format {
    /// Told by the first lines of each file.
    #[default]
    Auto,
    /// Apache's and nginx's access log, combined or common.
    Combined,
    /// One JSON object a line.
    Json,
    /// Fields separated by commas, tabs, semicolons or bars; the first line names them.
    Csv,
}

impl Format {
    /// Its name in a report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Format::Auto => "auto",
            Format::Combined => "combined",
            Format::Json => "json",
            Format::Csv => "csv",
        }
    }
}

/// Which fields are asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The fields that make the key together; none: one key for all.
    pub key: Vec<String>,
    /// The field with the cost; none: each request costs 1.
    pub cost: Option<String>,
    /// The field with the time; none: the format's own, or a usual name.
    pub time: Option<String>,
    /// What a time that is a bare number counts.
    pub unit: Unit,
}

/// What was read from one line. Reused from line to line.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// Nanoseconds since the Unix epoch.
    pub(crate) time: u64,
    /// What the request costs.
    pub(crate) cost: Cost,
    /// The key, as [`keys::push_field`] writes it.
    pub(crate) key: Vec<u8>,
}

/// Reads the lines of one file.
#[derive(Debug)]
pub(crate) enum Parser {
    Combined(CombinedParser),
    Json(JsonParser),
    Csv(CsvParser),
}

impl Parser {
    /// Reads one line; `draft` is meaningless after an error.
    pub(crate) fn parse(&mut self, line: &[u8], draft: &mut Draft) -> Result<(), Cause> {
        match self {
            Parser::Combined(parser) => parser.parse(line, draft),
            Parser::Json(parser) => parser.parse(line, draft),
            Parser::Csv(parser) => parser.parse(line, draft),
        }
    }
}

/// A cost as a log writes it: a decimal, or `-` for none. A part of less than
/// a billionth is rounded up, so that nothing is charged less than it was.
pub(crate) fn parse_cost(text: &[u8]) -> Result<Cost, Cause> {
    let text = text.trim_ascii();
    if text == b"-" {
        return Ok(Cost::ZERO);
    }
    if !text.is_empty() && text.len() < 19 && text.iter().all(u8::is_ascii_digit) {
        return Ok(Cost::whole(text.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))));
    }
    let bad = |what: &str| Cause::from(format!("the cost `{}` is {what}", crate::replay::show::short(text)));
    if text.first() == Some(&b'-') {
        return Err(bad("negative"));
    }
    let Decimal { digits, exponent } = Decimal::parse(text).ok_or_else(|| bad("not a number"))?;
    let billionths = match exponent + 9 {
        up @ 0.. => digits.checked_mul(power(up)),
        down => Some(digits.div_ceil(power(-down))),
    };
    let billionths = billionths.ok_or_else(|| bad("too large"))?;
    let whole = u64::try_from(billionths / 1_000_000_000).map_err(|_| bad("too large"))?;
    Cost::new(whole, (billionths % 1_000_000_000) as u32).map_err(|error| Cause::from(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_exact_and_never_rounded_down() {
        for (text, whole, nanos) in [
            ("0", 0, 0),
            ("-", 0, 0),
            ("203023", 203_023, 0),
            ("2.5", 2, 500_000_000),
            ("1e3", 1_000, 0),
            ("0.1234567891", 0, 123_456_790),
            ("2.50e-1", 0, 250_000_000),
            ("18446744073709551615", u64::MAX, 0),
        ] {
            assert_eq!(parse_cost(text.as_bytes()).unwrap(), Cost::new(whole, nanos).unwrap(), "{text}");
        }
        for (text, cause) in [
            ("-1", "negative"),
            ("NaN", "not a number"),
            ("", "not a number"),
            ("1e30", "too large"),
            ("18446744073709551616", "too large"),
        ] {
            assert!(parse_cost(text.as_bytes()).unwrap_err().contains(cause), "{text}");
        }
    }
}
