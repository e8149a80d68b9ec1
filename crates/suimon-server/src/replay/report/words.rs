//! Numbers and times in words, the same in every report.

use crate::replay::search::{Axis, Found, Smallest};
use std::time::Duration;

/// `1234567` as `1,234,567`.
pub(super) fn count(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 client`, `2 clients`.
pub(super) fn counted(number: u64, plural: &str) -> String {
    let word = if number == 1 { plural.strip_suffix('s').unwrap_or(plural) } else { plural };
    format!("{} {word}", count(number))
}

/// A share, never rounded to nothing or to all.
pub(super) fn percent(percent: f64) -> String {
    match percent {
        0.0 => "0 %".to_string(),
        100.0 => "100 %".to_string(),
        small if small < 0.01 => "< 0.01 %".to_string(),
        large if large > 99.99 => "> 99.99 %".to_string(),
        other => format!("{other:.2} %"),
    }
}

/// A time in its two largest units: `1 day 18 h`, `3 min 20 s`, `1.5 s`, `250 ms`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let nanos = u64::from(duration.subsec_nanos());
    let two = |large: u64, name: &str, small: u64, small_name: &str| {
        if small == 0 { format!("{large} {name}") } else { format!("{large} {name} {small} {small_name}") }
    };
    let days = |days: u64| if days == 1 { "day" } else { "days" };
    match seconds {
        0 if nanos == 0 => "0 s".to_string(),
        0 if nanos < 1_000 => format!("{nanos} ns"),
        0 if nanos < 1_000_000 => decimal(nanos, 1_000, "us"),
        0 => decimal(nanos, 1_000_000, "ms"),
        1..60 => decimal(seconds * 1000 + nanos / 1_000_000, 1000, "s"),
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds / 60 % 60, "min"),
        _ => two(seconds / 86_400, days(seconds / 86_400), seconds / 3_600 % 24, "h"),
    }
}

/// `number / unit` with three digits behind the point at most.
fn decimal(number: u64, unit: u64, name: &str) -> String {
    let digits = format!("{}.{:03}", number / unit, number % unit * 1000 / unit);
    format!("{} {name}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// A length of time without rest, for the bars of a chart.
pub(super) fn length(nanos: u64) -> String {
    duration(Duration::from_nanos(nanos))
}

/// The smallest limit, as a text to copy, or why there is none.
pub(super) fn smallest(found: &Found, smallest: &Smallest) -> String {
    match (smallest, found.axis) {
        (Smallest::Found { limit, .. }, _) => limit.to_string(),
        (Smallest::None, Axis::Rate) => "no rate (too much at one instant)".to_string(),
        (Smallest::None, axis) => format!("no {} (a cost that never passes)", axis.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times() {
        assert_eq!(["0", "999", "1,000", "1,234,567"], [0_u64, 999, 1000, 1_234_567].map(count));
        assert_eq!([counted(1, "clients"), counted(0, "keys")], ["1 client", "0 keys"]);
        assert_eq!(
            ["0 %", "< 0.01 %", "2.14 %", "> 99.99 %", "100 %"],
            [0.0, 1e-9, 2.1449, 99.999_99, 100.0].map(percent)
        );
        for (nanos, text) in [
            (0, "0 s"),
            (999, "999 ns"),
            (1_500, "1.5 us"),
            (333_333_334, "333.333 ms"),
            (1_500_000_000, "1.5 s"),
            (59_999_999_999, "59.999 s"),
            (200_000_000_000, "3 min 20 s"),
            (7_200_000_000_000, "2 h"),
            (151_259_000_000_000, "1 day 18 h"),
            (172_800_000_000_000, "2 days"),
        ] {
            assert_eq!(length(nanos), text);
        }
    }
}
