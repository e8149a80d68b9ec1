use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

use crate::cost::Cost;
use crate::text::Period;

/// What went wrong: bad arguments, a bad configuration, a bad text.
///
/// Being refused by a limit is no error but an answer:
/// [`Decision::Deny`](crate::Decision::Deny). An error means that nothing was
/// decided and nothing was taken. Ask for its kind with the `is_` methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    CostTooLarge { asked: Cost, allowed: Cost, limit: usize },
    InvalidCost(&'static str),
    OutOfRange(OutOfRange),
    TooFarAhead,
    Stale { state: u32, gate: u32 },
    Corrupt,
    Mismatch,
    UnknownZone(Box<str>),
    Policy(&'static str),
    Syntax(Box<Syntax>),
}

/// Where a text is wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Syntax {
    at: usize,
    message: String,
    suggestion: Option<String>,
    cause: Option<Error>,
}

impl Error {
    pub(crate) const fn cost_too_large(asked: Cost, allowed: Cost, limit: usize) -> Error {
        Error(Kind::CostTooLarge { asked, allowed, limit })
    }

    pub(crate) const fn invalid_cost(what: &'static str) -> Error {
        Error(Kind::InvalidCost(what))
    }

    pub(crate) const fn too_far_ahead() -> Error {
        Error(Kind::TooFarAhead)
    }

    pub(crate) const fn stale(state: u32, gate: u32) -> Error {
        Error(Kind::Stale { state, gate })
    }

    pub(crate) const fn mismatch() -> Error {
        Error(Kind::Mismatch)
    }

    pub(crate) const fn corrupt() -> Error {
        Error(Kind::Corrupt)
    }

    pub(crate) const fn policy(what: &'static str) -> Error {
        Error(Kind::Policy(what))
    }

    pub(crate) fn syntax(at: usize, message: impl Into<String>) -> Error {
        Error(Kind::Syntax(Box::new(Syntax { at, message: message.into(), suggestion: None, cause: None })))
    }

    /// Places an error of another kind in a text.
    pub(crate) fn within_text(self, at: usize) -> Error {
        Error(Kind::Syntax(Box::new(Syntax { at, message: String::new(), suggestion: None, cause: Some(self) })))
    }

    #[must_use]
    pub(crate) fn suggest(mut self, better: impl Into<String>) -> Error {
        if let Kind::Syntax(syntax) = &mut self.0 {
            syntax.suggestion = Some(better.into());
        }
        self
    }

    /// A time zone that the calendar does not know; for implementors of
    /// [`Calendar`](crate::Calendar).
    #[must_use]
    pub fn unknown_zone(name: &str) -> Error {
        Error(Kind::UnknownZone(name.into()))
    }

    /// The kind that lies at the bottom, also where a text is around it.
    fn kind(&self) -> &Kind {
        match &self.0 {
            Kind::Syntax(syntax) => syntax.cause.as_ref().map_or(&self.0, Error::kind),
            kind => kind,
        }
    }

    /// The cost is above the largest that the limit can ever let pass; no
    /// waiting helps. Nothing was taken.
    #[must_use]
    pub fn is_cost_too_large(&self) -> bool {
        matches!(self.kind(), Kind::CostTooLarge { .. })
    }

    /// The cost is no cost: negative, not a number, too fine.
    #[must_use]
    pub fn is_invalid_cost(&self) -> bool {
        matches!(self.kind(), Kind::InvalidCost(_))
    }

    /// A rate, burst, period or the like is outside the documented range.
    #[must_use]
    pub fn is_out_of_range(&self) -> bool {
        matches!(self.kind(), Kind::OutOfRange(_))
    }

    /// Bytes that are to be a state or a reservation are none.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        matches!(self.kind(), Kind::Corrupt)
    }

    /// A reservation would start so late that its time cannot be written down.
    #[must_use]
    pub fn is_too_far_ahead(&self) -> bool {
        matches!(self.kind(), Kind::TooFarAhead)
    }

    /// The state belongs to another version of the limits, or to other limits:
    /// bring it up to date with [`Gate::adopt`](crate::Gate::adopt).
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(self.kind(), Kind::Stale { .. } | Kind::Mismatch)
    }

    /// The calendar does not know the time zone.
    #[must_use]
    pub fn is_unknown_zone(&self) -> bool {
        matches!(self.kind(), Kind::UnknownZone(_))
    }

    /// The limits of a policy do not go together, or there is none or too many.
    #[must_use]
    pub fn is_policy(&self) -> bool {
        matches!(self.kind(), Kind::Policy(_))
    }

    /// The text of a limit or policy is wrong; [`Error::at`] says where.
    #[must_use]
    pub fn is_syntax(&self) -> bool {
        matches!(self.0, Kind::Syntax(_))
    }

    /// The byte of the text at which the error lies, where there is a text.
    #[must_use]
    pub fn at(&self) -> Option<usize> {
        match &self.0 {
            Kind::Syntax(syntax) => Some(syntax.at),
            _ => None,
        }
    }

    /// What was perhaps meant, where that can be said.
    #[must_use]
    pub fn suggestion(&self) -> Option<&str> {
        match &self.0 {
            Kind::Syntax(syntax) => syntax.suggestion.as_deref(),
            _ => None,
        }
    }

    /// The limit of the policy, by its index, that can never let the cost pass.
    #[must_use]
    pub fn limit(&self) -> Option<usize> {
        match self.kind() {
            Kind::CostTooLarge { limit, .. } => Some(*limit),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::CostTooLarge { asked, allowed, .. } => {
                write!(f, "a cost of {asked} can never pass: the limit lets at most {allowed} through at once; ask for less or raise the limit")
            }
            Kind::InvalidCost(what) => write!(f, "invalid cost: {what}"),
            Kind::OutOfRange(range) => range.fmt(f),
            Kind::TooFarAhead => f.write_str("the reservation would start beyond the last instant that the limit can count; reserve less, or give a longest wait"),
            Kind::Stale { state, gate } => write!(f, "the state was settled under version {state} of the limits and the gate has version {gate}; adopt it first"),
            Kind::Mismatch => f.write_str("the state or reservation belongs to other limits; make a fresh one from this gate"),
            Kind::Corrupt => f.write_str("the bytes are no state or reservation; they were not written by this library, or cut"),
            Kind::UnknownZone(name) => write!(f, "unknown time zone `{name}`; use a name of the IANA database such as `Europe/Paris`, and a calendar that knows it"),
            Kind::Policy(what) => f.write_str(what),
            Kind::Syntax(syntax) => {
                match &syntax.cause {
                    Some(cause) => cause.fmt(f)?,
                    None => f.write_str(&syntax.message)?,
                }
                write!(f, " (at byte {})", syntax.at)?;
                match &syntax.suggestion {
                    Some(better) => write!(f, "; say {better}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl core::error::Error for Error {}

impl From<OutOfRange> for Error {
    fn from(range: OutOfRange) -> Error {
        Error(Kind::OutOfRange(range))
    }
}

/// A quantity outside the range that a limit can hold exactly.
///
/// Small and `Copy`, so that `const` constructors can return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange(Range);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    ZeroTokens,
    Period { asked: Duration },
    TooFast { tokens: u64, period: Duration },
    ZeroSize { what: &'static str },
    TooLong { what: &'static str, asked: Cost, allowed: Cost },
    AboveSavings { asked: Cost, allowed: Cost },
}

impl OutOfRange {
    pub(crate) const ZERO_TOKENS: OutOfRange = OutOfRange(Range::ZeroTokens);

    pub(crate) const fn period(asked: Duration) -> OutOfRange {
        OutOfRange(Range::Period { asked })
    }

    pub(crate) const fn too_fast(tokens: u64, period: Duration) -> OutOfRange {
        OutOfRange(Range::TooFast { tokens, period })
    }

    pub(crate) const fn zero_size(what: &'static str) -> OutOfRange {
        OutOfRange(Range::ZeroSize { what })
    }

    pub(crate) const fn too_long(what: &'static str, asked: Cost, allowed: Cost) -> OutOfRange {
        OutOfRange(Range::TooLong { what, asked, allowed })
    }

    pub(crate) const fn above_savings(asked: Cost, allowed: Cost) -> OutOfRange {
        OutOfRange(Range::AboveSavings { asked, allowed })
    }
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Range::ZeroTokens => {
                f.write_str("a rate of 0 tokens would never let anything pass; say `block` if that is meant")
            }
            Range::Period { asked } => {
                write!(f, "a period of {asked:?} is out of range: it is at least 1ns and at most a century (36525day)")
            }
            Range::TooFast { tokens, period } => write!(
                f,
                "{tokens} tokens in {} is out of range: a rate is at most 2000000000 tokens a second",
                Period(period)
            ),
            Range::ZeroSize { what } => {
                write!(f, "{what} must be above 0, or nothing could ever pass; say `block` if that is meant")
            }
            Range::TooLong { what, asked, allowed } => {
                write!(f, "{what} of {asked} is out of range: at this rate at most {allowed}, what a century brings")
            }
            Range::AboveSavings { asked, allowed } => {
                write!(f, "a balance of {asked} is out of range: the limit holds at most {allowed}")
            }
        }
    }
}

impl core::error::Error for OutOfRange {}
