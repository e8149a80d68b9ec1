use std::fmt;
use std::sync::Arc;

use suimon_core::{Calendar, Cost, Gate, Policy};

use super::LocalLimiter;
use super::shared::{AnyCalendar, Shared, Source};
use crate::clock::{Clock, MachineClock};
use crate::{Error, IntoRequest, Spot};

/// A [`LocalLimiter`] to be made.
#[must_use = "a builder makes nothing until `build` is called"]
pub struct Builder {
    policy: Policy,
    clock: Source,
    max_queue: Option<Cost>,
    calendar: Option<AnyCalendar>,
}

impl Builder {
    pub(super) fn new(policy: Policy) -> Builder {
        Builder { policy, clock: Source::new(MachineClock), max_queue: None, calendar: None }
    }

    /// Another clock: [`ManualClock`](crate::clock::ManualClock) for tests,
    /// [`CoarseClock`](crate::clock::CoarseClock) where a millisecond more or less
    /// does not matter.
    pub fn clock(mut self, clock: impl Clock) -> Builder {
        self.clock = Source::new(clock);
        self
    }

    /// The most tokens that may be waited for at a time; who would pass that gets
    /// an error at once. There is no bound otherwise.
    ///
    /// # Errors
    /// [`Error::is_invalid_cost`] when the number is no cost.
    pub fn max_queue(mut self, tokens: impl IntoRequest) -> Result<Builder, Error> {
        self.max_queue = Some(tokens.into_request()?.cost());
        Ok(self)
    }

    /// Another source of the rules of time zones.
    pub fn calendar(mut self, calendar: impl Calendar + Send + Sync + 'static) -> Builder {
        self.calendar = Some(Arc::new(calendar));
        self
    }

    /// The limiter, applied to functions.
    ///
    /// # Errors
    /// As for [`build`](Builder::build).
    pub fn spot(self) -> Result<Spot, Error> {
        self.build().map(Spot::new)
    }

    /// The limiter.
    ///
    /// # Errors
    /// When the policy names a time zone that the calendar does not know.
    pub fn build(self) -> Result<LocalLimiter, Error> {
        let calendar = self.calendar.unwrap_or_else(default_calendar);
        let gate = Gate::with_calendar(self.policy, &*calendar)?;
        let state = gate.fresh();
        Ok(LocalLimiter { shared: Shared::new(gate, state, self.clock, self.max_queue, calendar) })
    }
}

/// The system's time zones where they are known, otherwise UTC alone.
pub(crate) fn default_calendar() -> AnyCalendar {
    #[cfg(feature = "zones")]
    return Arc::new(crate::zones::Zones);
    #[cfg(not(feature = "zones"))]
    return Arc::new(suimon_core::Utc);
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("policy", &self.policy.to_string())
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
