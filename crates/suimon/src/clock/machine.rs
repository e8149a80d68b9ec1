use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use suimon_core::Timestamp;

use super::Clock;

/// The machine's monotonic clock, set to the Unix time when it is first read.
///
/// So the windows of `fixed` limits are those of the calendar, and yet steps of the
/// system time do not reach it. Read through the processor's time stamp counter
/// where that is reliable (the crate quanta decides), otherwise through the system's
/// monotonic clock. A counter that is a little behind on another core makes a limit
/// refuse a little more, and never mints: a limiter's state does not move back. A
/// machine that sleeps saves up no more than idling does.
///
/// ```
/// use suimon::clock::{Clock, MachineClock};
///
/// let before = MachineClock.now();
/// assert!(MachineClock.now() >= before);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineClock;

/// The calibrated counter, its value when it was first read, and the Unix time of then.
struct Counter {
    clock: quanta::Clock,
    raw: u64,
    unix: u64,
}

static COUNTER: OnceLock<Counter> = OnceLock::new();

impl Clock for MachineClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let counter = COUNTER.get_or_init(|| {
            let clock = quanta::Clock::new();
            let raw = clock.raw();
            Counter { clock, raw, unix: unix_nanos() }
        });
        let elapsed = counter.clock.delta_as_nanos(counter.raw, counter.clock.raw());
        Timestamp::from_nanos(counter.unix.saturating_add(elapsed))
    }
}

/// Nanoseconds since the epoch by the system's clock; 0 where that is set before it.
pub(super) fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_the_calendar_are_those_of_the_machine() {
        let (before, now, after) = (unix_nanos(), MachineClock.now().as_nanos(), unix_nanos());
        // A test machine's clock may be put right while the tests run, not by an hour.
        let hour = 3_600_000_000_000;
        assert!(before.saturating_sub(hour) < now && now < after + hour);
    }
}
