//! How likely keys meet, how often there is no room, and what passes then: what the
//! documentation states, counted. All seeds are fixed.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use suimon::clock::ManualClock;
use suimon::{Keyed, Overflow};

/// A hash of numbers of which only some bits are in play.
#[derive(Clone, Copy, Debug)]
struct Seeded {
    seed: u64,
    mask: u64,
}

impl Seeded {
    fn all(seed: u64) -> Seeded {
        Seeded { seed, mask: u64::MAX }
    }
}

impl BuildHasher for Seeded {
    type Hasher = SeededHasher;

    fn build_hasher(&self) -> SeededHasher {
        SeededHasher { seeded: *self, hash: 0 }
    }
}

struct SeededHasher {
    seeded: Seeded,
    hash: u64,
}

impl Hasher for SeededHasher {
    fn finish(&self) -> u64 {
        self.hash & self.seeded.mask
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, key: u64) {
        self.hash = mixed(self.seeded.seed ^ mixed(key));
    }
}

/// The finalizer of splitmix64.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

fn table(max_keys: usize, hasher: Seeded) -> Keyed<Seeded> {
    Keyed::builder("bucket 1/h burst 5")
        .unwrap()
        .clock(ManualClock::new())
        .max_keys(max_keys)
        .hasher(hasher)
        .build()
        .unwrap()
}

/// A new key meets one of `n` others with a probability of `n / 2^64 + 17 / 2^56` at most.
///
/// A slot knows its key by the low 56 bits of the hash; where it lies follows from all 64.
/// So a new key meets another if all 64 agree, or if one of the slots that it looks at has
/// the same 56. Of those that have them, and differ in the upper eight, the first nest is
/// another one; so it meets a key that is in its first nest by the second nest alone (the
/// keys of one nest: `n / nests`), and one that is in its second by both (twice as many):
/// between 5.6 and 11.2 at `max_keys`, and 17 is a bound for a table that is full.
///
/// Here of the 56 bits `w` are random and the others zero: 2^w in the place of 2^56, and
/// 2^(w + 8) in that of 2^64. The random ones are the lowest and the highest, so that the
/// nine highest bits of all choose among 270 nests.
#[test]
fn two_keys_meet_as_often_as_is_documented() {
    const PROBES: u64 = 20_000;
    const MAX_KEYS: usize = 1500;
    for (w, filled) in [(12, 1500), (12, 750), (10, 1500), (14, 1500)] {
        let (mut least, mut most, mut bound, mut met) = (0.0, 0.0, 0.0, 0_u64);
        for seed in 0..3 {
            let keyed = table(MAX_KEYS, Seeded { seed: mixed(seed), mask: 0x1FF << 55 | ((1 << (w - 1)) - 1) });
            (0..filled).for_each(|key: u64| assert!(keyed.allow(&key, 1).is_ok()));
            let stats = keyed.stats();
            // Who met another has no slot.
            let (live, nests) = (stats.live_keys() as f64, stats.capacity() as f64 / 8.0);
            let meets = |slots: f64| PROBES as f64 * (live / 2_f64.powi(w + 8) + slots / 2_f64.powi(w));
            least += meets(live / nests);
            most += meets(2.0 * live / nests);
            bound += meets(17.0);
            met += (0..PROBES).filter(|n| keyed.status(&(1_000_000 + n)).unwrap().remaining() < 5).count() as u64;
        }
        println!(
            "w {w}, {filled} keys: {met} of {} meet, {least:.0} to {most:.0} expected, {bound:.0} documented",
            3 * PROBES
        );
        let met = met as f64;
        assert!(met > least - 4.0 * least.sqrt() && met < most + 4.0 * most.sqrt(), "{met}");
        assert!(met < bound + 3.0 * bound.sqrt());
    }
}

/// While a table is filled for the first time, six of a million keys find no room, all of
/// them among the last; none of the first half.
#[test]
fn a_table_is_filled_as_is_documented() {
    const MAX_KEYS: u64 = 100_000;
    let mut without_room = 0;
    for seed in 0..2 {
        let keyed = table(MAX_KEYS as usize, Seeded::all(mixed(seed)));
        let fill = |from: u64, to: u64| {
            (from..to).for_each(|key| assert!(keyed.allow(&key, 1).is_ok()));
            keyed.stats().overflows()
        };
        assert_eq!(fill(0, MAX_KEYS / 2), 0);
        without_room += fill(MAX_KEYS / 2, MAX_KEYS);
    }
    println!("{without_room} of 200,000 found no room");
    assert!(without_room <= 8, "{without_room}");
}

/// Keys come and go, each in use for a second, and always so many are: slots that are as
/// good as new are as much room as free ones, in both nests alike.
#[test]
fn keys_that_come_and_go_find_room() {
    const MAX_KEYS: u64 = 10_000;
    // Of a million: none, none, 60, 1900.
    for (percent, most) in [(50, 0), (70, 0), (90, 30), (100, 300)] {
        let live = MAX_KEYS * percent / 100;
        let clock = ManualClock::new();
        let keyed = Keyed::builder("bucket 1/s").unwrap().clock(clock.clone()).max_keys(MAX_KEYS as usize);
        let keyed = keyed.hasher(Seeded::all(percent)).build().unwrap();
        for key in 0..50_000_u64 {
            let _ = keyed.allow(&key, 1).unwrap();
            clock.advance(Duration::from_nanos(1_000_000_000 / live));
        }
        let overflows = keyed.stats().overflows();
        println!("{percent}% in use: {overflows} of 50,000 found no room");
        assert!(overflows <= most, "{percent}% {overflows}");
    }
}

/// Ten times as many keys as there is room for, each of which wants all that it may have,
/// and then comes a second time: how much passes.
#[test]
fn what_passes_where_there_is_no_room() {
    const MAX_KEYS: u64 = 2_000;
    println!("table  overflow  passed first  passed again  no room  evicted");
    for in_map in [false, true] {
        for overflow in [Overflow::Share, Overflow::Deny, Overflow::Evict] {
            let builder = Keyed::builder("bucket 5/h").unwrap().clock(ManualClock::new());
            let builder = builder.max_keys(MAX_KEYS as usize).overflow(overflow).hasher(Seeded::all(7));
            let keyed = if in_map { builder.in_map() } else { builder }.build().unwrap();
            let round = || (0..10 * MAX_KEYS).filter(|key| keyed.allow(key, 5).unwrap().is_allowed()).count() as u64;
            let (first, again) = (round(), round());
            let stats = keyed.stats();
            println!(
                "{}  {overflow:?}  {first}  {again}  {}  {}",
                if in_map { "map" } else { "flat" },
                stats.overflows(),
                stats.evictions()
            );
            let room = stats.capacity() as u64;
            match overflow {
                // A quota for each key that found room, and one more for all others.
                Overflow::Share => assert!(first > room * 95 / 100 && first <= room + 1 && again == 0),
                Overflow::Deny => assert!(first > room * 95 / 100 && first <= room && again == 0),
                // Everybody passes at the expense of others; what was forgiven was counted.
                _ => {
                    assert_eq!((first, stats.overflows()), (10 * MAX_KEYS, 0));
                    assert!(first + again <= room + stats.evictions(), "{stats:?}");
                    assert!(first + again > stats.evictions(), "nobody is evicted for nothing");
                }
            }
        }
    }
}
