//! One thread for all alarms of the process, started when first needed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Alarm;
use super::alarms::Alarms;

struct Timer {
    alarms: Mutex<Alarms<Instant>>,
    changed: Condvar,
}

/// Longer sleeps are cut short by a part of themselves, since the clock of the
/// limiter may run a little faster than that of the condition variable; the
/// limiter then sets the alarm anew for the rest.
const PRECISE: Duration = Duration::from_secs(1);
/// The thread wakes at most this often. Whoever is served late is served as of the
/// due instant, so this costs a millisecond at most, once, and no rate; at 100,000
/// grants a second it saves half of the time that they take. Rates of up to a
/// thousand a second do not notice it.
const REST: Duration = Duration::from_millis(1);
/// No alarm is set further ahead; it rings and is set again.
const FARTHEST: Duration = Duration::from_secs(86_400);

/// Rings the alarm after `wait`, or a little before for waits of over a second.
pub(super) fn ring_after(wait: Duration, alarm: Alarm) {
    let wait = if wait > PRECISE { wait.min(FARTHEST) - wait.min(FARTHEST) / 1024 } else { wait };
    let at = Instant::now() + wait;
    let timer = timer();
    let mut alarms = timer.lock();
    let is_first = alarms.next().is_none_or(|next| at < next);
    alarms.set(at, alarm);
    drop(alarms);
    if is_first {
        timer.changed.notify_one();
    }
}

fn timer() -> &'static Timer {
    static TIMER: OnceLock<&'static Timer> = OnceLock::new();
    TIMER.get_or_init(|| {
        let timer: &'static Timer =
            Box::leak(Box::new(Timer { alarms: Mutex::new(Alarms::new()), changed: Condvar::new() }));
        let spawned = thread::Builder::new().name("suimon-timer".into()).spawn(move || timer.run());
        assert!(spawned.is_ok(), "the timer thread of the process could not be started: {spawned:?}");
        timer
    })
}

impl Timer {
    fn run(&self) {
        let mut alarms = self.lock();
        let mut rested = Instant::now();
        loop {
            let now = Instant::now();
            alarms = match alarms.next().map(|next| next.max(rested)) {
                Some(at) if at <= now => {
                    rested = now + REST;
                    self.ring_due(alarms, now)
                }
                Some(at) => match self.changed.wait_timeout(alarms, at - now) {
                    Ok((alarms, _)) => alarms,
                    Err(poisoned) => poisoned.into_inner().0,
                },
                None => self.changed.wait(alarms).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Rings what is due, without the lock.
    fn ring_due<'a>(
        &'a self,
        mut alarms: MutexGuard<'a, Alarms<Instant>>,
        now: Instant,
    ) -> MutexGuard<'a, Alarms<Instant>> {
        while let Some((_, alarm)) = alarms.take_due(now) {
            drop(alarms);
            // A waker that panics must not stop the time of all others.
            let _ = catch_unwind(AssertUnwindSafe(|| alarm.ring()));
            alarms = self.lock();
        }
        alarms
    }

    fn lock(&self) -> MutexGuard<'_, Alarms<Instant>> {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
