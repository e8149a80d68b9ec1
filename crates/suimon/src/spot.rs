use std::future::Future;

use suimon_core::{Decision, Limit, Pace, Quota};

use crate::local::{Builder, LocalLimiter, PolicyArg};
use crate::{Error, IntoRequest, Limiter};

/// A limiter applied to functions: waits in turn, then calls.
///
/// The limiter is injected, so that a test brings [`NoLimit`](crate::NoLimit) or a
/// [`ManualClock`](crate::clock::ManualClock), and production whatever it shares. The
/// attribute `#[suimon::consume]` does the same where the function is declared.
///
/// ```
/// use suimon::Spot;
///
/// let spot = Spot::per_minute(60)?; // `pace 60/min`
/// let answer = spot.call(1, || "called")?;
/// assert_eq!(answer, "called");
/// # Ok::<(), suimon::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Spot<L = LocalLimiter> {
    limiter: L,
}

impl Spot {
    /// Strictly paced, `tokens` a minute: the first call goes at once, and idling
    /// saves nothing up.
    ///
    /// # Errors
    /// When the rate is zero or above the range.
    pub fn per_minute(tokens: u64) -> Result<Spot, Error> {
        Spot::with(Limit::Pace(Pace::new(Quota::per_minute(tokens)?)))
    }

    /// Any policy, with a clock, calendar or bound of the queue of its own; ends
    /// with [`spot`](crate::Builder::spot).
    ///
    /// ```
    /// use suimon::Spot;
    /// use suimon::clock::ManualClock;
    ///
    /// let spot = Spot::builder("pace 60/min")?.clock(ManualClock::new()).spot()?;
    /// assert!(spot.try_call(1, || ()).is_ok());
    /// assert!(spot.try_call(1, || ()).unwrap_err().is_rate_limited());
    /// # Ok::<(), suimon::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the text of the policy is wrong.
    pub fn builder<P>(policy: P) -> Result<Builder, Error>
    where
        P: TryInto<PolicyArg>,
        P::Error: Into<Error>,
    {
        LocalLimiter::builder(policy)
    }

    /// Any policy, on the machine's clock.
    ///
    /// # Errors
    /// When the policy is wrong.
    pub fn with<P>(policy: P) -> Result<Spot, Error>
    where
        P: TryInto<PolicyArg>,
        P::Error: Into<Error>,
    {
        Ok(Spot::new(LocalLimiter::new(policy)?))
    }
}

impl<L: Limiter> Spot<L> {
    /// Applies this limiter.
    pub const fn new(limiter: L) -> Spot<L> {
        Spot { limiter }
    }

    /// The limiter.
    pub const fn limiter(&self) -> &L {
        &self.limiter
    }

    /// Waits for `cost`, then calls `function`.
    ///
    /// # Errors
    /// Those of [`Limiter::consume`]; then the function is not called.
    pub fn call<R>(&self, cost: impl IntoRequest, function: impl FnOnce() -> R) -> Result<R, Error> {
        self.limiter.consume(cost.into_request()?)?;
        Ok(function())
    }

    /// Waits for `cost`, then calls `function` and awaits its future.
    ///
    /// # Errors
    /// As for [`call`](Spot::call).
    pub async fn call_async<R, F: Future<Output = R>>(
        &self,
        cost: impl IntoRequest,
        function: impl FnOnce() -> F,
    ) -> Result<R, Error> {
        let request = cost.into_request()?;
        self.limiter.consume_async(request).await?;
        Ok(function().await)
    }

    /// Calls `function` if `cost` passes now, without waiting; otherwise the
    /// refusal comes back as an error that says when to retry.
    ///
    /// # Errors
    /// [`Error::is_rate_limited`], and those of [`Limiter::allow`].
    pub fn try_call<R>(&self, cost: impl IntoRequest, function: impl FnOnce() -> R) -> Result<R, Error> {
        let request = cost.into_request()?;
        match self.limiter.allow(request.cost())? {
            Decision::Allow(_) => Ok(function()),
            Decision::Deny(_, retry) => Err(Error::rate_limited(retry, None)),
        }
    }

    /// The function with the limit around it. `cost` tells what a call costs from
    /// its argument.
    ///
    /// ```
    /// use suimon::Spot;
    ///
    /// let spot = Spot::per_minute(60_000)?;
    /// let send = spot.wrap(|text: &&str| text.len(), |text: &str| text.to_uppercase());
    /// assert_eq!(send("hello")?, "HELLO");
    /// # Ok::<(), suimon::Error>(())
    /// ```
    pub fn wrap<A, C: IntoRequest, R>(
        &self,
        cost: impl Fn(&A) -> C,
        function: impl Fn(A) -> R,
    ) -> impl Fn(A) -> Result<R, Error> {
        move |argument| {
            let request = cost(&argument);
            self.call(request, || function(argument))
        }
    }
}
