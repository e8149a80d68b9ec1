use std::task::Waker;

use suimon_core::{Cost, Reservation as Booked, Timestamp};

use super::wakers::Wakers;
use crate::Error;

/// Those who wait, in the order in which they came.
///
/// A slab of nodes linked to a list: a place in the middle is given up at once,
/// without a search, and nothing is allocated for a waiter but its node, which is
/// used again.
///
/// No waker is called or dropped here, since the lock is held: a waker may be the
/// last owner of a task that waits on the same limiter.
#[derive(Debug, Default)]
pub(super) struct Queue {
    nodes: Vec<Node>,
    free: Vec<usize>,
    first: Option<usize>,
    last: Option<usize>,
    /// The costs of those who wait, in billionths of a token.
    billionths: u128,
    len: usize,
}

/// One who waits, or who has been served and does not know it yet.
#[derive(Debug)]
struct Node {
    previous: Option<usize>,
    next: Option<usize>,
    waiter: Waiter,
    phase: Phase,
    waker: Option<Waker>,
}

/// What somebody waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) cost: Cost,
    /// What is charged beyond the largest cost: a reservation that was settled
    /// before its turn.
    pub(super) excess: Cost,
    pub(super) arrived: Timestamp,
    /// The latest start that is of use.
    pub(super) deadline: Option<Timestamp>,
}

/// The place of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(usize);

#[derive(Debug)]
pub(super) enum Phase {
    /// In the queue.
    Waiting,
    /// In the queue, and nobody will come for it: a reservation that was dropped.
    Abandoned,
    /// Served: what was booked.
    Granted(Booked),
    /// Not to be served.
    Failed(Error),
    /// The node is not in use.
    Free,
}

impl Queue {
    pub(super) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The costs of those who wait, in billionths of a token.
    pub(super) const fn billionths(&self) -> u128 {
        self.billionths
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, waiter: Waiter) -> Key {
        let node = Node { previous: self.last, next: None, waiter, phase: Phase::Waiting, waker: None };
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index] = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        match self.last {
            Some(last) => self.nodes[last].next = Some(index),
            None => self.first = Some(index),
        }
        self.last = Some(index);
        self.billionths += billionths(waiter.cost);
        self.len += 1;
        Key(index)
    }

    /// The one whose turn is next.
    pub(super) fn head(&self) -> Option<(Key, Waiter)> {
        let index = self.first?;
        Some((Key(index), self.nodes[index].waiter))
    }

    /// All who wait, in their order.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (Key, Waiter)> {
        std::iter::successors(self.first, |index| self.nodes[*index].next)
            .map(|index| (Key(index), self.nodes[index].waiter))
    }

    /// A waiter has been served, or cannot be.
    pub(super) fn finish(&mut self, key: Key, outcome: Result<Booked, Error>, wakers: &mut Wakers) {
        self.unlink(key.0);
        let node = &mut self.nodes[key.0];
        wakers.to_wake.extend(node.waker.take());
        let abandoned = matches!(node.phase, Phase::Abandoned);
        node.phase = match outcome {
            Ok(booked) => Phase::Granted(booked),
            Err(error) => Phase::Failed(error),
        };
        if abandoned {
            self.release(key, wakers);
        }
    }

    /// Whom to wake when the turn has come.
    pub(super) fn set_waker(&mut self, key: Key, waker: Waker, wakers: &mut Wakers) {
        wakers.to_drop.extend(self.nodes[key.0].waker.replace(waker));
    }

    /// Leaves: out of the queue, if still in it, with what was reached.
    pub(super) fn leave(&mut self, key: Key, wakers: &mut Wakers) -> Phase {
        if self.is_waiting(key) {
            self.unlink(key.0);
        }
        self.release(key, wakers)
    }

    /// Leaves the place to itself: it will be served, and nobody cares.
    pub(super) fn abandon(&mut self, key: Key, wakers: &mut Wakers) {
        if self.is_waiting(key) {
            let node = &mut self.nodes[key.0];
            node.phase = Phase::Abandoned;
            node.waiter.deadline = None;
            wakers.to_drop.extend(node.waker.take());
        } else {
            self.release(key, wakers);
        }
    }

    pub(super) fn is_waiting(&self, key: Key) -> bool {
        matches!(self.nodes[key.0].phase, Phase::Waiting | Phase::Abandoned)
    }

    pub(super) fn waiter(&self, key: Key) -> Waiter {
        self.nodes[key.0].waiter
    }

    /// Corrects the cost of one who waits.
    pub(super) fn set_cost(&mut self, key: Key, cost: Cost, excess: Cost) {
        let waiter = &mut self.nodes[key.0].waiter;
        self.billionths = self.billionths - billionths(waiter.cost) + billionths(cost);
        (waiter.cost, waiter.excess) = (cost, excess);
    }

    fn unlink(&mut self, index: usize) {
        let (previous, next, cost) = {
            let node = &self.nodes[index];
            (node.previous, node.next, node.waiter.cost)
        };
        match previous {
            Some(previous) => self.nodes[previous].next = next,
            None => self.first = next,
        }
        match next {
            Some(next) => self.nodes[next].previous = previous,
            None => self.last = previous,
        }
        self.billionths -= billionths(cost);
        self.len -= 1;
    }

    fn release(&mut self, key: Key, wakers: &mut Wakers) -> Phase {
        self.free.push(key.0);
        let node = &mut self.nodes[key.0];
        wakers.to_drop.extend(node.waker.take());
        let phase = std::mem::replace(&mut node.phase, Phase::Free);
        // A crowd that has gone does not keep its memory.
        if self.free.len() == self.nodes.len() && self.nodes.capacity() > 1024 {
            *self = Queue::default();
        }
        phase
    }
}

/// A cost in billionths of a token: sums of any number of them fit.
pub(super) fn billionths(cost: Cost) -> u128 {
    u128::from(cost.as_whole()) * 1_000_000_000 + u128::from(cost.subsec_nanos())
}

/// The inverse, at most the largest cost.
pub(super) fn cost_of(billionths: u128) -> Cost {
    let nanos = u32::try_from(billionths % 1_000_000_000).unwrap_or_default();
    match u64::try_from(billionths / 1_000_000_000) {
        Ok(whole) => Cost::new(whole, nanos).unwrap_or(Cost::MAX),
        Err(_) => Cost::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes that the documentation of the limiter states.
    #[test]
    fn memory_of_a_waiter() {
        let size = size_of::<Node>() + size_of::<usize>();
        assert!(size <= 176, "{size}");
    }
}
