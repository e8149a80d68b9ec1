//! Maps with room for one key or two: room is made, counted and given back.

use shuttle::thread;
use suimon::clock::ManualClock;
use suimon::{KeyedMap, Overflow};

use super::{Fixed, builder, check, goes_to, ms, passes};

type Map = KeyedMap<u64, Fixed>;

fn map(policy: &str, room: usize, overflow: Overflow) -> (Map, ManualClock) {
    let (builder, clock) = builder(policy);
    (builder.max_keys(room).overflow(overflow).build_map().unwrap(), clock)
}

fn meanwhile<R: Send + 'static>(map: &Map, act: impl FnOnce(&Map) -> R + Send + 'static) -> thread::JoinHandle<R> {
    let map = map.clone();
    thread::spawn(move || act(&map))
}

/// Calls `allow` in turn; what of it passes.
fn calls(map: &Map, calls: &'static [(u64, u64)]) -> thread::JoinHandle<Vec<bool>> {
    meanwhile(map, move |map| calls.iter().map(|(key, cost)| passes(map.allow(key, *cost))).collect())
}

/// When all has come back there is room for so many keys, neither more nor fewer.
fn assert_room(map: &Map, clock: &ManualClock, room: u64) {
    clock.advance_to(ms(100_000_000));
    let overflows = map.stats().overflows();
    for key in 0..room {
        assert!(passes(map.allow(&(1000 + key), 1)));
        assert_eq!(map.stats().overflows(), overflows, "room for {room}");
    }
    assert!(!passes(map.allow(&2000, 1)));
    assert_eq!(map.stats().overflows(), overflows + 1);
}

#[test]
fn a_new_key_is_entered_once() {
    check(|| {
        let (map, clock) = map("bucket 1/h burst 2", 2, Overflow::Deny);
        let threads = [calls(&map, &[(7, 1), (7, 1)]), calls(&map, &[(7, 1), (7, 1)]), calls(&map, &[(8, 1)])];
        let passed = threads.map(|thread| thread.join().unwrap()).concat().into_iter().filter(|passed| *passed).count();
        assert_eq!((passed, map.stats().live_keys()), (3, 2));
        assert_room(&map, &clock, 2);
    });
}

/// Two keys want the one place, which is given up meanwhile.
#[test]
fn one_place_for_two_keys() {
    check(|| {
        let (map, clock) = map("bucket 1/h burst 2", 1, Overflow::Deny);
        assert!(passes(map.allow(&6, 1)));
        let threads = [calls(&map, &[(7, 1), (7, 2)]), calls(&map, &[(8, 1), (8, 2)])];
        let forget = meanwhile(&map, |map| map.reset(&6).unwrap());
        let [seven, eight] = threads.map(|thread| thread.join().unwrap());
        forget.join().unwrap();
        // Whoever found the place keeps it; nobody has it twice.
        let sums = [seven, eight].map(|passed| passed[0] as u64 + 2 * u64::from(passed[1]));
        assert!(sums.iter().all(|sum| *sum <= 2) && sums.contains(&0), "{sums:?}");
        assert_eq!(map.stats().live_keys(), usize::from(sums != [0, 0]));
        assert_room(&map, &clock, 1);
    });
}

/// What is as good as new is forgotten for others, while its key comes again.
#[test]
fn who_is_forgotten_comes_again() {
    check(|| {
        let (map, clock) = map("bucket 1/s burst 2", 2, Overflow::Deny);
        assert!(passes(map.allow(&7, 1)) && passes(map.allow(&8, 2)));
        let threads = [calls(&map, &[(7, 2), (7, 1)]), calls(&map, &[(9, 2), (9, 1)])];
        let time = goes_to(&clock, &[900, 1000, 1100]);
        let [seven, nine] = threads.map(|thread| thread.join().unwrap());
        time.join().unwrap();
        // One token of seven's was left at first, and two after a second.
        assert!(seven != [true, true], "no three tokens within 1.1 s");
        assert!(nine != [true, true]);
        assert_eq!(map.status(&8).unwrap().remaining(), 1);
        assert!(map.stats().live_keys() <= 2);
        assert_room(&map, &clock, 2);
    });
}

/// Who enters forgets others in passing, while they are forgotten by others too.
#[test]
fn what_is_forgotten_in_passing_makes_room() {
    check(|| {
        let (map, clock) = map("bucket 1/s burst 2", 4, Overflow::Deny);
        assert!(passes(map.allow(&6, 1)) && passes(map.allow(&7, 1)));
        clock.advance_to(ms(1100));
        let threads = [calls(&map, &[(8, 2)]), calls(&map, &[(9, 2), (7, 1)])];
        let forget = meanwhile(&map, |map| map.reset(&6).unwrap());
        threads.into_iter().for_each(|thread| assert!(thread.join().unwrap().into_iter().all(|passed| passed)));
        forget.join().unwrap();
        assert_eq!(map.stats().live_keys(), 3);
        assert_room(&map, &clock, 4);
    });
}

#[test]
fn insert_forget_and_evict() {
    check(|| {
        let (map, clock) = map("bucket 1/h burst 100", 2, Overflow::Evict);
        assert!(passes(map.allow(&6, 10)) && passes(map.allow(&7, 20)));
        let threads =
            [calls(&map, &[(8, 30), (8, 1)]), calls(&map, &[(9, 40), (9, 1)]), calls(&map, &[(6, 1), (7, 1), (6, 1)])];
        let forget = meanwhile(&map, |map| map.reset(&7).unwrap());
        threads.into_iter().for_each(|thread| assert!(thread.join().unwrap().into_iter().all(|passed| passed)));
        forget.join().unwrap();
        let stats = map.stats();
        assert_eq!((stats.overflows(), stats.live_keys() <= 2), (0, true));
        let used = [6, 7, 8, 9].map(|key| 100 - map.status(&key).unwrap().remaining());
        for (used, charged) in used.into_iter().zip([12, 21, 31, 41]) {
            assert!(used <= charged);
        }
        let forgiven = used.into_iter().zip([12, 21, 31, 41]).filter(|(used, charged)| used < charged).count() as u64;
        assert!(forgiven <= stats.evictions() + 1, "{used:?}, {stats:?}");
        clock.advance_to(ms(1));
        assert!(passes(map.allow(&10, 50)));
        assert!(map.stats().live_keys() <= 2);
    });
}

/// A place is kept by who waits, also beyond the room there is, and given back.
#[test]
fn a_busy_key_keeps_its_place() {
    check(|| {
        let (map, clock) = map("bucket 1/h burst 3", 1, Overflow::Deny);
        assert!(passes(map.allow(&7, 1)));
        let place = meanwhile(&map, |map| map.reserve(&7, 1).unwrap().settle(1).unwrap());
        let pause = meanwhile(&map, |map| map.pause_for(&9, std::time::Duration::from_secs(1)).unwrap());
        let others = calls(&map, &[(8, 1), (8, 1), (7, 1)]);
        place.join().unwrap();
        pause.join().unwrap();
        let others = others.join().unwrap();
        assert!(!others[0] && !others[1], "no room");
        assert_eq!(map.status(&7).unwrap().remaining(), 0, "all three have got it");
        assert_eq!(map.stats().busy_keys(), 1, "the paused one");
        clock.advance_to(ms(1000));
        assert!(passes(map.allow(&9, 1)));
        assert_eq!(map.stats().busy_keys(), 0);
        map.reset(&9).unwrap();
        assert_room(&map, &clock, 1);
    });
}
