use std::sync::OnceLock;

use suimon_core::Timestamp;

use super::Clock;

/// The machine's monotonic clock, counted from its first use in the process.
///
/// Read through the processor's time stamp counter where that is reliable (the
/// crate quanta decides), otherwise through the system's monotonic clock. Steps of
/// the system time do not reach it. A counter that is a little behind on another
/// core makes a limit refuse a little more, and never mints: a limiter's state does
/// not move back. A machine that sleeps saves up no more than idling does.
///
/// ```
/// use suimon::clock::{Clock, MachineClock};
///
/// let before = MachineClock.now();
/// assert!(MachineClock.now() >= before);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineClock;

/// The calibrated counter and its value at the origin.
struct Counter {
    clock: quanta::Clock,
    origin: u64,
}

static COUNTER: OnceLock<Counter> = OnceLock::new();

impl Clock for MachineClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let counter = COUNTER.get_or_init(|| {
            let clock = quanta::Clock::new();
            let origin = clock.raw();
            Counter { clock, origin }
        });
        Timestamp::from_nanos(counter.clock.delta_as_nanos(counter.origin, counter.clock.raw()))
    }
}
