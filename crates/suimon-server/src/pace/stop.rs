//! The end of a run before its input ends, for all threads that it has.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Why the run ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A signal with this number.
    Signal(i32),
    /// Nobody reads standard output any more.
    Closed,
    /// Something failed, and it has been said what.
    Failed,
}

/// Whether the run is to end. It is never taken back, and the first cause counts.
#[derive(Debug, Default)]
pub(super) struct Stop {
    is_asked: AtomicBool,
    cause: Mutex<Option<Cause>>,
    asked: Condvar,
}

impl Stop {
    pub(super) fn ask(&self, cause: Cause) {
        self.lock().get_or_insert(cause);
        self.is_asked.store(true, Ordering::Release);
        self.asked.notify_all();
    }

    pub(super) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Acquire)
    }

    pub(super) fn cause(&self) -> Option<Cause> {
        *self.lock()
    }

    /// Sleeps, unless the run is to end; answers whether it slept to the end.
    pub(super) fn sleep(&self, time: Duration) -> bool {
        // Longer than a clock can count is for ever.
        let until = Instant::now().checked_add(time);
        let mut cause = self.lock();
        while cause.is_none() {
            let Some(until) = until else {
                cause = self.asked.wait(cause).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            cause = self.asked.wait_timeout(cause, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    fn lock(&self) -> MutexGuard<'_, Option<Cause>> {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_lasts_until_its_end_or_the_stop() {
        let stop = Stop::default();
        let begun = Instant::now();
        assert!(stop.sleep(Duration::from_millis(20)));
        assert!(begun.elapsed() >= Duration::from_millis(20));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| stop.sleep(Duration::MAX));
            let other = scope.spawn(|| stop.sleep(Duration::from_secs(1000)));
            stop.ask(Cause::Closed);
            assert!(!sleeper.join().unwrap() && !other.join().unwrap());
        });
        stop.ask(Cause::Failed);
        assert_eq!(stop.cause(), Some(Cause::Closed));
        assert!(!stop.sleep(Duration::ZERO));
    }
}
