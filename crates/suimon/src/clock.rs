//! Where the time comes from, and who wakes those that wait.
//!
//! A limiter reads [`Clock::now`] for every decision and sets one alarm at a time
//! for the head of its queue. The alarm needs no runtime: by default one thread
//! for the whole process, started when somebody first has to wait, rings them all.

mod alarms;
mod coarse;
mod machine;
mod manual;
mod thread;
#[cfg(feature = "tokio")]
mod tokio;

use std::fmt;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use suimon_core::Timestamp;

pub use coarse::CoarseClock;
pub use machine::MachineClock;
pub use manual::ManualClock;
#[cfg(feature = "tokio")]
pub use tokio::TokioClock;

/// A clock that does not run back, and that can ring.
///
/// Implement it to bring your own time; [`MachineClock`] is the default,
/// [`ManualClock`] is for tests.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Nanoseconds since an origin of the clock's own.
    fn now(&self) -> Timestamp;

    /// Sees to it that the alarm rings at `at`, or somewhat later, from elsewhere:
    /// the limiter that calls is locked, so ringing from within this call would
    /// never end. Ringing early does no harm: the limiter looks at the clock and sets
    /// the alarm again. A limiter sets one alarm at a time; a new one replaces it.
    ///
    /// The default lets the process's timer thread sleep for the difference,
    /// which is right for clocks that run as fast as the machine's.
    fn set_alarm(&self, at: Timestamp, alarm: Alarm) {
        thread::ring_after(at.saturating_since(self.now()), alarm);
    }
}

/// Somebody to be woken: a limiter whose next waiter is due.
#[derive(Clone)]
pub struct Alarm {
    id: u64,
    target: Weak<dyn Ring>,
}

/// What an alarm does when it rings.
pub(crate) trait Ring: Send + Sync {
    fn ring(&self);
}

impl Alarm {
    pub(crate) fn new(target: Weak<dyn Ring>) -> Alarm {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Alarm { id: NEXT.fetch_add(1, Ordering::Relaxed), target }
    }

    /// Wakes the limiter, if it still exists.
    pub fn ring(&self) {
        if let Some(target) = self.target.upgrade() {
            target.ring();
        }
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").field("id", &self.id).finish_non_exhaustive()
    }
}
