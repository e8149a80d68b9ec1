//! What every store promises beyond the golden scenarios: leases, bookings that are settled late or twice,
//! versions of limits, ids.
//!
//! One line mounts all of it, a test for each promise:
//!
//! ```
//! use std::sync::{Arc, OnceLock};
//!
//! use suimon::store::MemoryStore;
//! use suimon_testkit::port::World;
//! use tokio::runtime::{Builder, Handle, Runtime};
//!
//! fn handle() -> Handle {
//!     static RUNTIME: OnceLock<Runtime> = OnceLock::new();
//!     RUNTIME.get_or_init(|| Builder::new_current_thread().build().unwrap()).handle().clone()
//! }
//!
//! suimon_testkit::promises!(memory, World::new(Arc::new(MemoryStore::new()), handle()));
//! ```

pub mod bookings;
pub mod leases;
pub mod versions;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use suimon::store::{Call, Limits, Outcome, Part, Reply, Settling, Store, Ticket, Verb};
use suimon_core::{Carry, Cost, Settlement, Timestamp, Utc};
use tokio::runtime::Handle;

/// A store, a key that nobody else has, and a time of its own.
pub struct World {
    store: Arc<dyn Store>,
    runtime: Handle,
    key: Arc<str>,
    now: Timestamp,
}

impl World {
    /// A store whose futures run on this runtime, from which the tests must not be called.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, runtime: Handle) -> World {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let key = format!("{{promises}}:{}:{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)).into();
        World { store, runtime, key, now: Timestamp::from_secs(1_796_000_000) }
    }

    /// The same store, with another key.
    fn anew(&self) -> World {
        World::new(self.store.clone(), self.runtime.clone())
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.saturating_add(time);
    }

    fn call(&self, limits: &Arc<Limits>, cost: u64, verb: Verb) -> Call {
        let part = Part { key: self.key.clone(), limits: limits.clone(), cost: Cost::whole(cost) };
        Call { parts: vec![part], verb, id: None, at: Some(self.now) }
    }

    fn ask(&self, call: &Call) -> Reply {
        self.runtime.block_on(self.store.decide(call)).unwrap_or_else(|error| panic!("{call:?}: {error}"))
    }

    fn allows(&self, limits: &Arc<Limits>, cost: u64) -> bool {
        matches!(self.ask(&self.call(limits, cost, Verb::Allow)).outcome, Outcome::Allowed(_))
    }

    fn remaining(&self, limits: &Arc<Limits>) -> u64 {
        self.ask(&self.call(limits, 0, Verb::Peek)).outcome.decision().status().remaining()
    }

    fn adopt(&self, limits: &Arc<Limits>) {
        self.ask(&self.call(limits, 0, Verb::Adopt));
    }

    /// The ticket of a booking or a lease, if it passes.
    fn book(&self, limits: &Arc<Limits>, cost: u64, verb: Verb) -> Option<Ticket> {
        match self.ask(&self.call(limits, cost, verb)).outcome {
            Outcome::Booked(_, ticket) => Some(ticket),
            _ => None,
        }
    }

    fn reserve(&self, limits: &Arc<Limits>, cost: u64) -> Ticket {
        let ticket = self.book(limits, cost, Verb::Reserve { max_wait: None });
        ticket.unwrap_or_else(|| panic!("{cost} tokens of {limits:?} can be reserved"))
    }

    fn settling(&self, ticket: &Ticket, limits: &Arc<Limits>, actual: u64) -> Settling {
        let (limits, actual) = (vec![limits.clone()], vec![Cost::whole(actual)]);
        Settling { ticket: ticket.clone(), limits, actual, id: None, at: Some(self.now) }
    }

    fn settle(&self, ticket: &Ticket, limits: &Arc<Limits>, actual: u64) -> Settlement {
        self.do_settle(&self.settling(ticket, limits, actual))
    }

    fn do_settle(&self, settling: &Settling) -> Settlement {
        self.runtime.block_on(self.store.settle(settling)).unwrap_or_else(|error| panic!("{settling:?}: {error}"))
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("store", &self.store).field("key", &self.key).finish_non_exhaustive()
    }
}

fn limits(policy: &str) -> Arc<Limits> {
    version(policy, 0, Carry::Keep)
}

fn version(policy: &str, version: u64, carry: Carry) -> Arc<Limits> {
    let policy = policy.parse().unwrap_or_else(|error| panic!("{policy}: {error}"));
    Arc::new(Limits::new(policy, &Utc, version, carry).unwrap_or_else(|error| panic!("{error}")))
}

/// Mounts everything that a store promises: a module of that name, with a test for each promise. The
/// [`World`](crate::port::World) is made anew for each.
#[macro_export]
macro_rules! promises {
    ($name:ident, $world:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::promises!(@ $world, leases:
                the_bound_holds_over_every_interval idling_does_not_give_tokens_twice
                what_is_given_back_counts_again_and_only_once what_is_given_back_counts_again_beside_other_leases
                what_a_lease_gives_back_is_given_to_no_booking_again a_booking_does_not_hide_what_a_lease_has_spent
                a_booking_does_not_hide_what_a_lease_may_spend leases_end_in_their_order
                a_chunk_is_a_quarter_of_what_there_is a_lease_is_of_one_bucket a_lease_with_an_id_is_lent_once
                leases_stay_out_when_limits_change huge_and_tiny_amounts_are_lent_exactly);
            $crate::promises!(@ $world, bookings:
                a_late_settlement_gets_nothing_that_has_been_refilled a_settlement_with_an_id_is_done_once
                what_is_booked_and_given_back_for_ever_is_counted_for_ever an_id_belongs_to_the_first_key_of_its_call
                parts_of_a_call_have_keys_of_their_own);
            $crate::promises!(@ $world, versions:
                a_higher_version_of_the_same_limits_resets_if_it_is_to other_limits_of_one_version_never_reset_each_other
                what_was_booked_under_the_limits_in_force_is_given_back_whoever_settles
                what_was_booked_before_a_change_is_not_given_back);
        }
    };
    (@ $world:expr, $module:ident: $($promise:ident)+) => {$(
        #[test]
        fn $promise() {
            $crate::port::$module::$promise(&mut $world);
        }
    )+};
}
