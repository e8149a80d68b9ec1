//! All keys: the flat table where there is one, the shards, and who decides.

mod changes;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use suimon_core::gcra::{FRESH, Gcra};
use suimon_core::{Cost, Decision, Gate, Retry, State, Timestamp};

use super::Overflow;
use super::flat::{Entered, Flat, Hit, WhenFull};
use super::held::Held;
use super::shard::{Busy, Find, Rules, Shard, What};
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
    pub(super) portable: bool,
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
/// When to come back where it cannot be said: all who take the room are busy.
const UNKNOWN: Duration = Duration::from_millis(1);
/// How many entries are looked at for room, and in passing.
const LOOK_FOR_ROOM: usize = 16;
const LOOK_IN_PASSING: usize = 2;

impl<I: Send + 'static> Keys<I> {
    pub(super) fn new(gate: Gate, setup: Setup) -> Arc<Keys<I>> {
        let gcra = gate.gcra().filter(|_| !setup.in_map);
        let flat = gcra.map(|gcra| Flat::new(*gcra, setup.max_keys, setup.portable));
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

    fn when_full(&self) -> WhenFull {
        match self.setup.overflow {
            Overflow::Evict => WhenFull::Evict,
            Overflow::Share | Overflow::Deny => WhenFull::Tell,
        }
    }

    /// A new key of a map, or the instant before which there is no room for it.
    fn enter(
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
    fn make_room(&self, shard: &mut Shard<I>, now: Timestamp) -> Result<(), Timestamp> {
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
    fn overflow(self: &Arc<Self>, shard: &Shard<I>, now: Timestamp, until: Timestamp) -> Result<Turn<I>, Error> {
        self.overflows.fetch_add(1, Ordering::Relaxed);
        match self.setup.overflow {
            Overflow::Deny => {
                let gate = &shard.rules.gate;
                let mut used_up = gate.with_balance(now, Cost::ZERO)?;
                // A pace that owes nothing would let anything pass.
                let _ = gate.allow(&mut used_up, now, Cost::new(0, 1)?)?;
                let status = gate.status(&used_up, now)?;
                let wait = until.saturating_since(now).max(Duration::from_nanos(1));
                Ok(Turn::Done(Decision::Deny(status, Retry::After { wait, limit: 0 })))
            }
            Overflow::Share | Overflow::Evict => Ok(Turn::Busy(Held::common(self.clone(), self.common.clone()))),
        }
    }

    /// Gives a key a limiter of its own, with what it has used; `Err` where there is no
    /// room for it.
    pub(super) fn make_busy(
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

    /// Lets some busy keys give up their limiters whose pauses, say, are over; answers
    /// whether that has made room.
    fn rest_some(&self, shard: &mut Shard<I>, now: Timestamp) -> bool {
        let before = shard.len();
        for _ in 0..LOOK_FOR_ROOM {
            let Some(at) = shard.turn() else { break };
            self.rest(shard, at, now);
        }
        shard.len() < before
    }

    /// A busy key that nobody uses any more gives up its limiter.
    pub(super) fn rest(&self, shard: &mut Shard<I>, at: usize, now: Timestamp) {
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

    /// The caller has the lock of the shard.
    pub(super) fn hold(self: &Arc<Self>, hash: u64, busy: &mut Busy) -> Held<I> {
        busy.holders += 1;
        Held::new(self.clone(), hash, busy.shared.clone())
    }

    /// The errors of the arguments, before anything is done for a key.
    pub(super) fn check(&self, hash: u64, key: &impl Find<I>, cost: Cost) -> Result<(), Error> {
        let shard = self.shard(hash);
        if shard.find_key(hash, key).is_none() {
            shard.rules.gate.ready(&shard.rules.fresh, Timestamp::ZERO, cost)?;
        }
        Ok(())
    }

    /// The limiter of a key, which is busy from now on as long as it is held.
    pub(super) fn busy(self: &Arc<Self>, hash: u64, key: &impl Find<I>, force: bool) -> Result<Held<I>, Error> {
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
        Ok(decision)
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
        live += self.flat.as_ref().map_or(0, |flat| flat.live(now, SAMPLE));
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
