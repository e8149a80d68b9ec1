//! The text form of limits and policies: one grammar for all fronts.
//!
//! ```text
//! policy   = limit *( "and" limit )
//! limit    = "pace" rate *( "savings" cost / "max_cost" cost )
//!          / "bucket" rate [ "burst" cost ]
//!          / "window" cost "/" period
//!          / "fixed" cost "/" period
//!          / "fixed" cost "/" ( "day" / "week" / "month" / "year" ) *( "at" hh:mm / "in" zone )
//!          / "unlimited" / "block"
//! rate     = whole "/" period
//! period   = [ whole ] ( "ns" / "us" / "ms" / "s" / "min" / "h" / "day" / "week" / "year" )
//! ```
//!
//! Words are separated by white space; numbers may have `_` between digits.

mod parse;
mod rate;
mod words;
mod write;

pub(crate) use write::Period;

/// Units of a period and their nanoseconds, from short to long. The first name
/// is the one that is printed.
const UNITS: [(&[&str], u64); 9] = [
    (&["ns"], 1),
    (&["us", "µs"], 1_000),
    (&["ms"], 1_000_000),
    (&["s", "sec", "secs", "second", "seconds"], 1_000_000_000),
    (&["min", "mins", "minute", "minutes"], 60_000_000_000),
    (&["h", "hr", "hour", "hours"], 3_600_000_000_000),
    (&["day", "d", "days"], 86_400_000_000_000),
    (&["week", "weeks"], 604_800_000_000_000),
    (&["year", "years"], 31_557_600_000_000_000),
];

/// The longest text that is read; a policy of 64 limits fits.
const LONGEST_TEXT: usize = 8192;
