//! Instants as logs write them, read to the nanosecond since the Unix epoch.
//!
//! Nothing here allocates: a log of a million lines is a million dates, and
//! most of them repeat the minute of the line before, which [`ClfClock`] keeps.

use super::Cause;

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// What lies beyond is a damaged line rather than a date: the year 2200. The
/// deciding core counts in 64 bits, and up to here no rate can overflow them.
const END_OF_TIME: i128 = 7_258_118_400 * SECOND as i128;

/// What a bare number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Unit {
    /// Told by its size: seconds up to the year 5138, then ms, us and ns.
    #[default]
    Auto,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
}

impl Unit {
    /// Nanoseconds in one, for a number with this whole part.
    fn nanos(self, whole: u128) -> u128 {
        match self {
            Unit::Seconds => 1_000_000_000,
            Unit::Millis => 1_000_000,
            Unit::Micros => 1_000,
            Unit::Nanos => 1,
            Unit::Auto if whole < 100_000_000_000 => 1_000_000_000,
            Unit::Auto if whole < 100_000_000_000_000 => 1_000_000,
            Unit::Auto if whole < 100_000_000_000_000_000 => 1_000,
            Unit::Auto => 1,
        }
    }
}

/// Reads any of the known spellings: RFC 3339 (`T` or a space, any fraction,
/// UTC where no zone is given), a number, or the date of a web server's log.
pub fn parse(text: &[u8], unit: Unit, clf: &mut ClfClock) -> Result<u64, Cause> {
    let text = text.trim_ascii();
    match text {
        [] => Err("the time is empty".into()),
        [_, _, b'/', ..] => clf.parse(text),
        [b'[', inner @ .., b']'] => clf.parse(inner),
        [a, b, c, d, b'-', ..] if [a, b, c, d].iter().all(|byte| byte.is_ascii_digit()) => rfc3339(text),
        _ => number(text, unit),
    }
}

/// Reads `17/May/2015:10:05:03 +0000`, remembering what the minute came to.
#[derive(Debug, Default)]
pub struct ClfClock {
    /// `17/May/2015:10:05` and ` +0000`.
    minute: [u8; 17],
    zone: [u8; 6],
    /// The nanoseconds at which that minute began.
    start: u64,
}

/// The length of the date of a web server's log, without its brackets.
pub const CLF_LEN: usize = 26;

impl ClfClock {
    /// Reads one date, of exactly [`CLF_LEN`] bytes.
    pub fn parse(&mut self, text: &[u8]) -> Result<u64, Cause> {
        let bad = || Cause::from("the time is not like 17/May/2015:10:05:03 +0000");
        if text.len() != CLF_LEN {
            return Err(bad());
        }
        let (Some(minute), Some(zone)) = (text.first_chunk::<17>(), text.last_chunk::<6>()) else { return Err(bad()) };
        if *minute != self.minute || *zone != self.zone {
            self.start = clf_minute(minute, zone)?;
            self.minute = *minute;
            self.zone = *zone;
        }
        let [b':', tens, ones] = text[17..20] else { return Err(bad()) };
        let second = two(tens, ones).filter(|&second| second <= 60).ok_or_else(bad)?;
        Ok(self.start + u64::from(second) * SECOND)
    }
}

fn clf_minute(minute: &[u8; 17], zone: &[u8; 6]) -> Result<u64, Cause> {
    let bad = || Cause::from("the time is not like 17/May/2015:10:05:03 +0000");
    let &[d1, d2, b'/', m1, m2, m3, b'/', y1, y2, y3, y4, b':', h1, h2, b':', n1, n2] = minute else {
        return Err(bad());
    };
    let &[b' ', sign, z1, z2, z3, z4] = zone else { return Err(bad()) };
    let month = MONTHS.iter().position(|name| *name == [m1, m2, m3]).ok_or_else(bad)?;
    let year = two(y1, y2).zip(two(y3, y4)).map(|(high, low)| high * 100 + low).ok_or_else(bad)?;
    let day = two(d1, d2).ok_or_else(bad)?;
    let clock = two(h1, h2).zip(two(n1, n2)).ok_or_else(bad)?;
    let offset = offset(sign, two(z1, z2).zip(two(z3, z4))).ok_or_else(bad)?;
    instant((year, month as u32 + 1, day), (clock.0, clock.1, 0), 0, offset)
}

const MONTHS: [[u8; 3]; 12] =
    [*b"Jan", *b"Feb", *b"Mar", *b"Apr", *b"May", *b"Jun", *b"Jul", *b"Aug", *b"Sep", *b"Oct", *b"Nov", *b"Dec"];

fn rfc3339(text: &[u8]) -> Result<u64, Cause> {
    let bad = || Cause::from("the time is not like 2015-05-17T10:05:03.25Z");
    let (head, mut rest) = text.split_at_checked(19).ok_or_else(bad)?;
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T' | b't' | b' ', h1, h2, b':', n1, n2, b':', s1, s2] = head
    else {
        return Err(bad());
    };
    let year = two(y1, y2).zip(two(y3, y4)).map(|(high, low)| high * 100 + low).ok_or_else(bad)?;
    let (month, day) = two(m1, m2).zip(two(d1, d2)).ok_or_else(bad)?;
    let (hour, minute) = two(h1, h2).zip(two(n1, n2)).ok_or_else(bad)?;
    let second = two(s1, s2).ok_or_else(bad)?;

    let mut nanos = 0;
    if let [b'.' | b',', fraction @ ..] = rest {
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Err(bad());
        }
        // Beyond nanoseconds a date is cut, as clocks do.
        let places = fraction[..digits].iter().map(|digit| digit - b'0').chain(std::iter::repeat(0));
        nanos = places.take(9).fold(0, |sum, digit| sum * 10 + u64::from(digit));
        rest = &fraction[digits..];
    }
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    let offset = match *rest {
        [] | [b'Z' | b'z'] | [b'U', b'T', b'C'] => Some(0),
        [sign, z1, z2] => offset(sign, two(z1, z2).zip(Some(0))),
        [sign, z1, z2, z3, z4] | [sign, z1, z2, b':', z3, z4] => offset(sign, two(z1, z2).zip(two(z3, z4))),
        _ => None,
    };
    instant((year, month, day), (hour, minute, second), nanos, offset.ok_or_else(bad)?)
}

/// `1431857103`, `1431857103.25`, `1431857103250`, `1.43185710325e9`.
fn number(text: &[u8], unit: Unit) -> Result<u64, Cause> {
    let bad = || Cause::from("the time is neither a date nor a number");
    if text.first() == Some(&b'-') {
        return Err("the time lies before 1970".into());
    }
    let Decimal { digits, exponent } = Decimal::parse(text).ok_or_else(bad)?;
    let whole = if exponent >= 0 { digits.checked_mul(power(exponent)) } else { Some(digits / power(-exponent)) };
    let scaled = digits.checked_mul(unit.nanos(whole.unwrap_or(u128::MAX)));
    let nanos = scaled.and_then(|scaled| {
        if exponent >= 0 { scaled.checked_mul(power(exponent)) } else { Some(scaled / power(-exponent)) }
    });
    checked(nanos.and_then(|nanos| i128::try_from(nanos).ok()).unwrap_or(i128::MAX))
}

/// A non-negative decimal number: `digits` x 10^`exponent`.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    /// All its digits, as if there were no point.
    pub digits: u128,
    /// Where the point is.
    pub exponent: i32,
}

impl Decimal {
    /// Reads `12`, `1.25`, `.5` or `12e-1`. Digits beyond the 28th are dropped
    /// if they stand behind the point; more before it are no number.
    pub fn parse(text: &[u8]) -> Option<Decimal> {
        let text = text.strip_prefix(b"+").unwrap_or(text);
        let (mut digits, mut exponent, mut seen, mut point) = (0_u128, 0_i32, 0, false);
        let mut bytes = text.iter();
        while let Some(&byte) = bytes.next() {
            match byte {
                b'0'..=b'9' if digits < 10_u128.pow(27) => {
                    digits = digits * 10 + u128::from(byte - b'0');
                    exponent -= i32::from(point);
                    seen += 1;
                }
                b'0'..=b'9' if point => {}
                b'.' if !point => point = true,
                b'e' | b'E' if seen > 0 => {
                    let rest = std::str::from_utf8(bytes.as_slice()).ok()?;
                    let stated: i32 = rest.parse().ok().filter(|stated| (-60..=60).contains(stated))?;
                    return Some(Decimal { digits, exponent: exponent + stated });
                }
                _ => return None,
            }
        }
        (seen > 0).then_some(Decimal { digits, exponent })
    }
}

/// 10^`exponent`, as large as 128 bits hold.
pub fn power(exponent: i32) -> u128 {
    10_u128.saturating_pow(exponent.unsigned_abs())
}

fn two(tens: u8, ones: u8) -> Option<u32> {
    (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| u32::from(tens - b'0') * 10 + u32::from(ones - b'0'))
}

/// The seconds that a zone is ahead of UTC.
fn offset(sign: u8, time: Option<(u32, u32)>) -> Option<i64> {
    let (hours, minutes) = time?;
    let seconds = i64::from(hours) * 3600 + i64::from(minutes) * 60;
    match sign {
        _ if hours > 23 || minutes > 59 => None,
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

fn instant(
    (year, month, day): (u32, u32, u32),
    (hour, minute, second): (u32, u32, u32),
    nanos: u64,
    offset: i64,
) -> Result<u64, Cause> {
    if !(1..=12).contains(&month) || day == 0 || day > days_in(year, month) {
        return Err("there is no such day".into());
    }
    // A leap second counts as the first second of the next minute.
    if hour > 23 || minute > 59 || second > 60 {
        return Err("there is no such time of day".into());
    }
    let seconds =
        days_from_civil(i64::from(year), month, day) * 86_400 + i64::from(hour * 3600 + minute * 60 + second) - offset;
    checked(i128::from(seconds) * i128::from(SECOND) + i128::from(nanos))
}

fn checked(nanos: i128) -> Result<u64, Cause> {
    if nanos < 0 {
        return Err("the time lies before 1970".into());
    }
    if nanos >= END_OF_TIME {
        return Err("the time lies beyond the year 2199".into());
    }
    u64::try_from(nanos).map_err(|_| "the time lies beyond the year 2199".into())
}

fn days_in(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar. Years begin in
/// March, so that the leap day is the last of its year.
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = i64::from((month + 9) % 12);
    let of_year = (153 * from_march + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date of a day since 1970-01-01: the inverse.
fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    (year, month as u32, day as u32)
}

/// An instant as `2015-05-17 10:05:03`, in UTC, with as many digits of a second as it needs.
pub fn show(nanos: u64) -> String {
    let (seconds, fraction) = (nanos / SECOND, nanos % SECOND);
    let (year, month, day) = civil_from_days((seconds / 86_400) as i64);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
    if fraction != 0 {
        text.push_str(format!(".{fraction:09}").trim_end_matches('0'));
    }
    text
}

/// An instant in RFC 3339, as machines read it.
pub fn show_rfc3339(nanos: u64) -> String {
    show(nanos).replace(' ', "T") + "Z"
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<u64, String> {
        parse(text.as_bytes(), Unit::Auto, &mut ClfClock::default()).map_err(|cause| cause.to_string())
    }

    #[test]
    fn every_spelling_of_one_instant() {
        let instant = 1_431_857_103_250_000_000;
        for text in [
            "2015-05-17T10:05:03.25Z",
            "2015-05-17 10:05:03,25",
            "2015-05-17T12:05:03.250+02:00",
            "2015-05-17 12:05:03.25 +0200",
            "2015-05-17t05:35:03.25-0430",
            "2015-05-17 10:05:03.25 UTC",
            "1431857103.25",
            "1431857103250",
            "1431857103250000",
            "1431857103250000000",
            "1.43185710325e9",
            " 143185710325E-2 ",
        ] {
            assert_eq!(read(text), Ok(instant), "{text}");
        }
        assert_eq!(read("17/May/2015:10:05:03 +0000"), Ok(1_431_857_103 * SECOND));
        assert_eq!(read("[17/May/2015:03:05:03 -0700]"), Ok(1_431_857_103 * SECOND));
        assert_eq!(read("2016-12-31T23:59:60Z"), read("2017-01-01T00:00:00Z"));
    }

    #[test]
    fn what_is_no_time_says_so() {
        for (text, cause) in [
            ("", "empty"),
            ("yesterday", "neither a date nor a number"),
            ("-1", "before 1970"),
            ("1969-12-31T23:59:59Z", "before 1970"),
            ("2200-01-01T00:00:00Z", "beyond the year 2199"),
            ("1e40", "beyond the year 2199"),
            ("99999999999999999999999999999999999999999", "neither"),
            ("2015-02-29T00:00:00Z", "no such day"),
            ("2015-05-17T24:00:00Z", "no such time"),
            ("2015-05-17T10:05:03.Z", "not like 2015"),
            ("2015-05-17T10:05:03+25:00", "not like 2015"),
            ("17/Mai/2015:10:05:03 +0000", "not like 17/May"),
            ("17/May/2015:10:05:03", "not like 17/May"),
            ("17/May/2015:10:05:61 +0000", "not like 17/May"),
        ] {
            let said = read(text).expect_err(text);
            assert!(said.contains(cause), "{text}: {said}");
        }
    }

    #[test]
    fn a_stated_unit_is_obeyed() {
        let mut clf = ClfClock::default();
        assert_eq!(parse(b"5", Unit::Millis, &mut clf).unwrap(), 5_000_000);
        assert_eq!(parse(b"5.5", Unit::Micros, &mut clf).unwrap(), 5_500);
        assert_eq!(parse(b"5", Unit::Nanos, &mut clf).unwrap(), 5);
        assert_eq!(parse(b"200000000000", Unit::Nanos, &mut clf).unwrap(), 200_000_000_000);
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(nanos in 0..(END_OF_TIME as u64)) {
            prop_assert_eq!(read(&show(nanos)), Ok(nanos));
            prop_assert_eq!(read(&show_rfc3339(nanos)), Ok(nanos));
        }

        #[test]
        fn the_remembered_minute_changes_nothing(seconds in prop::collection::vec((0_u64..4_000_000_000, any::<bool>()), 1..20)) {
            let mut warm = ClfClock::default();
            for (at, near) in seconds {
                let at = if near { at % 90 } else { at };
                let (year, month, day) = civil_from_days((at / 86_400) as i64);
                let name = std::str::from_utf8(&MONTHS[month as usize - 1]).unwrap();
                let text = format!("{day:02}/{name}/{year}:{:02}:{:02}:{:02} +0000", at / 3600 % 24, at / 60 % 60, at % 60);
                prop_assert_eq!(warm.parse(text.as_bytes()).unwrap(), at * SECOND);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(text in prop::collection::vec(any::<u8>(), 0..40), like in "[0-9]{0,4}[-/.e][0-9A-Za-z]{0,3}[-/][0-9]{0,4}[T: ][0-9:.+Z -]{0,18}") {
            let _ = parse(&text, Unit::Auto, &mut ClfClock::default());
            let _ = parse(like.as_bytes(), Unit::Auto, &mut ClfClock::default());
        }
    }
}
