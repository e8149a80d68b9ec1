//! When each line would go, without waiting for it.

use std::io::{self, Read, Write};
use std::time::Duration;

use suimon::clock::{Clock, ManualClock};
use suimon_core::{Cost, Timestamp};

use super::lines::Lines;
use super::{Ending, Error, OnError, Options, turn};
use crate::replay::show;
use crate::terminal;

/// Prints the times at which the lines of `input` would go if all of them were
/// there at the start and took no time of their own.
pub(crate) fn dry_run(options: &Options, input: impl Read, out: &mut impl Write) -> Result<Ending, Error> {
    // From zero a limit has the same times in each run; the calendar needs the date.
    let start = if turn::needs_calendar(&options.policy) { turn::wall() } else { Timestamp::ZERO };
    let clock = ManualClock::at(start);
    let limiter = turn::local(&options.policy, clock.clone())?;
    let mut lines = Lines::new(input, options.lines);
    let mut total = Total::default();
    while let Some(batch) = lines.next().map_err(|error| Error::Io(format!("standard input: {error}")))? {
        for line in batch.lines() {
            let (number, checked) = match line {
                Ok(line) => (line.number, options.cost_of(line.text).map(|cost| (line.text, cost))),
                Err(long) => (long.number, Err(options.too_long())),
            };
            let passed = checked.and_then(|(text, cost)| {
                let mut place = limiter.reserve(cost).map_err(|error| options.in_field(&error.to_string()))?;
                clock.advance(place.wait());
                place.wait_until_ready().map_err(|error| error.to_string())?;
                Ok((text, cost))
            });
            match passed {
                Ok((text, cost)) => {
                    let offset = clock.now().saturating_since(start);
                    total.add(offset, cost);
                    let cost = if options.cost.is_some() { format!("  cost {cost}") } else { String::new() };
                    let text = show::short(text);
                    writeln!(out, "{:>14} s  line {number}{cost}  {text}", Seconds(offset))?;
                }
                Err(message) => {
                    terminal::error(&format!("line {number}: {message}"));
                    total.left_out += 1;
                    if options.on_error == OnError::Stop {
                        return finish(&total, options, out);
                    }
                }
            }
        }
        out.flush()?;
    }
    finish(&total, options, out)
}

fn finish(total: &Total, options: &Options, out: &mut impl Write) -> Result<Ending, Error> {
    let cost = if options.cost.is_some() { format!(", cost {}", total.cost) } else { String::new() };
    let left_out = match (total.left_out, options.on_error) {
        (0, _) => String::new(),
        (count, OnError::Skip) => format!(", {count} left out"),
        (_, OnError::Stop) => ", stopped there".to_string(),
    };
    let s = if total.lines == 1 { "" } else { "s" };
    writeln!(out, "{} line{s} in {} s{cost}{left_out}", total.lines, Seconds(total.time))?;
    out.flush()?;
    Ok(if total.left_out == 0 { Ending::Done } else { Ending::Failed })
}

#[derive(Default)]
struct Total {
    lines: u64,
    time: Duration,
    cost: Cost,
    left_out: u64,
}

impl Total {
    fn add(&mut self, offset: Duration, cost: Cost) {
        self.lines += 1;
        self.time = offset;
        self.cost = self.cost.saturating_add(cost);
    }
}

/// A failed write to standard output.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Error::Closed,
            _ => Error::Io(format!("standard output: {error}")),
        }
    }
}

/// Seconds with as many decimals as they have.
struct Seconds(Duration);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{}.{:09}", self.0.as_secs(), self.0.subsec_nanos());
        f.pad(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::cost::Field;
    use crate::pace::lines::Cut;

    fn options(policy: &str) -> Options {
        Options {
            policy: policy.parse().unwrap(),
            lines: Cut { end: b'\n', max: 1 << 20 },
            cost: None,
            on_error: OnError::Skip,
            exec: None,
            shared: None,
            quiet: false,
        }
    }

    fn run(options: &Options, input: &str) -> (Ending, String) {
        let mut out = Vec::new();
        let ending = dry_run(options, input.as_bytes(), &mut out).unwrap();
        (ending, String::from_utf8(out).unwrap())
    }

    /// The offsets in nanoseconds, and the last line.
    fn times(policy: &str, lines: usize) -> (Vec<u64>, String) {
        let (ending, out) = run(&options(policy), &"x\n".repeat(lines));
        assert_eq!(ending, Ending::Done);
        let mut rows: Vec<&str> = out.lines().collect();
        let total = rows.pop().unwrap().to_string();
        let nanos = |row: &str| {
            let text = row.split(" s  line").next().unwrap().trim();
            let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
            whole.parse::<u64>().unwrap() * 1_000_000_000 + format!("{fraction:0<9}").parse::<u64>().unwrap()
        };
        (rows.into_iter().map(nanos).collect(), total)
    }

    #[test]
    fn times_are_exact() {
        let (offsets, total) = times("pace 10/s", 25);
        assert_eq!(offsets, (0..25).map(|n| n * 100_000_000).collect::<Vec<_>>());
        assert_eq!(total, "25 lines in 2.4 s");

        // Not a whole number of nanoseconds, and no drift: rounded up to the next one each time.
        let (offsets, total) = times("pace 7/s", 7001);
        let exact = (0..7001_u128).map(|n| u64::try_from((n * 1_000_000_000).div_ceil(7)).unwrap());
        assert_eq!(offsets, exact.collect::<Vec<_>>());
        assert_eq!(total, "7001 lines in 1000 s");

        assert_eq!(times("bucket 2/s burst 3", 6).0, [0, 0, 0, 500_000_000, 1_000_000_000, 1_500_000_000]);
        assert_eq!(times("window 2/60s", 5).0, [0, 0, 60, 60, 120].map(|seconds| seconds * 1_000_000_000));
        assert_eq!(times("unlimited", 3), (vec![0, 0, 0], "3 lines in 0 s".to_string()));
        assert_eq!(times("pace 1/h", 1).1, "1 line in 0 s");
        assert_eq!(times("pace 1/year", 50).1, "50 lines in 1546322400 s");
        assert_eq!(times("pace 1/s", 0).1, "0 lines in 0 s");
    }

    /// The second line of a day waits for midnight in the named zone.
    #[test]
    fn days_begin_when_the_zone_says_so() {
        let (offsets, _) = times("fixed 1/day in Asia/Kolkata", 3);
        assert_eq!(offsets[0], 0);
        assert_eq!(offsets[2] - offsets[1], 86_400_000_000_000);
        // Half past six in the evening, UTC.
        let midnight = turn::wall().as_nanos() + offsets[1];
        let off = (midnight / 1_000_000_000).abs_diff(midnight / 86_400_000_000_000 * 86_400 + 66_600);
        assert!(off <= 60, "{off} s from midnight");
    }

    #[test]
    fn costs_move_what_comes_behind() {
        let mut options = options("pace 10/s");
        options.cost = Some(Field { number: 2, delimiter: None });
        let (ending, out) = run(&options, "a 5\nb 0\nc 11\nd x\ne 0.5\nf 1\n");
        assert_eq!(ending, Ending::Failed);
        let rows: Vec<&str> = out.lines().map(str::trim).collect();
        assert_eq!(
            rows,
            [
                "0 s  line 1  cost 5  a 5",
                "0 s  line 2  cost 0  b 0",
                "0.5 s  line 5  cost 0.5  e 0.5",
                "0.55 s  line 6  cost 1  f 1",
                "4 lines in 0.55 s, cost 6.5, 2 left out"
            ]
        );
        options.on_error = OnError::Stop;
        let (ending, out) = run(&options, "a 5\nc 11\ne 0.5\n");
        assert_eq!((ending, out.lines().last()), (Ending::Failed, Some("1 line in 0 s, cost 5, stopped there")));
    }

    #[test]
    fn what_never_passes_is_said_before() {
        let error = dry_run(&options("block"), &b"x\n"[..], &mut Vec::new()).unwrap_err();
        assert!(matches!(error, Error::Usage(text) if text.contains("lets nothing pass")));
        let error = dry_run(&options("fixed 1/day in Europe/Atlantis"), &b"x\n"[..], &mut Vec::new()).unwrap_err();
        assert!(matches!(error, Error::Usage(text) if text.contains("Europe/Atlantis")));
    }
}
