//! Limits per key under schedules that the model checker shuttle chooses, at random
//! and by priorities: the flat table slot by slot, the shards, and the way of a key
//! from one to the other and back.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p suimon --test keyed_models`

#![cfg(shuttle)]

mod support;

#[path = "keyed_models/busy.rs"]
mod busy;
#[path = "keyed_models/changes.rs"]
mod changes;
#[path = "keyed_models/crowd.rs"]
mod crowd;
#[path = "keyed_models/ledger.rs"]
mod ledger;
#[path = "keyed_models/map.rs"]
mod map;
#[path = "keyed_models/room.rs"]
mod room;

use std::future::Future;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use shuttle::thread;
use suimon::clock::ManualClock;
use suimon::{Decision, Error, Keyed, KeyedBuilder, KeyedConsume, Overflow, Timestamp};
use support::Wakes;
use support::switching::SlowClock;

/// The same hashes each time, as shuttle wants it.
type Fixed = BuildHasherDefault<DefaultHasher>;
type Table = Keyed<Fixed>;

/// Keys; a plain number in a call would be one of another type, which hashes to another place.
const A: u64 = 7;
const B: u64 = 8;
const C: u64 = 9;

fn builder(policy: &str) -> (KeyedBuilder<Fixed>, ManualClock) {
    let clock = ManualClock::new();
    let builder = Keyed::builder(policy).unwrap().hasher(Fixed::default()).clock(SlowClock(clock.clone()));
    (builder, clock)
}

/// The smallest flat table: three nests, one shard.
fn small(policy: &str) -> (Table, ManualClock) {
    let (builder, clock) = builder(policy);
    (builder.max_keys(1).overflow(Overflow::Deny).build().unwrap(), clock)
}

/// The same limits in the flat table and in the map.
fn flat_and_map(policy: &str) -> [(Table, ManualClock); 2] {
    [false, true].map(|in_map| {
        let (builder, clock) = builder(policy);
        let builder = builder.max_keys(4);
        (if in_map { builder.in_map() } else { builder }.build().unwrap(), clock)
    })
}

/// The smallest table with two shards, so that newcomers meet who do not lock each
/// other out.
fn two_shards(policy: &str, overflow: Overflow) -> (Table, ManualClock) {
    let (builder, clock) = builder(policy);
    (builder.max_keys(128).overflow(overflow).build().unwrap(), clock)
}

/// Two thousand schedules of both kinds.
fn check(model: impl Fn() + Send + Sync + 'static) {
    check_so_often(1000, model);
}

/// For models that take long.
fn check_so_often(times: usize, model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(model);
    let same = model.clone();
    shuttle::check_random(move || same(), times);
    shuttle::check_pct(move || model(), times, 3);
}

fn passes(decision: Result<Decision, Error>) -> bool {
    decision.unwrap().is_allowed()
}

/// Calls `allow(1)` for a key so often; how many pass.
fn hits(table: &Table, key: u64, times: usize) -> thread::JoinHandle<u64> {
    let table = table.clone();
    thread::spawn(move || (0..times).map(|_| u64::from(passes(table.allow(&key, 1)))).sum())
}

/// Does something with the table in a thread of its own.
fn meanwhile<R: Send + 'static>(
    table: &Table,
    act: impl FnOnce(&Table) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let table = table.clone();
    thread::spawn(move || act(&table))
}

fn remaining(table: &Table, key: u64) -> u64 {
    table.status(&key).unwrap().remaining()
}

/// Lets time pass in a thread of its own, ringing; in milliseconds from the origin.
fn goes_to(clock: &ManualClock, times: &'static [u64]) -> thread::JoinHandle<()> {
    let clock = clock.clone();
    thread::spawn(move || {
        for time in times {
            clock.advance_to(ms(*time));
            thread::yield_now();
        }
    })
}

const fn ms(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

/// One who waits for a key, with the bell that would wake it.
struct Waits {
    future: KeyedConsume,
    wakes: Arc<Wakes>,
}

impl Waits {
    /// Polled once; what came of it.
    fn begin(table: &Table, key: u64, cost: u64) -> (Waits, Poll<Result<(), Error>>) {
        let mut waits = Waits { future: table.consume_async(&key, cost), wakes: Arc::default() };
        let outcome = waits.poll();
        (waits, outcome)
    }

    /// Has to wait.
    fn pending(table: &Table, key: u64, cost: u64) -> Waits {
        let (waits, outcome) = Waits::begin(table, key, cost);
        assert!(outcome.is_pending(), "it should have to wait");
        waits
    }

    fn poll(&mut self) -> Poll<Result<(), Error>> {
        let waker = Waker::from(self.wakes.clone());
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker))
    }

    /// Has been woken, and is served.
    fn is_served(&mut self) -> bool {
        self.wakes.count() > 0 && matches!(self.poll(), Poll::Ready(Ok(())))
    }
}
