//! What the model answers: plain numbers, times in whole nanoseconds.

use std::fmt;

use super::policy::Ticket;

/// What `allow` and `peek` answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// How the policy stands afterwards: of a denial the limit that refused,
    /// otherwise the tightest.
    pub status: Status,
    /// Set if it was denied.
    pub retry: Option<Retry>,
}

impl Decision {
    /// Did it pass?
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.retry.is_none()
    }

    /// The nanoseconds to wait, if it was denied and waiting helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        self.retry.and_then(|retry| retry.wait)
    }
}

/// What `reserve` answers.
#[derive(Clone, Debug)]
pub enum Booking {
    /// It may begin `wait` nanoseconds from now.
    Booked {
        /// How the policy stands afterwards.
        status: Status,
        /// Nanoseconds until it begins.
        wait: u64,
        /// To be settled, or dropped.
        ticket: Ticket,
    },
    /// It would have to wait longer than was accepted, or for ever.
    Denied {
        /// How the policy stands.
        status: Status,
        /// When the same call would be booked.
        retry: Retry,
    },
}

/// When a denied call would pass, if nothing else happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Nanoseconds, rounded up; `None` for never.
    pub wait: Option<u64>,
    /// The index of the limit with the longest wait, the first of several.
    pub limit: usize,
}

/// How a limit stands at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The largest cost, rounded down.
    pub limit: u64,
    /// The greatest whole cost that would pass.
    pub remaining: u64,
    /// How many calls of cost 1 would pass.
    pub burst_left: u64,
    /// Nanoseconds until the limit is as good as new, rounded up.
    pub reset_after: u64,
}

/// What is wrong with an argument; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The cost is above the largest of this limit, and can never pass.
    CostTooLarge {
        /// The index of the limit.
        limit: usize,
    },
    /// A cost is zero or more.
    InvalidCost,
    /// A rate, a size, a period or a balance that cannot be.
    OutOfRange(String),
    /// The text of a policy cannot be read.
    Syntax(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::CostTooLarge { limit } => write!(f, "the cost is above the largest of limit {limit}"),
            Fault::InvalidCost => f.write_str("a cost is a decimal number, zero or more"),
            Fault::OutOfRange(what) | Fault::Syntax(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Fault {}
