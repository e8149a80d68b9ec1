//! Limits per key under real threads on the machine's clock: no key gets more than its
//! limit lets through, whatever happens to its slot and to others.

mod support;

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use suimon::clock::{Clock, MachineClock};
use suimon::{Carry, Cost, Keyed, KeyedBuilder, KeyedMap, Overflow, Request, Timestamp};
use support::{must_end, poll_once};

/// The same hashes each time, so that the same keys crowd the same slots.
type Fixed = BuildHasherDefault<DefaultHasher>;
type Table = Keyed<Fixed>;

/// A generator for each thread, from its number.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn builder(policy: &str) -> KeyedBuilder<Fixed> {
    Keyed::builder(policy).unwrap().hasher(Fixed::default())
}

/// The flat table in its two ways, and the map.
fn tables(policy: &str, room: usize) -> [Table; 3] {
    let builder = || builder(policy).max_keys(room);
    [builder(), builder().portable(), builder().in_map()].map(|builder| builder.build().unwrap())
}

/// The most that may pass from `start` until now, and one token for rounding.
fn most(start: Timestamp, burst: u64, per_second: u64) -> u64 {
    let elapsed = MachineClock.now().saturating_since(start).as_nanos();
    let refilled = elapsed * u128::from(per_second) / 1_000_000_000;
    burst + u64::try_from(refilled).unwrap() + 1
}

/// What each key has got.
struct Got(Vec<AtomicU64>);

impl Got {
    fn of(keys: u64) -> Got {
        Got((0..keys).map(|_| AtomicU64::new(0)).collect())
    }

    fn add(&self, key: u64, cost: u64) {
        self.0[key as usize].fetch_add(cost, Ordering::Relaxed);
    }

    fn most_of_one(&self) -> u64 {
        self.0.iter().map(|got| got.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|got| got.load(Ordering::Relaxed)).sum()
    }
}

/// Each of four threads does this so often.
fn threads(rounds: u64, act: impl Fn(&mut Random) + Sync) {
    thread::scope(|scope| {
        for seed in 0..4 {
            let act = &act;
            scope.spawn(move || {
                let mut random = Random(seed);
                (0..rounds).for_each(|_| act(&mut random));
            });
        }
    });
}

/// Asks for one of the keys, and counts what passes.
fn hit(table: &Table, got: &Got, key: u64, cost: u64) {
    if table.allow(&key, cost).unwrap().is_allowed() {
        got.add(key, cost);
    }
}

/// Keys that are there already: nothing but compare-and-swaps.
#[test]
fn threads_that_only_hit() {
    must_end(|| {
        for table in tables("bucket 10000/s burst 50", 100).into_iter().take(2) {
            let got = Got::of(3);
            let start = MachineClock.now();
            (0..3).for_each(|key| hit(&table, &got, key, 50));
            threads(20_000, |random| hit(&table, &got, random.below(3), 1 + random.below(8)));
            assert!(got.most_of_one() <= most(start, 50, 10_000));
            assert!(got.sum() > 3 * 50);
            let stats = table.stats();
            assert_eq!((stats.allowed() + stats.denied(), stats.busy_keys()), (4 * 20_000 + 3, 0));
        }
    });
}

/// Two hundred keys in a table of twenty-four slots, which are as good as new after some
/// milliseconds: slots change hands all the time.
#[test]
fn slots_change_hands() {
    must_end(|| {
        for table in tables("bucket 1000/s burst 5", 1) {
            let got = Got::of(200);
            let start = MachineClock.now();
            threads(10_000, |random| {
                // Some come so often that they use up what they have.
                let key = if random.below(2) == 0 { random.below(4) } else { random.below(200) };
                hit(&table, &got, key, 1 + random.below(3));
            });
            // Whoever finds no room takes of one limit more, together.
            let most = most(start, 5, 1000);
            let (one, sum) = (got.most_of_one(), got.sum());
            assert!(one <= 2 * most && sum <= 201 * most, "{one} of one, {sum} of all, {most}");
            assert!(sum > 24 * 5 / 2, "{sum}");
        }
    });
}

#[test]
fn without_room_nobody_gets_more() {
    must_end(|| {
        for (overflow, nth) in [(Overflow::Deny, 0), (Overflow::Evict, 1)] {
            for in_map in [false, true] {
                let builder = builder("bucket 1/h burst 5").max_keys(1).overflow(overflow);
                let table = if in_map { builder.in_map() } else { builder }.build().unwrap();
                let got = Got::of(60);
                threads(2000, |random| hit(&table, &got, random.below(60), 1));
                let stats = table.stats();
                assert!(stats.live_keys() <= stats.capacity());
                // Each that was forgotten may have begun anew.
                let most = 5 * (stats.capacity() as u64 + stats.evictions());
                assert!(got.sum() <= most, "{} of {most}", got.sum());
                assert!(nth == 1 || got.most_of_one() <= 5 && stats.evictions() == 0);
            }
        }
    });
}

/// A second of changes, more than a table remembers, of a limit whose burst stays.
#[test]
fn limits_change_while_keys_are_hit() {
    must_end(|| {
        for table in tables("bucket 1000/s burst 50", 20) {
            let got = Got::of(40);
            let start = MachineClock.now();
            threads(5000, |random| match random.below(50) {
                0 => table.change("bucket 1000/s burst 50", Carry::Keep).unwrap(),
                1 => table.change("bucket 2000/s burst 50", Carry::Keep).unwrap(),
                2 => drop(table.status(&random.below(40)).unwrap()),
                _ => hit(&table, &got, random.below(40), 1 + random.below(20)),
            });
            // Those without room share one limit more.
            let most = most(start, 50, 2000);
            assert!(got.most_of_one() <= 2 * most && got.sum() <= 41 * most, "{} {most}", got.most_of_one());
            let status = table.status(&0_u64).unwrap();
            assert!(status.limit() == 50 && table.stats().busy_keys() == 0);
        }
    });
}

/// Two threads change the limits of a large table, faster than all its words can be
/// brought to one of them: who has nothing left has nothing left.
#[test]
fn changes_do_not_overtake_the_sweep() {
    must_end(|| {
        let table = builder("bucket 1/h burst 5").max_keys(100_000).build().unwrap();
        (0..20_u64).for_each(|key| assert!(table.allow(&key, 5).unwrap().is_allowed()));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..150).for_each(|_| table.change("bucket 1/h burst 5", Carry::Keep).unwrap()));
            }
        });
        assert!((0..20_u64).all(|key| !table.allow(&key, 1).unwrap().is_allowed()));
    });
}

/// One key after another becomes busy and idle: waits, reservations, plans, pauses.
#[test]
fn everything_at_once() {
    must_end(|| {
        const BURST: u64 = 100;
        for table in tables("bucket 100000/s burst 100", 10) {
            let got = Got::of(3);
            let start = MachineClock.now();
            threads(1500, |random| {
                let (key, cost) = (random.below(3), 1 + random.below(5));
                match random.below(14) {
                    0..6 => hit(&table, &got, key, cost),
                    6 => {
                        table.consume(&key, cost).unwrap();
                        got.add(key, cost);
                    }
                    7 => {
                        let within = Request::new(Cost::whole(cost)).within(Duration::from_micros(random.below(500)));
                        match table.consume(&key, within) {
                            Ok(()) => got.add(key, cost),
                            Err(error) => assert!(error.is_rate_limited(), "{error}"),
                        }
                    }
                    // What is dropped at once has passed or left no trace.
                    8 => {
                        if poll_once(table.consume_async(&key, cost)).is_ready() {
                            got.add(key, cost);
                        }
                    }
                    9 => {
                        let mut place = table.reserve(&key, cost).unwrap();
                        place.wait_until_ready().unwrap();
                        place.settle(cost).unwrap();
                        got.add(key, cost);
                    }
                    10 => table.reserve(&key, cost).unwrap().cancel(),
                    _ => match random.below(40) {
                        0 => table.pause_for(&key, Duration::from_micros(200)).unwrap(),
                        1 => table.change("bucket 50000/s burst 100", Carry::Keep).unwrap(),
                        2 => table.change("bucket 100000/s burst 100", Carry::Keep).unwrap(),
                        3 => table.set_policy(&key, "bucket 80000/s burst 100", Carry::Keep).unwrap(),
                        4 => table.clear_policy(&key, Carry::Keep).unwrap(),
                        _ => assert_eq!(table.status(&key).unwrap().limit(), BURST),
                    },
                }
            });
            let (one, most) = (got.most_of_one(), most(start, BURST, 100_000));
            assert!(one <= most && one > BURST, "{one} of {most}");
            // Long after it, and after the last pause, all has come back.
            let later = MachineClock.now().saturating_add(Duration::from_secs(60));
            for key in 0..3_u64 {
                table.clear_policy(&key, Carry::Keep).unwrap();
                table.consume(&key, 1).unwrap();
                assert!(table.peek_at(later, &key, BURST).unwrap().is_allowed(), "{:?}", table.status(&key));
            }
            assert_eq!(table.stats().busy_keys(), 0);
        }
    });
}

/// Closed in the middle of it: everybody returns, with success or with the error.
#[test]
fn closing_ends_all_waits() {
    must_end(|| {
        for table in tables("pace 1000/s", 10) {
            let waits = AtomicU64::new(0);
            thread::scope(|scope| {
                for key in [0, 1, 2, 0, 1, 2_u64] {
                    let (table, waits) = (&table, &waits);
                    scope.spawn(move || {
                        while table.consume(&key, 1).inspect_err(|error| assert!(error.is_closed())).is_ok() {
                            waits.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                while waits.load(Ordering::Relaxed) < 30 {
                    thread::yield_now();
                }
                table.close();
            });
            assert!(table.allow(&0_u64, 1).unwrap_err().is_closed());
        }
    });
}

#[test]
fn a_map_forgets_and_enters() {
    must_end(|| {
        let map: KeyedMap<String, Fixed> = builder("bucket 2000/s burst 5").max_keys(100).build_map().unwrap();
        let keys: Vec<String> = (0..300).map(|n| format!("user:{n}")).collect();
        let got = Got::of(300);
        let start = MachineClock.now();
        threads(5000, |random| {
            let nth = random.below(300);
            let key = keys[nth as usize].as_str();
            match random.below(40) {
                0 => drop(map.stats()),
                _ if map.allow(key, 1).unwrap().is_allowed() => got.add(nth, 1),
                _ => {}
            }
        });
        assert!(got.most_of_one() <= 2 * most(start, 5, 2000));
        assert!(map.stats().live_keys() <= 100 && got.sum() <= 301 * most(start, 5, 2000));
    });
}
