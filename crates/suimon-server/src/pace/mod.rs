//! Lines passed on, or commands run, at a limit: the work behind `suimon pace`.
//!
//! One thread reads ([`lines`]), one decides ([`run`]): it takes a line, waits for
//! its turn ([`turn`]) and prints it or starts its command ([`exec`]), which a
//! thread of its own looks after. Signals ([`signals`]) end all of it through one
//! [`Stop`](stop::Stop).

pub(crate) mod cost;
pub(crate) mod dry_run;
pub(crate) mod exec;
mod job;
pub(crate) mod lines;
pub(crate) mod progress;
pub(crate) mod run;
pub(crate) mod shared;
mod signals;
mod stop;
pub(crate) mod turn;

use std::path::PathBuf;
use std::time::Duration;

use suimon_core::{Cost, Policy};

/// What `suimon pace` was asked for.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) policy: Policy,
    pub(crate) lines: lines::Cut,
    pub(crate) cost: Option<cost::Field>,
    pub(crate) on_error: OnError,
    pub(crate) exec: Option<exec::Options>,
    /// The file through which several processes share the limit.
    pub(crate) shared: Option<PathBuf>,
    pub(crate) quiet: bool,
}

impl Options {
    /// What a line costs.
    fn cost_of(&self, line: &[u8]) -> Result<Cost, String> {
        self.cost.map_or(Ok(Cost::ONE), |field| field.cost(line))
    }

    /// An error about a cost, with the field that the cost comes from.
    fn in_field(&self, error: &str) -> String {
        self.cost.map_or_else(|| error.to_string(), |field| format!("field {}: {error}", field.number))
    }

    /// What is wrong with a line that is too long.
    fn too_long(&self) -> String {
        let max = self.lines.max;
        format!("it is longer than {max} bytes; allow longer lines with --max-line, or use --null if NUL ends them")
    }
}

/// What becomes of the run when a line has no cost that can pass, or is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnError {
    /// The line is reported and left out.
    Skip,
    /// The line is reported and the run ends before it.
    Stop,
}

/// Why there was no run, or none to the end.
#[derive(Debug)]
pub(crate) enum Error {
    /// What was asked for is wrong.
    Usage(String),
    /// Something could not be read, written or run.
    Io(String),
    /// Whoever reads standard output has stopped.
    Closed,
}

/// How the run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All lines have gone, or whoever read them has stopped reading.
    Done,
    /// Lines were left out, or commands failed; it has been said which.
    Failed,
    /// By a signal with this number.
    Signal(i32),
}

/// The wait before the `n`-th repetition: doubled each time, at most a minute
/// (or the first wait, where that is longer).
fn backoff(first: Duration, n: u32) -> Duration {
    let longest = Duration::from_secs(60).max(first);
    first.saturating_mul(1_u32.checked_shl(n.saturating_sub(1)).unwrap_or(u32::MAX)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute() {
        let waits = [1, 2, 3, 6, 7, 40, u32::MAX].map(|n| backoff(Duration::from_secs(1), n).as_secs());
        assert_eq!(waits, [1, 2, 4, 32, 60, 60, 60]);
        assert_eq!(backoff(Duration::from_secs(90), 5), Duration::from_secs(90));
        assert_eq!(backoff(Duration::ZERO, 9), Duration::ZERO);
    }
}
