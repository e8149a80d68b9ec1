//! The queue against a simple reference, step by step, for random histories:
//! arrivals, cancels at every stage, late and early alarms, pauses, changes,
//! reservations, polls in any order or never.

mod support;

#[path = "support/histories.rs"]
mod histories;
#[path = "support/reference.rs"]
mod reference;

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use histories::{Op, op, policies};
use proptest::prelude::*;
use proptest::sample::Index;
use reference::{Fate, Joined, Reference, Refusal, Rule};
use suimon::clock::Clock;
use suimon::{Carry, Cost, Error, LocalLimiter, Request, Reservation, Timestamp};
use support::{HandClock, Waiter, Wakes};

/// As many as a second or two take; `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(4000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_does_what_the_reference_does(
        start in any::<Index>(),
        max_queue in proptest::option::weighted(0.3, 3_u64..20),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let mut run = Run::new(start.index(policies().len()), max_queue);
        for op in ops {
            run.step(&op)?;
            run.compare(&op)?;
        }
        run.drain()?;
    }
}

/// The limiter and the reference, side by side.
struct Run {
    limiter: LocalLimiter,
    clock: HandClock,
    reference: Reference,
    shape: Vec<Rule>,
    places: Vec<Place>,
    /// The starts and costs of all that has passed, but for places; for bounds.
    passed: Vec<(u128, u128)>,
    changed: bool,
    /// Did the last ring find an alarm?
    rang: bool,
}

/// One who has come: a future or a reservation, and what the reference says of it.
struct Place {
    held: Held,
    fate: Option<Fate>,
    /// Has the fate been seen by a poll?
    told: bool,
    wakes_when_pending: usize,
    /// What it really cost, once that is known.
    actual: Option<u128>,
}

enum Held {
    Future(Waiter, Option<(u64, Option<u64>)>),
    Reservation(Reservation, std::sync::Arc<Wakes>, bool),
    Gone,
}

impl Run {
    fn new(policy: usize, max_queue: Option<u64>) -> Run {
        let (text, shape) = policies().swap_remove(policy);
        let clock = HandClock::default();
        let mut builder = LocalLimiter::builder(text).unwrap().clock(clock.clone());
        if let Some(most) = max_queue {
            builder = builder.max_queue(most).unwrap();
        }
        let reference = Reference::new(shape.clone(), max_queue.map(u128::from));
        Run {
            limiter: builder.build().unwrap(),
            clock,
            reference,
            shape,
            places: Vec::new(),
            passed: Vec::new(),
            changed: false,
            rang: false,
        }
    }

    fn now(&self) -> u128 {
        u128::from(self.clock.now().as_nanos())
    }

    fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let now = self.now();
        match op {
            Op::Wait { cost, within, poll } => {
                let future = self.limiter.consume_async(request(*cost, *within));
                let held = Held::Future(Waiter::new(future), Some((*cost, *within)));
                self.places.push(Place { held, fate: None, told: false, wakes_when_pending: 0, actual: None });
                if *poll {
                    self.poll(self.places.len() - 1)?;
                }
            }
            Op::Reserve { cost, within } => self.reserve(*cost, *within)?,
            Op::Allow(cost) => {
                self.reference.serve(now);
                let expected = self.reference.allow(now, u128::from(*cost));
                if expected == Ok(0) {
                    self.passed.push((now, u128::from(*cost)));
                }
                same_decision(self.limiter.allow(*cost), expected)?;
            }
            Op::Peek(cost) => {
                self.reference.serve(now);
                let expected = self.reference.peek(now, u128::from(*cost));
                same_decision(self.limiter.peek(*cost), expected)?;
            }
            Op::Poll(index) if !self.places.is_empty() => self.poll(index.index(self.places.len()))?,
            Op::Drop(index) if !self.places.is_empty() => self.drop(index.index(self.places.len())),
            Op::Settle(index, actual) if !self.places.is_empty() => {
                self.settle(index.index(self.places.len()), Some(*actual))?;
            }
            Op::Cancel(index) if !self.places.is_empty() => self.settle(index.index(self.places.len()), None)?,
            Op::Poll(_) | Op::Drop(_) | Op::Settle(..) | Op::Cancel(_) => {}
            Op::Advance(by) => self.clock.advance(Duration::from_nanos(*by)),
            Op::Ring { early } => {
                let due = self.clock.alarm().is_some_and(|at| at <= self.clock.now());
                self.rang = (*early || due) && self.clock.ring();
                if self.rang {
                    self.reference.serve(now);
                }
            }
            Op::Pause(pause) => {
                self.limiter.pause_for(Duration::from_nanos(*pause));
                self.reference.serve(now);
                self.reference.pause(now + u128::from(*pause));
            }
            Op::Change { to, keep } => {
                let (text, rules) = policies().swap_remove(to.index(policies().len()));
                let alike = rules.iter().zip(&self.shape).all(|(new, old)| new.is_like(old));
                let keep = *keep && alike;
                self.limiter.change(text, if keep { Carry::Keep } else { Carry::Reset }).unwrap();
                self.reference.serve(now);
                self.reference.change(now, rules.clone(), keep);
                self.shape = rules;
                self.changed = true;
            }
            Op::Close => {
                self.limiter.close();
                self.reference.serve(now);
                self.reference.close();
            }
        }
        Ok(())
    }

    fn reserve(&mut self, cost: u64, within: Option<u64>) -> Result<(), TestCaseError> {
        let (id, now) = (self.places.len(), self.now());
        self.reference.serve(now);
        let expected = self.reference.join(id, now, u128::from(cost), within.map(u128::from));
        let actual = self.limiter.reserve(request(cost, within));
        match (expected, actual) {
            (Ok(joined), Ok(reservation)) => {
                let (fate, wait) = match joined {
                    Joined::Now(booked) => (Some(Fate::Granted(booked)), 0),
                    Joined::Queued(wait) => (None, wait),
                };
                prop_assert_eq!(reservation.wait().as_nanos(), wait);
                prop_assert_eq!(reservation.estimate(), Cost::whole(cost));
                let told = fate.is_some();
                let held = Held::Reservation(reservation, std::sync::Arc::default(), false);
                self.places.push(Place { held, fate, told, wakes_when_pending: 0, actual: None });
            }
            (Err(refusal), Err(error)) => same_error(&error, refusal)?,
            (expected, actual) => prop_assert!(false, "{:?} instead of {:?}", actual, expected.is_ok()),
        }
        Ok(())
    }

    fn poll(&mut self, id: usize) -> Result<(), TestCaseError> {
        let now = self.now();
        if matches!(self.places[id].held, Held::Gone) || self.places[id].told && self.is_future(id) {
            return Ok(());
        }
        self.reference.serve(now);
        // The first poll of a future joins the queue.
        if let Held::Future(_, asked) = &mut self.places[id].held
            && let Some((cost, within)) = asked.take()
        {
            let expected = self.reference.join(id, now, u128::from(cost), within.map(u128::from));
            self.places[id].fate = match expected {
                Ok(Joined::Now(booked)) => Some(Fate::Granted(booked)),
                Ok(Joined::Queued(_)) => None,
                Err(refusal) => Some(Fate::Failed(refusal)),
            };
        }
        self.learn();
        let place = &mut self.places[id];
        let (outcome, wakes) = match &mut place.held {
            Held::Future(waiter, _) => (waiter.poll(), waiter.wakes.clone()),
            Held::Reservation(reservation, wakes, polled) => {
                *polled = true;
                let waker = Waker::from(wakes.clone());
                let ready = std::pin::pin!(reservation.ready());
                (ready.poll(&mut Context::from_waker(&waker)), wakes.clone())
            }
            Held::Gone => return Ok(()),
        };
        place.wakes_when_pending = wakes.count();
        match (&place.fate, outcome) {
            (None, Poll::Pending) => {}
            (Some(Fate::Granted(_)), Poll::Ready(Ok(()))) => place.told = true,
            (Some(Fate::Failed(refusal)), Poll::Ready(Err(error))) => {
                place.told = true;
                same_error(&error, *refusal)?;
            }
            (fate, outcome) => prop_assert!(false, "place {}: {:?} instead of {:?}", id, outcome, fate),
        }
        Ok(())
    }

    fn is_future(&self, id: usize) -> bool {
        matches!(self.places[id].held, Held::Future(..))
    }

    fn drop(&mut self, id: usize) {
        let now = self.now();
        match std::mem::replace(&mut self.places[id].held, Held::Gone) {
            // A future that was never polled, or that is done, is nothing.
            Held::Future(waiter, asked) => {
                drop(waiter);
                if asked.is_none() && !self.places[id].told {
                    self.reference.serve(now);
                    self.learn();
                    match &self.places[id].fate {
                        None => self.reference.leave(id),
                        Some(Fate::Granted(booked)) => self.reference.settle(now, booked, 0),
                        Some(Fate::Failed(_)) => {}
                    }
                    self.places[id].actual = Some(0);
                }
            }
            Held::Reservation(reservation, ..) => {
                drop(reservation);
                if !self.places[id].told {
                    self.reference.serve(now);
                    self.reference.abandon(id);
                }
            }
            Held::Gone => {}
        }
    }

    fn settle(&mut self, id: usize, actual: Option<u64>) -> Result<(), TestCaseError> {
        if self.is_future(id) {
            return Ok(());
        }
        let Held::Reservation(reservation, ..) = std::mem::replace(&mut self.places[id].held, Held::Gone) else {
            return Ok(());
        };
        let now = self.now();
        self.reference.serve(now);
        self.learn();
        let failed = matches!(self.places[id].fate, Some(Fate::Failed(_)));
        let estimate = reservation.estimate();
        let settled = match actual {
            Some(actual) => {
                let settled = reservation.settle(actual);
                prop_assert_eq!(settled.is_err(), failed, "{:?}", settled);
                settled.ok()
            }
            None => {
                reservation.cancel();
                None
            }
        };
        let cost = actual.unwrap_or(0);
        if let Some(settled) = settled {
            let expected = match Cost::whole(cost).cmp(&estimate) {
                std::cmp::Ordering::Equal => suimon::Settlement::Even,
                std::cmp::Ordering::Less => suimon::Settlement::Refunded(estimate.saturating_sub(Cost::whole(cost))),
                std::cmp::Ordering::Greater => suimon::Settlement::Charged(Cost::whole(cost).saturating_sub(estimate)),
            };
            prop_assert_eq!(settled, expected);
        }
        self.places[id].actual = Some(u128::from(cost));
        match &self.places[id].fate {
            None => self.reference.settle_queued(id, u128::from(cost)),
            Some(Fate::Granted(booked)) => self.reference.settle(now, booked, u128::from(cost)),
            Some(Fate::Failed(_)) => {}
        }
        Ok(())
    }

    /// Takes over what the reference has decided about those who wait.
    fn learn(&mut self) {
        for (id, fate) in self.reference.fates.drain(..) {
            self.places[id].fate = Some(fate);
        }
    }

    fn compare(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let now = self.now();
        // Time alone wakes nobody, and nobody has looked.
        if matches!(op, Op::Advance(_)) || matches!(op, Op::Ring { .. }) && !self.rang {
            return Ok(());
        }
        // What the act itself made due is served before it ends.
        let touched = self.limiter.peek(0).map(|decision| decision.is_allowed());
        self.reference.serve(now);
        self.learn();
        prop_assert!(touched.is_err() || matches!(touched, Ok(true)));
        prop_assert_eq!(self.limiter.queued(), Cost::whole(u64::try_from(self.reference.queued()).unwrap()));
        if let Some(due) = self.reference.head_due() {
            let alarm = self.clock.alarm().map(|at| u128::from(at.as_nanos()));
            prop_assert!(alarm.is_some_and(|at| at <= due), "alarm at {:?}, head due at {}", alarm, due);
        }
        for (id, place) in self.places.iter().enumerate() {
            let wakes = match &place.held {
                Held::Future(waiter, None) => &waiter.wakes,
                Held::Reservation(_, wakes, true) => wakes,
                _ => continue,
            };
            let woken = wakes.count() - place.wakes_when_pending;
            match place.fate {
                None => prop_assert_eq!(woken, 0, "place {} still waits", id),
                Some(_) if place.told => {}
                Some(_) => prop_assert_eq!(woken, 1, "place {} has its turn", id),
            }
        }
        Ok(())
    }

    /// Everybody still in the queue gets its turn, at the instant that the alarm says.
    fn drain(&mut self) -> Result<(), TestCaseError> {
        while let Some(due) = self.reference.head_due() {
            let due = Timestamp::from_nanos(u64::try_from(due).unwrap());
            if due.as_nanos() > 0 && self.clock.now() < due {
                self.clock.go_to(Timestamp::from_nanos(due.as_nanos() - 1));
                self.reference.serve(self.now());
                prop_assert!(self.clock.now() < due && self.reference.head_due().is_some());
                prop_assert_eq!(self.clock.alarm(), Some(due));
            }
            self.clock.go_to(due.max(self.clock.now()));
            self.compare(&Op::Peek(0))?;
        }
        for id in 0..self.places.len() {
            self.poll(id)?;
        }
        self.learn();
        let granted = self.places.iter().filter_map(|place| match &place.fate {
            // What goes beyond the estimate is a debt, and no start.
            Some(Fate::Granted(booked)) => {
                Some((booked.start, place.actual.map_or(booked.cost, |actual| actual.min(booked.cost))))
            }
            _ => None,
        });
        let mut passed: Vec<(u128, u128)> = self.passed.drain(..).chain(granted).collect();
        // What is free passes at any time.
        passed.retain(|(_, cost)| *cost > 0);
        passed.sort_unstable();
        if !self.changed {
            for rule in &self.shape {
                prop_assert!(rule.admits(&passed), "{:?} does not admit {:?}", rule, passed);
            }
        }
        Ok(())
    }
}

fn request(cost: u64, within: Option<u64>) -> Request {
    let request = Request::new(Cost::whole(cost));
    within.map_or(request, |within| request.within(Duration::from_nanos(within)))
}

fn same_decision(
    actual: Result<suimon::Decision, Error>,
    expected: Result<u128, Refusal>,
) -> Result<(), TestCaseError> {
    match (actual, expected) {
        (Ok(decision), Ok(wait)) => {
            prop_assert_eq!(decision.is_allowed(), wait == 0, "{:?}, wait {}", decision, wait);
            let retry = decision.retry().map_or(0, |retry| retry.after().map_or(u128::MAX, |after| after.as_nanos()));
            prop_assert_eq!(retry, wait);
        }
        (Err(error), Err(refusal)) => same_error(&error, refusal)?,
        (actual, expected) => prop_assert!(false, "{:?} instead of {:?}", actual, expected),
    }
    Ok(())
}

fn same_error(error: &Error, refusal: Refusal) -> Result<(), TestCaseError> {
    match refusal {
        Refusal::TooLarge => prop_assert!(error.is_cost_too_large(), "{:?}", error),
        Refusal::Closed => prop_assert!(error.is_closed(), "{:?}", error),
        Refusal::QueueFull => prop_assert!(error.is_queue_full(), "{:?}", error),
        Refusal::RateLimited(wait) => {
            prop_assert!(error.is_rate_limited(), "{:?}", error);
            // The wait of one who was delayed is told as of then; that is not compared.
            if wait > 0 {
                prop_assert_eq!(error.retry_after().map(|wait| wait.as_nanos()), Some(wait));
            }
        }
    }
    Ok(())
}
