//! A limiter over a store that several processes and machines share.

mod breaker;
mod builder;
mod denied;
mod granted;
mod io;
mod leased;
mod stats;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use suimon_core::{Carry, Cost, Decision, Policy, Status};

pub use builder::{Outage, RemoteBuilder};
pub use granted::RemoteReservation;
pub use leased::Leased;
pub use stats::RemoteStats;

use crate::keyed::Keyed;
use crate::local::block_on;
use crate::store::{Call, Limits, Outcome, Part, Reply, RequestId, Store, Verb, default_calendar};
use crate::sync::lock_std;
use crate::{Error, IntoRequest, Limiter, PolicyArg, Request};
use breaker::Breaker;
use denied::Denied;
use granted::Granted;
use stats::Counters;

/// A limit that processes and machines share through a [`Store`].
///
/// The same verbs as a [`LocalLimiter`](crate::LocalLimiter), exact to the token over all who
/// share the store: it decides by its own clock, in one step. Copies, and the
/// limiters of other keys made by [`key`](Remote::key), share the connection, the
/// policy for outages and the statistics.
///
/// Waiting is done on places booked in the store: first come, first served across
/// machines. A wait that is dropped is given back.
///
/// **In an outage** (the store refuses, hangs, is cut off) a call fails after its
/// deadline with an error that [`is_unavailable`](Error::is_unavailable), unless
/// [`Outage`] says otherwise; the calls after it fail at once, and once in a while one of them asks
/// again, so that a store which is back is found within a second. No answer is made
/// up: an answer that does not come from the store says that it is
/// [degraded](Answer::is_degraded).
///
/// Callers may be threads or tasks of any runtime: one thread of the process talks to
/// the stores. The blocking verbs must not be called from within a store.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
    key: Arc<str>,
}

struct Shared {
    store: Arc<dyn Store>,
    limits: Mutex<Arc<Limits>>,
    timeout: Duration,
    outage: Outage,
    /// The budget of this process in an outage.
    local: Option<Keyed>,
    breaker: Breaker,
    denied: Option<Denied>,
    counters: Counters,
}

/// What a [`Remote`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    decision: Decision,
    degraded: bool,
    replayed: bool,
}

impl Answer {
    fn here(decision: Decision) -> Answer {
        Answer { decision, degraded: false, replayed: false }
    }

    /// The decision.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Does it pass?
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// Was it decided without the store, by the policy for outages?
    #[must_use]
    pub const fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// Is it the recorded answer to an earlier request of the same id?
    #[must_use]
    pub const fn is_replayed(&self) -> bool {
        self.replayed
    }
}

impl Remote {
    /// A limiter over a store; for the first key, and any number of others.
    ///
    /// # Errors
    /// When the text of the policy is wrong.
    pub fn builder<P>(store: impl Store, key: &str, policy: P) -> Result<RemoteBuilder, Error>
    where
        P: TryInto<PolicyArg>,
        P::Error: Into<Error>,
    {
        RemoteBuilder::new(Arc::new(store), key, policy.try_into().map_err(Into::into)?.into_policy())
    }

    /// The same limits for another key.
    #[must_use]
    pub fn key(&self, key: &str) -> Remote {
        Remote { shared: self.shared.clone(), key: key.into() }
    }

    /// May `cost` pass now?
    ///
    /// # Errors
    /// [`Error::is_cost_too_large`] and [`Error::is_invalid_cost`] for arguments,
    /// [`Error::is_unavailable`] in an outage.
    pub async fn allow_async(&self, cost: impl IntoRequest + Send) -> Result<Answer, Error> {
        self.ask(Verb::Allow, cost.into_request()?.cost(), None).await
    }

    /// [`allow_async`](Remote::allow_async) for a request with an id: who retries it within the id's
    /// lifetime gets the same answer, and it is charged once. The id is the key's
    /// own: other keys may have the same.
    ///
    /// # Errors
    /// As for [`allow_async`](Remote::allow_async). After an outage in the middle of the call it is
    /// unknown whether it was charged; the same id finds out.
    pub async fn allow_once(&self, id: RequestId, cost: impl IntoRequest + Send) -> Result<Answer, Error> {
        self.ask(Verb::Allow, cost.into_request()?.cost(), Some(id)).await
    }

    /// What [`allow_async`](Remote::allow_async) would answer; nothing changes.
    ///
    /// # Errors
    /// As there.
    pub async fn peek_async(&self, cost: impl IntoRequest + Send) -> Result<Answer, Error> {
        self.ask(Verb::Peek, cost.into_request()?.cost(), None).await
    }

    /// Waits in turn, then takes `cost`.
    ///
    /// # Errors
    /// As for [`allow_async`](Remote::allow_async), and [`Error::is_rate_limited`] at once where it would
    /// have to wait longer than it may; then nothing is taken.
    pub async fn consume_async(&self, request: impl IntoRequest + Send) -> Result<(), Error> {
        let request = request.into_request()?;
        match self.book(request).await? {
            Some(granted) => {
                io::sleep(granted.wait()).await;
                granted.keep();
                Ok(())
            }
            None => self.consume_without(request).await,
        }
    }

    /// Takes a place for a cost that is known only later.
    ///
    /// # Errors
    /// As for [`consume_async`](Remote::consume_async). In an outage there is no place to be had: the
    /// error is [`Error::is_unavailable`], whatever the policy for outages says.
    pub async fn reserve_async(&self, request: impl IntoRequest + Send) -> Result<RemoteReservation, Error> {
        match self.book(request.into_request()?).await? {
            Some(granted) => Ok(RemoteReservation::new(granted)),
            None => Err(Error::unavailable("a place can only be reserved in the store")),
        }
    }

    /// Takes tokens of this key in chunks of up to `chunk`, to be spent here within
    /// `lifetime` (10 ms to an hour).
    ///
    /// # Errors
    /// [`Error::is_invalid_cost`] when the number is no cost.
    pub fn leased(&self, chunk: impl IntoRequest, lifetime: Duration) -> Result<Leased, Error> {
        Ok(Leased::new(self.clone(), chunk.into_request()?.cost(), lifetime))
    }

    /// [`allow_async`](Remote::allow_async), blocking the thread.
    ///
    /// # Errors
    /// As there.
    pub fn allow(&self, cost: impl IntoRequest + Send) -> Result<Answer, Error> {
        block_on(self.allow_async(cost))
    }

    /// [`peek_async`](Remote::peek_async), blocking the thread.
    ///
    /// # Errors
    /// As there.
    pub fn peek(&self, cost: impl IntoRequest + Send) -> Result<Answer, Error> {
        block_on(self.peek_async(cost))
    }

    /// [`consume_async`](Remote::consume_async), blocking the thread.
    ///
    /// # Errors
    /// As there.
    pub fn consume(&self, request: impl IntoRequest + Send) -> Result<(), Error> {
        block_on(self.consume_async(request))
    }

    /// [`reserve_async`](Remote::reserve_async), blocking the thread.
    ///
    /// # Errors
    /// As there.
    pub fn reserve(&self, request: impl IntoRequest + Send) -> Result<RemoteReservation, Error> {
        block_on(self.reserve_async(request))
    }

    /// Puts other limits in force, in this process, as a version that is one higher. Keys follow when
    /// they are next charged, in whichever process that is; the highest version that a key
    /// has met governs it everywhere.
    ///
    /// # Errors
    /// When the policy is wrong; then nothing changes.
    pub fn change<P>(&self, policy: P, carry: Carry) -> Result<(), Error>
    where
        P: TryInto<PolicyArg>,
        P::Error: Into<Error>,
    {
        let policy = policy.try_into().map_err(Into::into)?.into_policy();
        let mut limits = lock_std(&self.shared.limits);
        *limits = Arc::new(Limits::new(policy, &*default_calendar(), limits.version() + 1, carry)?);
        Ok(())
    }

    /// What has been asked and answered, by all copies and keys.
    #[must_use]
    pub fn stats(&self) -> RemoteStats {
        self.shared.counters.read(self.shared.breaker.is_open())
    }

    async fn ask(&self, verb: Verb, cost: Cost, id: Option<RequestId>) -> Result<Answer, Error> {
        let cached = self.shared.denied.as_ref().filter(|_| verb == Verb::Allow && id.is_none());
        if let Some(decision) = cached.and_then(|denied| denied.find(&self.key, cost, Instant::now())) {
            self.shared.counters.answered_from_cache();
            return Ok(Answer::here(decision));
        }
        match self.shared.clone().call(self.call(verb, cost, id)).await {
            Ok(reply) => {
                let decision = reply.outcome.decision();
                if let (Some(denied), Decision::Deny(status, retry)) = (cached, decision) {
                    denied.note(&self.key, cost, status, retry, Instant::now());
                }
                self.shared.counters.decided(&decision, reply.replayed);
                Ok(Answer { decision, degraded: false, replayed: reply.replayed })
            }
            Err(error) if error.is_unavailable() => self.without_store(verb, cost, error),
            Err(error) => Err(error),
        }
    }

    /// Decides by the policy for outages.
    fn without_store(&self, verb: Verb, cost: Cost, error: Error) -> Result<Answer, Error> {
        let decision = match (&self.shared.outage, &self.shared.local) {
            (Outage::Allow, _) => Decision::Allow(Status::UNLIMITED),
            (Outage::Local(_), Some(local)) if verb == Verb::Peek => local.peek(&*self.key, cost)?,
            (Outage::Local(_), Some(local)) => local.allow(&*self.key, cost)?,
            _ => return Err(error),
        };
        self.shared.counters.degraded();
        Ok(Answer { decision, degraded: true, replayed: false })
    }

    fn limits(&self) -> Arc<Limits> {
        lock_std(&self.shared.limits).clone()
    }

    fn call(&self, verb: Verb, cost: Cost, id: Option<RequestId>) -> Call {
        let part = Part { key: self.key.clone(), limits: self.limits(), cost };
        Call { parts: vec![part], verb, id, at: None }
    }

    /// Books a place; `None` in an outage for which there is a policy.
    async fn book(&self, request: Request) -> Result<Option<Granted>, Error> {
        let call = self.call(Verb::Reserve { max_wait: request.max_wait() }, request.cost(), None);
        let limits = call.parts[0].limits.clone();
        let shared = self.shared.clone();
        // Whoever is gone when the answer comes drops the grant, which gives it back.
        let granted = io::run(async move {
            let reply = shared.clone().talk(call).await?;
            shared.counters.decided(&reply.outcome.decision(), reply.replayed);
            match reply.outcome {
                Outcome::Booked(_, ticket) => Ok(Granted::new(shared, ticket, limits, request.cost())),
                Outcome::Denied(_, retry) => Err(Error::rate_limited(retry, request.max_wait())),
                Outcome::Allowed(_) => Err(Error::unavailable("the store answered a booking with something else")),
            }
        });
        match granted.await {
            Ok(granted) => Ok(Some(granted)),
            Err(error) if error.is_unavailable() && !matches!(self.shared.outage, Outage::Deny) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Consumes by the policy for outages.
    async fn consume_without(&self, request: Request) -> Result<(), Error> {
        self.shared.counters.degraded();
        match &self.shared.local {
            Some(local) => local.consume_async(&*self.key, request).await,
            None => Ok(()),
        }
    }
}

impl Shared {
    /// Asks the store from the thread that talks to stores.
    async fn call(self: Arc<Shared>, call: Call) -> Result<Reply, Error> {
        io::run(self.talk(call)).await
    }

    /// Asks the store, within the deadline, unless it has just failed.
    async fn talk(self: Arc<Shared>, call: Call) -> Result<Reply, Error> {
        let store = self.store.clone();
        self.within(async { store.decide(&call).await }).await
    }

    async fn within<T>(&self, asking: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let start = Instant::now();
        if !self.breaker.admits(start) {
            self.counters.refused_by_breaker();
            return Err(Error::unavailable("it has failed a moment ago and is not asked yet again"));
        }
        // Reports also if this is dropped in the middle.
        let mut report = Report { shared: self, works: false };
        let answer = tokio::time::timeout(self.timeout, asking).await;
        let answer = answer.unwrap_or_else(|_| Err(Error::unavailable(format!("no answer within {:?}", self.timeout))));
        report.works = !matches!(&answer, Err(error) if error.is_unavailable());
        drop(report);
        self.counters.talked(start.elapsed(), &answer);
        answer
    }
}

struct Report<'a> {
    shared: &'a Shared,
    works: bool,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if self.shared.breaker.report(Instant::now(), self.works) {
            self.shared.counters.switched(self.works);
        }
    }
}

impl Limiter for Remote {
    fn allow(&self, cost: Cost) -> Result<Decision, Error> {
        Remote::allow(self, cost).map(|answer| *answer.decision())
    }

    fn consume(&self, request: Request) -> Result<(), Error> {
        Remote::consume(self, request)
    }

    fn consume_async(&self, request: Request) -> impl Future<Output = Result<(), Error>> + Send {
        Remote::consume_async(self, request)
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy: Policy = lock_std(&self.shared.limits).gate().policy().clone();
        f.debug_struct("Remote")
            .field("key", &self.key)
            .field("policy", &policy.to_string())
            .field("store", &self.shared.store)
            .finish_non_exhaustive()
    }
}
