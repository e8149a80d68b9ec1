//! Durations and instants as scenario files write them, exact to the nanosecond.
//!
//! A duration is a decimal number and a unit without a space: `250ms`,
//! `0.333333333s`, `1h`. An instant is a duration since the origin of the
//! clock, or a UTC date such as `2026-10-25T23:30:00Z` counted from the Unix
//! epoch. What is not a whole number of nanoseconds is an error, never rounded.

use std::time::Duration;

use crate::utc::{days_before, month_length};

/// Units with their length in nanoseconds; the longest that fits is tried
/// first when a duration is printed.
const UNITS: [(&str, u64); 9] = [
    ("year", 31_557_600_000_000_000),
    ("week", 604_800_000_000_000),
    ("day", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Reads a duration such as `1.5s`; the error says what is wrong with it.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    parse_nanos(text).map(Duration::from_nanos)
}

/// Reads an instant: a duration since the clock's origin or a UTC date.
pub fn parse_instant(text: &str) -> Result<u64, String> {
    if text.ends_with('Z') {
        return parse_date(text);
    }
    parse_nanos(text)
}

/// Writes a duration exactly, in seconds or in nanoseconds, whichever is shorter.
pub fn format_duration(duration: Duration) -> String {
    let (secs, nanos) = (duration.as_secs(), duration.subsec_nanos());
    if nanos == 0 {
        return format!("{secs}s");
    }
    let decimal = format!("{nanos:09}");
    let in_seconds = format!("{secs}.{}s", decimal.trim_end_matches('0'));
    let in_nanos = format!("{}ns", duration.as_nanos());
    if in_nanos.len() < in_seconds.len() { in_nanos } else { in_seconds }
}

fn parse_nanos(text: &str) -> Result<u64, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .ok_or_else(|| format!("`{text}` has no unit: write one of ns, us, ms, s, min, h, day, week, year"))?;
    let (number, unit) = text.split_at(split);
    let length = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, length)| *length).ok_or_else(|| {
        format!("`{unit}` in `{text}` is no unit: write one of ns, us, ms, s, min, h, day, week, year")
    })?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = !whole.is_empty()
        && fraction.bytes().all(|b| b.is_ascii_digit())
        && number.ends_with(|c: char| c.is_ascii_digit());
    if !is_number {
        return Err(format!("`{number}` in `{text}` is not a decimal number"));
    }
    let too_long = || format!("`{text}` is longer than the 584 years that fit 64 bits of nanoseconds");
    let whole = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(length)).ok_or_else(too_long)?;
    let part = fraction_of(length, fraction.trim_end_matches('0'))
        .ok_or_else(|| format!("`{text}` is not a whole number of nanoseconds"))?;
    whole.checked_add(part).ok_or_else(too_long)
}

/// `0.fraction` of a unit's length if that is a whole number of nanoseconds.
fn fraction_of(length: u64, fraction: &str) -> Option<u64> {
    if fraction.is_empty() {
        return Some(0);
    }
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let product = fraction.parse::<u128>().ok()?.checked_mul(u128::from(length))?;
    if product % scale == 0 { u64::try_from(product / scale).ok() } else { None }
}

fn parse_date(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no UTC date: write it like 2026-10-25T23:30:00Z, from 1970 on");
    let (date, clock) = text.trim_end_matches('Z').split_once('T').ok_or_else(wrong)?;
    let numbers = |part: &str, separator: char| -> Option<Vec<u64>> {
        part.split(separator).map(|number| number.parse().ok()).collect()
    };
    let date = numbers(date, '-').ok_or_else(wrong)?;
    let clock = numbers(clock, ':').ok_or_else(wrong)?;
    let ([year, month, day], [hour, minute, second]) = (&date[..], &clock[..]) else {
        return Err(wrong());
    };
    let (year, month, day) = (*year, *month, *day);
    let (hour, minute, second) = (*hour, *minute, *second);
    let fits = (1970..2500).contains(&year)
        && (1..=12).contains(&month)
        && (1..=month_length(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !fits {
        return Err(wrong());
    }
    let seconds = days_before(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    Ok(seconds * 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_exact() {
        for (text, nanos) in [
            ("0s", 0),
            ("1ns", 1),
            ("0.333333333s", 333_333_333),
            ("1.5us", 1_500),
            ("1.25h", 4_500_000_000_000),
            ("2.0000s", 2_000_000_000),
            ("0.5year", 15_778_800_000_000_000),
            ("18446744073709551615ns", u64::MAX),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_is_not_exact_or_not_a_duration_is_an_error() {
        for text in [
            "",
            "1",
            "s",
            "1.s",
            ".5s",
            "1.2.3s",
            "-1s",
            "0.5ns",
            "0.3333333333s",
            "1 s",
            "1m",
            "600year",
            "18446744073709551616ns",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for nanos in [0, 1, 999, 1_000, 333_333_333, 1_000_000_000, 1_500_000_001, u64::MAX] {
            let text = format_duration(Duration::from_nanos(nanos));
            assert_eq!(parse_duration(&text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn dates_count_from_the_unix_epoch() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-03-01T00:00:00Z", 951_868_800),
            ("2026-10-25T23:30:00Z", 1_792_971_000),
        ] {
            assert_eq!(parse_instant(text), Ok(seconds * 1_000_000_000), "{text}");
        }
        for text in ["2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01Z", "1969-12-31T23:59:59Z", "Z"] {
            assert!(parse_instant(text).is_err(), "{text}");
        }
    }
}
