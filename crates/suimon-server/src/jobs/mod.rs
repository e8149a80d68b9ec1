//! Queues of jobs on the command line: the work behind `suimon jobs`.
//!
//! [`job`] reads jobs, [`dispatch`] sends them, [`work`] is the worker: for each job it runs a
//! [`command`], whose end and last line [`answer`] reads. What commands and the worker print goes
//! through one thread ([`output`], [`log`]), so that a slow terminal holds up nobody who has to
//! give signs of life.

mod answer;
pub(crate) mod command;
pub(crate) mod dispatch;
pub(crate) mod job;
pub(crate) mod log;
mod output;
pub(crate) mod status;
pub(crate) mod work;

use std::io;

/// Why something could not be done.
#[derive(Debug)]
pub(crate) enum Error {
    /// What was asked for is wrong.
    Usage(String),
    /// Something could not be read, written or run.
    Io(String),
    /// Whoever reads standard output has stopped.
    Closed,
}

impl From<suimon_jobs::Error> for Error {
    fn from(error: suimon_jobs::Error) -> Error {
        if error.is_database() { Error::Io(error.to_string()) } else { Error::Usage(error.to_string()) }
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

/// `1 job`, `2 jobs`.
pub(crate) fn jobs(number: u64) -> String {
    format!("{number} job{}", if number == 1 { "" } else { "s" })
}
