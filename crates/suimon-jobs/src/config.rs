//! What a handler says about itself.

use std::time::Duration;

use suimon::{Cost, Limit, Policy, Window};

use crate::Error;

/// Which runs a limit counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Count {
    /// Those that started, whatever came of them: the call out may have happened. What a
    /// provider counts.
    #[default]
    Started,
    /// Those that completed, at the moment of their completion. One that fails gives its
    /// place back. While it runs it holds its place, so that those who run at the same time
    /// cannot overrun the limit.
    ///
    /// For `window` and `fixed` this is exact. A `pace` or `bucket` is charged at the start, and
    /// given back on failure as far as that mints nothing.
    Completed,
}

impl Count {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Count::Started => "started",
            Count::Completed => "completed",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Count, Error> {
        match text {
            "started" => Ok(Count::Started),
            "completed" => Ok(Count::Completed),
            _ => Err(Error::Range { what: "count", asked: format!("`{text}`"), allowed: "`started` or `completed`" }),
        }
    }
}

/// A limit as text, and what it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitSpec {
    /// As it was given.
    pub(crate) text: String,
    pub(crate) count: Option<Count>,
}

impl LimitSpec {
    pub(crate) fn new(text: impl Into<String>) -> LimitSpec {
        LimitSpec { text: text.into(), count: None }
    }

    /// At most `max` in any period of so many seconds; `max` of zero is nothing at all.
    pub(crate) fn per(max: u64, secs: u64) -> LimitSpec {
        match max {
            0 => LimitSpec::new("block"),
            _ => match Window::new(Cost::whole(max), Duration::from_secs(secs)) {
                Ok(window) => LimitSpec::new(Limit::Window(window).to_string()),
                // Told where it is used, by the parser of texts.
                Err(_) => LimitSpec::new(format!("window {max}/{secs}s")),
            },
        }
    }

    /// The text in its normal form.
    pub(crate) fn checked(&self) -> Result<String, Error> {
        let policy: Policy = self.text.parse().map_err(|why| Error::limit(&self.text, why))?;
        let text = policy.to_string();
        match text.len() {
            0..=500 => Ok(text),
            bytes => Err(Error::limit(&self.text, format!("{bytes} bytes; at most 500 are allowed"))),
        }
    }
}

/// How long a job that failed waits before it is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backoff {
    /// The same time each time.
    Fixed(Duration),
    /// This time, twice it, three times it...
    Linear(Duration),
    /// This time, twice it, four times it... up to a longest.
    Exponential {
        /// The first.
        first: Duration,
        /// The longest.
        longest: Duration,
    },
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::Exponential { first: Duration::from_secs(1), longest: Duration::from_secs(3600) }
    }
}

impl Backoff {
    /// After so many attempts.
    #[must_use]
    pub fn after(self, attempts: u32) -> Duration {
        let attempts = attempts.max(1);
        match self {
            Backoff::Fixed(time) => time,
            Backoff::Linear(time) => time.saturating_mul(attempts),
            Backoff::Exponential { first, longest } => {
                let factor = 1_u32.checked_shl(attempts - 1).unwrap_or(u32::MAX);
                first.saturating_mul(factor).min(longest)
            }
        }
    }
}

/// What a handler says about itself: its limits, retries, time.
///
/// ```
/// use std::time::Duration;
/// use suimon_jobs::{Backoff, Config, Count};
///
/// let config = Config::new()
///     .rate_limit(10, 60)
///     .key_limit("bucket 1/s burst 5")
///     .count(Count::Completed)
///     .attempts(5)
///     .backoff(Backoff::Fixed(Duration::from_secs(30)))
///     .timeout(Duration::from_secs(120))
///     .concurrency(4);
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) limit: Option<LimitSpec>,
    pub(crate) key_limit: Option<LimitSpec>,
    pub(crate) count: Count,
    pub(crate) attempts: u32,
    pub(crate) backoff: Backoff,
    pub(crate) timeout: Option<Duration>,
    pub(crate) concurrency: Option<u32>,
}

impl Default for Config {
    fn default() -> Config {
        Config::new()
    }
}

impl Config {
    /// No limit, three attempts with a growing pause between them, no timeout.
    #[must_use]
    pub const fn new() -> Config {
        Config {
            limit: None,
            key_limit: None,
            count: Count::Started,
            attempts: 3,
            backoff: Backoff::Exponential { first: Duration::from_secs(1), longest: Duration::from_secs(3600) },
            timeout: None,
            concurrency: None,
        }
    }

    /// At most `max` runs in any `secs` seconds, over all workers. Zero runs: none ever.
    #[must_use]
    pub fn rate_limit(mut self, max: u64, secs: u64) -> Config {
        self.limit = Some(LimitSpec::per(max, secs));
        self
    }

    /// A limit, or several together, as text: `window 10/60s`, `pace 100/min`,
    /// `bucket 10/s burst 20 and fixed 1000/day`. A wrong one is an error when the worker starts.
    #[must_use]
    pub fn limit(mut self, text: impl Into<String>) -> Config {
        self.limit = Some(LimitSpec::new(text));
        self
    }

    /// A limit for each key of the jobs (a customer, an account) beside that of the handler.
    #[must_use]
    pub fn key_limit(mut self, text: impl Into<String>) -> Config {
        self.key_limit = Some(LimitSpec::new(text));
        self
    }

    /// Which runs the limits count: those that started.
    #[must_use]
    pub const fn count(mut self, count: Count) -> Config {
        self.count = count;
        self
    }

    /// How often a job is tried in all, at least once: 3.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Config {
        self.attempts = if attempts == 0 { 1 } else { attempts };
        self
    }

    /// The pause before a job that failed is tried again: a second, doubling up to an hour.
    #[must_use]
    pub const fn backoff(mut self, backoff: Backoff) -> Config {
        self.backoff = backoff;
        self
    }

    /// The longest that a run may take; after that it is dropped and counts as failed.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Config {
        self.timeout = Some(timeout);
        self
    }

    /// How many may run at the same time over all workers, at least one.
    #[must_use]
    pub const fn concurrency(mut self, most: u32) -> Config {
        self.concurrency = Some(if most == 0 { 1 } else { most });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoffs() {
        let secs = Duration::from_secs;
        assert_eq!(Backoff::Fixed(secs(5)).after(9), secs(5));
        assert_eq!(Backoff::Linear(secs(5)).after(3), secs(15));
        let doubling = Backoff::Exponential { first: secs(1), longest: secs(60) };
        assert_eq!([1, 2, 3, 6, 7, 40].map(|n| doubling.after(n).as_secs()), [1, 2, 4, 32, 60, 60]);
        assert_eq!(doubling.after(0), secs(1));
        assert_eq!(Backoff::Linear(Duration::MAX).after(u32::MAX), Duration::MAX);
    }

    #[test]
    fn limits_as_numbers() {
        assert_eq!(LimitSpec::per(10, 60).checked().unwrap(), "window 10/min");
        assert_eq!(LimitSpec::per(0, 60).checked().unwrap(), "block");
        let error = LimitSpec::per(10, 0).checked().unwrap_err();
        assert!(error.to_string().contains("window 10/0s"), "{error}");
        assert!(LimitSpec::new("60/min").checked().is_err());
    }
}
