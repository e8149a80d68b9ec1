use std::sync::{Arc, Mutex, PoisonError};

use suimon_core::{Cost, Decision};

use super::{Limiter, NoLimit};
use crate::{Error, Request};

/// A double for tests: writes down what was asked of it, and answers like the
/// limiter inside.
///
/// Copies share what they have seen.
///
/// ```
/// use suimon::{Cost, Limiter, Recorder, Request, Seen};
///
/// fn summarize(limiter: &impl Limiter, text: &str) -> Result<usize, suimon::Error> {
///     limiter.consume(Request::new(Cost::whole(text.len() as u64)))?;
///     Ok(text.len())
/// }
///
/// let limiter = Recorder::default();
/// summarize(&limiter, "a text of 21 letters,")?;
/// assert_eq!(limiter.seen(), [Seen::Consume(Request::new(Cost::whole(21)))]);
/// # Ok::<(), suimon::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Recorder<L = NoLimit> {
    limiter: L,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// One call that a [`Recorder`] has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen {
    /// [`Limiter::allow`].
    Allow(Cost),
    /// [`Limiter::consume`].
    Consume(Request),
    /// [`Limiter::consume_async`].
    ConsumeAsync(Request),
}

/// Records what is asked, and lets everything pass.
impl Default for Recorder {
    fn default() -> Recorder {
        Recorder::new(NoLimit)
    }
}

impl<L> Recorder<L> {
    /// Records what is asked of `limiter`.
    pub fn new(limiter: L) -> Recorder<L> {
        Recorder { limiter, seen: Arc::default() }
    }

    /// All calls so far, in their order.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, seen: Seen) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }
}

impl<L: Limiter> Limiter for Recorder<L> {
    fn allow(&self, cost: Cost) -> Result<Decision, Error> {
        self.note(Seen::Allow(cost));
        self.limiter.allow(cost)
    }

    fn consume(&self, request: Request) -> Result<(), Error> {
        self.note(Seen::Consume(request));
        self.limiter.consume(request)
    }

    async fn consume_async(&self, request: Request) -> Result<(), Error> {
        self.note(Seen::ConsumeAsync(request));
        self.limiter.consume_async(request).await
    }
}
