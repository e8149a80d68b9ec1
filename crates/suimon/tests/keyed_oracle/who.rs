//! Who has answered about a key, and whether it was the right answer.
//!
//! - While no key has been without room, every answer is that of the key's own limiter.
//! - A key is without room only if it is idle and as good as new, and as many others are
//!   in use as there could be room for (sixteen, of a flat table). Its answer is then that
//!   of the limiter that all such keys share, or a refusal with the time at which there
//!   is room; what its own limiter would say to the next call is not changed by it.
//! - So nothing is admitted that the key's own limiter refuses, but by eviction: an
//!   answer that is not the one of the key's limiter is then that of a new key, and there
//!   are no more such answers than evictions.

use std::time::Duration;

use proptest::prelude::*;
use suimon::clock::Clock;
use suimon::{Decision, Overflow, Retry, Timestamp};

use super::{Outcome, Owner, Run};
use crate::one_key::{Answer, OneKey};
use crate::table::Id;

/// Who has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Is(Owner),
    Nobody,
}

/// A slot is free for others when it has been as good as new for so long at most.
const MARGIN: Duration = Duration::from_micros(2098);

impl Run {
    /// Compares an answer, of a key that may have been evicted.
    pub(super) fn compare(
        &mut self,
        owner: Owner,
        now: Timestamp,
        answer: &Answer,
        mut act: impl FnMut(&mut OneKey) -> Answer,
    ) -> Outcome {
        let evicts = self.setup.overflow == Overflow::Evict;
        let real_now = self.clock.now();
        let one = self.one(owner);
        one.serve(real_now);
        let mut expected = act(one);
        if expected != *answer && evicts && one.is_idle(now) && !one.is_fresh(now) {
            one.forget();
            expected = act(one);
            self.forgotten += 1;
        }
        self.done(owner);
        prop_assert_eq!(answer, &expected, "{:?}", owner);
        Ok(())
    }

    /// A refusal for want of room; answers when there is some.
    pub(super) fn refused_for_room(answer: &Answer) -> Result<Duration, TestCaseError> {
        let Ok(Decision::Deny(status, Retry::After { wait, limit: 0 })) = answer else {
            return Err(TestCaseError::fail(format!("no room, and {answer:?}")));
        };
        prop_assert_eq!((status.remaining(), status.burst_left()), (0, 0));
        prop_assert!(!wait.is_zero());
        Ok(*wait)
    }

    /// Who has answered about this key, by the counter of overflows; with what must
    /// be true for there to be no room.
    pub(super) fn who(&mut self, key: Id, now: Timestamp) -> Result<Who, TestCaseError> {
        if self.has_room_for_all(key) {
            return Ok(Who::Is(Owner::Key(key)));
        }
        let overflows = self.table.stats().overflows();
        let more = overflows - std::mem::replace(&mut self.overflows, overflows);
        if more == 0 {
            return Ok(Who::Is(Owner::Key(key)));
        }
        prop_assert_eq!(more, 1);
        let evicts = self.setup.overflow == Overflow::Evict;
        let real_now = self.clock.now();
        self.keys.values_mut().for_each(|one| one.serve(real_now));
        let one = self.one(Owner::Key(key));
        prop_assert!(one.is_idle(now), "a busy key has room");
        if evicts && !one.is_fresh(now) {
            one.forget();
            self.forgotten += 1;
        }
        prop_assert!(self.one(Owner::Key(key)).is_fresh(now), "a key that has used something has room");
        let flat = self.is_flat();
        let ago = if flat { Timestamp::from_nanos(now.as_nanos() - MARGIN.as_nanos() as u64) } else { now };
        let busy = |one: &OneKey| !one.is_idle(now) || one.lingers;
        let used = |one: &OneKey| !one.is_fresh(ago) || flat && ago <= self.changed;
        let in_use = self.keys.values().filter(|one| busy(one) || used(one)).count();
        let least = if flat { 16 } else { self.setup.max_keys };
        prop_assert!(in_use >= least, "{} keys are in use, there is room for {}", in_use, least);
        match self.setup.overflow {
            Overflow::Deny => Ok(Who::Nobody),
            Overflow::Share => Ok(Who::Is(Owner::Common)),
            _ => {
                let busy = self.keys.values().filter(|one| busy(one)).count();
                prop_assert!(busy >= least, "only busy keys cannot be evicted: {}", busy);
                Ok(Who::Is(Owner::Common))
            }
        }
    }

    /// So few keys have ever come that nobody can be without room: no need to look at
    /// the counters, which would touch all keys of a map.
    fn has_room_for_all(&mut self, key: Id) -> bool {
        self.one(Owner::Key(key));
        self.keys.len() <= if self.is_flat() { 16 } else { self.setup.max_keys }
    }
}
