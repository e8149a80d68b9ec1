//! Those who wait: futures and reservations, polled, dropped and settled at random.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use suimon::clock::Clock;
use suimon::{Cost, Error, Overflow, Request, Reservation, Settlement};
use suimon_core::Reservation as Booked;

use super::who::Who;
use super::{Outcome, Owner, Run};
use crate::history::At;
use crate::one_key::{Joined, Refusal};
use crate::table::{Id, Waiting};

/// One who has come to wait.
pub(super) struct Place {
    pub(super) owner: Owner,
    pub(super) held: Held,
    pub(super) cost: Cost,
    /// Granted to a reservation, and seen.
    pub(super) booked: Option<Booked>,
}

pub(super) enum Held {
    New(Waiting, Request),
    Future(Waiting),
    Reservation(Reservation),
    Gone,
}

impl Run {
    pub(super) fn poll(&mut self, at: usize) -> Outcome {
        let place = &mut self.places[at];
        match std::mem::replace(&mut place.held, Held::Gone) {
            Held::New(future, request) => self.start(at, future, request),
            Held::Future(mut future) => {
                let polled = poll_once(&mut future);
                self.count(&polled);
                let owner = self.places[at].owner;
                let now = self.clock.now();
                let one = self.one(owner);
                one.serve(now);
                let expected = match one.fates.remove(&at) {
                    None => Poll::Pending,
                    Some(fate) => Poll::Ready(fate.map(|_| ())),
                };
                if polled.is_pending() {
                    self.places[at].held = Held::Future(future);
                } else {
                    self.release(at);
                }
                self.compare_polls(&polled, expected)
            }
            Held::Reservation(mut reservation) => {
                let polled = poll_once(pin!(reservation.ready()));
                let place = &mut self.places[at];
                place.held = Held::Reservation(reservation);
                let (owner, now) = (place.owner, self.clock.now());
                let one = self.one(owner);
                one.serve(now);
                let expected = match one.fates.remove(&at) {
                    None if one.stands_in_queue(at) => Poll::Pending,
                    // Granted before.
                    None => Poll::Ready(Ok(())),
                    Some(Ok(booked)) => {
                        self.places[at].booked = Some(booked);
                        Poll::Ready(Ok(()))
                    }
                    Some(Err(refusal)) => {
                        // It fails again whenever it is asked.
                        self.places[at].held = Held::Gone;
                        self.release(at);
                        Poll::Ready(Err(refusal))
                    }
                };
                self.compare_polls(&polled, expected)
            }
            Held::Gone => Ok(()),
        }
    }

    /// The first poll of a future.
    fn start(&mut self, at: usize, mut future: Waiting, request: Request) -> Outcome {
        let Owner::Key(key) = self.places[at].owner else { return Ok(()) };
        self.see_whether_evicted(key)?;
        let polled = poll_once(&mut future);
        self.count(&polled);
        if polled.is_pending() {
            self.places[at].held = Held::Future(future);
        }
        let now = self.clock.now();
        let owner = match self.who(key, now)? {
            Who::Is(owner) => owner,
            Who::Nobody => {
                let Poll::Ready(Err(error)) = &polled else {
                    return Err(TestCaseError::fail(format!("no room, and {polled:?}")));
                };
                prop_assert!(error.retry_after().is_some_and(|wait| !wait.is_zero()));
                return Ok(());
            }
        };
        self.places[at].owner = owner;
        let expected = self.join(owner, at, request);
        if expected.is_pending() {
            self.one(owner).held += 1;
        }
        self.done(owner);
        self.compare_polls(&polled, expected.map_ok(|_| ()))
    }

    fn join(&mut self, owner: Owner, at: usize, request: Request) -> Poll<Result<(), Refusal>> {
        let now = self.clock.now();
        let one = self.one(owner);
        one.serve(now);
        match one.join(at, now, request) {
            Ok(Joined::Now(_)) => Poll::Ready(Ok(())),
            Ok(Joined::Queued(_)) => Poll::Pending,
            Err(refusal) => Poll::Ready(Err(refusal)),
        }
    }

    /// What follows tells little of how the key stands.
    pub(super) fn see_whether_evicted(&mut self, key: Id) -> Outcome {
        if self.setup.overflow == Overflow::Evict { self.peek(key, Cost::ZERO, At::Clock) } else { Ok(()) }
    }

    pub(super) fn reserve(&mut self, key: Id, request: Request) -> Outcome {
        let (now, at) = (self.clock.now(), self.places.len());
        self.see_whether_evicted(key)?;
        let reserved = self.table.reserve(key, request);
        let owner = match self.who(key, now)? {
            Who::Is(owner) => owner,
            Who::Nobody => {
                let error = reserved.err().map(|error| Refusal::from(&error));
                prop_assert!(matches!(error, Some(Refusal::RateLimited(Some(_)))), "{:?}", error);
                return Ok(());
            }
        };
        let one = self.one(owner);
        one.serve(now);
        let expected = one.join(at, now, request);
        let differs = |expected: &Result<Joined, Refusal>| match (expected, &reserved) {
            (Ok(Joined::Now(_)), Ok(place)) => !place.wait().is_zero(),
            (Ok(Joined::Queued(start)), Ok(place)) => place.wait() != start.saturating_since(now),
            (Err(refusal), Err(error)) => *refusal != Refusal::from(error),
            _ => true,
        };
        prop_assert!(!differs(&expected), "{:?} {:?}", expected, reserved);
        if let Ok(reservation) = reserved {
            let booked = match expected {
                Ok(Joined::Now(booked)) => Some(booked),
                _ => None,
            };
            let (held, cost) = (Held::Reservation(reservation), request.cost());
            self.places.push(Place { owner, held, cost, booked });
            self.one(owner).held += 1;
        }
        self.done(owner);
        Ok(())
    }

    pub(super) fn drop_place(&mut self, at: usize) -> Outcome {
        let owner = self.places[at].owner;
        match std::mem::replace(&mut self.places[at].held, Held::Gone) {
            Held::Gone => return Ok(()),
            Held::New(future, _) => {
                drop(future);
                return Ok(());
            }
            Held::Future(future) => {
                drop(future);
                self.act(owner, |one, now| one.leave(at, now));
            }
            Held::Reservation(reservation) => {
                drop(reservation);
                self.act(owner, |one, _| {
                    one.abandon(at);
                    one.fates.remove(&at);
                });
            }
        }
        self.release(at);
        Ok(())
    }

    pub(super) fn settle(&mut self, at: usize, actual: Cost) -> Outcome {
        let Held::Reservation(_) = &self.places[at].held else { return Ok(()) };
        let Held::Reservation(reservation) = std::mem::replace(&mut self.places[at].held, Held::Gone) else {
            return Ok(());
        };
        let (owner, now, estimate) = (self.places[at].owner, self.clock.now(), self.places[at].cost);
        let booked = self.places[at].booked.take();
        let one = self.one(owner);
        one.serve(now);
        let waits = one.stands_in_queue(at);
        let actual = if waits { one.max_cost().map_or(actual, |most| actual.min(most)) } else { actual };
        let settled = reservation.settle(actual);
        let one = self.one(owner);
        let expected = match booked.map(Ok).or_else(|| one.fates.remove(&at)) {
            Some(Ok(booked)) => Ok(one.settle(now, booked, actual)),
            Some(Err(refusal)) => Err(refusal),
            None => {
                one.settle_queued(at, actual);
                Ok(match actual.cmp(&estimate) {
                    std::cmp::Ordering::Less => Settlement::Refunded(estimate.saturating_sub(actual)),
                    std::cmp::Ordering::Equal => Settlement::Even,
                    std::cmp::Ordering::Greater => Settlement::Charged(actual.saturating_sub(estimate)),
                })
            }
        };
        one.serve(now);
        self.release(at);
        prop_assert_eq!(settled.map_err(|error| Refusal::from(&error)), expected);
        Ok(())
    }

    fn release(&mut self, at: usize) {
        let owner = self.places[at].owner;
        self.one(owner).held -= 1;
        self.done(owner);
    }

    fn compare_polls(&mut self, polled: &Poll<Result<(), Error>>, expected: Poll<Result<(), Refusal>>) -> Outcome {
        let polled = match polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(outcome) => Poll::Ready(outcome.as_ref().copied().map_err(Refusal::from)),
        };
        self.last += &format!("{polled:?} ");
        prop_assert_eq!(polled, expected);
        Ok(())
    }

    fn count(&mut self, polled: &Poll<Result<(), Error>>) {
        match polled {
            Poll::Ready(Ok(())) => self.allowed += 1,
            Poll::Ready(Err(error)) if error.is_rate_limited() => self.denied += 1,
            _ => {}
        }
    }
}

fn poll_once<F: Future<Output = Result<(), Error>> + Unpin>(mut future: F) -> Poll<Result<(), Error>> {
    Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()))
}
