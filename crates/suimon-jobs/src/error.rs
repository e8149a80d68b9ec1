use std::error::Error as StdError;
use std::fmt;

/// Why something about a queue could not be done. Nothing was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The database could not be reached, or refused. Whether something was written when the
    /// connection was lost in the middle is unknown.
    Database(Box<dyn StdError + Send + Sync>),
    /// The text of a limit is none, or the limit cannot be used so.
    Limit {
        /// The text.
        text: String,
        /// What is wrong with it, and how to say it.
        why: String,
    },
    /// The name of a handler, a key or an id of a unique job is empty or too long.
    Name {
        /// What it is: `handler`, `key`, `unique`.
        what: &'static str,
        /// How long it is, in bytes.
        bytes: usize,
        /// The longest that is allowed, in bytes.
        allowed: usize,
    },
    /// A value is outside its range.
    Range {
        /// What it is.
        what: &'static str,
        /// What was asked for.
        asked: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The payload cannot be written as JSON.
    Payload(String),
    /// A worker without handlers, or with two of the same name.
    Handlers(String),
}

impl Error {
    pub(crate) fn limit(text: &str, why: impl fmt::Display) -> Error {
        Error::Limit { text: text.to_owned(), why: why.to_string() }
    }

    /// Could the database not be asked? Then it may go later.
    #[must_use]
    pub const fn is_database(&self) -> bool {
        matches!(self, Error::Database(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Database(why) => write!(f, "the database of the queue: {why}"),
            Error::Limit { text, why } => write!(f, "the limit `{text}`: {why}"),
            Error::Name { what, bytes: 0, .. } => write!(f, "the {what} is empty"),
            Error::Name { what, bytes, allowed } => {
                write!(f, "the {what} has {bytes} bytes; at most {allowed} are allowed")
            }
            Error::Range { what, asked, allowed } => write!(f, "{what}: {asked} was asked for, allowed is {allowed}"),
            Error::Payload(why) => write!(f, "the payload cannot be written as JSON: {why}"),
            Error::Handlers(why) => f.write_str(why),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::Database(why) => Some(&**why),
            _ => None,
        }
    }
}

/// The longest name of a handler, in bytes.
pub(crate) const LONGEST_HANDLER: usize = 100;
/// The longest key or id of a unique job, in bytes.
pub(crate) const LONGEST_KEY: usize = 190;

fn check_bytes(what: &'static str, name: &str) -> Result<(), Error> {
    match name.contains('\0') {
        true => Err(Error::Range { what, asked: format!("{name:?}"), allowed: "a name without a zero byte" }),
        false => Ok(()),
    }
}

pub(crate) fn check_handler(name: &str) -> Result<(), Error> {
    check_bytes("handler", name)?;
    match name.len() {
        1..=LONGEST_HANDLER => Ok(()),
        bytes => Err(Error::Name { what: "handler", bytes, allowed: LONGEST_HANDLER }),
    }
}

pub(crate) fn check_key(what: &'static str, key: &str) -> Result<(), Error> {
    check_bytes(what, key)?;
    match key.len() {
        1..=LONGEST_KEY => Ok(()),
        bytes => Err(Error::Name { what, bytes, allowed: LONGEST_KEY }),
    }
}
