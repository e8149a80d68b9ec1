use std::time::Duration;

use suimon_core::Timestamp;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::{Alarm, Clock};

/// The clock and timer of a tokio runtime, so that paused time works.
///
/// It counts from its creation, so that a test sees the same times whenever it
/// runs; the windows of `fixed` limits begin there too, not with the calendar's.
/// Waiting needs the runtime to run. For anything but tests with paused time the
/// default [`MachineClock`](super::MachineClock) serves as well inside tokio.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), suimon::Error> {
/// use suimon::LocalLimiter;
/// use suimon::clock::TokioClock;
///
/// let limiter = LocalLimiter::builder("pace 60/min")?.clock(TokioClock::current()).build()?;
/// let start = tokio::time::Instant::now();
/// limiter.consume_async(3).await?;
/// limiter.consume_async(1).await?;
/// assert_eq!(start.elapsed().as_secs(), 3); // and the test took no time
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TokioClock {
    runtime: Handle,
    origin: Instant,
}

impl TokioClock {
    /// The clock of the runtime that runs this code.
    ///
    /// # Panics
    /// Outside of a tokio runtime, as [`Handle::current`] does.
    #[must_use]
    pub fn current() -> TokioClock {
        TokioClock { runtime: Handle::current(), origin: Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        // Whoever asks, it is this runtime's time that counts, paused or not.
        let _inside = self.runtime.enter();
        let elapsed = self.origin.elapsed();
        Timestamp::from_nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    fn set_alarm(&self, at: Timestamp, alarm: Alarm) {
        // Beyond some decades tokio's timer counts no further; it rings early.
        let after = Duration::from_nanos(at.as_nanos()).min(Duration::from_secs(1_000_000_000));
        let at = self.origin + after;
        self.runtime.spawn(async move {
            sleep_until(at).await;
            alarm.ring();
        });
    }
}
