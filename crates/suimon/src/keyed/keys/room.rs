//! Room for keys: newcomers, what they get where there is none, and who makes some.

use std::sync::atomic::Ordering;
use std::time::Duration;

use suimon_core::gcra::FRESH;
use suimon_core::{Cost, Decision, Gate, Retry, Timestamp};

use super::{Held, Keys, Turn, When};
use crate::Error;
use crate::keyed::Overflow;
use crate::keyed::flat::WhenFull;
use crate::keyed::shard::{Find, Shard, What};
use crate::sync::Arc;

/// When to come back where it cannot be said: all who take the room are busy.
const UNKNOWN: Duration = Duration::from_millis(1);
/// How many entries are looked at for room, and in passing.
const LOOK_FOR_ROOM: usize = 16;
pub(super) const LOOK_IN_PASSING: usize = 2;

impl<I: Send + 'static> Keys<I> {
    pub(super) fn when_full(&self) -> WhenFull {
        match self.setup.overflow {
            Overflow::Evict => WhenFull::Evict,
            Overflow::Share | Overflow::Deny => WhenFull::Tell,
        }
    }

    /// A new key of a map, or the instant before which there is no room for it.
    pub(super) fn enter(
        &self,
        shard: &mut Shard<I>,
        hash: u64,
        key: &impl Find<I>,
        now: Timestamp,
        cost: Cost,
    ) -> Result<Result<Decision, Timestamp>, Error> {
        let mut state = shard.rules.fresh.clone();
        let decision = shard.rules.gate.allow(&mut state, now, cost)?;
        // Nothing to be remembered: refused, free, or `unlimited`.
        if state == shard.rules.fresh {
            return Ok(Ok(decision));
        }
        if let Err(until) = self.make_room(shard, now) {
            return Ok(Err(until));
        }
        shard.push(hash, key.own(), What::Idle(state));
        Ok(Ok(decision))
    }

    /// Makes room for one more key of a map, and forgets in passing what is as good
    /// as new; else tells when there may be room.
    pub(super) fn make_room(&self, shard: &mut Shard<I>, now: Timestamp) -> Result<(), Timestamp> {
        let most = self.setup.max_keys;
        let counted =
            self.stored.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < most).then_some(n + 1)).is_ok();
        let mut nearest: Option<(Duration, usize)> = None;
        let mut forgotten = 0;
        for _ in 0..if counted { LOOK_IN_PASSING } else { LOOK_FOR_ROOM } {
            let Some(at) = shard.turn() else { break };
            self.rest(shard, at, now);
            match shard.until_fresh(at, now) {
                Some(Duration::ZERO) => {
                    shard.remove(at);
                    forgotten += 1;
                    // Others have moved to other places.
                    nearest = None;
                    if !counted {
                        break;
                    }
                }
                Some(wait) if nearest.is_none_or(|(least, _)| wait < least) => nearest = Some((wait, at)),
                Some(_) | None => {}
            }
        }
        if counted {
            self.stored.fetch_sub(forgotten, Ordering::Relaxed);
            return Ok(());
        }
        match nearest {
            _ if forgotten > 0 => Ok(()),
            Some((_, at)) if self.setup.overflow == Overflow::Evict => {
                shard.remove(at);
                self.evictions.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            nearest => Err(now.saturating_add(nearest.map_or(UNKNOWN, |(wait, _)| wait))),
        }
    }

    /// What a newcomer gets when there is no room for it before an instant.
    pub(super) fn overflow(
        self: &Arc<Self>,
        shard: &Shard<I>,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Turn<I>, Error> {
        self.overflows.fetch_add(1, Ordering::Relaxed);
        match self.setup.overflow {
            Overflow::Deny => Ok(Turn::Done(no_room(&shard.rules.gate, now, until)?)),
            Overflow::Share | Overflow::Evict => Ok(Turn::Busy(Held::common(self.clone(), self.common.clone()))),
        }
    }

    /// What a key gets that is not there and for which there is no room, if nothing of it
    /// is to be charged; `None` where there is room.
    pub(super) fn peek_without_room(
        &self,
        shard: &mut Shard<I>,
        hash: u64,
        when: When,
        now: Timestamp,
        cost: Cost,
    ) -> Result<Option<Decision>, Error> {
        let room = match &self.flat {
            Some(flat) => flat.room(hash, now, self.when_full()),
            None if self.stored.load(Ordering::Relaxed) < self.setup.max_keys => Ok(()),
            None => shard.room(LOOK_FOR_ROOM, now).map_err(|wait| now.saturating_add(wait.unwrap_or(UNKNOWN))),
        };
        match (room, self.setup.overflow) {
            (Ok(()), _) | (Err(_), Overflow::Evict) => Ok(None),
            (Err(until), Overflow::Deny) => no_room(&shard.rules.gate, now, until).map(Some),
            (Err(_), Overflow::Share) => {
                let at = match when {
                    When::Now => None,
                    When::At(time) => Some(time),
                };
                self.common.peek(at, cost).map(Some)
            }
        }
    }

    /// Lets some busy keys give up their limiters whose pauses, say, are over; answers
    /// whether that has made room.
    pub(super) fn rest_some(&self, shard: &mut Shard<I>, now: Timestamp) -> bool {
        let before = shard.len();
        for _ in 0..LOOK_FOR_ROOM {
            let Some(at) = shard.turn() else { break };
            self.rest(shard, at, now);
        }
        shard.len() < before
    }

    /// A busy key that nobody uses any more gives up its limiter.
    pub(in crate::keyed) fn rest(&self, shard: &mut Shard<I>, at: usize, now: Timestamp) {
        let rules = shard.rules.clone();
        let Some(busy) = shard.entry(at).busy() else { return };
        // An alarm that rings for it just now finds nobody to serve.
        if busy.own.is_some() || busy.holders > 0 {
            return;
        }
        let Some(state) = busy.shared.plain_state(&rules.gate) else { return };
        match &self.flat {
            Some(flat) => {
                if flat.put(shard.entry(at).hash(), state.word().unwrap_or(FRESH), now) {
                    shard.remove(at);
                }
            }
            None => shard.make_idle(at, state),
        }
    }
}

/// The refusal of a key for which there is no room before an instant.
fn no_room(gate: &Gate, now: Timestamp, until: Timestamp) -> Result<Decision, Error> {
    let mut used_up = gate.with_balance(now, Cost::ZERO)?;
    // A pace that owes nothing would let anything pass.
    let _ = gate.allow(&mut used_up, now, Cost::new(0, 1)?)?;
    let status = gate.status(&used_up, now)?;
    let wait = until.saturating_since(now).max(Duration::from_nanos(1));
    Ok(Decision::Deny(status, Retry::After { wait, limit: 0 }))
}
