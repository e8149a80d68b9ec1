use suimon_core::{Bucket, Carry, Quota};

use super::*;

fn bucket(per_second: u64) -> Gcra {
    Gcra::from(&Bucket::new(Quota::per_second(per_second).unwrap()))
}

/// A core whose clock is a little behind meets a key that has just been given back.
#[test]
fn a_word_that_has_only_just_passed_is_kept() {
    let flat = Flat::new(bucket(1), 10, How::default());
    let at = |nanos: u64| Timestamp::from_nanos(1_000_000_000 + nanos);
    let enter = |now| flat.enter(7, Cost::whole(1), || now, WhenFull::Tell).0;
    assert!(matches!(enter(at(0)), Entered::Hit(Hit::Admitted { .. }, ..)));
    let (word, _) = flat.take(7, at(500_000_000), WhenFull::Tell).unwrap();
    assert!(flat.put(7, word, at(1_000_000_001)));
    assert!(matches!(enter(at(999_999_000)), Entered::Hit(Hit::Refused { .. }, ..)));
    assert!(matches!(enter(at(1_000_000_000)), Entered::Hit(Hit::Admitted { .. }, ..)));
    // Long after it nothing is kept of it.
    let (word, _) = flat.take(7, at(3_000_000_000), WhenFull::Tell).unwrap();
    assert!(flat.put(7, word, at(3_100_000_000)));
    assert_eq!(flat.word(7), FRESH);
}

#[test]
fn counting_brings_words_to_the_limit_in_force() {
    let flat = Flat::new(bucket(1), 100, How::default());
    let now = Timestamp::from_secs(1);
    for hash in 1..=50_u64 {
        let hash = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        assert!(matches!(
            flat.enter(hash, Cost::whole(1), || now, WhenFull::Tell).0,
            Entered::Hit(Hit::Admitted { .. }, ..)
        ));
    }
    flat.limits.change(bucket(2), Carry::Keep, || now);
    assert_eq!(flat.live(now, 1 << 15), 50);
    let slots = (0..flat.capacity()).map(|index| flat.slots.load(index));
    assert!(slots.filter(|slot| slot.tag != 0).all(|slot| is_of(slot.tag, 1)));
    assert_eq!(flat.live(now, 1 << 15), 50);
}
