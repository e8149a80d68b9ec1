//! What an application depends on: a limiter, whichever it is.

mod none;
mod recorder;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use suimon_core::{Cost, Decision};

pub use none::NoLimit;
pub use recorder::{Recorder, Seen};

use crate::{Error, LocalLimiter, Request};

/// A rate limiter: [`LocalLimiter`] in production, [`NoLimit`] or a
/// [`Recorder`] in tests, or one of your own over a store that several machines
/// share.
///
/// Functions take `&impl Limiter`, structs hold an `L: Limiter`; where the kind is
/// chosen at run time take [`DynLimiter`], for instance `Arc<dyn DynLimiter>`, which
/// is a `Limiter` too.
///
/// An implementation of your own says how it decides and how it waits:
///
/// ```
/// use std::time::Duration;
/// use suimon::{Cost, Decision, Error, Limiter, Request};
///
/// /// Asks a service on another machine.
/// struct Remote;
///
/// impl Remote {
///     fn ask(&self, cost: Cost) -> Result<Decision, Error> {
///         Err(Error::unavailable(format!("no route to the limiter for {cost} tokens")))
///     }
/// }
///
/// impl Limiter for Remote {
///     fn allow(&self, cost: Cost) -> Result<Decision, Error> {
///         self.ask(cost)
///     }
///
///     fn consume(&self, request: Request) -> Result<(), Error> {
///         loop {
///             match self.ask(request.cost())?.retry() {
///                 None => return Ok(()),
///                 Some(retry) => match retry.after() {
///                     Some(wait) if request.max_wait().is_none_or(|most| wait <= most) => std::thread::sleep(wait),
///                     _ => return Err(Error::rate_limited(retry, request.max_wait())),
///                 },
///             }
///         }
///     }
///
///     async fn consume_async(&self, request: Request) -> Result<(), Error> {
///         self.consume(request) // or the sleep of your runtime
///     }
/// }
///
/// assert!(Remote.allow(Cost::ONE).unwrap_err().is_unavailable());
/// ```
pub trait Limiter: Send + Sync {
    /// May `cost` pass now? Never waits. A refusal is an answer; an error means
    /// that nothing was decided.
    ///
    /// # Errors
    /// For arguments, a closed limiter, a store that is away.
    fn allow(&self, cost: Cost) -> Result<Decision, Error>;

    /// Waits in turn, then takes the cost; blocks the thread.
    ///
    /// # Errors
    /// As for [`allow`](Limiter::allow), and [`Error::is_rate_limited`] where the
    /// request may not wait so long.
    fn consume(&self, request: Request) -> Result<(), Error>;

    /// Waits in turn, then takes the cost.
    ///
    /// # Errors
    /// As for [`consume`](Limiter::consume).
    fn consume_async(&self, request: Request) -> impl Future<Output = Result<(), Error>> + Send;
}

/// The object-safe form of [`Limiter`]; every limiter has it.
///
/// ```
/// use std::sync::Arc;
/// use suimon::{Cost, DynLimiter, Limiter, LocalLimiter, NoLimit};
///
/// fn choose(limited: bool) -> Result<Arc<dyn DynLimiter>, suimon::Error> {
///     Ok(if limited { Arc::new(LocalLimiter::new("pace 60/min")?) } else { Arc::new(NoLimit) })
/// }
///
/// assert!(choose(true)?.allow(Cost::ONE)?.is_allowed());
/// # Ok::<(), suimon::Error>(())
/// ```
pub trait DynLimiter: Send + Sync {
    /// [`Limiter::allow`].
    ///
    /// # Errors
    /// As there.
    fn allow_dyn(&self, cost: Cost) -> Result<Decision, Error>;

    /// [`Limiter::consume`].
    ///
    /// # Errors
    /// As there.
    fn consume_dyn(&self, request: Request) -> Result<(), Error>;

    /// [`Limiter::consume_async`], in a box.
    ///
    /// # Errors
    /// As there.
    fn consume_boxed(&self, request: Request) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>>;
}

impl<L: Limiter> DynLimiter for L {
    fn allow_dyn(&self, cost: Cost) -> Result<Decision, Error> {
        self.allow(cost)
    }

    fn consume_dyn(&self, request: Request) -> Result<(), Error> {
        self.consume(request)
    }

    fn consume_boxed(&self, request: Request) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>> {
        Box::pin(self.consume_async(request))
    }
}

impl Limiter for dyn DynLimiter + '_ {
    fn allow(&self, cost: Cost) -> Result<Decision, Error> {
        self.allow_dyn(cost)
    }

    fn consume(&self, request: Request) -> Result<(), Error> {
        self.consume_dyn(request)
    }

    fn consume_async(&self, request: Request) -> impl Future<Output = Result<(), Error>> + Send {
        self.consume_boxed(request)
    }
}

impl Limiter for LocalLimiter {
    fn allow(&self, cost: Cost) -> Result<Decision, Error> {
        LocalLimiter::allow(self, cost)
    }

    fn consume(&self, request: Request) -> Result<(), Error> {
        LocalLimiter::consume(self, request)
    }

    fn consume_async(&self, request: Request) -> impl Future<Output = Result<(), Error>> + Send {
        LocalLimiter::consume_async(self, request)
    }
}

macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<L: Limiter + ?Sized> Limiter for $pointer {
            fn allow(&self, cost: Cost) -> Result<Decision, Error> {
                (**self).allow(cost)
            }

            fn consume(&self, request: Request) -> Result<(), Error> {
                (**self).consume(request)
            }

            fn consume_async(&self, request: Request) -> impl Future<Output = Result<(), Error>> + Send {
                (**self).consume_async(request)
            }
        }
    )*};
}

pointers!(&L, Box<L>, Arc<L>);
