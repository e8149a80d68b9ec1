//! The limiter of a busy key, and waiting on it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use suimon_core::{Cost, Decision};

use super::keys::{Keys, Turn, When};
use super::shard::Find;
use crate::local::{Consume, Shared, block_on};
use crate::sync::Arc;
use crate::{Error, IntoRequest, Limiter, Request, Reservation};

/// Somebody's hold on the limiter of a key. With the last one the key gives it up,
/// if it has nothing but what it has used.
pub(super) struct Held<I: Send + 'static> {
    keys: Arc<Keys<I>>,
    /// `None` for the limiter of all keys that have no room.
    hash: Option<u64>,
    /// Taken when it is dropped.
    shared: Option<Arc<Shared>>,
}

impl<I: Send + 'static> Held<I> {
    pub(super) fn new(keys: Arc<Keys<I>>, hash: u64, shared: Arc<Shared>) -> Held<I> {
        Held { keys, hash: Some(hash), shared: Some(shared) }
    }

    pub(super) fn common(keys: Arc<Keys<I>>, shared: Arc<Shared>) -> Held<I> {
        Held { keys, hash: None, shared: Some(shared) }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash.unwrap_or_default()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        match &self.shared {
            Some(shared) => shared,
            None => unreachable!("it is there until it is dropped"),
        }
    }

    pub(super) fn allow(&self, when: When, cost: Cost) -> Result<Decision, Error> {
        match when {
            When::Now => self.shared().allow(cost),
            When::At(time) => self.shared().allow_at(Some(time), cost),
        }
    }

    pub(super) fn peek(&self, when: When, cost: Cost) -> Result<Decision, Error> {
        let at = match when {
            When::Now => None,
            When::At(time) => Some(time),
        };
        self.shared().peek(at, cost)
    }
}

impl<I: Send + 'static> Drop for Held<I> {
    fn drop(&mut self) {
        let (Some(hash), Some(shared)) = (self.hash, self.shared.take()) else { return };
        let now = self.keys.setup.clock.now();
        let mut shard = self.keys.shard(hash);
        if let Some(at) = shard.find_busy(hash, &shared)
            && let Some(busy) = shard.entry(at).busy()
        {
            busy.holders -= 1;
            self.keys.rest(&mut shard, at, now);
        }
    }
}

/// Takes a place in the queue of a key.
pub(super) fn reserve<I: Send + 'static>(
    keys: &Arc<Keys<I>>,
    hash: u64,
    key: &impl Find<I>,
    request: impl IntoRequest,
) -> Result<Reservation, Error> {
    let request = request.into_request()?;
    keys.check(hash, key, request.cost())?;
    let held = keys.busy(hash, key, false)?;
    Ok(Reservation::new(held.shared().clone(), None, request)?.holding(held))
}

/// A key as it is kept: nothing for one that is known by its hash.
#[derive(Clone, Debug)]
pub(super) struct Stored<I>(pub(super) I);

impl<I: Eq + Clone> Find<I> for Stored<I> {
    fn is(&self, id: &I) -> bool {
        *id == self.0
    }

    fn own(&self) -> I {
        self.0.clone()
    }
}

/// One key of a [`Keyed`](super::Keyed) or [`KeyedMap`](super::KeyedMap) as a
/// [`Limiter`].
///
/// ```
/// use suimon::{Keyed, Spot};
///
/// let tenants = Keyed::new("pace 600/min", 10_000)?;
/// let spot = Spot::new(tenants.limiter("tenant-7"));
/// assert_eq!(spot.call(1, || 2 + 2)?, 4);
/// # Ok::<(), suimon::Error>(())
/// ```
pub struct KeyLimiter<I: Send + 'static = ()> {
    keys: Arc<Keys<I>>,
    hash: u64,
    key: Stored<I>,
}

impl<I: Eq + Clone + Send + 'static> KeyLimiter<I> {
    pub(super) fn new(keys: Arc<Keys<I>>, hash: u64, key: I) -> KeyLimiter<I> {
        KeyLimiter { keys, hash, key: Stored(key) }
    }

    pub(super) fn consume_owned(self, request: Result<Request, Error>) -> KeyedConsume<I> {
        KeyedConsume { limiter: self, step: Step::New(request) }
    }

    /// Decides, or goes to wait.
    fn start(&self, request: Request) -> Result<Option<Waiting<I>>, Error> {
        if let Some(Decision::Allow(_)) = self.keys.hit(self.hash, When::Now, request.cost()) {
            return Ok(None);
        }
        match self.keys.turn(self.hash, &self.key, When::Now, request.cost(), true)? {
            Turn::Done(Decision::Allow(_)) => Ok(None),
            Turn::Done(Decision::Deny(_, retry)) => Err(Error::rate_limited(retry, request.max_wait())),
            Turn::Busy(held) => Ok(Some((Consume::new(held.shared().clone(), Ok(request)), held))),
        }
    }
}

impl<I: Clone + Send + 'static> Clone for KeyLimiter<I> {
    fn clone(&self) -> KeyLimiter<I> {
        KeyLimiter { keys: self.keys.clone(), hash: self.hash, key: self.key.clone() }
    }
}

impl<I: Send + 'static> fmt::Debug for KeyLimiter<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLimiter").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl<I: Eq + Clone + Send + Sync + 'static> Limiter for KeyLimiter<I> {
    fn allow(&self, cost: Cost) -> Result<Decision, Error> {
        self.keys.allow(self.hash, &self.key, When::Now, cost)
    }

    fn consume(&self, request: Request) -> Result<(), Error> {
        block_on(self.consume_async(request))
    }

    fn consume_async(&self, request: Request) -> impl Future<Output = Result<(), Error>> + Send {
        self.clone().consume_owned(Ok(request))
    }
}

/// The future of `consume_async` for a key: ready when its turn has come and its
/// cost is taken.
///
/// Dropped before that it leaves no trace, wherever it stands: but what was granted before
/// a change of the limits, and not polled since, stays used.
#[must_use = "nothing is taken before the future is polled"]
pub struct KeyedConsume<I: Send + 'static = ()> {
    limiter: KeyLimiter<I>,
    step: Step<I>,
}

/// The wait is dropped before the hold.
type Waiting<I> = (Consume, Held<I>);

enum Step<I: Send + 'static> {
    New(Result<Request, Error>),
    Waiting(Waiting<I>),
    Done,
}

// Nothing in it is pinned.
impl<I: Send + 'static> Unpin for KeyedConsume<I> {}

impl<I: Eq + Clone + Send + 'static> Future for KeyedConsume<I> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Step::New(request) = &mut self.step {
            let request = std::mem::replace(request, Err(Error::closed()));
            self.step = match request.and_then(|request| self.limiter.start(request)) {
                Ok(Some(waiting)) => Step::Waiting(waiting),
                decided => return self.finish(decided.map(|_| ())),
            };
        }
        match &mut self.step {
            Step::Waiting((consume, _)) => match Pin::new(consume).poll(context) {
                Poll::Ready(outcome) => self.finish(outcome),
                Poll::Pending => Poll::Pending,
            },
            Step::New(_) | Step::Done => panic!("`KeyedConsume` was polled after it was ready"),
        }
    }
}

impl<I: Send + 'static> KeyedConsume<I> {
    fn finish(&mut self, outcome: Result<(), Error>) -> Poll<Result<(), Error>> {
        self.step = Step::Done;
        // Wrong arguments and closed limits are no refusals.
        if outcome.as_ref().err().is_none_or(|error| error.is_rate_limited() || error.is_queue_full()) {
            self.limiter.keys.counters.count(outcome.is_ok());
        }
        Poll::Ready(outcome)
    }
}

impl<I: Send + 'static> fmt::Debug for KeyedConsume<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match &self.step {
            Step::New(_) => "new",
            Step::Waiting(_) => "waiting",
            Step::Done => "done",
        };
        f.debug_struct("KeyedConsume").field("step", &step).finish_non_exhaustive()
    }
}
