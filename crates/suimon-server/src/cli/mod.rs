//! The command line: what may be asked, and the exit codes.

#[cfg(feature = "jobs")]
mod jobs;
mod pace;
mod progress;
mod replay;
mod sample;
pub(crate) mod values;

use crate::terminal;
use clap::{ColorChoice, Parser, Subcommand};
use std::io;
use std::process::ExitCode;

/// The exit codes, which are part of the interface.
const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  a log could not be read, or not to its end, or a report could not be written
  2  the command line is wrong: an option, a policy, a field
  3  more was refused than --fail-over allows
`suimon pace` and `suimon jobs` have their own: see their --help";

const EXAMPLES: &str = "\
Examples:
  suimon                                    what it does, on a log that is built in
  suimon replay --policy 'bucket 2/s burst 20' --key client access.log
  suimon replay --policy 'fixed 1000/day' --key user.id --cost tokens api.jsonl.gz
  suimon sample | suimon replay --policy 'pace 60/min' --key client,path -
  suimon pace 'pace 10/s' < urls.txt | xargs -n1 curl -sS
  suimon jobs work --db sqlite:q.db --exec 'call=./call-api' --limit 'call=window 10/60s'";

/// A rate limiter, and what a limit would have done to your traffic.
#[derive(Debug, Parser)]
#[command(name = "suimon", version, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
struct Cli {
    /// Colours: on a terminal (and not with NO_COLOR), always or never.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Replay(Box<replay::Args>),
    Pace(Box<pace::Args>),
    #[cfg(feature = "jobs")]
    Jobs(jobs::Args),
    Sample(sample::Args),
}

/// Why the command failed, and with which exit code.
#[derive(Debug)]
enum Failure {
    /// What was asked for is wrong.
    Usage(String),
    /// Something could not be read or written.
    Io(String),
    /// Whoever reads standard output has stopped: that is no failure, and nothing
    /// is left to be said.
    Closed,
}

impl From<crate::replay::Error> for Failure {
    fn from(error: crate::replay::Error) -> Failure {
        if error.is_usage() { Failure::Usage(error.to_string()) } else { Failure::Io(error.to_string()) }
    }
}

impl From<crate::pace::Error> for Failure {
    fn from(error: crate::pace::Error) -> Failure {
        match error {
            crate::pace::Error::Usage(message) => Failure::Usage(message),
            crate::pace::Error::Io(message) => Failure::Io(message),
            crate::pace::Error::Closed => Failure::Closed,
        }
    }
}

/// A failed write to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Io(format!("standard output: {error}")),
        }
    }
}

/// How a command that ran its course ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Done,
    /// It is reported, but an input could not be read to its end.
    Incomplete,
    /// More was refused than may be.
    OverThreshold,
    /// Lines were left out, or commands failed; that has been said.
    SomeFailed,
    /// A signal with this number ended it, in order.
    Signal(i32),
}

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Clap prints help to standard output with 0, and errors with 2.
        Err(error) => error.exit(),
    };
    terminal::set_colors(cli.color);
    let ending = match cli.command {
        None => replay::demo(),
        Some(Command::Replay(args)) => replay::run(&args),
        Some(Command::Pace(args)) => pace::run(&args),
        #[cfg(feature = "jobs")]
        Some(Command::Jobs(args)) => jobs::run(args),
        Some(Command::Sample(args)) => sample::run(&args),
    };
    match ending {
        Ok(Ending::Done) | Err(Failure::Closed) => ExitCode::SUCCESS,
        Ok(Ending::Incomplete | Ending::SomeFailed) => ExitCode::from(1),
        // As a shell reports it: there are fewer than 128 signals.
        Ok(Ending::Signal(signal)) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
        Ok(Ending::OverThreshold) => ExitCode::from(3),
        Err(Failure::Io(message)) => {
            terminal::error(&message);
            ExitCode::from(1)
        }
        Err(Failure::Usage(message)) => {
            terminal::error(&message);
            ExitCode::from(2)
        }
    }
}
