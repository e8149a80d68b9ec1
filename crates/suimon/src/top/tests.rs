use std::cell::Cell;
use std::collections::HashMap;
use std::hash::Hasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use proptest::prelude::*;

use super::*;

/// As many as a second or two take; `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1000)
}

/// A key that hashes badly: one in three collides.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Poor(u8);

impl Hash for Poor {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.0 % 3).hash(hasher);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Record(Vec<u8>),
    /// The key that has just been thrown out or is next to be, over and over.
    Unseen(u8),
    Clear,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    // Few keys that come often, among many.
    let key = prop_oneof![3 => 0_u8..3, 2 => 0_u8..12, 1 => any::<u8>()];
    let op = prop_oneof![
        30 => prop::collection::vec(key, 1..40).prop_map(Op::Record),
        3 => (1_u8..30).prop_map(Op::Unseen),
        1 => Just(Op::Clear),
    ];
    prop::collection::vec(op, 1..12)
}

/// The vectors agree with each other.
fn check_sketch<K: Eq + fmt::Debug>(top: &TopKeys<K>) {
    let sketch = lock(&top.sketch);
    assert!(sketch.counters.len() <= top.capacity);
    assert_eq!(sketch.order.len(), sketch.counters.len());
    assert!(sketch.heads.len() < 2 * sketch.counters.len().max(2) + 1);
    assert!(sketch.order.is_sorted_by(|above, below| above.count >= below.count));
    for (place, at) in sketch.order.iter().enumerate() {
        assert_eq!(sketch.counters[at.counter].place, place);
        assert!(sketch.counters[at.counter].error < at.count);
    }
    let mut chained = vec![0; sketch.counters.len()];
    for (chain, head) in sketch.heads.iter().enumerate() {
        let mut next = *head;
        while let Some(id) = next {
            assert_eq!(sketch.chain(sketch.counters[id].hash), chain);
            chained[id] += 1;
            next = sketch.counters[id].next;
        }
    }
    assert_eq!(chained, vec![1; sketch.counters.len()]);
    if top.capacity > 0 {
        assert_eq!(sketch.order.iter().map(|at| at.count).sum::<u64>(), sketch.total);
    }
}

/// What the documentation promises, against exact counts.
fn check_promises<K: Hash + Eq + Clone + fmt::Debug>(top: &TopKeys<K>, exact: &HashMap<K, u64>) {
    check_sketch(top);
    let total: u64 = exact.values().sum();
    assert_eq!(top.total(), total);

    let listed = top.top(usize::MAX);
    assert_eq!(listed.len(), exact.len().min(top.capacity()));
    assert!(listed.is_sorted_by_key(|key| (Reverse(key.count()), key.error())));
    let by_key: HashMap<&K, &TopKey<K>> = listed.iter().map(|key| (key.key(), key)).collect();
    assert_eq!(by_key.len(), listed.len(), "a key is listed twice");

    let capacity = top.capacity() as u64;
    for key in &listed {
        let true_count = exact[key.key()];
        assert!(key.at_least() <= true_count && true_count <= key.count(), "{key:?}: {true_count}");
        assert_eq!(key.at_least(), key.count() - key.error());
        assert!(key.error() * capacity <= total, "{key:?} of {total}");
        if exact.len() <= top.capacity() {
            assert_eq!((key.count(), key.error()), (true_count, 0));
        }
    }
    for (key, true_count) in exact {
        if true_count * capacity > total {
            assert!(by_key.contains_key(key), "{key:?}: {true_count} of {total} is missing");
        }
        if let Some(least) = listed.last().filter(|_| !by_key.contains_key(key)) {
            assert!(*true_count <= least.count(), "{key:?}: {true_count} of {total} is missing");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_promises_hold_for_all_keys_in_all_orders(capacity in 0_usize..16, ops in ops()) {
        let top = TopKeys::<Poor>::new(capacity);
        let mut exact = HashMap::new();
        let record = |exact: &mut HashMap<Poor, u64>, key: Poor| {
            top.record(&key);
            *exact.entry(key).or_default() += 1;
        };
        for op in ops {
            match op {
                Op::Record(keys) => keys.into_iter().for_each(|key| record(&mut exact, Poor(key))),
                Op::Unseen(times) => for _ in 0..times {
                    let listed = top.top(usize::MAX);
                    let unseen = (0..=u8::MAX).map(Poor).find(|key| listed.iter().all(|top| top.key() != key));
                    record(&mut exact, unseen.unwrap());
                }
                Op::Clear => {
                    top.clear();
                    exact.clear();
                }
            }
            check_promises(&top, &exact);
        }
    }

    #[test]
    fn the_first_are_the_first_of_all(capacity in 1_usize..16, n in 0_usize..20, keys in prop::collection::vec(0_u8..40, 0..300)) {
        let top = TopKeys::new(capacity);
        keys.iter().for_each(|key| top.record(key));
        let counts = |n| top.top(n).iter().map(TopKey::count).collect::<Vec<_>>();
        prop_assert_eq!(counts(n), counts(usize::MAX).into_iter().take(n).collect::<Vec<_>>());
    }
}

#[test]
fn a_flood_of_keys_neither_hides_the_worst_nor_takes_memory() {
    let top = TopKeys::<String>::new(100);
    for i in 0..100_000 {
        top.record(&*format!("made up {i}"));
        if i % 50 == 0 {
            top.record("worst");
        }
        if i % 90 == 0 {
            top.record("second");
        }
    }
    let listed = top.top(2);
    assert_eq!([&**listed[0].key(), listed[1].key()], ["worst", "second"]);
    // Of 2000 and 1112; the error is far below the bound of 1031.
    assert!(listed[0].at_least() <= 2000 && listed[0].count() >= 2000 && listed[0].error() <= 1031);

    check_sketch(&top);
    let sketch = lock(&top.sketch);
    assert!(sketch.counters.capacity() <= 200 && sketch.order.capacity() <= 200 && sketch.heads.capacity() <= 200);
    assert!(sketch.counters.iter().all(|counter| counter.key.capacity() <= 32));
}

#[cfg(target_pointer_width = "64")]
#[test]
fn a_counter_is_as_large_as_documented() {
    let head = size_of::<Option<usize>>();
    assert_eq!(size_of::<Counter<String>>() + size_of::<Place>() + head, size_of::<String>() + 72);
}

#[test]
fn without_counters_there_is_a_total() {
    let top = TopKeys::<u32>::new(0);
    top.record(&1);
    top.record(&2);
    assert_eq!((top.total(), top.top(10), top.capacity()), (2, vec![], 0));
}

#[test]
fn threads_record_into_one_list() {
    let top = TopKeys::<u32>::new(8);
    let keys = |thread: u32| (0..5000_u32).map(move |i| if i % 3 == 0 { 0 } else { i.wrapping_mul(thread + 7) % 50 });
    thread::scope(|scope| {
        for thread in 0..4 {
            let top = &top;
            scope.spawn(move || keys(thread).for_each(|key| top.record(&key)));
        }
        for _ in 0..100 {
            check_sketch(&top);
        }
    });
    let mut exact = HashMap::new();
    (0..4).flat_map(keys).for_each(|key| *exact.entry(key).or_default() += 1);
    check_promises(&top, &exact);
    assert_eq!(*top.top(1)[0].key(), 0);
}

thread_local! {
    static COPIES: Cell<u32> = const { Cell::new(0) };
}

/// A key that counts its copies; a copy of 13, and a comparison with 14, panics.
#[derive(Debug)]
struct Copied(u32);

impl Clone for Copied {
    fn clone(&self) -> Copied {
        assert_ne!(self.0, 13);
        COPIES.set(COPIES.get() + 1);
        Copied(self.0)
    }
}

impl PartialEq for Copied {
    fn eq(&self, other: &Copied) -> bool {
        assert_ne!(other.0, 14);
        self.0 == other.0
    }
}

impl Eq for Copied {}

impl Hash for Copied {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[test]
fn a_key_is_copied_only_for_a_counter() {
    let top = TopKeys::new(2);
    let copies = |key| {
        COPIES.set(0);
        top.record(&Copied(key));
        COPIES.get()
    };
    assert_eq!([1, 1, 2, 2, 1, 3, 3, 1, 2].map(copies), [1, 0, 1, 0, 0, 1, 0, 0, 1]);
}

#[test]
fn memory_of_a_key_is_used_again_and_given_back() {
    let top = TopKeys::<String>::new(1);
    let memory = || lock(&top.sketch).counters.first().map(|counter| (counter.key.as_ptr(), counter.key.capacity()));
    top.record("a long key");
    let long = memory();
    top.record("short");
    assert_eq!(memory(), long);
    top.clear();
    assert_eq!((memory(), top.total()), (None, 0));
    assert_eq!(lock(&top.sketch).heads.capacity(), 0);
}

#[test]
fn a_key_that_panics_is_not_counted() {
    for capacity in [1, 2, 3] {
        let top = TopKeys::new(capacity);
        [1, 1, 2].into_iter().for_each(|key| top.record(&Copied(key)));
        for bad in [13, 14] {
            catch_unwind(AssertUnwindSafe(|| top.record(&Copied(bad)))).unwrap_err();
        }
        check_sketch(&top);
        assert_eq!(top.total(), 3);
        [3; 4].into_iter().for_each(|key| top.record(&Copied(key)));
        check_sketch(&top);
        assert_eq!((top.total(), top.top(1)[0].key().0), (7, 3));
    }
}

#[test]
fn names_no_key_when_it_is_printed() {
    let top = TopKeys::<String>::new(3);
    top.record("a secret");
    assert_eq!(format!("{top:?}"), "TopKeys { capacity: 3, total: 1, .. }");
}
