//! The calendar of UTC from 1970 on, counted one year and one month at a time.

/// Nanoseconds of a day.
pub(crate) const DAY: u64 = 86_400_000_000_000;

/// Days from 1970-01-01 to this date.
pub(crate) fn days_before(year: u64, month: u64, day: u64) -> u64 {
    let years: u64 = (1970..year).map(year_length).sum();
    let months: u64 = (1..month).map(|month| month_length(year, month)).sum();
    years + months + day - 1
}

pub(crate) fn month_length(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 => year_length(year) - 337,
        _ => 31,
    }
}

fn year_length(year: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    if is_leap { 366 } else { 365 }
}

/// What begins with a window of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Day,
    Week,
    Month,
    Year,
}

/// The window of `unit` that holds an instant, where windows begin `shift`
/// nanoseconds after midnight. Nothing is known of what was before 1970.
pub(crate) fn window(unit: Unit, shift: u64, instant: u64) -> (u64, u64) {
    let at = |day: u64| day.saturating_mul(DAY).saturating_add(shift);
    let Some(since) = instant.checked_sub(shift) else {
        return (0, shift);
    };
    let today = since / DAY;
    let (first, next) = match unit {
        Unit::Day => (today, today + 1),
        // Day 4 was the first Monday.
        Unit::Week => {
            let next = (4..).step_by(7).find(|monday| *monday > today).unwrap_or(u64::MAX);
            (next.saturating_sub(7), next)
        }
        Unit::Month | Unit::Year => spans(unit).find(|(_, next)| *next > today).unwrap_or((0, u64::MAX)),
    };
    (at(first), at(next))
}

/// Months or years from 1970 on, each with its first day and the one after it.
fn spans(unit: Unit) -> impl Iterator<Item = (u64, u64)> {
    let lengths = (1970_u64..).flat_map(move |year| {
        let months: Vec<u64> = (1..=12).map(|month| month_length(year, month)).collect();
        if unit == Unit::Year { vec![months.iter().sum()] } else { months }
    });
    lengths.scan(0, |day, length| {
        let first = *day;
        *day += length;
        Some((first, *day))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_windows() {
        let day = |year, month, day| days_before(year, month, day) * DAY;
        let noon = day(2024, 2, 29) + DAY / 2;
        assert_eq!(window(Unit::Day, 0, noon), (day(2024, 2, 29), day(2024, 3, 1)));
        assert_eq!(window(Unit::Week, 0, noon), (day(2024, 2, 26), day(2024, 3, 4)));
        assert_eq!(window(Unit::Month, 0, noon), (day(2024, 2, 1), day(2024, 3, 1)));
        assert_eq!(window(Unit::Year, 0, noon), (day(2024, 1, 1), day(2025, 1, 1)));
        let shift = DAY / 24;
        assert_eq!(window(Unit::Month, shift, day(2024, 3, 1)), (day(2024, 2, 1) + shift, day(2024, 3, 1) + shift));
        assert_eq!(window(Unit::Day, shift, 0), (0, shift));
    }
}
