//! What a scenario is once it has been read: plain data.

use std::time::Duration;

use super::subject::{ErrorKind, Retry};
use crate::model::Carry;

/// One golden scenario: a limiter, and what happens to it step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The file it stands in.
    pub file: String,
    /// The line of its `scenario` word.
    pub line: usize,
    /// Its name, unique within the file.
    pub name: String,
    /// What it shows.
    pub why: String,
    /// The public report that it comes from.
    pub source: Option<String>,
    /// The policy in its text form.
    pub policy: String,
    /// Does the limiter take the latest instant it has seen, or each as given?
    pub clock: Clock,
    /// The instant at which the limiter is made.
    pub start: u64,
    /// The balance it starts with, full if not given.
    pub balance: Option<String>,
    /// By how much an answer of a subject that counts in ticks may be early.
    pub tolerance: Duration,
    /// Set if the policy has to be refused; then there are no steps.
    pub refused: Option<ErrorKind>,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// What a limiter makes of an instant that is older than one it has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// It goes on with the latest one.
    #[default]
    HighWater,
    /// It takes the instant as it is.
    Raw,
}

/// One line of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its line in the file.
    pub line: usize,
    /// The instant of the first call.
    pub at: u64,
    /// The time from one call to the next, if there are several.
    pub every: Duration,
    /// How many calls.
    pub times: u32,
    /// The call.
    pub action: Action,
    /// What has to come of it.
    pub expected: Expected,
}

/// A call to the limiter. Costs and policies are texts, as a front gets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Take the cost now or not at all.
    Allow {
        /// Decimal tokens.
        cost: String,
    },
    /// What `Allow` would answer; nothing changes.
    Peek {
        /// Decimal tokens.
        cost: String,
    },
    /// Book the cost, first come first served.
    Reserve {
        /// Decimal tokens.
        cost: String,
        /// The longest wait that is accepted.
        within: Option<Duration>,
        /// The name under which it may be settled.
        name: Option<String>,
    },
    /// Replace the estimate of a booking by what it really cost.
    Settle {
        /// The name of the booking.
        name: String,
        /// Decimal tokens.
        cost: String,
    },
    /// Put another policy in place.
    Change {
        /// What becomes of what was used and saved.
        carry: Carry,
        /// The new policy in its text form.
        policy: String,
    },
}

/// What has to come of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The answer.
    pub verdict: Expect,
    /// Further fields of the answer; what is not given is not compared.
    pub fields: Fields,
}

/// The answer that a step has to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Allowed.
    Allow,
    /// Denied.
    Deny,
    /// Booked, to start after this time.
    Wait(Duration),
    /// A settlement or a change went through.
    Done,
    /// So many of the step's calls were allowed, the others denied.
    Count(u32),
    /// An error of this kind, and nothing changed.
    Error(ErrorKind),
}

/// Fields of an answer that a scenario may name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// When to come back.
    pub retry: Option<Retry>,
    /// The index of the limit that refused.
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
