//! What the tests of waiting share: a clock that is set by hand and may ring late,
//! and futures that are polled by hand.
#![allow(dead_code, reason = "each test binary takes what it needs")]

pub(crate) mod switching;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use suimon::clock::{Alarm, Clock};
use suimon::{Consume, Error, LocalLimiter, Timestamp};

/// Seconds, as an instant.
pub(crate) fn s(seconds: f64) -> Timestamp {
    Timestamp::from_nanos((seconds * 1e9).round() as u64)
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A clock whose time and whose bell are moved apart from each other: the alarm
/// rings when the test says so, on time, early, late or twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandClock(Arc<Hand>);

#[derive(Debug, Default)]
struct Hand {
    now: AtomicU64,
    alarm: Mutex<Option<(Timestamp, Alarm)>>,
    set: AtomicUsize,
}

impl HandClock {
    /// Moves time, and rings nothing.
    pub(crate) fn set(&self, now: Timestamp) {
        self.0.now.store(now.as_nanos(), Ordering::SeqCst);
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.set(self.now().saturating_add(by));
    }

    /// When the limiter asked to be woken.
    pub(crate) fn alarm(&self) -> Option<Timestamp> {
        self.0.alarm.lock().unwrap().as_ref().map(|(at, _)| *at)
    }

    /// How often an alarm has been set.
    pub(crate) fn times_set(&self) -> usize {
        self.0.set.load(Ordering::SeqCst)
    }

    /// Rings, whatever time it is; answers whether an alarm was set.
    pub(crate) fn ring(&self) -> bool {
        let alarm = self.0.alarm.lock().unwrap().take();
        alarm.inspect(|(_, alarm)| alarm.ring()).is_some()
    }

    /// Moves time and rings what is due, once time has arrived.
    pub(crate) fn go_to(&self, now: Timestamp) {
        self.set(now);
        while self.alarm().is_some_and(|at| at <= now) {
            self.ring();
        }
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.now.load(Ordering::SeqCst))
    }

    fn set_alarm(&self, at: Timestamp, alarm: Alarm) {
        self.0.set.fetch_add(1, Ordering::SeqCst);
        *self.0.alarm.lock().unwrap() = Some((at, alarm));
    }
}

/// A waker that counts.
#[derive(Debug, Default)]
pub(crate) struct Wakes(AtomicUsize);

impl Wakes {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// One who waits, with the bell that would wake it.
pub(crate) struct Waiter {
    pub(crate) future: Pin<Box<Consume>>,
    pub(crate) wakes: Arc<Wakes>,
}

impl Waiter {
    pub(crate) fn new(future: Consume) -> Waiter {
        Waiter { future: Box::pin(future), wakes: Arc::default() }
    }

    pub(crate) fn poll(&mut self) -> Poll<Result<(), Error>> {
        let waker = Waker::from(self.wakes.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    pub(crate) fn is_pending(&mut self) -> bool {
        self.poll().is_pending()
    }

    /// Polls, and expects success.
    pub(crate) fn passes(&mut self) -> bool {
        matches!(self.poll(), Poll::Ready(Ok(())))
    }
}

/// Starts to wait: the future has been polled once and is pending.
pub(crate) fn wait(limiter: &LocalLimiter, request: impl suimon::IntoRequest) -> Waiter {
    let mut waiter = Waiter::new(limiter.consume_async(request));
    assert!(waiter.is_pending(), "it should have to wait");
    waiter
}

/// Ends the test if it hangs: what runs in `test` must be over in a time that
/// nothing but a deadlock takes.
pub(crate) fn must_end<R: Send + 'static>(test: impl FnOnce() -> R + Send + 'static) -> R {
    let (end, ended) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = test();
        let _ = end.send(());
        result
    });
    // A panic of the test hangs up at once.
    if let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_secs(30)) {
        panic!("it hangs: somebody was not woken, or a deadlock");
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Polls any future once, with a waker that does nothing.
pub(crate) fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A limiter on a clock of its own.
pub(crate) fn limiter(policy: &str) -> (LocalLimiter, HandClock) {
    let clock = HandClock::default();
    let limiter = LocalLimiter::builder(policy).unwrap().clock(clock.clone()).build().unwrap();
    (limiter, clock)
}
