//! What a limiter, store or front has to offer to be judged by the scenarios.

use std::time::Duration;

use super::scenario::{Action, Clock};

/// Anything that limits: a library, a store, a server behind a protocol.
///
/// One limiter is open at a time; opening the next one drops it. Instants are
/// nanoseconds since the origin of the scenario's clock (the Unix epoch for
/// `fixed` limits), and the subject has to use them in place of its own clock.
///
/// See the [module documentation](super) for an example.
pub trait Subject {
    /// How reports call it.
    fn name(&self) -> String;

    /// Does it count time in ticks, so that for rates whose token takes no whole
    /// number of (half) nanoseconds an answer may be early by less than a
    /// nanosecond? A scenario's `tolerance` is granted only then.
    fn counts_in_ticks(&self) -> bool {
        false
    }

    /// Makes a new limiter that has seen nothing.
    ///
    /// # Errors
    /// [`Refusal::Error`] if the policy is wrong, [`Refusal::Unsupported`] if the
    /// subject has no such thing.
    fn open(&mut self, opening: &Opening<'_>) -> Result<(), Refusal>;

    /// Calls the limiter at an instant.
    ///
    /// # Errors
    /// [`Refusal::Error`] if an argument is wrong, [`Refusal::Unsupported`] if the
    /// subject has no such verb.
    fn act(&mut self, now: u64, action: &Action) -> Result<Outcome, Refusal>;
}

/// How a limiter has to be made.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// The policy in its text form.
    pub policy: &'a str,
    /// What becomes of an instant older than one already seen.
    pub clock: Clock,
    /// The instant at which it is made.
    pub start: u64,
    /// The balance to start with in decimal tokens; full if none.
    pub balance: Option<&'a str>,
}

/// The answer to a call, as far as the subject can tell: what its protocol does
/// not carry is `None`, is not compared, and is counted in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was decided.
    pub verdict: Verdict,
    /// When to come back, of a denial.
    pub retry: Option<Retry>,
    /// The index of the limit that refused, of a denial.
    pub by: Option<usize>,
    /// The largest cost.
    pub limit: Option<u64>,
    /// The largest whole cost that would pass now.
    pub remaining: Option<u64>,
    /// How many calls of cost 1 would pass now.
    pub burst_left: Option<u64>,
    /// The time until the limiter is as good as new.
    pub reset: Option<Duration>,
}

impl Outcome {
    /// An answer of which only the decision is known.
    #[must_use]
    pub const fn bare(verdict: Verdict) -> Outcome {
        Outcome { verdict, retry: None, by: None, limit: None, remaining: None, burst_left: None, reset: None }
    }
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may go.
    Allowed,
    /// It may not.
    Denied,
    /// It is booked.
    Booked {
        /// To start after this time.
        wait: Duration,
    },
    /// The settlement or the change went through.
    Done,
}

/// When a denied call may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After this time.
    After(Duration),
    /// No wait helps.
    Never,
}

/// Why there is no outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The subject refused an argument and changed nothing.
    Error {
        /// What was wrong with it.
        kind: ErrorKind,
        /// The subject's own words.
        message: String,
    },
    /// The subject lacks this feature; the scenario is not judged, and reported.
    Unsupported(Feature),
    /// The subject failed: an outage, a protocol error, a bug. Fails the scenario.
    Broken(String),
}

impl Refusal {
    /// An argument error.
    pub fn error(kind: ErrorKind, message: impl Into<String>) -> Refusal {
        Refusal::Error { kind, message: message.into() }
    }
}

/// The kinds of argument error, as scenarios name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// `cost-too-large`: above the largest cost, for ever.
    CostTooLarge,
    /// `invalid-cost`: negative, or no decimal number.
    InvalidCost,
    /// `out-of-range`: a rate, size or period that cannot be.
    OutOfRange,
    /// `syntax`: the text of a policy cannot be read.
    Syntax,
    /// `any`: in a scenario any kind will do, in an outcome the kind is unknown.
    Any,
}

impl ErrorKind {
    /// All kinds with the words for them.
    pub const NAMES: [(&'static str, ErrorKind); 5] = [
        ("cost-too-large", ErrorKind::CostTooLarge),
        ("invalid-cost", ErrorKind::InvalidCost),
        ("out-of-range", ErrorKind::OutOfRange),
        ("syntax", ErrorKind::Syntax),
        ("any", ErrorKind::Any),
    ];

    /// Is this the kind that was expected, as far as can be told?
    #[must_use]
    pub fn matches(self, other: ErrorKind) -> bool {
        self == other || self == ErrorKind::Any || other == ErrorKind::Any
    }
}

/// What a subject may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// A clock that is taken as it is, also where it runs back.
    RawClock,
    /// A first balance other than full.
    Balance,
    /// `pace` limits.
    Pace,
    /// `bucket` limits.
    Bucket,
    /// `window` limits.
    Window,
    /// `fixed` limits.
    Fixed,
    /// `unlimited` and `block`.
    Constant,
    /// Policies of several limits.
    Several,
    /// Costs other than whole tokens.
    Fractions,
    /// The verb `peek`.
    Peek,
    /// The verb `reserve`.
    Reserve,
    /// The verb `settle`.
    Settle,
    /// Another policy at run time.
    Change,
}
