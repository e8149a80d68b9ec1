//! Whose turn it is: the limiter of this process, or the one in a shared file.

use std::time::{Duration, Instant, SystemTime};

use suimon::LocalLimiter;
use suimon::clock::{Clock, MachineClock};
use suimon_core::{Cost, Limit, Policy, Timestamp};

use super::Error;
use super::progress::Screen;
use super::shared::Shared;
use super::stop::Stop;

/// The limit that lines wait for.
#[derive(Debug)]
pub(super) enum Turn {
    Local(LocalLimiter),
    Shared(Shared),
}

/// Why the turn of a line does not come.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The run is to end.
    Stopped,
    /// The line costs what can never pass.
    Cost(String),
    /// The limit cannot be asked any more.
    Broken(String),
}

impl Turn {
    /// Waits until a cost may pass, and takes it.
    pub(super) fn wait(&self, cost: Cost, stop: &Stop, screen: &Screen) -> Result<(), Refusal> {
        if stop.is_asked() {
            return Err(Refusal::Stopped);
        }
        match self {
            Turn::Local(limiter) => {
                let mut place = limiter.reserve(cost).map_err(|error| refusal(&error))?;
                let wait = place.wait();
                if wait.is_zero() {
                    return Ok(());
                }
                screen.waits_until(Instant::now().checked_add(wait));
                let outcome = place.wait_until_ready().map_err(|error| refusal(&error));
                screen.waits_until(None);
                outcome
            }
            Turn::Shared(shared) => shared.wait(cost, stop, screen),
        }
    }

    /// Lets nothing pass for this long.
    pub(super) fn pause_for(&self, pause: Duration) -> Result<(), Refusal> {
        match self {
            Turn::Local(limiter) => {
                limiter.pause_for(pause);
                Ok(())
            }
            Turn::Shared(shared) => shared.pause_for(pause),
        }
    }

    /// Wakes everybody who waits: the run ends.
    pub(super) fn close(&self) {
        // Who waits for a shared limit sleeps on the stop itself.
        if let Turn::Local(limiter) = self {
            limiter.close();
        }
    }
}

fn refusal(error: &suimon::Error) -> Refusal {
    if error.is_closed() {
        Refusal::Stopped
    } else if error.is_cost_too_large() || error.is_invalid_cost() {
        Refusal::Cost(error.to_string())
    } else {
        Refusal::Broken(error.to_string())
    }
}

/// A limiter for the lines of this process.
pub(super) fn local(policy: &Policy, clock: impl Clock) -> Result<LocalLimiter, Error> {
    if policy.limits().iter().any(|limit| matches!(limit, Limit::Block)) {
        return Err(Error::Usage("`block` lets nothing pass, so no line would ever go; name a rate".to_string()));
    }
    LocalLimiter::builder(policy.clone())
        .and_then(|builder| builder.clock(clock).build())
        .map_err(|error| Error::Usage(error.to_string()))
}

/// Does the policy ask what day it is?
pub(super) fn needs_calendar(policy: &Policy) -> bool {
    policy.limits().iter().any(|limit| matches!(limit, Limit::Fixed(_)))
}

/// The time since the Unix epoch: `fixed` limits begin with a day or an hour of the
/// calendar. Read once, then counted on by the monotonic clock.
#[derive(Debug)]
pub(super) struct CalendarClock {
    origin: Timestamp,
    begun: Timestamp,
}

impl CalendarClock {
    pub(super) fn new() -> CalendarClock {
        CalendarClock { origin: wall(), begun: MachineClock.now() }
    }
}

impl Clock for CalendarClock {
    fn now(&self) -> Timestamp {
        self.origin.saturating_add(MachineClock.now().saturating_since(self.begun))
    }
}

/// The system's time; what lies before 1970 is 1970.
pub(super) fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::ZERO.saturating_add(since)
}
