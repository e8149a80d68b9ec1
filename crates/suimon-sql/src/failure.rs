//! Why a transaction did not go through, and whether it is worth another try.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// What a failure of the database means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The database has undone the transaction, or has not begun it, because of somebody
    /// else: a deadlock, two who were first with a key, a file that is locked.
    Conflict,
    /// The server has ended a statement that took too long.
    Cut,
    /// The connection is of no use any more, or leads to a server that cannot write.
    Lost,
    /// Anything else: it would fail again.
    Other,
}

impl Failure {
    /// What an error means.
    #[must_use]
    pub fn of(error: &sqlx::Error) -> Failure {
        match error {
            sqlx::Error::Database(error) if error.is_unique_violation() => Failure::Conflict,
            sqlx::Error::Database(error) => of_database(&**error),
            sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => Failure::Lost,
            _ => Failure::Other,
        }
    }
}

/// Why an attempt ended without an answer.
#[derive(Debug)]
pub enum Stop<E> {
    /// Nothing was done, and nothing will be.
    Refused(E),
    /// The database failed before anything was written.
    Before(sqlx::Error),
    /// It failed while things were written.
    Amid(sqlx::Error),
}

impl<E> Stop<E> {
    /// May there be a transaction that is open still, on a connection that works?
    #[must_use]
    pub fn leaves_open(&self) -> bool {
        match self {
            Stop::Refused(_) => true,
            Stop::Before(error) | Stop::Amid(error) => Failure::of(error) != Failure::Lost,
        }
    }

    /// What failed, and whether it can be done again, when it may be done again although it is unknown
    /// whether it was done, or not.
    ///
    /// # Errors
    /// Why it was refused.
    pub fn failed(self, is_repeatable: bool) -> Result<(sqlx::Error, bool), E> {
        match self {
            Stop::Refused(error) => Err(error),
            Stop::Before(error) => Ok((error, true)),
            Stop::Amid(error) => Ok((error, is_repeatable)),
        }
    }
}

fn of_database(error: &dyn sqlx::error::DatabaseError) -> Failure {
    #[cfg(feature = "postgres")]
    if let Some(error) = error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
        return match error.code() {
            // A serialization failure, a deadlock.
            "40001" | "40P01" => Failure::Conflict,
            // No lock, no end in time.
            "55P03" | "57014" => Failure::Cut,
            // Idle in a transaction; shut down, crashed, starting; too many connections; read
            // only, as one that has stopped being the primary is.
            "25P03" | "57P01" | "57P02" | "57P03" | "53300" | "25006" => Failure::Lost,
            _ => Failure::Other,
        };
    }
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return match error.number() {
            // A deadlock; a record that has changed since it was read.
            1213 | 1020 => Failure::Conflict,
            // No lock in time, interrupted, no end in time.
            1205 | 1317 | 1969 | 3024 => Failure::Cut,
            // Too many connections; shut down, killed; read only; not part of the cluster.
            1040 | 1053 | 1927 | 1290 | 1836 | 1047 => Failure::Lost,
            _ => Failure::Other,
        };
    }
    #[cfg(feature = "sqlite")]
    if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
        let code: i32 = error.code().and_then(|code| code.parse().ok()).unwrap_or_default();
        // Busy or locked, whatever the reason in the higher bits.
        return if matches!(code & 255, 5 | 6) { Failure::Conflict } else { Failure::Other };
    }
    let _ = error;
    Failure::Other
}

/// No answer within the deadline.
#[derive(Debug)]
pub(crate) struct Late {
    pub(crate) timeout: Duration,
    /// What stood in the way last.
    pub(crate) last: Option<sqlx::Error>,
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no answer from the database within {:?}", self.timeout)?;
        match &self.last {
            Some(last) => write!(f, ": {last}"),
            None => Ok(()),
        }
    }
}

impl StdError for Late {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.last.as_ref().map(|last| last as _)
    }
}
