use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use suimon_core::{Cost, Decision, Status};
use tokio::sync::Mutex;

use super::denied::Denied;
use super::{Answer, Remote, io};
use crate::clock::{Clock, MachineClock};
use crate::local::block_on;
use crate::store::{Call, Limits, Outcome, Part, Settling, Ticket, Verb};
use crate::{Error, IntoRequest, Limiter, Request};

/// A [`Remote`] that takes tokens in chunks and spends them here, at the speed of
/// memory: one question to the store for a chunk, in place of one for each decision.
///
/// The limit holds as it does without: tokens are charged when they are taken, what is
/// out still counts as saved, what is not spent within the lease's time is void, and
/// near the limit chunks get smaller, so that others find some too. What a process
/// loses when it dies is the chunk it holds.
///
/// For one bucket. Copies share the chunk; when the last one is dropped, what was not
/// spent is given back.
#[derive(Clone)]
pub struct Leased {
    inner: Arc<Inner>,
}

struct Inner {
    remote: Remote,
    chunk: Cost,
    lifetime: Duration,
    /// What is left to be spent, in billionths of a token.
    left: AtomicU64,
    /// Not to be spent from this instant of the machine's clock on.
    until: AtomicU64,
    /// One caller at a time takes the next chunk.
    taking: Mutex<Option<Lease>>,
    denied: Denied,
}

struct Lease {
    ticket: Ticket,
    limits: Arc<Limits>,
    granted: Cost,
    ends: Instant,
}

const BILLION: u64 = 1_000_000_000;

impl Leased {
    pub(super) fn new(remote: Remote, chunk: Cost, lifetime: Duration) -> Leased {
        // Counted in 64 bits of billionths.
        let chunk = chunk.min(Cost::whole(10 * BILLION)).max(Cost::ONE);
        let lifetime = lifetime.clamp(Duration::from_millis(10), Duration::from_secs(3600));
        let (left, until) = (AtomicU64::new(0), AtomicU64::new(0));
        let (taking, denied) = (Mutex::new(None), Denied::default());
        Leased { inner: Arc::new(Inner { remote, chunk, lifetime, left, until, taking, denied }) }
    }

    /// May `cost` pass now? Asks the store only when the chunk is spent or its time is over.
    ///
    /// The status of an answer that was given here tells what is left of the chunk.
    ///
    /// # Errors
    /// As for [`Remote::allow_async`]; [`Error::is_unsupported`] when the limit is not one
    /// bucket, or the store cannot lend.
    pub async fn allow_async(&self, cost: impl IntoRequest + Send) -> Result<Answer, Error> {
        let cost = cost.into_request()?.cost();
        match self.inner.spend(cost) {
            Some(decision) => Ok(Answer::here(decision)),
            None => self.inner.take(cost).await,
        }
    }

    /// [`allow_async`](Leased::allow_async), blocking the thread where the store has to be asked.
    ///
    /// # Errors
    /// As there.
    pub fn allow(&self, cost: impl IntoRequest + Send) -> Result<Answer, Error> {
        let cost = cost.into_request()?.cost();
        match self.inner.spend(cost) {
            Some(decision) => Ok(Answer::here(decision)),
            None => block_on(self.inner.take(cost)),
        }
    }

    /// The whole tokens of the chunk that can still be spent here: what is out on lease to this process and not
    /// used. For a gauge beside those of [`Remote::stats`].
    #[must_use]
    pub fn left(&self) -> u64 {
        let is_over = MachineClock.now().as_nanos() >= self.inner.until.load(Ordering::Acquire);
        if is_over { 0 } else { self.inner.left.load(Ordering::Acquire) / BILLION }
    }

    /// The limiter behind it, whose other verbs ask the store each time.
    #[must_use]
    pub fn remote(&self) -> &Remote {
        &self.inner.remote
    }
}

impl Inner {
    /// Spends of the chunk, if there is enough and its time is not over.
    fn spend(&self, cost: Cost) -> Option<Decision> {
        let wanted = billionths(cost)?;
        let mut left = self.left.load(Ordering::Acquire);
        loop {
            let rest = left.checked_sub(wanted)?;
            if MachineClock.now().as_nanos() >= self.until.load(Ordering::Acquire) {
                return None;
            }
            match self.left.compare_exchange_weak(left, rest, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let rest = rest / BILLION;
                    return Some(Decision::Allow(Status::of(self.chunk.as_whole(), rest, rest, Duration::ZERO)));
                }
                Err(other) => left = other,
            }
        }
    }

    /// Takes the next chunk, and the cost from it.
    async fn take(&self, cost: Cost) -> Result<Answer, Error> {
        if cost > self.chunk || billionths(cost).is_none() {
            return self.remote.allow_async(cost).await;
        }
        let mut lease = self.taking.lock().await;
        // Somebody else may have taken one meanwhile.
        if let Some(decision) = self.spend(cost) {
            return Ok(Answer::here(decision));
        }
        if let Some(decision) = self.denied.find(&self.remote.key, cost, Instant::now()) {
            self.remote.shared.counters.answered_from_cache();
            return Ok(Answer::here(decision));
        }
        let rest = self.left.swap(0, Ordering::AcqRel);
        if let Some(lease) = lease.take() {
            // A crumb is not worth a question: its time ends by itself.
            if rest > billionths(self.chunk).unwrap_or(0) / 8 {
                self.give_back(lease, rest);
            }
        }
        let verb = Verb::Lease { lifetime: self.lifetime, least: cost };
        let limits = self.remote.limits();
        let part = Part { key: self.remote.key.clone(), limits: limits.clone(), cost: self.chunk };
        let call = Call { parts: vec![part], verb, id: None, at: None };
        // From before the question on: the store's time of it is later.
        let (asked, asked_at) = (Instant::now(), MachineClock.now());
        let reply = match self.remote.shared.clone().call(call).await {
            Err(error) if error.is_unavailable() => return self.remote.without_store(Verb::Allow, cost, error),
            reply => reply?,
        };
        self.remote.shared.counters.decided(&reply.outcome.decision(), reply.replayed);
        match reply.outcome {
            Outcome::Booked(status, ticket) => {
                let granted = ticket.leased().ok_or_else(Error::no_lease)?;
                let usable = self.lifetime - self.lifetime / 16;
                *lease = Some(Lease { ticket, limits, granted, ends: asked + self.lifetime });
                self.until.store(asked_at.saturating_add(usable).as_nanos(), Ordering::Release);
                let rest = granted.saturating_sub(cost);
                self.left.store(billionths(rest).unwrap_or(0), Ordering::Release);
                Ok(Answer::here(Decision::Allow(status)))
            }
            Outcome::Denied(status, retry) => {
                self.denied.note(&self.remote.key, cost, status, retry, Instant::now());
                Ok(Answer::here(Decision::Deny(status, retry)))
            }
            Outcome::Allowed(_) => Err(Error::no_lease()),
        }
    }

    /// Gives back what was not spent of a lease, in the background, if it has not ended.
    fn give_back(&self, lease: Lease, rest: u64) {
        if Instant::now() >= lease.ends {
            return;
        }
        let unspent = Cost::new(rest / BILLION, u32::try_from(rest % BILLION).unwrap_or(0)).unwrap_or(Cost::ZERO);
        let actual = vec![lease.granted.saturating_sub(unspent)];
        let settling = Settling { ticket: lease.ticket, limits: vec![lease.limits], actual, id: None, at: None };
        let shared = self.remote.shared.clone();
        io::handle().spawn(async move { shared.settle(settling).await.map(drop) });
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let rest = self.left.swap(0, Ordering::AcqRel);
        if let Some(lease) = self.taking.get_mut().take()
            && rest > 0
        {
            self.give_back(lease, rest);
        }
    }
}

fn billionths(cost: Cost) -> Option<u64> {
    cost.as_whole().checked_mul(BILLION)?.checked_add(u64::from(cost.subsec_nanos()))
}

impl Limiter for Leased {
    fn allow(&self, cost: Cost) -> Result<Decision, Error> {
        Leased::allow(self, cost).map(|answer| *answer.decision())
    }

    /// Waits in the store's queue: a place is booked, no chunk is taken.
    fn consume(&self, request: Request) -> Result<(), Error> {
        self.inner.remote.consume(request)
    }

    fn consume_async(&self, request: Request) -> impl Future<Output = Result<(), Error>> + Send {
        self.inner.remote.consume_async(request)
    }
}

impl fmt::Debug for Leased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leased")
            .field("remote", &self.inner.remote)
            .field("chunk", &self.inner.chunk)
            .field("lifetime", &self.inner.lifetime)
            .finish_non_exhaustive()
    }
}
