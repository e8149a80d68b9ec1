use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;

use super::UNITS;
use crate::calendar::{Every, UTC};
use crate::cost::Cost;
use crate::int;
use crate::limit::{Bucket, Fixed, Limit, Pace, Window};
use crate::policy::Policy;

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, limit) in self.limits().iter().enumerate() {
            if index > 0 {
                f.write_str(" and ")?;
            }
            limit.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Pace(pace) => pace.fmt(f),
            Limit::Bucket(bucket) => bucket.fmt(f),
            Limit::Window(window) => window.fmt(f),
            Limit::Fixed(fixed) => fixed.fmt(f),
            Limit::Unlimited => f.write_str("unlimited"),
            Limit::Block => f.write_str("block"),
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pace {}/{}", self.quota().tokens(), Period(self.quota().period()))?;
        if !self.savings().is_zero() {
            write!(f, " savings {}", self.savings())?;
        }
        if self.max_cost() != Cost::whole(self.quota().tokens()) {
            write!(f, " max_cost {}", self.max_cost())?;
        }
        Ok(())
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bucket {}/{}", self.quota().tokens(), Period(self.quota().period()))?;
        if self.burst() == Cost::whole(self.quota().tokens()) { Ok(()) } else { write!(f, " burst {}", self.burst()) }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "window {}/{}", self.limit(), Period(self.period()))
    }
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fixed {}/", self.limit())?;
        match self.every() {
            Every::Period { nanos } => write_plain(f, *nanos),
            Every::Calendar { unit, at_minute, zone } => {
                f.write_str(unit.name())?;
                if *at_minute > 0 {
                    let minute = u64::from(*at_minute);
                    write!(f, " at {:02}:{:02}", int::div(minute, SIXTY), int::rem(minute, SIXTY))?;
                }
                if **zone == *UTC { Ok(()) } else { write!(f, " in {zone}") }
            }
        }
    }
}

const SIXTY: NonZeroU64 = NonZeroU64::MIN.saturating_add(59);

/// Names of days and longer alone mean the calendar, so a plain period of one
/// day is written in hours and one of a week in days.
fn write_plain(f: &mut fmt::Formatter<'_>, nanos: NonZeroU64) -> fmt::Result {
    const DAY: u64 = 86_400_000_000_000;
    let longest = if nanos.get() == DAY { "h" } else { "day" };
    write_period(f, nanos.get(), longest)
}

/// A period in the largest unit of which it is a whole number.
pub(crate) struct Period(pub(crate) Duration);

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_period(f, int::nanos(self.0), "year")
    }
}

fn write_period(f: &mut fmt::Formatter<'_>, nanos: u64, longest: &str) -> fmt::Result {
    let allowed = UNITS.iter().rev().skip_while(|(names, _)| names.first() != Some(&longest));
    for (names, length) in allowed {
        let (Some(name), Some(length)) = (names.first(), NonZeroU64::new(*length)) else { continue };
        if nanos > 0 && int::rem(nanos, length) > 0 {
            continue;
        }
        return match int::div(nanos, length) {
            1 => f.write_str(name),
            0 => f.write_str("0s"),
            count => write!(f, "{count}{name}"),
        };
    }
    Ok(())
}
