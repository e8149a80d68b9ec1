//! Reads the text form of a policy, as plainly as it can be done.

use std::sync::Arc;

use num_traits::Zero;

use super::answer::Fault;
use super::number::{Q, decimal, whole};
use super::spec::{Rate, Spec, Windows};
use crate::utc::{self, Unit};

/// Nanoseconds of a century, the longest period and the longest saving.
const CENTURY: u64 = 36_525 * utc::DAY;

impl Spec {
    /// Reads a policy such as `bucket 10/s burst 20 and fixed 1000/day`.
    ///
    /// Calendar windows are those of UTC; for those of a zone, give the instants
    /// at which they begin as [`Windows::At`].
    ///
    /// # Errors
    /// When the text cannot be read, or names a rate, size or period that cannot be.
    pub fn parse(policy: &str) -> Result<Vec<Spec>, Fault> {
        let words: Vec<&str> = policy.split_whitespace().collect();
        words.split(|word| *word == "and").map(parse_limit).collect()
    }
}

fn parse_limit(words: &[&str]) -> Result<Spec, Fault> {
    match *words {
        ["unlimited"] => Ok(Spec::Unlimited),
        ["block"] => Ok(Spec::Block),
        ["pace", rate, ref options @ ..] => pace(parse_rate(rate)?, options),
        ["bucket", rate] => bucket(parse_rate(rate)?, None),
        ["bucket", rate, "burst", burst] => bucket(parse_rate(rate)?, Some(burst)),
        ["window", amount] => {
            let (limit, period) = slash(amount)?;
            let (limit, period) = (size(limit)?, parse_period(period)?);
            Ok(Spec::Window { limit, period })
        }
        ["fixed", amount, ref options @ ..] => fixed(amount, options),
        _ => Err(Fault::Syntax(format!("`{}` is no limit", words.join(" ")))),
    }
}

fn pace(rate: Rate, options: &[&str]) -> Result<Spec, Fault> {
    let (mut savings, mut max_cost) = (Q::zero(), whole(rate.tokens));
    for option in options.chunks(2) {
        match *option {
            ["savings", tokens] => savings = amount(tokens)?,
            ["max_cost", tokens] => max_cost = size(tokens)?,
            _ => return Err(Fault::Syntax(format!("`{}` is no option of a pace", option.join(" ")))),
        }
    }
    within_century(rate, &(&savings + &max_cost))?;
    Ok(Spec::Pace { rate, savings, max_cost })
}

fn bucket(rate: Rate, burst: Option<&str>) -> Result<Spec, Fault> {
    let burst = burst.map_or(Ok(whole(rate.tokens)), size)?;
    within_century(rate, &burst)?;
    Ok(Spec::Bucket { rate, burst })
}

fn fixed(word: &str, options: &[&str]) -> Result<Spec, Fault> {
    let (limit, period) = slash(word)?;
    let limit = size(limit)?;
    let unit = match period {
        "day" => Unit::Day,
        "week" => Unit::Week,
        "month" => Unit::Month,
        "year" => Unit::Year,
        _ if options.is_empty() => return Ok(Spec::Fixed { limit, windows: Windows::Every(parse_period(period)?) }),
        _ => return Err(Fault::Syntax("only days, weeks, months and years have a time and a zone".to_owned())),
    };
    let mut shift = 0;
    for option in options.chunks(2) {
        match *option {
            ["in", "UTC"] => {}
            ["at", time] => shift = parse_time_of_day(time)?,
            _ => return Err(Fault::Syntax(format!("`{}` is no option that the model has", option.join(" ")))),
        }
    }
    Ok(Spec::Fixed { limit, windows: Windows::Rule(Arc::new(move |instant| utc::window(unit, shift, instant))) })
}

/// `10/s`: whole tokens, from one a century to two a nanosecond.
fn parse_rate(text: &str) -> Result<Rate, Fault> {
    let (tokens, period) = slash(text)?;
    let number = amount(tokens)?;
    if tokens.contains('.') {
        return Err(Fault::Syntax(format!("`{text}` has a part of a token; write whole tokens in a longer period")));
    }
    let period = parse_period(period)?;
    let too_fast = number > whole(period) * whole(2);
    if number.is_zero() || too_fast {
        return Err(Fault::OutOfRange(format!("a rate of `{text}` is out of range")));
    }
    let tokens = tokens.parse().map_err(|_| Fault::OutOfRange(format!("`{tokens}` tokens are too many")))?;
    Ok(Rate { tokens, period })
}

fn within_century(rate: Rate, tokens: &Q) -> Result<(), Fault> {
    if tokens * rate.interval() > whole(CENTURY) {
        return Err(Fault::OutOfRange(format!("{tokens} tokens are more than a century brings")));
    }
    Ok(())
}

fn parse_period(text: &str) -> Result<u64, Fault> {
    let wrong = || Fault::Syntax(format!("`{text}` is no period"));
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (count, unit) = text.split_at(unit_at);
    let nanos = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "day" => utc::DAY,
        "week" => 7 * utc::DAY,
        "year" => CENTURY / 100,
        _ => return Err(wrong()),
    };
    let count: u64 = if count.is_empty() { 1 } else { count.parse().map_err(|_| wrong())? };
    match count.checked_mul(nanos) {
        Some(period @ 1..=CENTURY) => Ok(period),
        _ => Err(Fault::OutOfRange(format!("a period of `{text}` is out of range"))),
    }
}

/// `02:30` in nanoseconds after midnight.
fn parse_time_of_day(text: &str) -> Result<u64, Fault> {
    let part = |digits: &str, below: u64| digits.parse().ok().filter(|number| *number < below);
    let minutes = text.split_once(':').and_then(|(hours, minutes)| {
        let (hours, minutes): (u64, u64) = (part(hours, 24)?, part(minutes, 60)?);
        Some(hours * 60 + minutes)
    });
    minutes.map(|minutes| minutes * 60_000_000_000).ok_or_else(|| Fault::Syntax(format!("`{text}` is no time of day")))
}

fn slash(text: &str) -> Result<(&str, &str), Fault> {
    text.split_once('/').ok_or_else(|| Fault::Syntax(format!("`{text}` has no slash")))
}

fn amount(text: &str) -> Result<Q, Fault> {
    decimal(text).filter(|number| number >= &Q::zero()).ok_or(Fault::InvalidCost)
}

/// An amount above zero.
fn size(text: &str) -> Result<Q, Fault> {
    let size = amount(text)?;
    if size.is_zero() { Err(Fault::OutOfRange("a limit of 0: say `block`".to_owned())) } else { Ok(size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read() {
        let specs =
            Spec::parse("pace 60/min savings 0.5 and bucket 3/2s and window 1.5/ms and fixed 2/day at 02:30 and block");
        let specs = specs.unwrap();
        assert_eq!(specs.len(), 5);
        let most: Vec<Option<Q>> = specs.iter().map(|spec| spec.max_cost().cloned()).collect();
        assert_eq!(most, [Some(whole(60)), Some(whole(3)), decimal("1.5"), Some(whole(2)), None]);
        let Spec::Fixed { windows, .. } = &specs[3] else { panic!("a fixed limit") };
        assert_eq!(windows.around(utc::DAY).1 - windows.around(utc::DAY).0, utc::DAY);
    }

    #[test]
    fn what_cannot_be_is_out_of_range() {
        for text in [
            "bucket 0/s",
            "pace 2000000001/s",
            "window 0/s",
            "bucket 1/s burst 0",
            "pace 1/year savings 100",
            "fixed 1/0s",
            "pace 1/36526day",
        ] {
            assert!(matches!(Spec::parse(text), Err(Fault::OutOfRange(_))), "{text}");
        }
        for text in [
            "",
            "60/min",
            "bucket 5",
            "pace 0.5/s",
            "pace 1/s and",
            "fixed 1/h in UTC",
            "bucket 1/s burst",
            "window 1/month",
        ] {
            assert!(matches!(Spec::parse(text), Err(Fault::Syntax(_))), "{text}");
        }
        for text in ["bucket -1/s", "pace 1/s savings -1", "window x/s"] {
            assert_eq!(Spec::parse(text).unwrap_err(), Fault::InvalidCost, "{text}");
        }
    }
}
