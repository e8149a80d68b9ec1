use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use suimon_core::{Cost, Settlement};

use super::{Shared, io};
use crate::local::block_on;
use crate::store::{Limits, Settling, Ticket};
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

    async fn settle(mut self, actual: Cost) -> Result<Settlement, Error> {
        let Some(ticket) = self.ticket.take() else { return Ok(Settlement::Even) };
        let settling = Settling { ticket, limits: vec![self.limits.clone()], actual: vec![actual], at: None };
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
            let settling = Settling { ticket, limits: vec![self.limits.clone()], actual: vec![Cost::ZERO], at: None };
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
    /// an outage: then the estimate stays charged.
    pub async fn settle_async(mut self, actual: impl IntoRequest) -> Result<Settlement, Error> {
        let actual = actual.into_request()?.cost();
        match self.granted.take() {
            Some(granted) => granted.settle(actual).await,
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
