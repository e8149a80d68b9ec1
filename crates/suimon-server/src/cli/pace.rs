//! `suimon pace`: lines, or a command for each, at a limit.

use super::values::{parse_policy, parse_time};
use super::{Ending, Failure};
use crate::pace::{self, OnError, Options, cost, dry_run, exec, lines};
use clap::ValueEnum;
use std::io::{self, BufWriter};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  suimon pace 'pace 10/s' < urls.txt | xargs -n1 curl -sS
  suimon pace 'bucket 60/min burst 10' --exec 'curl -sS -o /dev/null {}' --jobs 4 --retries 3 < urls.txt
  suimon pace 'pace 90000/min' --cost-field 2 --dry-run < prompts.tsv
  find . -name '*.jpg' -print0 | suimon pace 'pace 2/s' --null --exec 'upload {}'
  suimon pace 'fixed 1000/day in Europe/Paris' < mails.txt | while read -r to; do send \"$to\"; done
  suimon pace 'pace 10/s' --shared /run/lock/api.limit < urls.txt | xargs -n1 curl -sS";

const EXIT_CODES: &str = "\
Exit codes:
  0    all lines have gone and their commands succeeded, or whoever reads standard output has stopped
  1    a line was left out or its command failed (after its retries), or something could not be read or written
  2    the command line is wrong: an option, a limit
  130  ended by Ctrl-C (SIGINT)
  143  ended by SIGTERM";

const DETAILS: &str = "\
Lines are bytes: they come out as they went in, each as soon as its turn has come. Empty lines count as others do.
A line costs 1, or what --cost-field says. The first goes at once. At most three pieces of the input, each up to
--max-line, are in memory.

With --exec, no shell is involved: for one, say --exec 'sh -c \"...\" sh {}'. The output of commands comes out as
they print it, with --jobs line by line. A command is over when it has ended and its output is closed. One that
ends with code 75 (EX_TEMPFAIL) has been limited: if its last line is `retry-after: SECONDS` (on standard error,
else on standard output), nothing starts for so long (at most a day), otherwise for 1 s, then 2 s and so on up to a
minute. Then its line is run again, up to 100 times; that uses no retry. Each run takes its turn and its cost.

Ctrl-C or SIGTERM: no more lines, running commands may end, and which line is the next is said. The second time
they are killed.

With --shared, all that name the same file on a machine share its limit: who came first to the file goes first. One
that is killed while it waits loses its turn, the others go on. A file that is not one of these, damaged, or made
for another limit is an error and stays as it is. A clock that is put back does no harm: nothing passes that would
not have passed, and who waits, waits no longer.";

/// Let lines pass at a limit, or run a command for each.
///
/// Reads lines from standard input and prints each when its turn has come, so that
/// whatever reads them (xargs, a loop of the shell) is held to the limit. With
/// --exec the commands are run from here, with retries and several at a time.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{DETAILS}\n\n{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(super) struct Args {
    /// The limit, as `pace 10/s`, `bucket 60/min burst 10`, `window 100/60s`, `fixed 1000/day in Europe/Paris`.
    ///
    /// Several limits are joined with `and`.
    #[arg(value_name = "LIMIT")]
    policy: String,

    /// Run this command for each line; `{}` stands for the line.
    ///
    /// Split into words as a shell does, quotes included. Without a `{}` the command
    /// gets the line on standard input.
    #[arg(short, long, value_name = "COMMAND")]
    exec: Option<String>,

    /// How many commands may run at a time.
    #[arg(short, long, value_name = "N", default_value = "1", requires = "exec")]
    jobs: NonZeroUsize,

    /// How often a command that failed is run again.
    #[arg(short, long, value_name = "N", default_value_t = 0, requires = "exec")]
    retries: u32,

    /// The wait before the first retry, as `500ms`; doubled each time, at most a minute.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time, requires = "exec")]
    retry_delay: Duration,

    /// The field of a line with its cost, a decimal; 1 is the first.
    #[arg(short, long, value_name = "N")]
    cost_field: Option<NonZeroUsize>,

    /// What stands between fields, one byte, `\t` for a tab; without it any white space.
    #[arg(short, long, value_name = "C", value_parser = parse_delimiter, requires = "cost_field")]
    delimiter: Option<u8>,

    /// What to do about a line without a cost that can pass, or one that is too long.
    #[arg(long, value_name = "WHAT", default_value = "stop")]
    on_error: OnErrorArg,

    /// Lines end with NUL, not with a newline.
    #[arg(short = '0', long)]
    null: bool,

    /// The longest line, as `64MiB`.
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = parse_size)]
    max_line: usize,

    /// Share the limit with all processes of this machine that name this file; made if there is none.
    ///
    /// For limits of `pace` and `bucket`, and several of them joined with `and`.
    #[arg(long, value_name = "FILE")]
    shared: Option<PathBuf>,

    /// Print when each line would go, without waiting and without running anything.
    ///
    /// As if all lines were there at the start and took no time of their own.
    #[arg(short = 'n', long, conflicts_with = "shared")]
    dry_run: bool,

    /// Print nothing on standard error but errors.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnErrorArg {
    /// Report it and end before it
    Stop,
    /// Report it and leave it out
    Skip,
}

/// Passes standard input on.
pub(super) fn run(args: &Args) -> Result<Ending, Failure> {
    let options = options(args)?;
    let ending = if args.dry_run {
        dry_run::dry_run(&options, io::stdin().lock(), &mut BufWriter::new(io::stdout().lock()))?
    } else {
        pace::run::run(&options, io::stdin())?
    };
    Ok(match ending {
        pace::Ending::Done => Ending::Done,
        pace::Ending::Failed => Ending::SomeFailed,
        pace::Ending::Signal(signal) => Ending::Signal(signal),
    })
}

fn options(args: &Args) -> Result<Options, Failure> {
    let template = args.exec.as_deref().map(exec::Template::parse).transpose();
    let template = template.map_err(|error| Failure::Usage(format!("--exec: {error}")))?;
    Ok(Options {
        policy: parse_policy("the limit", &args.policy)?,
        lines: lines::Cut { end: if args.null { 0 } else { b'\n' }, max: args.max_line },
        cost: args.cost_field.map(|number| cost::Field { number: number.get(), delimiter: args.delimiter }),
        on_error: match args.on_error {
            OnErrorArg::Stop => OnError::Stop,
            OnErrorArg::Skip => OnError::Skip,
        },
        exec: template.map(|template| exec::Options {
            template,
            jobs: args.jobs.get(),
            retries: args.retries,
            delay: args.retry_delay,
        }),
        shared: args.shared.clone(),
        quiet: args.quiet,
    })
}

/// One byte, or the names that it has in many languages.
fn parse_delimiter(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        ("\\t", _) => Ok(b'\t'),
        ("\\0", _) => Ok(0),
        (_, [byte]) => Ok(*byte),
        _ => Err("a delimiter is one byte, as `,`, or `\\t` for a tab".to_string()),
    }
}

/// `4096`, `64KiB`: a whole number, with a unit or as bytes.
fn parse_size(text: &str) -> Result<usize, String> {
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale: usize = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return Err("a size is a whole number of bytes, KiB, MiB or GiB, as in `64MiB`".to_string()),
    };
    let number: usize = number.parse().map_err(|_| "a size is a whole number, as in `64MiB`".to_string())?;
    let bytes = number.checked_mul(scale).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "the longest line is from 1 byte to what memory can be addressed".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_delimiters() {
        let sizes = ["1", "64MiB", "2k", "3 KiB", "1g"].map(|text| parse_size(text).unwrap());
        assert_eq!(sizes, [1, 64 << 20, 2048, 3072, 1 << 30]);
        for bad in ["", "0", "x", "1.5MiB", "-1", "64MB", "99999999999999999999", "99999999999g"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        let delimiters = [",", "\\t", "\t", "\\0", " "].map(|text| parse_delimiter(text).unwrap());
        assert_eq!(delimiters, [b',', b'\t', b'\t', 0, b' ']);
        for bad in ["", "ab", "é", "\\n"] {
            assert!(parse_delimiter(bad).is_err(), "{bad}");
        }
    }
}
