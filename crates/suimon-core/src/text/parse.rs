use alloc::format;
use alloc::vec::Vec;
use core::str::FromStr;

use super::LONGEST_TEXT;
use super::rate::{amount_per, cost, period, quota, shown};
use super::words::{Word, Words, list, suggestion};
use crate::calendar::{Every, UTC, Unit, is_zone_name};
use crate::cost::Cost;
use crate::error::Error;
use crate::limit::{Bucket, Fixed, Limit, Pace, Window};
use crate::policy::{MOST_LIMITS, Policy};

const KINDS: [&str; 6] = ["pace", "bucket", "window", "fixed", "unlimited", "block"];

impl FromStr for Limit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Limit, Error> {
        let mut words = open(text)?;
        let limit = limit(&mut words)?;
        match words.next() {
            Some(word) if word.text == "and" => {
                Err(Error::syntax(word.at, "one limit is wanted here, and this is a policy of several"))
            }
            Some(word) => Err(unexpected(word, &[])),
            None => Ok(limit),
        }
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Policy, Error> {
        let mut words = open(text)?;
        let mut limits = Vec::new();
        loop {
            let place = words.peek().map(|word| word.at);
            limits.push(limit(&mut words)?);
            if limits.len() > MOST_LIMITS {
                return Err(Error::policy("a policy has at most 64 limits").within_text(place.unwrap_or_default()));
            }
            match words.next() {
                None => return Policy::new(limits),
                Some(word) if word.text == "and" => {}
                Some(word) => return Err(unexpected(word, &["and"])),
            }
        }
    }
}

fn open(text: &str) -> Result<Words<'_>, Error> {
    if text.len() > LONGEST_TEXT {
        return Err(Error::syntax(
            LONGEST_TEXT,
            format!("the text has {} bytes; at most {LONGEST_TEXT} are read", text.len()),
        ));
    }
    Ok(Words::of(text))
}

fn limit(words: &mut Words<'_>) -> Result<Limit, Error> {
    let kind = words
        .expect("a limit")
        .map_err(|error| error.suggest("for example `pace 60/min` or `bucket 10/s burst 20`"))?;
    match kind.text {
        "pace" => pace(words).map(Limit::Pace),
        "bucket" => bucket(words).map(Limit::Bucket),
        "window" => window(words).map(Limit::Window),
        "fixed" => fixed(words).map(Limit::Fixed),
        "unlimited" => Ok(Limit::Unlimited),
        "block" => Ok(Limit::Block),
        _ => Err(no_kind(kind)),
    }
}

/// A rate alone does not say whether idling saves, and an unknown word may be
/// a misspelt kind.
fn no_kind(word: Word<'_>) -> Error {
    let text = shown(word.text);
    if quota(word).is_ok() {
        return Error::syntax(word.at, "the kind of the limit is missing")
            .suggest(format!("`pace {text}` or `bucket {text}`"));
    }
    if word.text.starts_with(|c: char| c.is_ascii_digit()) {
        return Error::syntax(word.at, "a limit begins with its kind").suggest("`pace 60/min` or `bucket 60/min`");
    }
    Error::syntax(word.at, format!("`{text}` is no kind of limit")).suggest(suggestion(word.text, &KINDS))
}

fn pace(words: &mut Words<'_>) -> Result<Pace, Error> {
    let mut pace = Pace::new(quota(words.expect("a rate such as `60/min`")?)?);
    let mut options = Options::new(&["savings", "max_cost"]);
    while let Some(name) = options.next(words)? {
        let value = words.expect("a number of tokens")?;
        let tokens = cost(value)?;
        let changed = if name == "savings" { pace.with_savings(tokens) } else { pace.with_max_cost(tokens) };
        pace = changed.map_err(|range| Error::from(range).within_text(value.at))?;
    }
    Ok(pace)
}

fn bucket(words: &mut Words<'_>) -> Result<Bucket, Error> {
    let rate = words.expect("a rate such as `10/s`")?;
    let mut bucket = Bucket::new(quota(rate)?);
    let mut options = Options::new(&["burst"]);
    while options.next(words)?.is_some() {
        let value = words.expect("a number of tokens")?;
        bucket = bucket.with_burst(cost(value)?).map_err(|range| Error::from(range).within_text(value.at))?;
    }
    Ok(bucket)
}

fn window(words: &mut Words<'_>) -> Result<Window, Error> {
    let word = words.expect("an amount and a period such as `10/60s`")?;
    let (amount, per) = amount_per(word)?;
    let (limit, period) = (cost(amount)?, period(per)?);
    Window::new(limit, period).map_err(|range| Error::from(range).within_text(word.at))
}

fn fixed(words: &mut Words<'_>) -> Result<Fixed, Error> {
    let word = words.expect("an amount and a period such as `1000/day`")?;
    let (amount, per) = amount_per(word)?;
    let limit = cost(amount)?;
    let every = match Unit::ALL.into_iter().find(|unit| unit.name() == per.text) {
        Some(unit) => calendar(unit, words)?,
        None => plain_period(per, words)?,
    };
    Fixed::new(limit, every).map_err(|range| Error::from(range).within_text(word.at))
}

/// Windows of a period of any length, which have no zone and no time of day.
fn plain_period(per: Word<'_>, words: &mut Words<'_>) -> Result<Every, Error> {
    let every = Every::period(period(per)?).map_err(|range| Error::from(range).within_text(per.at))?;
    match words.peek() {
        Some(word) if matches!(word.text, "at" | "in") => {
            Err(Error::syntax(word.at, "only windows of a day, week, month or year have a time of day and a zone")
                .suggest("for example `fixed 1000/day in Europe/Paris`"))
        }
        _ => Ok(every),
    }
}

fn calendar(unit: Unit, words: &mut Words<'_>) -> Result<Every, Error> {
    let (mut at_minute, mut zone) = (0, UTC);
    let mut options = Options::new(&["at", "in"]);
    while let Some(name) = options.next(words)? {
        if name == "at" {
            let word = words.expect("a time of day such as `02:30`")?;
            at_minute = time_of_day(word.text).ok_or_else(|| {
                Error::syntax(word.at, "a time of day has two digits of hours and two of minutes")
                    .suggest("for example `02:30`; `00:00` to `23:59`")
            })?;
        } else {
            let word = words.expect("a time zone such as `Europe/Paris`")?;
            if !is_zone_name(word.text) {
                return Err(Error::unknown_zone(shown(word.text)).within_text(word.at));
            }
            zone = word.text;
        }
    }
    Every::calendar(unit, at_minute, zone)
}

/// `hh:mm` in minutes after midnight.
fn time_of_day(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let two_digits = |digits: &str, below: u16| {
        let number: u16 = digits.parse().ok()?;
        (digits.len() == 2 && digits.chars().all(|c| c.is_ascii_digit()) && number < below).then_some(number)
    };
    two_digits(hours, 24)?.checked_mul(60)?.checked_add(two_digits(minutes, 60)?)
}

/// The options that may follow a limit, each at most once, in any order.
struct Options {
    names: &'static [&'static str],
    seen: Vec<&'static str>,
}

impl Options {
    const fn new(names: &'static [&'static str]) -> Options {
        Options { names, seen: Vec::new() }
    }

    /// The name of the next option, or `None` at the end of this limit.
    fn next(&mut self, words: &mut Words<'_>) -> Result<Option<&'static str>, Error> {
        let Some(word) = words.peek().filter(|word| word.text != "and") else {
            return Ok(None);
        };
        let Some(name) = self.names.iter().find(|name| **name == word.text).copied() else {
            return Err(unexpected(word, self.names));
        };
        if self.seen.contains(&name) {
            return Err(Error::syntax(word.at, format!("`{name}` is given twice")));
        }
        self.seen.push(name);
        words.next();
        Ok(Some(name))
    }
}

/// A word where only one of `names`, or the end, may stand.
fn unexpected(word: Word<'_>, names: &[&str]) -> Error {
    let error = Error::syntax(word.at, format!("`{}` is not expected here", shown(word.text)));
    match names {
        [] => error,
        [..] if Cost::from_str(word.text).is_ok() => error.suggest(format!("what the number is: {}", list(names))),
        [..] => error.suggest(suggestion(word.text, names)),
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn canonical_texts_round_trip() {
        for text in [
            "pace 60/min",
            "pace 60/min savings 5",
            "pace 60/min savings 0.5 max_cost 1000",
            "bucket 10/s",
            "bucket 10/s burst 2.5",
            "bucket 1/year burst 100",
            "bucket 2000000000/s burst 1",
            "window 10/min",
            "window 0.5/1500ms",
            "fixed 1000/day",
            "fixed 1000/24h",
            "fixed 7/5min",
            "fixed 1/2day",
            "fixed 1000/month in America/Los_Angeles",
            "fixed 1000/week at 02:30 in Etc/GMT+5",
            "unlimited",
            "block",
            "bucket 10/s burst 20 and fixed 1000/day and window 3/ns",
        ] {
            let policy: Policy = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
            assert_eq!(policy.to_string().parse::<Policy>().unwrap(), policy);
        }
    }

    #[test]
    fn other_spellings_mean_the_same() {
        for (text, same) in [
            ("pace  60/60s", "pace 60/min"),
            ("bucket 10/second burst 10", "bucket 10/s"),
            ("window 1_000/24h", "window 1000/day"),
            ("fixed 5/day in UTC at 00:00", "fixed 5/day"),
            ("pace 60/min max_cost 60", "pace 60/min"),
            ("pace 1/36525day", "pace 1/100year"),
            ("window 2/7day", "window 2/week"),
        ] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), same);
        }
    }

    /// Each wrong text with the byte, a part of the message, and the suggestion.
    #[test]
    fn errors_point_and_suggest() {
        for (text, at, message, better) in [
            ("60/min", 0, "kind of the limit is missing", "`pace 60/min` or `bucket 60/min`"),
            ("", 0, "a limit should follow", "for example `pace 60/min` or `bucket 10/s burst 20`"),
            ("bukcet 10/s", 0, "`bukcet` is no kind", "`bucket`"),
            ("Bucket 10/s", 0, "`Bucket` is no kind", "`bucket`"),
            ("bucket 10/s bursts 20", 12, "`bursts` is not expected", "`burst`"),
            ("bucket 10/s 20", 12, "`20` is not expected", "what the number is: `burst`"),
            ("pace 100", 5, "a rate is a number", "`100/s` or `100/min`"),
            (
                "pace 60/",
                8,
                "unit of the period is missing",
                "`ns`, `us`, `ms`, `s`, `min`, `h`, `day`, `week` or `year`",
            ),
            ("pace 60/m", 8, "minutes or months", "`min`, or `month` in a `fixed` limit"),
            ("pace 60/mni", 8, "`mni` is no unit", "`min`"),
            ("pace 0.5/s", 5, "whole tokens", "`1/2s`"),
            ("pace 2.5/min", 5, "whole tokens", "`5/2min`"),
            ("window 5/1.5s", 10, "no fraction", "a smaller unit, such as `1500ms` for `1.5s`"),
            ("bucket 10/s and bukket 3/s", 16, "no kind", "`bucket`"),
            ("fixed 5/h in Europe/Paris", 10, "only windows of a day", "for example `fixed 1000/day in Europe/Paris`"),
            ("fixed 5/day at 24:00", 15, "two digits of hours", "for example `02:30`; `00:00` to `23:59`"),
            ("window 5/month", 9, "months differ", "`fixed 1000/month`, or a number of days such as `30day`"),
        ] {
            let error = text.parse::<Policy>().unwrap_err();
            assert!(error.is_syntax(), "{text}");
            assert_eq!((error.at(), error.suggestion()), (Some(at), Some(better)), "{text}: {error}");
            assert!(error.to_string().contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn values_out_of_range_keep_their_kind() {
        for text in [
            "pace 0/s",
            "pace 2000000001/s",
            "bucket 1/36526day",
            "bucket 1/0s",
            "bucket 1/s burst 0",
            "bucket 1/year burst 101",
            "window 0/s",
            "window 1/0s",
            "fixed 0/day",
            "fixed 1/0ns",
            "pace 1/year savings 100",
            "pace 1/s max_cost 0",
        ] {
            let error = text.parse::<Policy>().unwrap_err();
            assert!(error.is_out_of_range() && error.is_syntax(), "{text}: {error}");
        }
        for text in
            ["pace -1/s", "bucket 1/s burst -1", "bucket 1/s burst NaN", "window -5/s", "pace 99999999999999999999/s"]
        {
            assert!(text.parse::<Policy>().unwrap_err().is_invalid_cost(), "{text}");
        }
        assert!("fixed 1/day in ../etc/passwd".parse::<Policy>().unwrap_err().is_unknown_zone());
        assert!("pace 1/99999999999year".parse::<Policy>().unwrap_err().is_out_of_range());
    }

    #[test]
    fn half_texts_and_long_ones() {
        for text in [
            "bucket",
            "bucket 10/s burst",
            "bucket 10/s and",
            "fixed 1/day in",
            "fixed 1/day at",
            "pace 1/s savings 1 savings 2",
            "unlimited burst 3",
            "pace 1/s savings",
        ] {
            assert!(text.parse::<Policy>().unwrap_err().is_syntax(), "{text}");
        }
        let long = alloc::vec!["block"; 65].join(" and ");
        assert!(long.parse::<Policy>().unwrap_err().is_policy());
        assert!("x".repeat(9000).parse::<Policy>().unwrap_err().is_syntax());
        // An error does not repeat a long word.
        let error = alloc::format!("window {}", "4".repeat(2000)).parse::<Policy>().unwrap_err();
        assert!(error.to_string().len() < 200, "{error}");
        assert!("bucket 10/s and block".parse::<Limit>().unwrap_err().is_syntax());
    }
}
