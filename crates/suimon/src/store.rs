//! The port to stores that several processes and machines share.
//!
//! A [`Store`] decides about a [`Call`] in one atomic step, where the data is and by
//! its own clock. Everything around it (waiting, deadlines, outages, request ids on
//! the caller's side) is in `suimon::Remote` (feature `remote`), which
//! works over any store.
//!
//! Stores that lock a few records, read them and write them back, as SQL databases
//! do, leave the deciding to [`decide`] and [`settle`]: then every answer is that of the
//! same core as everywhere else. A store that decides by a script of its own has to
//! pass the same suite of tests.

mod deciding;
mod kept;
mod leases;
mod memory;
mod wire;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use suimon_core::{Calendar, Carry, Cost, Decision, Gate, Policy, Retry, Settlement, Status, Timestamp};

pub use deciding::{Decided, Record, decide, settle};
pub use leases::LeaseTicket;
pub use memory::MemoryStore;
pub use wire::{settlement_from_bytes, settlement_to_bytes};

use crate::Error;

/// What a store does is done by a future that can be sent to another thread.
pub type Acting<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A place in which limits are kept that several processes share.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Decides about a call: all of its parts pass and are charged, or none is.
    ///
    /// One atomic step, at the store's own time unless the call brings one. A call
    /// with an id that has been answered within the id's lifetime gets the recorded
    /// answer and charges nothing, see [`RequestId`].
    ///
    /// # Errors
    /// [`Error::is_cost_too_large`] and the like for arguments,
    /// [`Error::is_unavailable`] when the store could not be asked, or gave no answer:
    /// whether the call was charged then is unknown, unless it has an id and is retried.
    fn decide<'a>(&'a self, call: &'a Call) -> Acting<'a, Reply>;

    /// Settles a booking: charges what went beyond the estimate, or gives back
    /// what was not needed, as far as that mints nothing.
    ///
    /// To be called once for each booking: a second time would charge, or give back, twice. Where
    /// an answer is lost the settlement may have been done or not; with an id
    /// it can be asked for again, and is done once.
    ///
    /// # Errors
    /// As for [`decide`](Store::decide).
    fn settle<'a>(&'a self, settling: &'a Settling) -> Acting<'a, Settlement>;
}

/// The rules of time zones that a store decides by: the system's where they are
/// known, otherwise UTC alone.
#[must_use]
pub fn default_calendar() -> Arc<dyn Calendar + Send + Sync> {
    crate::local::default_calendar()
}

/// A request to a store.
#[derive(Clone, Debug)]
pub struct Call {
    /// What has to pass together: one or more.
    pub parts: Vec<Part>,
    /// What to do.
    pub verb: Verb,
    /// So that a retry is answered alike and charged once. It belongs to the key of the first part.
    pub id: Option<RequestId>,
    /// A time in place of the store's, for tests.
    ///
    /// All calls of a key are to bring one, or none of them: the key remembers the latest time
    /// that it has seen. How long a store keeps its record is counted by the store's own
    /// time all the same, in which so much has to pass as is missing at this one. The
    /// answers of ids are the exception where a store removes what has expired by its
    /// own time: made at a time long past, they may be gone at once.
    pub at: Option<Timestamp>,
}

/// A key, its limits and a cost.
#[derive(Clone, Debug)]
pub struct Part {
    /// The key, as the store is to know it.
    pub key: Arc<str>,
    /// Its limits.
    pub limits: Arc<Limits>,
    /// What it costs.
    pub cost: Cost,
}

/// What to do with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// May it pass now? Charged if so.
    Allow,
    /// Would it pass? Nothing is charged.
    Peek,
    /// Charge it for a start as soon as all limits let it, unless that is later than
    /// the longest wait.
    Reserve {
        /// The longest wait, if there is one.
        max_wait: Option<Duration>,
    },
    /// Charge a chunk of tokens, to be spent by the caller in any parts until the lease
    /// ends; what is not spent by then is void, and what is given back before
    /// (by [`Store::settle`]) counts again. While it is out it counts as saved, so that all
    /// who spend stay within the limit over every interval.
    ///
    /// The cost of the part is the most that is wanted. Granted is a quarter of
    /// what there is, so that others get some too, but never less than `least`; see
    /// [`Ticket::leased`]. For one part with one bucket.
    Lease {
        /// How long it lasts from the store's time of the decision.
        lifetime: Duration,
        /// Less is of no use.
        least: Cost,
    },
    /// Charge nothing, and bring the keys to the limits of the call now: a change of
    /// limits that does not wait for the next call which passes.
    Adopt,
}

/// Limits in a version.
///
/// While a change is rolled out, processes with the old and the new limits use the
/// same keys. The highest version that a key has met governs it, also for those who
/// come with an older one; so the balance is carried over once, and nothing is minted by
/// going back and forth.
#[derive(Clone, Debug)]
pub struct Limits {
    gate: Gate,
    version: u64,
    carry: Carry,
}

impl Limits {
    /// Limits in a version, and how a balance is carried over to them from an older one.
    ///
    /// # Errors
    /// When the policy names a time zone that the calendar does not know.
    pub fn new(policy: Policy, calendar: &dyn Calendar, version: u64, carry: Carry) -> Result<Limits, Error> {
        Ok(Limits { gate: Gate::with_calendar(policy, calendar)?, version, carry })
    }

    /// The limits, ready to decide.
    #[must_use]
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Their version.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// How a balance is carried over to them.
    #[must_use]
    pub const fn carry(&self) -> Carry {
        self.carry
    }
}

/// The id of a request: who retries it gets the answer of the first time.
///
/// An id belongs to one key: of a call the key of the first part, of a settlement that of the first
/// part of the ticket. The same id with another key is another request. Calls and
/// settlements do not meet either: a booking and its settlement may have the same id.
///
/// ```
/// use std::time::Duration;
/// use suimon::store::RequestId;
///
/// let id = RequestId::new("7f3a", Duration::from_secs(600))?;
/// assert_eq!(id.as_str(), "7f3a");
/// let error = RequestId::new("x".repeat(201), Duration::from_secs(600)).unwrap_err();
/// assert!(error.is_invalid_id());
/// # Ok::<(), suimon::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId {
    id: Arc<str>,
    lifetime: Duration,
}

impl RequestId {
    /// The most bytes of an id.
    pub const MAX_LEN: usize = 200;
    /// The shortest time for which an answer is kept.
    pub const MIN_LIFETIME: Duration = Duration::from_millis(1);
    /// The longest time for which an answer is kept: a week.
    pub const MAX_LIFETIME: Duration = Duration::from_secs(7 * 86_400);

    /// An id of 1 to 200 bytes, and how long its answer is kept: a millisecond at
    /// least, a week at most.
    ///
    /// # Errors
    /// [`Error::is_invalid_id`] for other lengths and lifetimes.
    pub fn new(id: impl Into<Arc<str>>, lifetime: Duration) -> Result<RequestId, Error> {
        let id = id.into();
        if id.is_empty() || id.len() > RequestId::MAX_LEN {
            return Err(Error::id_length(id.len()));
        }
        if !(RequestId::MIN_LIFETIME..=RequestId::MAX_LIFETIME).contains(&lifetime) {
            return Err(Error::id_lifetime(lifetime));
        }
        Ok(RequestId { id, lifetime })
    }

    /// The id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.id
    }

    /// How long its answer is kept.
    #[must_use]
    pub const fn lifetime(&self) -> Duration {
        self.lifetime
    }
}

/// The answer of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What was decided.
    pub outcome: Outcome,
    /// The store's time of the decision.
    pub now: Timestamp,
    /// Is it the recorded answer to an earlier call of the same id?
    pub replayed: bool,
}

/// What a store decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passes, and has been charged, unless it was only a peek.
    Allowed(Status),
    /// It does not pass; nothing was charged. The index of the limit counts those of all
    /// parts in their order.
    Denied(Status, Retry),
    /// It has been charged, for a start that may lie ahead.
    Booked(Status, Ticket),
}

impl Outcome {
    /// The decision; a booking passes.
    #[must_use]
    pub const fn decision(&self) -> Decision {
        match self {
            Outcome::Allowed(status) | Outcome::Booked(status, _) => Decision::Allow(*status),
            Outcome::Denied(status, retry) => Decision::Deny(*status, *retry),
        }
    }
}

/// A booking, by which it can be settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// How long to wait from the store's time of the decision.
    pub wait: Duration,
    /// What the store wants to see again, for each part: its key, and bytes of the
    /// store's own.
    pub parts: Vec<(Arc<str>, Vec<u8>)>,
}

impl Ticket {
    /// The tokens of a lease; `None` for a booking.
    #[must_use]
    pub fn leased(&self) -> Option<Cost> {
        LeaseTicket::from_bytes(&self.parts.first()?.1).map(|lease| lease.granted)
    }
}

/// A booking to be settled.
#[derive(Clone, Debug)]
pub struct Settling {
    /// The booking.
    pub ticket: Ticket,
    /// The limits of each part, as they were called with.
    pub limits: Vec<Arc<Limits>>,
    /// What it really cost, in each part.
    pub actual: Vec<Cost>,
    /// So that a retry is answered alike, and the booking is settled once. It belongs to the key of the
    /// first part.
    pub id: Option<RequestId>,
    /// A time in place of the store's, for tests, see [`Call::at`].
    pub at: Option<Timestamp>,
}
