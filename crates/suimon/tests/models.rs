//! The shared word, the lock and the queue under schedules that the model checker
//! shuttle chooses, at random and by priorities.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p suimon --test models`

#![cfg(shuttle)]

mod support;

use std::task::Poll;
use std::time::Duration;

use shuttle::sync::mpsc::channel;
use shuttle::thread;
use suimon::clock::{Alarm, Clock};
use suimon::{Carry, Cost, LocalLimiter, Timestamp};
use support::switching::{Bell, SlowClock};
use support::{HandClock, Waiter, s, wait};

fn limiter(policy: &str) -> (LocalLimiter, HandClock) {
    let clock = SlowClock::<HandClock>::default();
    let limiter = LocalLimiter::builder(policy).unwrap().clock(clock.clone()).build().unwrap();
    (limiter, clock.0)
}

/// Some thousand schedules of both kinds.
fn check(model: fn()) {
    shuttle::check_random(model, 3000);
    shuttle::check_pct(model, 3000, 3);
}

/// Calls `allow(1)` so often; how many pass.
fn allow(limiter: &LocalLimiter, times: usize) -> thread::JoinHandle<usize> {
    let limiter = limiter.clone();
    thread::spawn(move || (0..times).filter(|_| limiter.allow(1).unwrap().is_allowed()).count())
}

fn remaining(limiter: &LocalLimiter) -> u64 {
    limiter.status().remaining()
}

/// While some decide on the word, one takes it away because it has to wait, and
/// brings it back by leaving.
#[test]
fn the_word_is_taken_away_and_comes_back() {
    check(|| {
        let (limiter, clock) = limiter("bucket 1/s burst 2");
        let (first, second) = (allow(&limiter, 2), allow(&limiter, 1));
        let waits = {
            let limiter = limiter.clone();
            thread::spawn(move || Waiter::new(limiter.consume_async(1)).passes())
        };
        let passed = first.join().unwrap() + second.join().unwrap() + usize::from(waits.join().unwrap());
        // Who has to wait has seen that nothing was left.
        assert_eq!(passed, 2);
        assert_eq!(remaining(&limiter), 0);
        clock.go_to(s(2.0));
        assert_eq!(remaining(&limiter), 2, "nothing lost");
        assert!(limiter.allow(2).unwrap().is_allowed() && !limiter.allow(1).unwrap().is_allowed());
    });
}

#[test]
fn nobody_overtakes_one_who_waits() {
    check(|| {
        let (limiter, clock) = limiter("bucket 1/s burst 2");
        limiter.consume(2).unwrap();
        let mut waiter = wait(&limiter, 2);
        let bell = {
            let clock = clock.clone();
            thread::spawn(move || clock.go_to(s(1.0)))
        };
        let overtaking = allow(&limiter, 2);
        assert_eq!(overtaking.join().unwrap(), 0);
        bell.join().unwrap();
        clock.go_to(s(2.0));
        assert_eq!(waiter.wakes.count(), 1);
        assert!(waiter.passes());
    });
}

/// A place is given up while its turn comes: those behind move up either way.
#[test]
fn a_turn_and_a_cancel() {
    check(|| {
        let (limiter, clock) = limiter("pace 1/s");
        limiter.consume(1).unwrap();
        let leaving = wait(&limiter, 1);
        let mut next = wait(&limiter, 1);
        let last = wait(&limiter, 1);
        let bell = {
            let clock = clock.clone();
            thread::spawn(move || clock.go_to(s(1.0)))
        };
        let cancel = thread::spawn(move || drop(leaving));
        bell.join().unwrap();
        cancel.join().unwrap();
        assert_eq!(next.wakes.count(), 1);
        assert!(next.passes());
        assert_eq!((limiter.queued(), clock.alarm()), (Cost::ONE, Some(s(2.0))));
        assert_eq!(last.wakes.count(), 0);
        clock.go_to(s(2.0));
        assert_eq!(last.wakes.count(), 1);
    });
}

#[test]
fn closing_reaches_whoever_just_came() {
    check(|| {
        let (limiter, _clock) = limiter("pace 1/s");
        limiter.consume(1).unwrap();
        let comes = {
            let limiter = limiter.clone();
            thread::spawn(move || {
                let mut waiter = Waiter::new(limiter.consume_async(1));
                let outcome = waiter.poll();
                (waiter, outcome)
            })
        };
        let closes = {
            let limiter = limiter.clone();
            thread::spawn(move || limiter.close())
        };
        let late = allow_or_closed(&limiter);
        closes.join().unwrap();
        late.join().unwrap();
        let (mut waiter, outcome) = comes.join().unwrap();
        let outcome = match outcome {
            Poll::Pending => {
                assert_eq!(waiter.wakes.count(), 1);
                waiter.poll()
            }
            ready => ready,
        };
        assert!(matches!(outcome, Poll::Ready(Err(error)) if error.is_closed()));
        assert!(limiter.allow(1).unwrap_err().is_closed());
    });
}

/// Refused or closed, never passed.
fn allow_or_closed(limiter: &LocalLimiter) -> thread::JoinHandle<()> {
    let limiter = limiter.clone();
    thread::spawn(move || match limiter.allow(1) {
        Ok(decision) => assert!(!decision.is_allowed()),
        Err(error) => assert!(error.is_closed()),
    })
}

#[test]
fn a_change_counts_what_has_passed() {
    check(|| {
        let (limiter, _clock) = limiter("bucket 1/s burst 2");
        let (first, second) = (allow(&limiter, 3), allow(&limiter, 2));
        let change = {
            let limiter = limiter.clone();
            thread::spawn(move || limiter.change("bucket 1/s burst 3", Carry::Keep).unwrap())
        };
        let passed = first.join().unwrap() + second.join().unwrap();
        change.join().unwrap();
        assert!((2..=3).contains(&passed));
        assert_eq!(remaining(&limiter), 3 - passed as u64);
    });
}

#[test]
fn after_a_pause_nothing_passes() {
    check(|| {
        let (limiter, clock) = limiter("bucket 1/s burst 3");
        let others = allow(&limiter, 2);
        let pause = {
            let limiter = limiter.clone();
            thread::spawn(move || {
                limiter.pause_for(Duration::from_secs(10));
                assert!(!limiter.allow(1).unwrap().is_allowed());
                let waiter = wait(&limiter, 3);
                assert!(!limiter.allow(1).unwrap().is_allowed());
                waiter
            })
        };
        let passed = others.join().unwrap();
        let mut waiter = pause.join().unwrap();
        assert!(passed <= 2);
        clock.go_to(Timestamp::from_nanos(9_999_999_999));
        assert!(!limiter.allow(1).unwrap().is_allowed() && waiter.is_pending());
        clock.go_to(s(10.0));
        assert_eq!(waiter.wakes.count(), 1);
        assert!(waiter.passes());
    });
}

#[test]
fn a_settlement_gives_back_once() {
    check(|| {
        let (limiter, _clock) = limiter("bucket 1/s burst 4");
        let reserved = limiter.reserve(3).unwrap();
        let settle = thread::spawn(move || reserved.settle(1).unwrap());
        let (first, second) = (allow(&limiter, 2), allow(&limiter, 2));
        let passed = first.join().unwrap() + second.join().unwrap();
        settle.join().unwrap();
        assert!((1..=3).contains(&passed));
        assert_eq!(remaining(&limiter), 3 - passed as u64);
    });
}

/// What a settlement frees wakes whoever waits for it, also one who just comes.
#[test]
fn a_settlement_and_one_who_comes() {
    check(|| {
        let (limiter, _clock) = limiter("bucket 1/s burst 4");
        let reserved = limiter.reserve(4).unwrap();
        let settle = thread::spawn(move || reserved.cancel());
        let comes = {
            let limiter = limiter.clone();
            thread::spawn(move || {
                let mut waiter = Waiter::new(limiter.consume_async(3));
                let passed = waiter.passes();
                (waiter, passed)
            })
        };
        settle.join().unwrap();
        let (mut waiter, passed) = comes.join().unwrap();
        assert!(passed || waiter.wakes.count() == 1 && waiter.passes());
        assert_eq!(remaining(&limiter), 1);
    });
}

/// All get their turn, in as many seconds as that takes, whoever runs when. If one
/// were not woken, the model checker would find everybody asleep.
#[test]
fn every_wait_ends() {
    check(|| {
        const TASKS: usize = 4;
        let (alarms, rings) = channel::<(Timestamp, Alarm)>();
        let clock = HandClock::default();
        let bell = Bell::new(clock.clone(), alarms);
        let limiter = LocalLimiter::builder("pace 1/s").unwrap().clock(bell).build().unwrap();
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (limiter, clock) = (limiter.clone(), clock.clone());
                thread::spawn(move || {
                    shuttle::future::block_on(limiter.consume_async(1)).unwrap();
                    clock.now()
                })
            })
            .collect();
        drop(limiter);
        let time = clock.clone();
        let ringing = thread::spawn(move || {
            // Ends when the last task has dropped the limiter, and its clock with it.
            while let Ok((at, alarm)) = rings.recv() {
                time.set(at.max(time.now()));
                alarm.ring();
            }
        });
        let mut starts: Vec<_> = tasks.into_iter().map(|task| task.join().unwrap()).collect();
        ringing.join().unwrap();
        starts.sort_unstable();
        for (turn, start) in starts.into_iter().enumerate() {
            assert!(start >= Timestamp::from_secs(turn as u64));
        }
        assert_eq!(clock.now(), Timestamp::from_secs(TASKS as u64 - 1));
    });
}
