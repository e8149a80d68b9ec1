use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use suimon_core::{Cost, Error as CoreError, Policy, Retry};

use crate::store::RequestId;

/// Why a verb of a limiter did not go through: bad arguments, a refusal where
/// waiting was wanted, a limiter that is closed, a store that is away.
///
/// Whenever there is an error, nothing has been taken. Ask for its kind with the
/// `is_` methods; [`Error::retry_after`] says how long to wait where waiting helps.
#[derive(Clone, Debug)]
pub struct Error(Arc<Kind>);

#[derive(Debug)]
enum Kind {
    RateLimited { retry: Retry, allowed: Option<Duration> },
    QueueFull { asked: Cost, queued: Cost, allowed: Cost },
    Closed,
    Unavailable(Box<dyn StdError + Send + Sync>),
    NotOneWord(String),
    NoLease,
    IdLength(usize),
    IdLifetime(Duration),
    Unsupported(Box<dyn StdError + Send + Sync>),
    Core(CoreError),
}

impl Error {
    /// The limit refuses, and waiting was not wanted, or not for so long.
    #[must_use]
    pub fn rate_limited(retry: Retry, allowed: Option<Duration>) -> Error {
        Error(Arc::new(Kind::RateLimited { retry, allowed }))
    }

    pub(crate) fn queue_full(asked: Cost, queued: Cost, allowed: Cost) -> Error {
        Error(Arc::new(Kind::QueueFull { asked, queued, allowed }))
    }

    /// The limiter has been closed; for implementors of [`Limiter`](crate::Limiter).
    #[must_use]
    pub fn closed() -> Error {
        Error(Arc::new(Kind::Closed))
    }

    pub(crate) fn not_one_word(policy: &Policy) -> Error {
        Error(Arc::new(Kind::NotOneWord(policy.to_string())))
    }

    /// The store behind a limiter cannot be reached; for implementors of
    /// [`Limiter`](crate::Limiter).
    #[must_use]
    pub fn unavailable(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        Error(Arc::new(Kind::Unavailable(source.into())))
    }

    /// The limit refuses now, or would only pass after the longest wait that was allowed.
    #[must_use]
    pub fn is_rate_limited(&self) -> bool {
        matches!(*self.0, Kind::RateLimited { .. })
    }

    /// So much is waiting already that the bound of the queue would be passed.
    #[must_use]
    pub fn is_queue_full(&self) -> bool {
        matches!(*self.0, Kind::QueueFull { .. })
    }

    /// The limiter has been closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(*self.0, Kind::Closed)
    }

    /// The store behind the limiter cannot be reached: an outage, not a refusal.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(*self.0, Kind::Unavailable(_))
    }

    /// Tokens cannot be lent under these limits; for implementors of
    /// [`Store`](crate::store::Store).
    #[must_use]
    pub fn no_lease() -> Error {
        Error(Arc::new(Kind::NoLease))
    }

    /// The store cannot do that, however often it is asked: it cannot count such a limit
    /// exactly, or cannot decide about these keys in one step. For implementors of
    /// [`Store`](crate::store::Store).
    #[must_use]
    pub fn unsupported(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        Error(Arc::new(Kind::Unsupported(source.into())))
    }

    /// The limiter cannot do that: a flat table of keys was to be changed to a policy
    /// that is not one pace or bucket, or tokens were to be leased of something else than one bucket.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(*self.0, Kind::NotOneWord(_) | Kind::NoLease | Kind::Unsupported(_))
    }

    /// The cost can never pass, no waiting helps.
    #[must_use]
    pub fn is_cost_too_large(&self) -> bool {
        self.core().is_some_and(CoreError::is_cost_too_large)
    }

    /// The cost is no cost: negative, not a number, too fine.
    #[must_use]
    pub fn is_invalid_cost(&self) -> bool {
        self.core().is_some_and(CoreError::is_invalid_cost)
    }

    pub(crate) fn id_length(asked: usize) -> Error {
        Error(Arc::new(Kind::IdLength(asked)))
    }

    pub(crate) fn id_lifetime(asked: Duration) -> Error {
        Error(Arc::new(Kind::IdLifetime(asked)))
    }

    /// The id of a request is empty or too long, or its answer was to be kept too
    /// long or too short: see [`RequestId`].
    #[must_use]
    pub fn is_invalid_id(&self) -> bool {
        matches!(*self.0, Kind::IdLength(_) | Kind::IdLifetime(_))
    }

    /// The error of the deciding core, where it is one.
    #[must_use]
    pub fn core(&self) -> Option<&CoreError> {
        match &*self.0 {
            Kind::Core(error) => Some(error),
            _ => None,
        }
    }

    /// How long to wait before the same request would pass, if nothing else
    /// happened; `None` where that cannot be said or waiting does not help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match &*self.0 {
            Kind::RateLimited { retry, .. } => retry.after(),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::RateLimited { retry, allowed } => match (retry.after(), allowed) {
                (None, _) => f.write_str("rate limited: the limit is `block`, nothing passes"),
                (Some(wait), None) => write!(f, "rate limited: retry after {wait:?}"),
                (Some(wait), Some(allowed)) => {
                    write!(f, "rate limited: it would have to wait {wait:?}, and {allowed:?} is allowed")
                }
            },
            Kind::QueueFull { asked, queued, allowed } => {
                write!(
                    f,
                    "the queue is full: {queued} tokens are waiting, {asked} more would pass its bound of {allowed}"
                )
            }
            Kind::Closed => f.write_str("the limiter is closed"),
            Kind::Unavailable(source) => write!(f, "the store of the limiter is unavailable: {source}"),
            Kind::NotOneWord(policy) => write!(
                f,
                "a flat table holds one pace or bucket for each key, and `{policy}` is not one: build it with `in_map()`"
            ),
            Kind::NoLease => f.write_str("tokens can be leased of one bucket only, by a store that can lend"),
            Kind::Unsupported(source) => source.fmt(f),
            Kind::IdLength(asked) => write!(
                f,
                "an id of {asked} bytes is out of range: it has at least 1 and at most {}; take a hash of what is longer",
                RequestId::MAX_LEN
            ),
            Kind::IdLifetime(asked) => write!(
                f,
                "{asked:?} is out of range for the answer of an id: it is kept for at least {:?} and at most {:?}",
                RequestId::MIN_LIFETIME,
                RequestId::MAX_LIFETIME
            ),
            Kind::Core(error) => error.fmt(f),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &*self.0 {
            Kind::Unavailable(source) => Some(&**source),
            Kind::Core(error) => Some(error),
            _ => None,
        }
    }
}

impl From<CoreError> for Error {
    fn from(error: CoreError) -> Error {
        Error(Arc::new(Kind::Core(error)))
    }
}

impl From<suimon_core::OutOfRange> for Error {
    fn from(range: suimon_core::OutOfRange) -> Error {
        CoreError::from(range).into()
    }
}
