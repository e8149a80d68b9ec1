use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use suimon_core::Timestamp;

use super::alarms::Alarms;
use super::{Alarm, Clock};

/// A clock for tests: time passes when it is told to, and whoever is due wakes.
///
/// Copies are the same clock.
///
/// ```
/// use std::time::Duration;
/// use suimon::clock::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// let start = clock.now();
/// clock.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now().saturating_since(start), Duration::from_secs(3600));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    now: Timestamp,
    alarms: Alarms<Timestamp>,
}

impl Default for ManualClock {
    fn default() -> ManualClock {
        ManualClock::new()
    }
}

impl ManualClock {
    /// A clock that stands at its origin.
    #[must_use]
    pub fn new() -> ManualClock {
        ManualClock::at(Timestamp::ZERO)
    }

    /// A clock that stands at an instant.
    #[must_use]
    pub fn at(now: Timestamp) -> ManualClock {
        ManualClock { inner: Arc::new(Mutex::new(Inner { now, alarms: Alarms::new() })) }
    }

    /// Lets time pass. Alarms ring in their order, each at its own time.
    pub fn advance(&self, by: Duration) {
        let until = self.now().saturating_add(by);
        self.advance_to(until);
    }

    /// Lets time pass until an instant; an earlier one changes nothing.
    pub fn advance_to(&self, until: Timestamp) {
        while let Some(alarm) = self.step(until) {
            alarm.ring();
        }
    }

    /// The time of the next alarm, if anybody waits.
    #[must_use]
    pub fn next_alarm(&self) -> Option<Timestamp> {
        self.lock().alarms.next()
    }

    /// Moves to the next alarm that rings until an instant, or else to it.
    fn step(&self, until: Timestamp) -> Option<Alarm> {
        let mut inner = self.lock();
        let due = inner.alarms.take_due(until);
        let now = due.as_ref().map_or(until, |(at, _)| *at);
        inner.now = inner.now.max(now);
        due.map(|(_, alarm)| alarm)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.lock().now
    }

    fn set_alarm(&self, at: Timestamp, alarm: Alarm) {
        self.lock().alarms.set(at, alarm);
    }
}
