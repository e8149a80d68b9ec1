use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::num::NonZeroU64;

use crate::error::{Error, OutOfRange};
use crate::int;
use crate::quota::checked_period;
use crate::time::Timestamp;

/// What the windows of a `fixed` limit are aligned to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Every {
    /// Windows of equal length, counted from the Unix epoch in UTC.
    #[non_exhaustive]
    Period {
        /// The length in nanoseconds: 1 ns to a century.
        nanos: NonZeroU64,
    },
    /// Days, weeks, months, years of a time zone; a day may have 23 or 25 hours.
    #[non_exhaustive]
    Calendar {
        /// What begins with each window.
        unit: Unit,
        /// The wall time at which it begins, in minutes after midnight: 0 to
        /// 1439. Where that time is skipped (clocks put forward) the window
        /// begins at the first instant after the gap; where it comes twice, at
        /// the first of the two.
        at_minute: u16,
        /// A name of the IANA database, such as `America/Los_Angeles`.
        zone: Box<str>,
    },
}

impl Every {
    /// Windows of equal length from the Unix epoch on.
    ///
    /// # Errors
    /// When the period is zero or above a century.
    pub fn period(period: core::time::Duration) -> Result<Every, OutOfRange> {
        match checked_period(int::nanos(period)) {
            Some(nanos) => Ok(Every::Period { nanos }),
            None => Err(OutOfRange::period(period)),
        }
    }

    /// Windows that begin at `at_minute` minutes after midnight of a time zone.
    ///
    /// # Errors
    /// When there is no such minute in a day, or the name cannot be one of a zone.
    pub fn calendar(unit: Unit, at_minute: u16, zone: &str) -> Result<Every, Error> {
        if at_minute >= MINUTES_PER_DAY {
            return Err(Error::policy("a window begins at a minute from 0 (00:00) to 1439 (23:59)"));
        }
        if !is_zone_name(zone) {
            return Err(Error::unknown_zone(zone));
        }
        Ok(Every::Calendar { unit, at_minute, zone: zone.into() })
    }
}

const MINUTES_PER_DAY: u16 = 1440;

/// The shape of all names in the IANA database.
pub(crate) fn is_zone_name(name: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '+');
    !name.is_empty()
        && name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(inside)
}

/// A unit of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// From midnight to midnight.
    Day,
    /// From Monday on, as in ISO 8601.
    Week,
    /// From the first of the month on.
    Month,
    /// From the first of January on.
    Year,
}

impl Unit {
    pub(crate) const ALL: [Unit; 4] = [Unit::Day, Unit::Week, Unit::Month, Unit::Year];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Unit::Day => "day",
            Unit::Week => "week",
            Unit::Month => "month",
            Unit::Year => "year",
        }
    }
}

/// From `start` to just before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first instant that belongs to it.
    pub start: Timestamp,
    /// The first instant that does not.
    pub end: Timestamp,
}

/// The boundaries of the windows of one `fixed` limit: all that the core wants
/// to know of the calendar.
pub trait Boundaries: fmt::Debug + Send + Sync {
    /// The window that holds `t`: `start <= t < end`. Windows follow each other
    /// without a gap.
    fn window(&self, t: Timestamp) -> Span;
}

/// Knows the rules of time zones.
///
/// The crate `suimon` has one with all zones of the IANA database; [`Utc`] knows
/// UTC alone and needs no data.
pub trait Calendar {
    /// The boundaries of windows of `unit` that begin `at_minute` minutes after
    /// midnight in `zone`.
    ///
    /// # Errors
    /// [`Error::unknown_zone`] where the zone is not known.
    fn boundaries(&self, unit: Unit, at_minute: u16, zone: &str) -> Result<Arc<dyn Boundaries>, Error>;
}

/// The calendar of UTC, which needs no data.
///
/// ```
/// use suimon_core::{Calendar, Timestamp, Unit, Utc};
///
/// let months = Utc.boundaries(Unit::Month, 0, "UTC")?;
/// // 2024-02-29T12:00:00Z lies in a month of 29 days.
/// let month = months.window(Timestamp::from_secs(1_709_208_000));
/// assert_eq!(month.start, Timestamp::from_secs(1_706_745_600));
/// assert_eq!(month.end, Timestamp::from_secs(1_709_251_200));
/// assert!(Utc.boundaries(Unit::Day, 0, "Europe/Paris").unwrap_err().is_unknown_zone());
/// # Ok::<(), suimon_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Utc;

impl Calendar for Utc {
    fn boundaries(&self, unit: Unit, at_minute: u16, zone: &str) -> Result<Arc<dyn Boundaries>, Error> {
        if zone == UTC { Ok(Arc::new(UtcWindows { unit, at_minute })) } else { Err(Error::unknown_zone(zone)) }
    }
}

pub(crate) const UTC: &str = "UTC";

#[derive(Clone, Copy, Debug)]
struct UtcWindows {
    unit: Unit,
    at_minute: u16,
}

const DAY: NonZeroU64 = NonZeroU64::MIN.saturating_add(86_400 * int::NANOS_PER_SEC - 1);
const WEEK: NonZeroU64 = NonZeroU64::MIN.saturating_add(6);

impl Boundaries for UtcWindows {
    fn window(&self, t: Timestamp) -> Span {
        let shift = u64::from(self.at_minute).saturating_mul(60 * int::NANOS_PER_SEC);
        let begin = |day: u64| Timestamp::from_nanos(day.saturating_mul(DAY.get()).saturating_add(shift));
        // Before the first beginning of a day there is only the rest of a window
        // that began before the epoch.
        let Some(since_first) = t.as_nanos().checked_sub(shift) else {
            return Span { start: Timestamp::ZERO, end: begin(0) };
        };
        let day = int::div(since_first, DAY);
        let (first, next) = match self.unit {
            Unit::Day => (day, day.saturating_add(1)),
            Unit::Week => {
                // The epoch was a Thursday.
                let since_monday = int::rem(day.saturating_add(3), WEEK);
                (day.saturating_sub(since_monday), day.saturating_add(7).saturating_sub(since_monday))
            }
            Unit::Month => month_of(day),
            Unit::Year => {
                let year = year_of(day);
                (days_before_year(year), days_before_year(year.saturating_add(1)))
            }
        };
        Span { start: begin(first), end: begin(next) }
    }
}

/// The first day of the month that holds a day since the epoch, and of the next.
fn month_of(day: u64) -> (u64, u64) {
    let year = year_of(day);
    let february = if is_leap(year) { 29 } else { 28 };
    let mut first = days_before_year(year);
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        let next = first.saturating_add(days);
        if day < next {
            return (first, next);
        }
        first = next;
    }
    // Not reached: the months of a year fill it.
    (first, first.saturating_add(31))
}

/// The year that holds a day since the epoch: from below, since a year has at
/// most 366 days, then on by the few years that the estimate is behind.
fn year_of(day: u64) -> u64 {
    let mut year = int::div(day, LONGEST_YEAR).saturating_add(1970);
    while days_before_year(year.saturating_add(1)) <= day {
        year = year.saturating_add(1);
    }
    year
}

const LONGEST_YEAR: NonZeroU64 = NonZeroU64::MIN.saturating_add(365);

/// Days from the epoch to the first of January, for years from 1970 on.
fn days_before_year(year: u64) -> u64 {
    let before = year.saturating_sub(1);
    let leap_days = leap_years_until(before).saturating_sub(leap_years_until(1969));
    year.saturating_sub(1970).saturating_mul(365).saturating_add(leap_days)
}

/// The leap years among the years from 1 to `year`.
fn leap_years_until(year: u64) -> u64 {
    let every = |years: u64| NonZeroU64::new(years).map_or(0, |years| int::div(year, years));
    every(4).saturating_sub(every(100)).saturating_add(every(400))
}

fn is_leap(year: u64) -> bool {
    leap_years_until(year) > leap_years_until(year.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(unit: Unit, at_minute: u16, secs: u64) -> (u64, u64) {
        let span = Utc.boundaries(unit, at_minute, "UTC").unwrap().window(Timestamp::from_secs(secs));
        (span.start.as_nanos() / int::NANOS_PER_SEC, span.end.as_nanos() / int::NANOS_PER_SEC)
    }

    /// Walks the calendar day by day, with nothing but the rule of leap years.
    #[test]
    fn four_centuries_day_by_day() {
        let mut day = 0;
        for year in 1970..2370_u64 {
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let first_of_year = day;
            let length = if leap { 366 } else { 365 };
            for (month, days) in
                [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31].into_iter().enumerate()
            {
                for _ in 0..days {
                    let secs = day * 86_400 + 86_399;
                    assert_eq!(window(Unit::Day, 0, secs), (day * 86_400, (day + 1) * 86_400));
                    let (start, end) = window(Unit::Month, 0, secs);
                    assert!(start <= secs && secs < end && end - start == days * 86_400, "{year} {month}");
                    let (start, end) = window(Unit::Year, 0, secs);
                    assert_eq!((start, end), (first_of_year * 86_400, (first_of_year + length) * 86_400));
                    day += 1;
                }
            }
        }
    }

    #[test]
    fn weeks_begin_on_monday() {
        // 2026-11-30 was a Monday.
        let monday = 1_795_996_800;
        assert_eq!(window(Unit::Week, 0, monday), (monday, monday + 604_800));
        assert_eq!(window(Unit::Week, 0, monday - 1), (monday - 604_800, monday));
        // The first week began before the epoch; what is left of it ends on Monday the 5th.
        assert_eq!(window(Unit::Week, 0, 0), (0, 4 * 86_400));
    }

    #[test]
    fn windows_may_begin_at_a_time_of_day() {
        assert_eq!(window(Unit::Day, 150, 9_000), (9_000, 95_400));
        assert_eq!(window(Unit::Day, 150, 8_999), (0, 9_000));
        assert_eq!(window(Unit::Day, 150, 95_399), (9_000, 95_400));
    }

    #[test]
    fn the_end_of_time_does_not_wrap() {
        for unit in Unit::ALL {
            let span = Utc.boundaries(unit, 1439, "UTC").unwrap().window(Timestamp::MAX);
            assert!(span.start <= Timestamp::MAX && span.end == Timestamp::MAX, "{unit:?} {span:?}");
        }
    }
}
