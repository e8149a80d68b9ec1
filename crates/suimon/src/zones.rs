//! Calendar windows in the time zones of the IANA database.
//!
//! A window begins at a wall time of its zone: once each day, week, month or
//! year, never twice and never not at all. Days that clocks are changed have 23
//! or 25 hours. A wall time that is skipped begins at the first instant after
//! the gap, one that comes twice at the first of the two. Where a whole day is
//! skipped (Samoa had no 30 December 2011) the days around it follow each other.

use std::sync::Arc;

use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Span as Step, Timestamp as Instant, ToSpan};
use suimon_core::{Boundaries, Calendar, Error, Span, Timestamp, Unit};

/// All time zones of the system's IANA database, or of the one that is built in
/// where the system has none.
///
/// ```
/// use suimon::zones::Zones;
/// use suimon::{Gate, Policy};
///
/// assert!(Gate::with_calendar("fixed 9/week in Asia/Kolkata".parse::<Policy>()?, &Zones).is_ok());
/// let error = Gate::with_calendar("fixed 9/week in Asia/Atlantis".parse::<Policy>()?, &Zones).unwrap_err();
/// assert!(error.is_unknown_zone());
/// # Ok::<(), suimon::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Zones;

impl Calendar for Zones {
    fn boundaries(&self, unit: Unit, at_minute: u16, zone: &str) -> Result<Arc<dyn Boundaries>, Error> {
        let zone = TimeZone::get(zone).map_err(|_| Error::unknown_zone(zone))?;
        Ok(Arc::new(ZoneWindows { zone, unit, at_minute: at_minute.min(1439) }))
    }
}

#[derive(Clone, Debug)]
struct ZoneWindows {
    zone: TimeZone,
    unit: Unit,
    at_minute: u16,
}

impl Boundaries for ZoneWindows {
    fn window(&self, t: Timestamp) -> Span {
        self.around(t).unwrap_or(Span { start: t, end: Timestamp::MAX })
    }
}

impl ZoneWindows {
    /// The window that holds `t`, or `None` beyond the year 9999.
    fn around(&self, t: Timestamp) -> Option<Span> {
        let instant = Instant::from_nanosecond(i128::from(t.as_nanos())).ok()?;
        let mut first = self.first_day(self.zone.to_datetime(instant).date())?;
        // The window of the date has perhaps not begun yet at this time of day.
        while self.begin(first)? > t {
            first = first.checked_sub(self.step()).ok()?;
        }
        // Dates that the zone skips would make empty windows.
        loop {
            let next = first.checked_add(self.step()).ok()?;
            let end = self.begin(next)?;
            if end > t {
                return Some(Span { start: self.begin(first)?, end });
            }
            first = next;
        }
    }

    fn step(&self) -> Step {
        match self.unit {
            Unit::Week => 1.week(),
            Unit::Month => 1.month(),
            Unit::Year => 1.year(),
            _ => 1.day(),
        }
    }

    /// The first day of the unit that holds a date.
    fn first_day(&self, date: Date) -> Option<Date> {
        match self.unit {
            Unit::Week => date.tomorrow().ok()?.nth_weekday(-1, Weekday::Monday).ok(),
            Unit::Month => Some(date.first_of_month()),
            Unit::Year => Some(date.first_of_year()),
            _ => Some(date),
        }
    }

    /// The instant at which the window of a first day begins.
    fn begin(&self, date: Date) -> Option<Timestamp> {
        let (hour, minute) = (self.at_minute / 60, self.at_minute % 60);
        let wall = date.at(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0);
        Some(Timestamp::from_nanos(u64::try_from(self.first_instant(wall)?.as_nanosecond().max(0)).ok()?))
    }

    /// The first instant at which the wall clock shows a time, or has passed it.
    fn first_instant(&self, wall: DateTime) -> Option<Instant> {
        match self.zone.to_ambiguous_timestamp(wall).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(wall).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(wall).ok(),
            AmbiguousOffset::Gap { before, .. } => {
                // Read by the offset before the gap, the skipped wall time lies
                // at or after the transition that made the gap.
                let inside = before.to_timestamp(wall).ok()?;
                let after = inside.checked_add(1.nanosecond()).ok()?;
                self.zone.preceding(after).next().map(|transition| transition.timestamp())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let instant: Instant = text.parse().unwrap();
        Timestamp::from_nanos(u64::try_from(instant.as_nanosecond()).unwrap())
    }

    fn window(unit: Unit, at_minute: u16, zone: &str, t: &str) -> Span {
        Zones.boundaries(unit, at_minute, zone).unwrap().window(at(t))
    }

    fn hours(span: Span) -> f64 {
        span.end.saturating_since(span.start).as_secs_f64() / 3600.0
    }

    /// diegosouzapw/OmniRoute#13671: the long day was cut short, and a reset hour
    /// that does not exist was resolved to a time before it.
    #[test]
    fn days_of_23_and_25_hours_roll_over_once() {
        let long = window(Unit::Day, 0, "Europe/Paris", "2026-10-25T00:30:00+02:00");
        assert_eq!(long.end.saturating_since(at("2026-10-25T00:30:00+02:00")).as_secs(), 88_200);
        assert_eq!(hours(long), 25.0);
        assert_eq!(hours(window(Unit::Day, 0, "Europe/Paris", "2026-03-29T12:00:00Z")), 23.0);

        // 02:30 does not exist on 29 March; the gap ends at 01:00Z.
        let before = window(Unit::Day, 150, "Europe/Paris", "2026-03-29T00:59:59Z");
        let after = window(Unit::Day, 150, "Europe/Paris", "2026-03-29T01:00:00Z");
        assert_eq!(before.end, at("2026-03-29T01:00:00Z"));
        assert_eq!(after, Span { start: at("2026-03-29T01:00:00Z"), end: at("2026-03-30T00:30:00Z") });

        // 02:30 comes twice on 25 October; the first of the two counts.
        assert_eq!(window(Unit::Day, 150, "Europe/Paris", "2026-10-25T12:00:00Z").start, at("2026-10-25T00:30:00Z"));
    }

    #[test]
    fn zones_without_summer_time_and_with_half_an_hour_of_it() {
        assert_eq!(hours(window(Unit::Day, 0, "Asia/Kolkata", "2026-03-29T12:00:00Z")), 24.0);
        // Lord Howe Island puts its clocks back by half an hour on 5 April 2026.
        assert_eq!(hours(window(Unit::Day, 0, "Australia/Lord_Howe", "2026-04-05T02:00:00Z")), 24.5);
        assert_eq!(hours(window(Unit::Day, 0, "Australia/Lord_Howe", "2026-10-04T02:00:00Z")), 23.5);
    }

    #[test]
    fn a_midnight_that_is_skipped_begins_after_the_gap() {
        // Cairo's clocks go from 24:00 to 01:00 on 24 April 2026.
        let day = window(Unit::Day, 0, "Africa/Cairo", "2026-04-24T12:00:00+03:00");
        assert_eq!(day.start, at("2026-04-23T22:00:00Z"));
        assert_eq!(hours(day), 23.0);
    }

    #[test]
    fn a_day_that_is_skipped_has_no_window() {
        let eve = window(Unit::Day, 0, "Pacific/Apia", "2011-12-29T12:00:00-10:00");
        let morrow = window(Unit::Day, 0, "Pacific/Apia", "2011-12-31T12:00:00+14:00");
        assert_eq!(eve.end, morrow.start);
        assert_eq!((hours(eve), hours(morrow)), (24.0, 24.0));
    }

    #[test]
    fn weeks_months_and_years_are_local() {
        let week = window(Unit::Week, 0, "America/Los_Angeles", "2026-11-30T07:59:59Z");
        assert_eq!(week, Span { start: at("2026-11-23T08:00:00Z"), end: at("2026-11-30T08:00:00Z") });
        let march = window(Unit::Month, 0, "America/Los_Angeles", "2026-03-15T00:00:00Z");
        assert_eq!(march, Span { start: at("2026-03-01T08:00:00Z"), end: at("2026-04-01T07:00:00Z") });
        let year = window(Unit::Year, 0, "Pacific/Auckland", "2026-12-31T11:00:00Z");
        assert_eq!(year.start, at("2026-12-31T11:00:00Z"));
    }

    #[test]
    fn the_ends_of_time() {
        let first = window(Unit::Month, 0, "America/New_York", "1970-01-01T00:00:00Z");
        assert_eq!(first, Span { start: Timestamp::ZERO, end: at("1970-01-01T05:00:00Z") });
        let last = Zones.boundaries(Unit::Year, 0, "Asia/Tokyo").unwrap().window(Timestamp::MAX);
        assert!(last.start <= Timestamp::MAX && last.end == Timestamp::MAX);
    }

    proptest::proptest! {
        /// Windows hold their instant and follow each other without a gap.
        #[test]
        fn windows_tile_time(
            secs in 0_u64..7_000_000_000,
            zone in proptest::sample::select(vec!["Europe/Paris", "America/Havana", "Pacific/Apia", "Africa/Cairo", "Asia/Gaza", "Australia/Lord_Howe", "America/Sao_Paulo", "UTC"]),
            unit in proptest::sample::select(vec![Unit::Day, Unit::Week, Unit::Month, Unit::Year]),
            at_minute in 0_u16..1440,
        ) {
            let windows = Zones.boundaries(unit, at_minute, zone).unwrap();
            let t = Timestamp::from_secs(secs);
            let span = windows.window(t);
            proptest::prop_assert!(span.start <= t && t < span.end);
            proptest::prop_assert_eq!(windows.window(span.start), span);
            proptest::prop_assert_eq!(windows.window(span.end).start, span.end);
            if zone == "UTC" {
                proptest::prop_assert_eq!(suimon_core::Utc.boundaries(unit, at_minute, zone).unwrap().window(t), span);
            }
        }
    }
}
