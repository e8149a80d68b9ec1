use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use suimon_core::{Cost, Settlement};

use super::{Shared, io};
use crate::local::block_on;
use crate::store::{Limits, RequestId, Settling, Ticket};
use crate::{Error, IntoRequest};

/// A place that is booked in the store, and given back when it is dropped.
pub(super) struct Granted {
    shared: Arc<Shared>,
    /// Taken when it is kept or settled.
    ticket: Option<Ticket>,
    limits: Arc<Limits>,
    estimate: Cost,
    /// When its wait is over, counted from the answer on, which is not too early.
    ready: Instant,
}

impl Granted {
    pub(super) fn new(shared: Arc<Shared>, ticket: Ticket, limits: Arc<Limits>, estimate: Cost) -> Granted {
        let ready = Instant::now() + ticket.wait.min(FARTHEST);
        Granted { shared, ticket: Some(ticket), limits, estimate, ready }
    }

    /// What is left of its wait.
    pub(super) fn wait(&self) -> Duration {
        self.ready.saturating_duration_since(Instant::now())
    }

    /// It has been used as it was booked.
    pub(super) fn keep(mut self) {
        self.ticket = None;
    }

    /// What is dropped in the middle of it stays charged, and is not given back a second time.
    async fn settle(mut self, actual: Cost) -> Result<Settlement, Error> {
        let ticket = self.ticket.take();
        self.ask_to_settle(ticket, actual, None).await
    }

    async fn ask_to_settle(
        &self,
        ticket: Option<Ticket>,
        actual: Cost,
        id: Option<RequestId>,
    ) -> Result<Settlement, Error> {
        let Some(ticket) = ticket else { return Ok(Settlement::Even) };
        let settling = Settling { ticket, limits: vec![self.limits.clone()], actual: vec![actual], id, at: None };
        let shared = self.shared.clone();
        io::run(async move { shared.settle(settling).await }).await
    }
}

/// No timer is set further ahead.
const FARTHEST: Duration = Duration::from_secs(30 * 365 * 86_400);

impl Shared {
    pub(super) async fn settle(&self, settling: Settling) -> Result<Settlement, Error> {
        let store = self.store.clone();
        if let Some(denied) = &self.denied {
            settling.ticket.parts.iter().for_each(|(key, _)| denied.forget(key));
        }
        self.within(async { store.settle(&settling).await }).await
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let settling =
                Settling { ticket, limits: vec![self.limits.clone()], actual: vec![Cost::ZERO], id: None, at: None };
            let shared = self.shared.clone();
            // In an outage it stays charged, which lets nobody through.
            io::handle().spawn(async move { shared.settle(settling).await.map(drop) });
        }
    }
}

/// A place booked in a store for a cost that is an estimate, to be settled once.
///
/// Dropped, the estimate stays charged.
#[must_use = "a reservation that is dropped stays charged with its estimate"]
pub struct RemoteReservation {
    granted: Option<Granted>,
    estimate: Cost,
    wait: Duration,
}

impl RemoteReservation {
    pub(super) fn new(granted: Granted) -> RemoteReservation {
        let (estimate, wait) = (granted.estimate, granted.wait());
        RemoteReservation { granted: Some(granted), estimate, wait }
    }

    /// How long it has to wait from when it was made.
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
    pub async fn ready(&self) {
        if let Some(granted) = &self.granted {
            io::sleep(granted.wait()).await;
        }
    }

    /// The same, blocking the thread.
    pub fn wait_until_ready(&self) {
        block_on(self.ready());
    }

    /// Settles with what it really cost.
    ///
    /// # Errors
    /// [`Error::is_invalid_cost`] when the number is no cost, [`Error::is_unavailable`] in
    /// an outage: then the estimate stays charged, unless only the answer was lost. Whoever
    /// must know takes [`settle_once`](RemoteReservation::settle_once).
    pub async fn settle_async(mut self, actual: impl IntoRequest) -> Result<Settlement, Error> {
        let actual = actual.into_request()?.cost();
        match self.granted.take() {
            Some(granted) => granted.settle(actual).await,
            None => Ok(Settlement::Even),
        }
    }

    /// [`settle_async`](RemoteReservation::settle_async) with an id, by which it can be
    /// tried again after an outage, and is done once. The id is the key's own, and may be that of
    /// any call.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use suimon::{Remote, Settlement, Cost, store::{MemoryStore, RequestId}};
    /// # let limiter = Remote::builder(MemoryStore::new(), "key", "bucket 1000/h")?.build()?;
    /// # futures_executor::block_on(async {
    /// let place = limiter.reserve_async(600).await?;
    /// let id = RequestId::new("request 7f3a", Duration::from_secs(600))?;
    /// let settled = loop {
    ///     match place.settle_once(id.clone(), 200).await {
    ///         Err(error) if error.is_unavailable() => continue,
    ///         settled => break settled?,
    ///     }
    /// };
    /// assert_eq!(settled, Settlement::Refunded(Cost::whole(400)));
    /// # Ok::<(), suimon::Error>(())
    /// # })?;
    /// # Ok::<(), suimon::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`settle_async`](RemoteReservation::settle_async).
    pub async fn settle_once(&self, id: RequestId, actual: impl IntoRequest) -> Result<Settlement, Error> {
        let actual = actual.into_request()?.cost();
        match &self.granted {
            Some(granted) => granted.ask_to_settle(granted.ticket.clone(), actual, Some(id)).await,
            None => Ok(Settlement::Even),
        }
    }

    /// [`settle_async`](RemoteReservation::settle_async), blocking the thread.
    ///
    /// # Errors
    /// As there.
    pub fn settle(self, actual: impl IntoRequest) -> Result<Settlement, Error> {
        block_on(self.settle_async(actual))
    }

    /// Gives the place up: nothing was needed. Done in the background.
    pub fn cancel(mut self) {
        drop(self.granted.take());
    }
}

impl Drop for RemoteReservation {
    fn drop(&mut self) {
        if let Some(granted) = self.granted.take() {
            granted.keep();
        }
    }
}

impl fmt::Debug for RemoteReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteReservation")
            .field("estimate", &self.estimate)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
