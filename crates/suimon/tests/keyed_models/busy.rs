//! Keys that become busy and idle again: somebody waits, has reserved, is paused, has
//! limits of its own.

use std::task::Poll;
use std::time::Duration;

use shuttle::sync::mpsc::channel;
use shuttle::thread;
use suimon::clock::{Alarm, Clock, ManualClock};
use suimon::{Carry, Error, Keyed, Timestamp};

use super::support::switching::Bell;
use super::{A, B, C, Fixed, Table, Waits, check, flat_and_map, goes_to, hits, meanwhile, ms, passes, remaining};

/// Comes to wait for a key and gives up; does it pass at once?
fn comes_and_goes(table: &Table, key: u64) -> thread::JoinHandle<u64> {
    meanwhile(table, move |table| {
        let (waits, outcome) = Waits::begin(table, key, 1);
        drop(waits);
        u64::from(outcome.is_ready())
    })
}

fn assert_idle(table: &Table) {
    assert_eq!(table.stats().busy_keys(), 0);
}

#[test]
fn a_word_goes_to_a_limiter_and_comes_back() {
    check(|| {
        for (table, clock) in flat_and_map("bucket 1/s burst 2") {
            let threads =
                [hits(&table, A, 2), comes_and_goes(&table, A), comes_and_goes(&table, A), hits(&table, B, 1)];
            let passed: u64 = threads.map(|thread| thread.join().unwrap()).into_iter().sum();
            // Who has to wait has seen that nothing was left.
            assert_eq!(passed, 2 + 1);
            assert_eq!((remaining(&table, A), remaining(&table, B)), (0, 1));
            assert_idle(&table);
            clock.advance_to(ms(2000));
            assert!(passes(table.allow(&A, 2)) && !passes(table.allow(&A, 1)), "nothing lost");
        }
    });
}

/// The tokens of one who goes are there for others, also while its turn comes.
#[test]
fn a_turn_and_a_cancel() {
    check(|| {
        for (table, clock) in flat_and_map("pace 1/s") {
            assert!(passes(table.allow(&A, 1)));
            let leaves = Waits::pending(&table, A, 1);
            let mut stays = Waits::pending(&table, A, 1);
            let time = goes_to(&clock, &[1000]);
            let cancel = thread::spawn(move || drop(leaves));
            let overtakes = hits(&table, A, 2);
            time.join().unwrap();
            cancel.join().unwrap();
            assert_eq!(overtakes.join().unwrap(), 0);
            assert!(stays.is_served());
            drop(stays);
            assert!(!passes(table.allow(&A, 1)));
            clock.advance_to(ms(2000));
            assert!(passes(table.allow(&A, 1)));
            assert_idle(&table);
        }
    });
}

/// The last one who waits goes just when the alarm rings for it.
#[test]
fn an_alarm_that_comes_too_late_keeps_no_key_busy() {
    check(|| {
        for (table, clock) in flat_and_map("pace 1/s") {
            assert!(passes(table.allow(&A, 1)));
            let leaves = Waits::pending(&table, A, 1);
            let time = goes_to(&clock, &[1000]);
            drop(leaves);
            time.join().unwrap();
            assert_idle(&table);
            assert!(passes(table.allow(&A, 1)) && !passes(table.allow(&A, 1)));
        }
    });
}

#[test]
fn a_reset_serves_who_waits() {
    check(|| {
        for (table, _clock) in flat_and_map("pace 1/h") {
            assert!(passes(table.allow(&A, 1)));
            let mut waits = Waits::pending(&table, A, 1);
            let overtakes = hits(&table, A, 2);
            let reset = meanwhile(&table, |table| table.reset(&A).unwrap());
            let late = comes_and_goes(&table, A);
            reset.join().unwrap();
            assert_eq!((overtakes.join().unwrap(), late.join().unwrap()), (0, 0));
            assert!(waits.is_served());
            drop(waits);
            assert_idle(&table);
            assert!(!passes(table.allow(&A, 1)));
        }
    });
}

/// A key becomes busy and idle while it is forgotten: once, whatever it is then.
#[test]
fn a_reset_forgives_once() {
    check(|| {
        for (table, _clock) in flat_and_map("bucket 1/h burst 2") {
            let threads = [hits(&table, A, 3), comes_and_goes(&table, A), comes_and_goes(&table, A)];
            let reset = meanwhile(&table, |table| table.reset(&A).unwrap());
            let passed: u64 = threads.map(|thread| thread.join().unwrap()).into_iter().sum();
            reset.join().unwrap();
            assert!((2..=4).contains(&passed));
            assert_idle(&table);
            let left = remaining(&table, A);
            assert!(left <= 4 - passed, "{left} left, {passed} have passed");
            assert_eq!(hits(&table, A, 3).join().unwrap(), left);
        }
    });
}

#[test]
fn a_change_reaches_whoever_waits_and_whoever_just_came() {
    check(|| {
        for (table, _clock) in flat_and_map("bucket 1/h burst 1") {
            assert!(passes(table.allow(&A, 1)));
            let mut first = Waits::pending(&table, A, 1);
            let change = meanwhile(&table, |table| table.change("bucket 1/h burst 3", Carry::Keep).unwrap());
            let comes = meanwhile(&table, |table| Waits::begin(table, A, 1));
            let hit = hits(&table, A, 2);
            change.join().unwrap();
            let (mut second, outcome) = comes.join().unwrap();
            let hit = hit.join().unwrap();
            assert!(first.is_served());
            let second_passes = outcome.is_ready() || second.is_served();
            drop((first, second));
            assert_eq!(hit + u64::from(second_passes) + remaining(&table, A), 1);
            assert_idle(&table);
            assert_eq!(passes(table.allow(&A, 1)), hit == 0 && !second_passes);
        }
    });
}

/// A change, while a key becomes busy, idle and busy again: to another rate, so that
/// words mean something else.
#[test]
fn changes_and_a_key_that_comes_and_goes() {
    check(|| {
        for (table, _clock) in flat_and_map("bucket 1/h burst 2") {
            let threads = [hits(&table, A, 1), comes_and_goes(&table, A), comes_and_goes(&table, A)];
            let place = meanwhile(&table, |table| table.reserve(&A, 2).unwrap().settle(2).unwrap());
            // Just one: what was granted under an older limit cannot be given back.
            let changes = meanwhile(&table, |table| table.change("bucket 2/h burst 6", Carry::Keep).unwrap());
            let passed: u64 = threads.map(|thread| thread.join().unwrap()).into_iter().sum();
            place.join().unwrap();
            changes.join().unwrap();
            assert_eq!(remaining(&table, A), 6 - passed - 2);
            assert_idle(&table);
        }
    });
}

#[test]
fn closing_reaches_whoever_just_came() {
    check(|| {
        for (table, _clock) in flat_and_map("pace 1/s") {
            assert!(passes(table.allow(&A, 1)) && passes(table.allow(&B, 1)));
            let mut first = Waits::pending(&table, A, 1);
            // To one that is busy, and to one that is not.
            let comes = [A, B].map(|key| meanwhile(&table, move |table| Waits::begin(table, key, 1)));
            let closes = meanwhile(&table, Keyed::close);
            let late = meanwhile(&table, |table| match table.allow(&A, 1) {
                Ok(decision) => assert!(!decision.is_allowed()),
                Err(error) => assert!(error.is_closed()),
            });
            closes.join().unwrap();
            late.join().unwrap();
            let is_closed =
                |outcome: Poll<Result<(), Error>>| matches!(outcome, Poll::Ready(Err(error)) if error.is_closed());
            assert!(first.wakes.count() == 1 && is_closed(first.poll()));
            for (mut waits, outcome) in comes.map(|thread| thread.join().unwrap()) {
                match outcome {
                    Poll::Pending => assert!(waits.wakes.count() == 1 && is_closed(waits.poll())),
                    outcome => assert!(is_closed(outcome)),
                }
            }
            for key in [A, B, C] {
                assert!(table.allow(&key, 1).unwrap_err().is_closed());
                assert!(table.reserve(&key, 1).unwrap_err().is_closed());
            }
        }
    });
}

#[test]
fn a_settlement_gives_back_once() {
    check(|| {
        for (table, _clock) in flat_and_map("bucket 1/s burst 4") {
            let reserved = table.reserve(&A, 3).unwrap();
            let settle = thread::spawn(move || reserved.settle(1).unwrap());
            let threads = [hits(&table, A, 2), hits(&table, A, 2)];
            let passed: u64 = threads.map(|thread| thread.join().unwrap()).into_iter().sum();
            settle.join().unwrap();
            assert!((1..=3).contains(&passed));
            assert_eq!(remaining(&table, A), 3 - passed);
            assert_idle(&table);
        }
    });
}

#[test]
fn after_a_pause_nothing_passes() {
    check(|| {
        for (table, clock) in flat_and_map("bucket 1/s burst 3") {
            let others = hits(&table, A, 2);
            let pause = meanwhile(&table, |table| {
                table.pause_for(&A, Duration::from_secs(10)).unwrap();
                assert!(!passes(table.allow(&A, 1)));
                let waits = Waits::pending(table, A, 3);
                assert!(!passes(table.allow(&A, 1)) && passes(table.allow(&B, 1)));
                waits
            });
            assert!(others.join().unwrap() <= 2);
            let mut waits = pause.join().unwrap();
            clock.advance_to(ms(9_999));
            assert!(!passes(table.allow(&A, 1)) && waits.poll().is_pending());
            clock.advance_to(ms(10_000));
            assert!(waits.is_served());
            drop(waits);
            assert_idle(&table);
        }
    });
}

/// A plan is given and taken while all limits change: in the end the key has what all
/// have, and what it used meanwhile is known.
#[test]
fn a_plan_comes_and_goes_while_limits_change() {
    check(|| {
        for (table, _clock) in flat_and_map("bucket 1/h burst 5") {
            assert!(passes(table.allow(&A, 1)));
            let plan = meanwhile(&table, |table| {
                table.set_policy(&A, "bucket 1/h burst 50", Carry::Keep).unwrap();
                table.clear_policy(&A, Carry::Keep).unwrap();
            });
            let change = meanwhile(&table, |table| table.change("bucket 1/h burst 10", Carry::Keep).unwrap());
            let passed = 1 + hits(&table, A, 2).join().unwrap();
            plan.join().unwrap();
            change.join().unwrap();
            assert_eq!((passed, remaining(&table, A), remaining(&table, B)), (3, 7, 10));
            assert_idle(&table);
        }
    });
}

/// Two plans at once, and all limits change: one of the two is in force.
#[test]
fn one_of_two_plans_is_in_force() {
    check(|| {
        for (table, _clock) in flat_and_map("bucket 1/h burst 5") {
            let plan = |policy: &'static str| {
                meanwhile(&table, move |table| table.set_policy(&A, policy, Carry::Keep).unwrap())
            };
            let plans = [plan("bucket 1/h burst 50"), plan("bucket 1/h burst 60")];
            let change = meanwhile(&table, |table| table.change("bucket 1/h burst 10", Carry::Keep).unwrap());
            let passed = hits(&table, A, 2).join().unwrap();
            plans.into_iter().for_each(|thread| thread.join().unwrap());
            change.join().unwrap();
            let left = remaining(&table, A);
            assert!(passed == 2 && (left == 48 || left == 58), "{left}");
            table.clear_policy(&A, Carry::Keep).unwrap();
            assert_eq!(remaining(&table, A), 8);
            assert_idle(&table);
        }
    });
}

/// All get their turn, those of each key one after the other. If one were not woken,
/// the model checker would find everybody asleep.
#[test]
fn every_wait_ends() {
    check(|| {
        for in_map in [false, true] {
            let (alarms, rings) = channel::<(Timestamp, Alarm)>();
            let clock = ManualClock::new();
            let bell = Bell::new(clock.clone(), alarms);
            let builder = Keyed::builder("pace 1/s").unwrap().hasher(Fixed::default()).clock(bell).max_keys(4);
            let table = if in_map { builder.in_map() } else { builder }.build().unwrap();
            let tasks = [A, B, A, B, A].map(|key| {
                let clock = clock.clone();
                meanwhile(&table, move |table| {
                    shuttle::future::block_on(table.consume_async(&key, 1)).unwrap();
                    (key, clock.now())
                })
            });
            let time = clock.clone();
            let ringing = thread::spawn(move || {
                // Ends when the table is gone, and its clock with it.
                while let Ok((at, alarm)) = rings.recv() {
                    time.advance_to(at);
                    alarm.ring();
                }
            });
            let starts = tasks.map(|task| task.join().unwrap());
            assert_idle(&table);
            drop(table);
            ringing.join().unwrap();
            for (key, tasks) in [(A, 3), (B, 2)] {
                let mut starts: Vec<_> = starts.iter().filter(|(of, _)| *of == key).map(|(_, start)| *start).collect();
                starts.sort_unstable();
                assert_eq!(starts.len(), tasks);
                assert!(starts.into_iter().zip(0..).all(|(start, turn)| start >= Timestamp::from_secs(turn)));
            }
            // The first of one key may come when the second of the other has its turn.
            assert!(clock.now() == ms(2000) || clock.now() == ms(3000));
        }
    });
}
