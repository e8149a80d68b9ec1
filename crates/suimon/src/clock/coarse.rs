use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use suimon_core::Timestamp;

use super::{Alarm, Clock, MachineClock, thread as thread_timer};

/// The machine's clock, read by a thread at each tick; reading it costs one load.
///
/// The time is up to one tick old (more, if the machine is too busy to run the
/// thread). A decision that is dated by an earlier time can save up beyond the
/// savings: after idling, a bucket lets up to `burst + rate * tick` through at one
/// instant. With a tick of 1 ms and 1000/s that is one token.
///
/// The thread ends when the last copy of the clock is dropped.
///
/// ```
/// use std::time::Duration;
/// use suimon::clock::{Clock, CoarseClock};
///
/// let clock = CoarseClock::new(Duration::from_millis(1))?;
/// let _ = clock.now();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CoarseClock {
    nanos: Arc<AtomicU64>,
    tick: Duration,
}

impl CoarseClock {
    /// A clock that is read every `tick` (at least 100 µs).
    ///
    /// Clocks of the same tick share a thread.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn new(tick: Duration) -> std::io::Result<CoarseClock> {
        static RUNNING: Mutex<Vec<(Duration, Weak<AtomicU64>)>> = Mutex::new(Vec::new());
        let tick = tick.max(Duration::from_micros(100));
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|(_, nanos)| nanos.strong_count() > 0);
        if let Some(nanos) = running.iter().find(|(same, _)| *same == tick).and_then(|(_, nanos)| nanos.upgrade()) {
            return Ok(CoarseClock { nanos, tick });
        }
        let nanos = Arc::new(AtomicU64::new(MachineClock.now().as_nanos()));
        let seen = Arc::downgrade(&nanos);
        thread::Builder::new().name("suimon-clock".into()).spawn(move || {
            while let Some(nanos) = seen.upgrade() {
                nanos.store(MachineClock.now().as_nanos(), Ordering::Relaxed);
                drop(nanos);
                thread::sleep(tick);
            }
        })?;
        running.push((tick, Arc::downgrade(&nanos)));
        Ok(CoarseClock { nanos, tick })
    }
}

impl Clock for CoarseClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn set_alarm(&self, at: Timestamp, alarm: Alarm) {
        // The time may be a tick old; rung before the next one, the limiter would
        // find that no time has passed.
        thread_timer::ring_after(at.saturating_since(self.now()).saturating_add(self.tick), alarm);
    }
}
