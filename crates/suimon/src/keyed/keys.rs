//! All keys: the flat table where there is one, the shards, and who decides.

mod busy;
mod changes;
mod room;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use suimon_core::gcra::Gcra;
use suimon_core::{Cost, Decision, Gate, Retry, Timestamp};

use super::Overflow;
use super::flat::{Entered, Flat, Hit};
use super::held::Held;
use super::shard::{Find, Rules, Shard};
use super::slots::How;
use super::stats::{Counters, KeyedStats};
use crate::Error;
use crate::local::{AnyCalendar, Shared, Source};
use crate::sync::{Arc, Mutex, MutexGuard, lock};

/// The limits of all keys. Keys are told apart by an `I` beside their hash.
pub(super) struct Keys<I> {
    pub(super) setup: Setup,
    flat: Option<Flat>,
    closed: AtomicBool,
    pub(super) counters: Counters,
    shards: Box<[Mutex<Shard<I>>]>,
    /// Changes of the limits come one at a time, each with its sweep. Nothing of the
    /// caller's but the clock runs under it.
    changes: Mutex<()>,
    /// The limiter of all keys for which there is no room.
    common: Arc<Shared>,
    /// Keys in the shards of a map.
    stored: AtomicUsize,
    overflows: AtomicU64,
    evictions: AtomicU64,
    /// The latest time that a caller has brought.
    seen: AtomicU64,
}

pub(super) struct Setup {
    pub(super) clock: Source,
    pub(super) calendar: AnyCalendar,
    pub(super) overflow: Overflow,
    pub(super) max_keys: usize,
    pub(super) max_queue: Option<Cost>,
    pub(super) in_map: bool,
    pub(super) how: How,
}

/// Whose time counts.
#[derive(Clone, Copy)]
pub(super) enum When {
    Now,
    At(Timestamp),
}

/// An answer, or the limiter of a busy key that gives it.
pub(super) enum Turn<I: Send + 'static> {
    Done(Decision),
    Busy(Held<I>),
}

/// Statistics look at no more nests than this.
const SAMPLE: u64 = 1 << 15;
impl<I: Send + 'static> Keys<I> {
    pub(super) fn new(gate: Gate, setup: Setup) -> Arc<Keys<I>> {
        let gcra = gate.gcra().filter(|_| !setup.in_map);
        let flat = gcra.map(|gcra| Flat::new(*gcra, setup.max_keys, setup.how));
        let shards = (setup.max_keys / 64).clamp(1, 64).next_power_of_two();
        let rules = Arc::new(Rules::new(gate.clone()));
        let state = gate.fresh();
        let common = Shared::new(gate, state, setup.clock.clone(), setup.max_queue, setup.calendar.clone());
        Arc::new(Keys {
            setup,
            flat,
            closed: AtomicBool::new(false),
            counters: Counters::new(),
            shards: (0..shards).map(|_| Mutex::new(Shard::new(rules.clone()))).collect(),
            changes: Mutex::new(()),
            common,
            stored: AtomicUsize::new(0),
            overflows: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            seen: AtomicU64::new(0),
        })
    }

    #[inline(always)]
    fn now(&self, when: When) -> Timestamp {
        match when {
            // A time that somebody has brought may be ahead of the clock: by it slots
            // were found to be as good as new, so it does not run back behind that.
            When::Now => self.setup.clock.now().max(Timestamp::from_nanos(self.seen.load(Ordering::Relaxed))),
            When::At(time) => self.observe(time),
        }
    }

    /// For a limiter of its own, which knows only the times that were brought to it.
    fn observed(&self, when: When) -> When {
        match when {
            When::Now => When::Now,
            When::At(time) => When::At(self.observe(time)),
        }
    }

    #[inline(never)]
    fn observe(&self, time: Timestamp) -> Timestamp {
        Timestamp::from_nanos(self.seen.fetch_max(time.as_nanos(), Ordering::AcqRel).max(time.as_nanos()))
    }

    pub(super) fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<I>> {
        lock(&self.shards[(hash >> 40) as usize & (self.shards.len() - 1)])
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(flat) = &self.flat {
            flat.prefetch(hash);
        }
    }

    #[inline(always)]
    pub(super) fn allow(
        self: &Arc<Self>,
        hash: u64,
        key: &impl Find<I>,
        when: When,
        cost: Cost,
    ) -> Result<Decision, Error> {
        self.allow_unless(self.try_hit(hash, || self.now(when), cost), hash, key, when, cost)
    }

    /// What a hit has decided, or else what is decided without one; counted.
    #[inline(always)]
    fn allow_unless(
        self: &Arc<Self>,
        hit: Option<Decision>,
        hash: u64,
        key: &impl Find<I>,
        when: When,
        cost: Cost,
    ) -> Result<Decision, Error> {
        let decision = match hit {
            Some(decision) => decision,
            None => self.allow_slowly(hash, key, when, cost)?,
        };
        self.counters.count(decision.is_allowed());
        Ok(decision)
    }

    /// The time by which a batch is decided.
    pub(super) fn batch_time(&self) -> Timestamp {
        self.now(When::Now)
    }

    /// `allow` for a batch, whose time has been read a moment ago. A key that is not in
    /// the flat table has the clock read anew.
    #[inline(always)]
    pub(super) fn allow_dated(
        self: &Arc<Self>,
        hash: u64,
        key: &impl Find<I>,
        now: Timestamp,
        cost: Cost,
    ) -> Result<Decision, Error> {
        self.allow_unless(self.try_hit(hash, || now, cost), hash, key, When::Now, cost)
    }

    /// The decision about a key in the flat table, if it is a plain one.
    #[inline(always)]
    fn try_hit(&self, hash: u64, now: impl Fn() -> Timestamp, cost: Cost) -> Option<Decision> {
        if self.closed.load(Ordering::Relaxed) {
            return None;
        }
        let (hit, gcra, now) = self.flat.as_ref()?.try_hit(hash, cost, now)?;
        Some(answer(hit, &gcra, now))
    }

    /// The decision about a key in the flat table.
    pub(super) fn hit(&self, hash: u64, when: When, cost: Cost) -> Option<Decision> {
        if self.closed.load(Ordering::Relaxed) {
            return None;
        }
        let (hit, gcra, now) = self.flat.as_ref()?.hit(hash, cost, || self.now(when))?;
        Some(answer(hit, &gcra, now))
    }

    #[inline(never)]
    pub(super) fn allow_slowly(
        self: &Arc<Self>,
        hash: u64,
        key: &impl Find<I>,
        when: When,
        cost: Cost,
    ) -> Result<Decision, Error> {
        let when = self.observed(when);
        if let Some(decision) = self.hit(hash, when, cost) {
            return Ok(decision);
        }
        match self.turn(hash, key, when, cost, false)? {
            Turn::Done(decision) => Ok(decision),
            Turn::Busy(held) => held.allow(when, cost),
        }
    }

    /// Decides, or finds the limiter that does. A key that is refused becomes busy if
    /// it is to wait.
    pub(super) fn turn(
        self: &Arc<Self>,
        hash: u64,
        key: &impl Find<I>,
        when: When,
        cost: Cost,
        waits: bool,
    ) -> Result<Turn<I>, Error> {
        let mut shard = self.shard(hash);
        // The arguments first.
        let found = shard.find_key(hash, key);
        let now = self.now(when);
        if let Some(at) = found {
            if let Some(busy) = shard.entry(at).busy() {
                return Ok(Turn::Busy(self.hold(hash, busy)));
            }
        } else {
            shard.rules.gate.ready(&shard.rules.fresh, now, cost)?;
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        let decision = match (found, &self.flat) {
            (Some(at), _) => match shard.idle(at) {
                Some((rules, state)) => rules.gate.allow(state, now, cost)?,
                None => unreachable!("a key that is not busy is idle"),
            },
            (None, Some(flat)) => {
                let enter = || flat.enter(hash, cost, || self.now(when), self.when_full());
                let mut entered = enter();
                if matches!(entered, (Entered::Full(_), _)) && self.rest_some(&mut shard, now) {
                    entered = enter();
                }
                match entered {
                    (Entered::Hit(hit, gcra, now), evicted) => {
                        self.evictions.fetch_add(u64::from(evicted), Ordering::Relaxed);
                        answer(hit, &gcra, now)
                    }
                    (Entered::Full(until), _) => return self.overflow(&shard, now, until),
                }
            }
            (None, None) => match self.enter(&mut shard, hash, key, now, cost)? {
                Ok(decision) => decision,
                Err(until) => return self.overflow(&shard, now, until),
            },
        };
        if waits && !decision.is_allowed() {
            // It stands in the table or the shard, so there is room for it.
            if let Ok(held) = self.make_busy(&mut shard, hash, key, now, true) {
                return Ok(Turn::Busy(held));
            }
        }
        Ok(Turn::Done(decision))
    }

    pub(super) fn peek(
        self: &Arc<Self>,
        hash: u64,
        key: &impl Find<I>,
        when: When,
        cost: Cost,
    ) -> Result<Decision, Error> {
        // Looking moves no time on.
        let seen = Timestamp::from_nanos(self.seen.load(Ordering::Acquire));
        let (when, now) = match when {
            When::Now => (when, self.now(when)),
            When::At(time) => (When::At(time.max(seen)), time.max(seen)),
        };
        let mut shard = self.shard(hash);
        if let Some(at) = shard.find_key(hash, key) {
            if let Some(busy) = shard.entry(at).busy() {
                let held = self.hold(hash, busy);
                drop(shard);
                return held.peek(when, cost);
            }
            if let Some((rules, state)) = shard.idle(at) {
                return Ok(rules.gate.peek(state, now, cost)?);
            }
        }
        let mut state = shard.rules.fresh.clone();
        if let Some(flat) = &self.flat {
            state.set_word(flat.word(hash));
        }
        let decision = shard.rules.gate.peek(&state, now, cost)?;
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        // Who would leave nothing to be remembered needs no room.
        let fresh = state == shard.rules.fresh;
        shard.rules.gate.allow(&mut state, now, cost)?;
        if !fresh || state == shard.rules.fresh {
            return Ok(decision);
        }
        Ok(self.peek_without_room(&mut shard, hash, when, now, cost)?.unwrap_or(decision))
    }

    /// Forgets what a key has used.
    pub(super) fn reset(self: &Arc<Self>, hash: u64, key: &impl Find<I>) -> Result<(), Error> {
        let mut shard = self.shard(hash);
        match shard.find_key(hash, key) {
            Some(at) => {
                if let Some(busy) = shard.entry(at).busy() {
                    let held = self.hold(hash, busy);
                    drop(shard);
                    return held.shared().reset();
                }
                shard.remove(at);
                self.stored.fetch_sub(1, Ordering::Relaxed);
            }
            None => {
                if let Some(flat) = &self.flat {
                    flat.forget(hash);
                }
            }
        }
        Ok(())
    }

    pub(super) fn close(self: &Arc<Self>) {
        self.closed.store(true, Ordering::Release);
        let mut busy = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            busy.extend(shard.busy_entries().map(|(hash, entry)| self.hold(hash, entry)));
        }
        busy.iter().for_each(|held| held.shared().close());
        self.common.close();
    }

    pub(super) fn stats(&self) -> KeyedStats {
        let now = self.now(When::Now);
        let (allowed, denied) = self.counters.sums();
        let (mut live, mut busy) = (0, 0);
        for shard in &self.shards {
            let mut shard = lock(shard);
            busy += shard.busy_entries().count();
            live += shard.live(now, 128);
        }
        if let Some(flat) = &self.flat {
            let _none_meanwhile = lock(&self.changes);
            live += flat.live(now, SAMPLE);
        }
        KeyedStats {
            allowed,
            denied,
            overflows: self.overflows.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            live_keys: live,
            busy_keys: busy,
            capacity: self.flat.as_ref().map_or(self.setup.max_keys, Flat::capacity),
        }
    }
}

#[inline(always)]
fn answer(hit: Hit, gcra: &Gcra, now: Timestamp) -> Decision {
    match hit {
        Hit::Admitted { word, tick } => Decision::Allow(gcra.status_at(word, now, tick)),
        Hit::Refused { word, tick, ready } => {
            let retry = Retry::After { wait: gcra.ticks().until(ready, now), limit: 0 };
            Decision::Deny(gcra.status_at(word, now, tick), retry)
        }
    }
}

impl<I> fmt::Debug for Keys<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = lock(&self.shards[0]).rules.gate.policy().to_string();
        f.debug_struct("Keyed")
            .field("policy", &policy)
            .field("max_keys", &self.setup.max_keys)
            .field("overflow", &self.setup.overflow)
            .finish_non_exhaustive()
    }
}
