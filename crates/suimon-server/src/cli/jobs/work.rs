//! `suimon jobs work`.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use suimon_jobs::{Backoff, Config};

use super::{Db, Ending, Failure};
use crate::cli::values::{parse_policy, parse_time};
use crate::jobs::command::Exec;
use crate::jobs::job::parse_count;
use crate::jobs::log::Loudness;
use crate::jobs::work::{self, Handler, Options, Until};

const EXAMPLES: &str = "\
Examples:
  suimon jobs work --db sqlite:q.db --exec 'call=./call-api --json' --limit 'call=window 10/60s'
  suimon jobs work --db sqlite:q.db --exec 'mail=sh -c \"jq -r .to | xargs send\"' --attempts mail=5 --backoff mail=fixed:30s
  suimon jobs work --db sqlite:q.db --exec 'call=./call-api' --drain";

const DETAILS: &str = "\
The command of a job is run without a shell, in a process group of its own. It gets the payload on standard input, a
line of JSON, and in its environment SUIMON_JOB_ID, SUIMON_JOB_HANDLER, SUIMON_JOB_KEY (empty if it has none) and
SUIMON_JOB_ATTEMPT (from 1). What it prints goes to standard error. It is over when it has ended and its output is
closed. A job runs at least once: after a crash of its worker it may run again.

How it ended:
  exit code 0   done
  exit code 75  (EX_TEMPFAIL) it met a limit, a 429 say: it goes back without using an attempt, and all jobs of its
                key (of its handler, if it has no key) pause, in all workers
  exit code 65  (EX_DATAERR) it failed for good, whatever attempts are left
  otherwise, or by a signal: it failed, and is tried again after the backoff; the last five lines of its standard
                error are kept with the job

The last line of its standard output may be a JSON object:
  {\"retry_after\": 12.5}                    with exit code 75: the seconds of the pause, at most a day; 60 without it
  {\"limited\": true, \"retry_after\": 12.5}   the same with any exit code
  {\"cost\": 123}                            what the job really cost in its limits, instead of what was booked
A last line `retry-after: SECONDS` is understood with exit code 75, too, as by `suimon pace`.

A command that takes longer than its --timeout is asked to end with all that it has started (SIGTERM), and killed five
seconds later; the job has failed. Ctrl-C or SIGTERM: nothing more is started, and what runs has --grace to end; then it
is ended in the same way and given back without using an attempt. A second signal kills it at once.";

const EXIT_CODES: &str = "\
Exit codes:
  0    it has stopped in order: by a first Ctrl-C or SIGTERM, or with --once or --drain
  1    with --once or --drain a run failed, whether it is tried again or not; or the database could not be asked
  2    the command line is wrong
  130  a second signal, Ctrl-C (SIGINT), has ended it
  143  the same, by SIGTERM";

/// Run the jobs of some handlers, each by a command.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{DETAILS}\n\n{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(super) struct Args {
    #[command(flatten)]
    db: Db,

    /// Run the jobs of a handler by this command; may be given several times.
    ///
    /// Split into words as a shell does, quotes included.
    #[arg(short, long, value_name = "HANDLER=COMMAND", required = true, value_parser = parse_pair)]
    exec: Vec<(String, String)>,

    /// The limit of a handler over all workers, as `call=window 10/60s`; several are joined with `and`.
    ///
    /// One given at dispatch goes before it, and one set by `suimon jobs limit` before both. Of
    /// several workers the last that starts counts: without the option it takes away what another had given.
    #[arg(long, value_name = "HANDLER=LIMIT", value_parser = parse_pair)]
    limit: Vec<(String, String)>,

    /// The limit that each key of a handler has.
    #[arg(long, value_name = "HANDLER=LIMIT", value_parser = parse_pair)]
    key_limit: Vec<(String, String)>,

    /// Which runs the limits of a handler count: `started`, which is the default, or `completed`.
    #[arg(long, value_name = "HANDLER=WHICH", value_parser = parse_pair)]
    count: Vec<(String, String)>,

    /// How many jobs of a handler may run at a time over all workers.
    #[arg(long, value_name = "HANDLER=N", value_parser = parse_pair)]
    concurrency: Vec<(String, String)>,

    /// How often a job of a handler is tried in all; 3 without it.
    #[arg(long, value_name = "HANDLER=N", value_parser = parse_pair)]
    attempts: Vec<(String, String)>,

    /// The longest that a command of a handler may take, as `call=30s`.
    #[arg(long, value_name = "HANDLER=TIME", value_parser = parse_pair)]
    timeout: Vec<(String, String)>,

    /// The pause before a job is tried again: `fixed:5s`, `linear:5s` or `exponential:1s..1h`, which is the default.
    #[arg(long, value_name = "HANDLER=BACKOFF", value_parser = parse_pair)]
    backoff: Vec<(String, String)>,

    /// How many commands may run at a time here.
    #[arg(long, value_name = "N", default_value = "16")]
    slots: NonZeroUsize,

    /// How long a job is held without a sign of life of its worker before another takes it up.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    lease: Duration,

    /// How long commands may go on when the worker is told to stop.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time)]
    grace: Duration,

    /// How long jobs that have been done are kept.
    #[arg(long, value_name = "TIME", default_value = "7day", value_parser = parse_time)]
    keep_done: Duration,

    /// Let jobs fail that have no --exec here; otherwise they wait for a worker that serves them.
    #[arg(long)]
    fail_unknown: bool,

    /// Run one job, if one can start now, and end.
    #[arg(long)]
    once: bool,

    /// Run jobs until none can start now, and end; what waits for its time or its limit stays.
    #[arg(long, conflicts_with = "once")]
    drain: bool,

    /// Print nothing of its own on standard error but warnings and errors.
    #[arg(short, long)]
    quiet: bool,

    /// Print also what starts.
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
}

pub(super) async fn run(args: Args) -> Result<Ending, Failure> {
    let options = options(&args)?;
    let queue = args.db.open().await?;
    Ok(match work::work(&queue, options).await? {
        work::Ending::Done => Ending::Done,
        work::Ending::SomeFailed => Ending::SomeFailed,
        work::Ending::Signal(signal) => Ending::Signal(signal),
    })
}

fn options(args: &Args) -> Result<Options, Failure> {
    let mut handlers: BTreeMap<&str, (Exec, Config)> = BTreeMap::new();
    for (name, text) in &args.exec {
        let exec = Exec::parse(text).map_err(|error| Failure::Usage(format!("--exec {name}: {error}")))?;
        if !is_there(&exec.words[0]) {
            let why = format!("--exec {name}: there is no program `{}`", exec.words[0]);
            return Err(Failure::Usage(why));
        }
        if handlers.insert(name, (exec, Config::new())).is_some() {
            return Err(Failure::Usage(format!("--exec {name}: there are two commands for this handler")));
        }
    }
    let mut set = |option: &str, given: &[(String, String)], set: Setter| {
        let mut seen = Vec::new();
        for (name, text) in given {
            let Some((exec, config)) = handlers.get_mut(&**name) else {
                return Err(Failure::Usage(format!("{option}: there is no --exec for the handler `{name}`")));
            };
            if seen.contains(&name) {
                return Err(Failure::Usage(format!("{option}: it is given twice for the handler `{name}`")));
            }
            seen.push(name);
            *config = set(text, exec, config.clone())
                .map_err(|error| Failure::Usage(format!("{option} {name}={text}: {error}")))?;
        }
        Ok(())
    };
    set("--limit", &args.limit, |text, _, config| Ok(config.limit(text)))?;
    set("--key-limit", &args.key_limit, |text, _, config| Ok(config.key_limit(text)))?;
    set("--count", &args.count, |text, _, config| Ok(config.count(parse_count(text)?)))?;
    set("--concurrency", &args.concurrency, |text, _, config| Ok(config.concurrency(parse_number(text)?)))?;
    set("--attempts", &args.attempts, |text, _, config| Ok(config.attempts(parse_number(text)?)))?;
    set("--backoff", &args.backoff, |text, _, config| Ok(config.backoff(parse_backoff(text)?)))?;
    set("--timeout", &args.timeout, |text, exec, config| {
        let time = parse_time(text)?;
        if time.is_zero() {
            return Err("a timeout is longer than nothing".to_string());
        }
        // The command is ended in good order here, so the queue is not told.
        exec.timeout = Some(time);
        Ok(config)
    })?;
    for (name, text) in args.limit.iter().chain(&args.key_limit) {
        parse_policy(&format!("the limit of `{name}`"), text)?;
    }
    Ok(Options {
        handlers: handlers
            .into_iter()
            .map(|(name, (exec, config))| Handler { name: name.to_string(), exec, config })
            .collect(),
        slots: args.slots.get(),
        lease: args.lease,
        grace: args.grace,
        keep_done: args.keep_done,
        fails_unknown: args.fail_unknown,
        until: match (args.once, args.drain) {
            (true, _) => Until::One,
            (false, true) => Until::Idle,
            (false, false) => Until::Never,
        },
        loudness: match (args.quiet, args.verbose) {
            (true, _) => Loudness::Quiet,
            (false, true) => Loudness::Verbose,
            (false, false) => Loudness::Usual,
        },
    })
}

/// Changes what a handler is by the text of an option.
type Setter = fn(&str, &mut Exec, Config) -> Result<Config, String>;

/// Can a program be found, as the system will look for it?
fn is_there(program: &str) -> bool {
    if program.contains('/') || cfg!(windows) {
        return cfg!(windows) || Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((handler, value)) if !handler.is_empty() => Ok((handler.to_string(), value.to_string())),
        _ => Err("it begins with a handler and `=`, as in `call=...`".to_string()),
    }
}

fn parse_number(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number @ 1..=1_000_000) => Ok(number),
        _ => Err("allowed is a whole number from 1 to 1000000".to_string()),
    }
}

/// `fixed:5s`, `linear:5s`, `exponential:1s..1h`.
fn parse_backoff(text: &str) -> Result<Backoff, String> {
    let (kind, times) = text.split_once(':').unwrap_or((text, ""));
    match (kind, times.split_once("..")) {
        ("fixed", None) => Ok(Backoff::Fixed(parse_time(times)?)),
        ("linear", None) => Ok(Backoff::Linear(parse_time(times)?)),
        ("exponential", Some((first, longest))) => {
            Ok(Backoff::Exponential { first: parse_time(first)?, longest: parse_time(longest)? })
        }
        _ => Err("allowed are `fixed:5s`, `linear:5s` and `exponential:1s..1h`".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoffs() {
        let secs = Duration::from_secs;
        assert_eq!(parse_backoff("fixed:5s"), Ok(Backoff::Fixed(secs(5))));
        assert_eq!(parse_backoff("linear:1min"), Ok(Backoff::Linear(secs(60))));
        let doubling = Backoff::Exponential { first: secs(1), longest: secs(3600) };
        assert_eq!(parse_backoff("exponential:1s..1h"), Ok(doubling));
        for bad in ["", "5s", "fixed", "fixed:5", "fixed:1s..2s", "exponential:1s", "exponential:1s..", "square:1s"] {
            assert!(parse_backoff(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn programs_are_looked_for() {
        assert!(is_there("cargo") && !is_there("no-such-program-here") && !is_there("./no-such-program-here"));
    }
}
