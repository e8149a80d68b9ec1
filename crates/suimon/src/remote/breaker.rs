//! Does not ask a store that has just failed.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::lock_std;

/// Open after a failure, for a time that doubles from failure to failure; then one
/// call tries, and the others go on as if it were open until that one has its answer.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// Nobody asks before.
    until: Option<Instant>,
    /// A call of after that time is under way.
    trying: bool,
}

const FIRST: Duration = Duration::from_millis(50);
/// A store that has come back is found within a second.
const LONGEST: Duration = Duration::from_millis(800);

impl Breaker {
    /// May the store be asked now? Each yes is followed by [`report`](Breaker::report).
    pub(super) fn admits(&self, now: Instant) -> bool {
        let mut state = lock_std(&self.0);
        match state.until {
            None => true,
            Some(until) if now < until || state.trying => false,
            Some(_) => {
                state.trying = true;
                true
            }
        }
    }

    /// How a call has ended; answers whether that has opened or closed it.
    pub(super) fn report(&self, now: Instant, works: bool) -> bool {
        let mut state = lock_std(&self.0);
        let was_open = state.until.is_some();
        if works {
            *state = State::default();
            return was_open;
        }
        // Those that were under way when it opened tell nothing new.
        if was_open && !state.trying {
            return false;
        }
        let rest = FIRST.saturating_mul(1 << state.failures.min(10)).min(LONGEST);
        *state = State { failures: state.failures + 1, until: Some(now + rest), trying: false };
        !was_open
    }

    pub(super) fn is_open(&self) -> bool {
        lock_std(&self.0).until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_at_a_time_tries_and_the_rest_doubles() {
        let breaker = Breaker::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        assert!(breaker.admits(at(0)) && breaker.admits(at(0)));
        assert!(breaker.report(at(1), false) && breaker.is_open());
        // The other one of then fails too; that is no second outage.
        assert!(!breaker.report(at(2), false));
        assert!(!breaker.admits(at(50)));
        assert!(breaker.admits(at(51)) && !breaker.admits(at(52)), "one tries");
        assert!(!breaker.report(at(60), false));
        assert!(!breaker.admits(at(159)) && breaker.admits(at(160)));
        for millis in (0..10).map(|n| 200 + n * 2000) {
            breaker.report(at(millis), false);
            assert!(!breaker.admits(at(millis + 100)) && breaker.admits(at(millis + 800)), "{millis}");
        }
        assert!(breaker.report(at(99_000), true) && !breaker.is_open());
        assert!(breaker.admits(at(99_000)) && !breaker.report(at(99_001), true));
    }
}
