//! Keys with a limiter of their own, for a time or for good.

use std::sync::atomic::Ordering;

use suimon_core::{Cost, Retry, State, Timestamp};

use super::{Held, Keys, Setup, Turn, When};
use crate::Error;
use crate::keyed::shard::{Busy, Find, Rules, Shard, What};
use crate::local::Shared;
use crate::sync::Arc;

use super::room::LOOK_IN_PASSING;

impl<I: Send + 'static> Keys<I> {
    /// Gives a key a limiter of its own, with what it has used; `Err` where there is no
    /// room for it.
    pub(in crate::keyed) fn make_busy(
        self: &Arc<Self>,
        shard: &mut Shard<I>,
        hash: u64,
        key: &impl Find<I>,
        now: Timestamp,
        force: bool,
    ) -> Result<Held<I>, Timestamp> {
        if let Some(at) = shard.find_key(hash, key) {
            if let Some(busy) = shard.entry(at).busy() {
                return Ok(self.hold(hash, busy));
            }
            let state = shard.idle(at).map(|(_, state)| state.clone());
            let shared = self.limiter(&shard.rules, state.unwrap_or_else(|| shard.rules.fresh.clone()));
            let mut busy = Busy::new(shared);
            let held = self.hold(hash, &mut busy);
            shard.entry(at).what = What::Busy(busy);
            return Ok(held);
        }
        let mut state = shard.rules.fresh.clone();
        if let Some(flat) = &self.flat {
            match flat.take(hash, now, self.when_full()) {
                Ok((word, evicted)) => {
                    state.set_word(word);
                    self.evictions.fetch_add(u64::from(evicted), Ordering::Relaxed);
                }
                Err(_) if force => {}
                Err(until) => return Err(until),
            }
            for _ in 0..LOOK_IN_PASSING {
                if let Some(at) = shard.turn() {
                    self.rest(shard, at, now);
                }
            }
        } else if let Err(until) = self.make_room(shard, now) {
            if !force {
                return Err(until);
            }
            self.stored.fetch_add(1, Ordering::Relaxed);
        }
        let mut busy = Busy::new(self.limiter(&shard.rules, state));
        let held = self.hold(hash, &mut busy);
        shard.push(hash, key.own(), What::Busy(busy));
        Ok(held)
    }

    fn limiter(&self, rules: &Rules, state: State) -> Arc<Shared> {
        let Setup { clock, calendar, max_queue, .. } = &self.setup;
        Shared::new(rules.gate.clone(), state, clock.clone(), *max_queue, calendar.clone())
    }

    /// The caller has the lock of the shard.
    pub(in crate::keyed) fn hold(self: &Arc<Self>, hash: u64, busy: &mut Busy) -> Held<I> {
        busy.holders += 1;
        Held::new(self.clone(), hash, busy.shared.clone())
    }

    /// The errors of the arguments, before anything is done for a key.
    pub(in crate::keyed) fn check(&self, hash: u64, key: &impl Find<I>, cost: Cost) -> Result<(), Error> {
        let shard = self.shard(hash);
        if shard.find_key(hash, key).is_none() {
            shard.rules.gate.ready(&shard.rules.fresh, Timestamp::ZERO, cost)?;
        }
        Ok(())
    }

    /// The limiter of a key, which is busy from now on as long as it is held.
    pub(in crate::keyed) fn busy(
        self: &Arc<Self>,
        hash: u64,
        key: &impl Find<I>,
        force: bool,
    ) -> Result<Held<I>, Error> {
        let now = self.now(When::Now);
        let mut shard = self.shard(hash);
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        match self.make_busy(&mut shard, hash, key, now, force) {
            Ok(held) => Ok(held),
            Err(until) => match self.overflow(&shard, now, until)? {
                Turn::Busy(held) => Ok(held),
                Turn::Done(decision) => {
                    let retry = decision.retry().unwrap_or(Retry::Never { limit: 0 });
                    Err(Error::rate_limited(retry, None))
                }
            },
        }
    }
}
