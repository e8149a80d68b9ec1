use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::cost::Cost;
use crate::decision::{Retry, Status};
use crate::rule::Mark;
use crate::time::Timestamp;

/// The answer to a request for a reservation.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a booking that is dropped stays charged"]
pub enum Booking {
    /// It is charged; begin when its wait is over.
    Booked(Status, Reservation),
    /// It would have to wait longer than was allowed, or for ever; nothing was
    /// charged. The retry says when it would be booked.
    Denied(Status, Retry),
}

impl Booking {
    /// The reservation, if there is one.
    #[must_use]
    pub fn reservation(self) -> Option<Reservation> {
        match self {
            Booking::Booked(_, reservation) => Some(reservation),
            Booking::Denied(..) => None,
        }
    }

    /// How the limit stands afterwards.
    #[must_use]
    pub const fn status(&self) -> &Status {
        match self {
            Booking::Booked(status, _) | Booking::Denied(status, _) => status,
        }
    }
}

/// A place that has been charged ahead of its time, with an estimated cost.
///
/// Settle it once with what it really cost
/// ([`Gate::settle`](crate::Gate::settle)); dropped, the estimate stays charged.
#[derive(Debug, PartialEq, Eq)]
pub struct Reservation {
    pub(crate) version: u32,
    pub(crate) asked: Timestamp,
    pub(crate) start: Timestamp,
    pub(crate) estimate: Cost,
    pub(crate) marks: Marks,
}

/// One mark for each limit of the policy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Marks {
    One(Mark),
    Many(Box<[Mark]>),
}

impl Marks {
    pub(crate) fn of(marks: impl ExactSizeIterator<Item = Mark>) -> Marks {
        let mut marks = marks.peekable();
        match marks.peek().copied() {
            Some(mark) if marks.len() == 1 => Marks::One(mark),
            _ => Marks::Many(marks.collect::<Vec<_>>().into_boxed_slice()),
        }
    }

    pub(crate) fn as_slice(&self) -> &[Mark] {
        match self {
            Marks::One(mark) => core::slice::from_ref(mark),
            Marks::Many(marks) => marks,
        }
    }
}

impl Reservation {
    /// How long to wait, from the instant at which it was asked for.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.start.saturating_since(self.asked)
    }

    /// The instant at which it may begin.
    #[must_use]
    pub const fn start(&self) -> Timestamp {
        self.start
    }

    /// What was charged.
    #[must_use]
    pub const fn estimate(&self) -> Cost {
        self.estimate
    }
}

/// What settling a reservation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The estimate was right.
    Even,
    /// So much went beyond the estimate and has been charged now.
    Charged(Cost),
    /// So much of the estimate was not needed. What the limit has refilled since
    /// is not given a second time, so the balance may rise by less.
    Refunded(Cost),
}
