use std::fmt;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use suimon_core::{Cost, Reservation as Booked, Settlement, Timestamp};

use super::consume::block_on;
use super::queue::Key;
use super::shared::Shared;
use super::turns::Place;
use crate::sync::Arc;
use crate::{Error, IntoRequest, Request};

/// A place in the queue for a cost that is an estimate, to be settled once.
///
/// Dropped, the estimate stays charged, also if its turn has not come yet:
/// whoever loses track of what a call cost has at least not spent too much.
///
/// ```
/// use suimon::LocalLimiter;
///
/// let limiter = LocalLimiter::new("bucket 90000/min")?;
/// let mut place = limiter.reserve(4000)?;
/// place.wait_until_ready()?; // or `place.ready().await`
/// // ... the call, which tells what it really cost:
/// place.settle(1234)?;
/// # Ok::<(), suimon::Error>(())
/// ```
#[must_use = "a reservation that is dropped stays charged with its estimate"]
pub struct Reservation {
    shared: Arc<Shared>,
    place: Spot,
    estimate: Cost,
    wait: Duration,
    /// What is to be dropped last: the hold on a key's limiter.
    _hold: Option<Box<dyn Send + Sync>>,
}

enum Spot {
    Granted(Booked),
    Queued(Key),
    /// It can never come to its turn.
    Failed(Error),
    /// Settled.
    Gone,
}

impl Reservation {
    pub(crate) fn new(shared: Arc<Shared>, at: Option<Timestamp>, request: Request) -> Result<Reservation, Error> {
        let (place, wait) = shared.locked(at, |turns, now, _| {
            turns.join(now, request).map(|place| match place {
                Place::Granted(booked) => (Spot::Granted(booked), Duration::ZERO),
                Place::Queued(key, start) => (Spot::Queued(key), start.saturating_since(now)),
            })
        })?;
        Ok(Reservation { shared, place, estimate: request.cost(), wait, _hold: None })
    }

    /// Keeps something as long as the place.
    pub(crate) fn holding(mut self, hold: impl Send + Sync + 'static) -> Reservation {
        self._hold = Some(Box::new(hold));
        self
    }

    /// How long it had to wait when it was made. Its turn comes earlier when
    /// somebody before it gives up, and later when the limiter is paused or slowed.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        self.wait
    }

    /// What is charged if it is not settled.
    #[must_use]
    pub const fn estimate(&self) -> Cost {
        self.estimate
    }

    /// Waits until its turn has come. Dropping the future gives nothing up.
    ///
    /// # Errors
    /// [`Error::is_closed`] when the limiter was closed first, or the error of a
    /// change of the limits under which the estimate can never pass.
    pub async fn ready(&mut self) -> Result<(), Error> {
        poll_fn(|context| self.poll(context.waker().clone())).await
    }

    /// The same, blocking the thread.
    ///
    /// # Errors
    /// As for [`ready`](Reservation::ready).
    pub fn wait_until_ready(&mut self) -> Result<(), Error> {
        block_on(self.ready())
    }

    /// Settles with what it really cost: gives back what was not needed, as far
    /// as that mints nothing, or charges what went beyond, even into debt.
    ///
    /// # Errors
    /// [`Error::is_invalid_cost`] when the number is no cost: then the estimate
    /// stays charged. As for [`ready`](Reservation::ready) otherwise.
    pub fn settle(mut self, actual: impl IntoRequest) -> Result<Settlement, Error> {
        let actual = actual.into_request()?.cost();
        let place = std::mem::replace(&mut self.place, Spot::Gone);
        self.shared.locked(None, |turns, now, wakers| match place {
            Spot::Granted(booked) => turns.settle(now, booked, actual, wakers),
            Spot::Queued(key) => match turns.look(key, None, wakers) {
                Some(outcome) => outcome.and_then(|booked| turns.settle(now, booked, actual, wakers)),
                None => Ok(turns.settle_queued(now, key, actual, wakers)),
            },
            Spot::Failed(error) => Err(error),
            Spot::Gone => Ok(Settlement::Even),
        })
    }

    /// Gives the place up: nothing was needed.
    pub fn cancel(self) {
        // Giving back everything cannot fail but where there is nothing to give back.
        let _ = self.settle(Cost::ZERO);
    }

    fn poll(&mut self, waker: Waker) -> Poll<Result<(), Error>> {
        let key = match &self.place {
            Spot::Queued(key) => *key,
            Spot::Failed(error) => return Poll::Ready(Err(error.clone())),
            Spot::Granted(_) | Spot::Gone => return Poll::Ready(Ok(())),
        };
        match self.shared.locked(None, |turns, _, wakers| turns.look(key, Some(waker), wakers)) {
            Some(Ok(booked)) => {
                self.place = Spot::Granted(booked);
                Poll::Ready(Ok(()))
            }
            Some(Err(error)) => {
                self.place = Spot::Failed(error.clone());
                Poll::Ready(Err(error))
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Spot::Queued(key) = self.place {
            self.shared.locked(None, |turns, _, wakers| turns.abandon(key, wakers));
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("estimate", &self.estimate)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
