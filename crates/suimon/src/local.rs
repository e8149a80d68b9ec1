//! The limiter of one process: a word where that is enough, a lock and a queue
//! where it is not.

mod builder;
mod consume;
mod queue;
mod reservation;
mod shared;
mod together;
mod turns;
mod wakers;
mod word;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use suimon_core::{Carry, Cost, Decision, Policy, Status, Timestamp};

pub(crate) use builder::default_calendar;
pub(crate) use consume::block_on;
pub(crate) use shared::{AnyCalendar, Shared, Source};

pub use builder::Builder;
pub use consume::Consume;
pub use reservation::Reservation;
pub use together::reserve_all;

use crate::sync::Arc;
use crate::{Error, IntoRequest};

/// A limiter for the threads and tasks of one process.
///
/// Copies share the limit. A pace or bucket is one atomic word as long as nobody
/// waits; policies and windows take a lock. Those who wait stand in one queue,
/// threads and tasks alike, and are served strictly in the order in which they
/// came, whatever they cost; [`allow`](LocalLimiter::allow) does not overtake them.
///
/// Idle, a limiter takes 560 bytes (and what its policy has on the heap: some 200
/// for one limit); each who waits takes 176 more in the queue, besides its task or
/// thread. There is no thread and no task for a limiter: one timer thread, started
/// when somebody first has to wait, serves the whole process.
///
/// ```
/// use std::time::Duration;
/// use suimon::LocalLimiter;
/// use suimon::clock::ManualClock;
///
/// let clock = ManualClock::new();
/// let limiter = LocalLimiter::builder("bucket 10/s burst 2")?.clock(clock.clone()).build()?;
///
/// assert!(limiter.allow(2)?.is_allowed());
/// let denied = limiter.allow(1)?;
/// assert_eq!(denied.retry().and_then(|retry| retry.after()), Some(Duration::from_millis(100)));
///
/// clock.advance(Duration::from_millis(100));
/// limiter.consume(1)?; // passes at once
/// # Ok::<(), suimon::Error>(())
/// ```
#[derive(Clone)]
pub struct LocalLimiter {
    shared: Arc<Shared>,
}

impl LocalLimiter {
    /// A limiter on the machine's clock.
    ///
    /// Takes a text, a [`Policy`] or a [`Limit`](suimon_core::Limit).
    ///
    /// # Errors
    /// When the text is wrong, a quantity out of range, or a time zone unknown.
    pub fn new<P>(policy: P) -> Result<LocalLimiter, Error>
    where
        P: TryInto<PolicyArg>,
        P::Error: Into<Error>,
    {
        LocalLimiter::builder(policy)?.build()
    }

    /// A limiter with a clock, calendar or bound of the queue of its own.
    ///
    /// # Errors
    /// When the text of the policy is wrong.
    pub fn builder<P>(policy: P) -> Result<Builder, Error>
    where
        P: TryInto<PolicyArg>,
        P::Error: Into<Error>,
    {
        Ok(Builder::new(policy.try_into().map_err(Into::into)?.0))
    }

    /// May `cost` pass now? Never waits.
    ///
    /// # Errors
    /// [`Error::is_cost_too_large`] and [`Error::is_invalid_cost`] for arguments,
    /// [`Error::is_closed`] after [`close`](LocalLimiter::close).
    // Inlined where it is called, so that what the caller does not ask of the
    // answer (the status costs two divisions) is not computed.
    #[inline(always)]
    pub fn allow(&self, cost: impl IntoRequest) -> Result<Decision, Error> {
        self.shared.allow(cost.into_request()?.cost())
    }

    /// What [`allow`](LocalLimiter::allow) would answer; nothing changes.
    ///
    /// # Errors
    /// As for [`allow`](LocalLimiter::allow).
    pub fn peek(&self, cost: impl IntoRequest) -> Result<Decision, Error> {
        self.shared.peek(None, cost.into_request()?.cost())
    }

    /// [`allow`](LocalLimiter::allow) at a time that the caller brings.
    ///
    /// The time counts from the clock's origin, and never runs back: an earlier
    /// one is taken as the latest that was brought.
    ///
    /// # Errors
    /// As for [`allow`](LocalLimiter::allow).
    pub fn allow_at(&self, now: Timestamp, cost: impl IntoRequest) -> Result<Decision, Error> {
        self.shared.allow_at(Some(now), cost.into_request()?.cost())
    }

    /// [`peek`](LocalLimiter::peek) at a time that the caller brings.
    ///
    /// # Errors
    /// As for [`allow`](LocalLimiter::allow).
    pub fn peek_at(&self, now: Timestamp, cost: impl IntoRequest) -> Result<Decision, Error> {
        self.shared.peek(Some(now), cost.into_request()?.cost())
    }

    /// Waits in turn, then takes `cost`; blocks the thread.
    ///
    /// # Errors
    /// As for [`allow`](LocalLimiter::allow), and [`Error::is_rate_limited`] at once
    /// where the request would have to wait longer than it may,
    /// [`Error::is_queue_full`] at once where too much is waiting. Nothing is taken.
    pub fn consume(&self, request: impl IntoRequest) -> Result<(), Error> {
        consume::block_on(self.consume_async(request))
    }

    /// Waits in turn, then takes `cost`; the future can be polled by any executor.
    ///
    /// Dropping it before it is ready leaves no trace: those behind move up. It
    /// stands in the queue from its first poll on.
    ///
    /// # Errors
    /// As for [`consume`](LocalLimiter::consume).
    pub fn consume_async(&self, request: impl IntoRequest) -> Consume {
        Consume::new(self.shared.clone(), request.into_request())
    }

    /// Takes a place in the queue without waiting for it, for a cost that is
    /// known only later.
    ///
    /// # Errors
    /// As for [`consume`](LocalLimiter::consume).
    pub fn reserve(&self, request: impl IntoRequest) -> Result<Reservation, Error> {
        Reservation::new(self.shared.clone(), None, request.into_request()?)
    }

    /// [`reserve`](LocalLimiter::reserve) at a time that the caller brings.
    ///
    /// # Errors
    /// As for [`consume`](LocalLimiter::consume).
    pub fn reserve_at(&self, now: Timestamp, request: impl IntoRequest) -> Result<Reservation, Error> {
        Reservation::new(self.shared.clone(), Some(now), request.into_request()?)
    }

    /// How the tightest limit stands, those who wait included; what it says
    /// remains passes when a pause, if there is one, is over.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// The tokens that are waited for.
    #[must_use]
    pub fn queued(&self) -> Cost {
        self.shared.queued()
    }

    /// Changes the limits for everybody; who waits is timed anew.
    ///
    /// A waiter whose cost can never pass the new limits gets an error.
    ///
    /// # Errors
    /// When the policy is wrong; then nothing changes.
    pub fn change<P>(&self, policy: P, carry: Carry) -> Result<(), Error>
    where
        P: TryInto<PolicyArg>,
        P::Error: Into<Error>,
    {
        self.shared.change(policy.try_into().map_err(Into::into)?.0, carry)
    }

    /// Lets nothing pass for this long: a server has said so. A pause that is
    /// already longer stays.
    pub fn pause_for(&self, pause: Duration) {
        self.shared.pause(pause);
    }

    /// The same until an instant of the limiter's clock.
    pub fn pause_until(&self, until: Timestamp) {
        self.shared.pause_until(until);
    }

    /// [`pause_for`](LocalLimiter::pause_for) with up to `jitter` more, so that
    /// several processes which were told the same do not come back at once.
    pub fn pause_with_jitter(&self, pause: Duration, jitter: Duration) {
        // A hasher's keys are random; that is all the chance that is needed here.
        let chance = RandomState::new().hash_one(0_u8);
        let most = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX);
        let more = (u128::from(most) * u128::from(chance)) >> 64;
        self.pause_for(pause.saturating_add(Duration::from_nanos(u64::try_from(more).unwrap_or(most))));
    }

    /// Closes the limiter: everybody who waits, and every later call, gets an
    /// error that [`is_closed`](Error::is_closed).
    pub fn close(&self) {
        self.shared.close();
    }
}

impl fmt::Debug for LocalLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}

/// A policy, or what becomes one.
#[derive(Clone, Debug)]
pub struct PolicyArg(Policy);

impl PolicyArg {
    pub(crate) fn into_policy(self) -> Policy {
        self.0
    }
}

impl From<Policy> for PolicyArg {
    fn from(policy: Policy) -> PolicyArg {
        PolicyArg(policy)
    }
}

impl From<suimon_core::Limit> for PolicyArg {
    fn from(limit: suimon_core::Limit) -> PolicyArg {
        PolicyArg(limit.into())
    }
}

impl TryFrom<&str> for PolicyArg {
    type Error = Error;

    fn try_from(text: &str) -> Result<PolicyArg, Error> {
        Ok(PolicyArg(text.parse()?))
    }
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Error {
        match never {}
    }
}
