//! What the attribute [`consume`](macro@crate::consume) expands to. No public interface:
//! it changes whenever the attribute does.

use std::time::{Duration, Instant};

use suimon_core::Decision;

use crate::{Error, LocalLimiter, Request};

/// The limiter of a text that was checked while compiling.
#[must_use]
pub fn limiter(text: &str) -> LocalLimiter {
    match LocalLimiter::new(text) {
        Ok(limiter) => limiter,
        Err(error) => panic!("`#[suimon::consume({text:?})]` was compiled with other rules than it runs with: {error}"),
    }
}

/// The request, with a longest wait if it has a longer one or none.
pub fn shorten(request: Request, max_wait: Duration) -> Request {
    request.within(request.max_wait().map_or(max_wait, |already| already.min(max_wait)))
}

/// The time that is left; none where the deadline has passed.
#[must_use]
pub fn until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// A refusal as an error.
///
/// # Errors
/// When the decision is a refusal, or an error already.
pub fn allowed(decision: Result<Decision, Error>) -> Result<(), Error> {
    match decision? {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(_, retry) => Err(Error::rate_limited(retry, None)),
    }
}

/// Ends a function that cannot return its error.
///
/// # Panics
/// Always.
#[cold]
#[track_caller]
pub fn broken(function: &str, error: &Error) -> ! {
    panic!("`#[suimon::consume]` on `{function}`, which returns no `Result` and has no `or = ...`: {error}")
}

#[cfg(test)]
mod tests {
    use suimon_core::Cost;

    use super::*;

    #[test]
    fn the_shorter_wait_holds() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(2));
        let request = Request::new(Cost::ONE);
        assert_eq!(shorten(request, long).max_wait(), Some(long));
        assert_eq!(shorten(request.within(short), long).max_wait(), Some(short));
        assert_eq!(shorten(request.within(long), short).max_wait(), Some(short));
    }

    #[test]
    fn a_deadline_that_has_passed_leaves_no_time() {
        let now = Instant::now();
        assert_eq!(until(now), Duration::ZERO);
        assert!(until(now + Duration::from_secs(3600)) > Duration::from_secs(3000));
    }
}
