//! Old and new limits side by side.

use suimon_core::{Carry, Cost, Settlement};

use super::{World, version};

/// A change that says so resets, also where the limits are the same; once, and for those who
/// come with the older version too.
pub fn a_higher_version_of_the_same_limits_resets_if_it_is_to(world: &mut World) {
    for (carry, left) in [(Carry::Reset, 10), (Carry::Keep, 3), (Carry::Balance, 3), (Carry::Scale, 3)] {
        let world = world.anew();
        let [old, new] = [1, 2].map(|number| version("bucket 1/day burst 10", number, carry));
        assert!(world.allows(&old, 7));
        assert_eq!(world.remaining(&new), left, "{carry:?}");
        world.adopt(&new);
        assert_eq!((world.remaining(&old), world.remaining(&new)), (left, left));
        assert!(world.allows(&old, 2) && world.allows(&new, 1));
        assert_eq!(world.remaining(&new), left - 3);
    }
}

/// Two processes with other limits of one version go back and forth: neither is a change.
pub fn other_limits_of_one_version_never_reset_each_other(world: &mut World) {
    let [small, large] = [10, 20].map(|burst| version(&format!("bucket 1/day burst {burst}"), 1, Carry::Reset));
    assert!(world.allows(&small, 10));
    assert!(world.allows(&large, 10));
    assert!(!world.allows(&small, 1) && !world.allows(&large, 1));
}

/// During a roll-out: booked by a process of the old version under the new limits, which govern; and
/// settled where the version has become another one, and the limits are the same.
pub fn what_was_booked_under_the_limits_in_force_is_given_back_whoever_settles(world: &mut World) {
    let old = version("bucket 1/day burst 10", 1, Carry::Keep);
    let [new, same] = [2, 3].map(|number| version("bucket 1/day burst 20", number, Carry::Keep));
    assert!(world.allows(&new, 1));
    let ticket = world.reserve(&old, 6);
    assert_eq!(world.remaining(&old), 13);
    assert_eq!(world.settle(&ticket, &old, 2), Settlement::Refunded(Cost::whole(4)));
    assert_eq!(world.remaining(&new), 17);
    let ticket = world.reserve(&new, 6);
    world.adopt(&same);
    world.settle(&ticket, &new, 0);
    assert_eq!(world.remaining(&same), 17);
}

/// What was given back until a change is not known any more, also when the limits come back.
pub fn what_was_booked_before_a_change_is_not_given_back(world: &mut World) {
    for newer in [2, 1] {
        let world = world.anew();
        let old = version("bucket 1/day burst 10", 1, Carry::Keep);
        let new = version("bucket 1/day burst 20", newer, Carry::Keep);
        let ticket = world.reserve(&old, 6);
        world.adopt(&new);
        world.adopt(&old);
        let before = world.remaining(&new);
        assert_eq!(world.settle(&ticket, &old, 2), Settlement::Refunded(Cost::whole(4)));
        assert_eq!(world.remaining(&new), before);
        // What went beyond an estimate has been spent.
        assert_eq!(world.settle(&ticket, &old, 7), Settlement::Charged(Cost::ONE));
        assert_eq!(world.remaining(&new), before - 1);
    }
}
