//! Keys that were refused a moment ago.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use suimon_core::{Cost, Decision, Retry, Status};

use crate::sync::lock_std;

/// Remembers refusals until they are over, so that a key which is refused does not ask
/// the store again and again. Forgetting one costs a question.
#[derive(Debug, Default)]
pub(super) struct Denied(Mutex<HashMap<Arc<str>, Refusal>>);

#[derive(Debug)]
struct Refusal {
    cost: Cost,
    status: Status,
    limit: usize,
    until: Instant,
}

const MOST: usize = 10_000;

impl Denied {
    /// The answer that is known already: to whoever wants at least as much.
    pub(super) fn find(&self, key: &str, cost: Cost, now: Instant) -> Option<Decision> {
        let mut keys = lock_std(&self.0);
        let refusal = keys.get(key)?;
        let wait = refusal.until.saturating_duration_since(now);
        if wait.is_zero() {
            keys.remove(key);
            return None;
        }
        let retry = Retry::After { wait, limit: refusal.limit };
        (cost >= refusal.cost).then_some(Decision::Deny(refusal.status, retry))
    }

    /// Remembers a refusal that came a moment ago, at most: its time counts from now.
    pub(super) fn note(&self, key: &Arc<str>, cost: Cost, status: Status, retry: Retry, now: Instant) {
        let Some(until) = retry.after().and_then(|wait| now.checked_add(wait)) else { return };
        let mut keys = lock_std(&self.0);
        if keys.len() >= MOST {
            keys.retain(|_, refusal| refusal.until > now);
            if keys.len() >= MOST {
                keys.clear();
            }
        }
        keys.insert(key.clone(), Refusal { cost, status, limit: retry.limit(), until });
    }

    /// Something has been given back or changed.
    pub(super) fn forget(&self, key: &str) {
        lock_std(&self.0).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_refusal_is_known_until_it_is_over() {
        let denied = Denied::default();
        let (now, key) = (Instant::now(), Arc::from("a"));
        let status = Status::of(10, 1, 1, Duration::from_secs(1));
        denied.note(&key, Cost::whole(2), status, Retry::After { wait: Duration::from_secs(1), limit: 1 }, now);
        let later = now + Duration::from_millis(400);
        let wait = |cost| denied.find("a", Cost::whole(cost), later).map(|decision| decision.retry().unwrap().after());
        assert_eq!(wait(2), Some(Some(Duration::from_millis(600))));
        assert_eq!(wait(3), Some(Some(Duration::from_millis(600))));
        assert_eq!(wait(1), None, "less may pass");
        assert!(denied.find("b", Cost::whole(9), later).is_none());
        assert!(denied.find("a", Cost::whole(2), now + Duration::from_secs(1)).is_none());
        denied.note(&key, Cost::ONE, status, Retry::Never { limit: 0 }, now);
        assert!(denied.find("a", Cost::ONE, now).is_none());
    }

    #[test]
    fn endless_keys_do_not_fill_the_memory() {
        let denied = Denied::default();
        let (now, status) = (Instant::now(), Status::of(1, 0, 0, Duration::from_secs(1)));
        for n in 0..3 * MOST {
            let retry = Retry::After { wait: Duration::from_secs(1), limit: 0 };
            denied.note(&n.to_string().into(), Cost::ONE, status, retry, now);
        }
        assert!(denied.0.lock().unwrap().len() <= MOST);
    }
}
