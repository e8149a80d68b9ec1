//! Events put back into the order of their times.
//!
//! Servers write a line when a request ends and date it by when it began, and
//! several processes write to one log: lines stand a little out of order. They
//! wait here until nothing that may still come within the window can belong
//! before them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use suimon_core::Cost;

/// The most events that wait, whatever the window: about 64 MB.
pub(crate) const MOST: usize = 1 << 20;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event {
    /// Nanoseconds since the Unix epoch.
    pub(crate) time: u64,
    /// Its place among all events: of equal times the first read goes first.
    pub(crate) order: u64,
    /// Who asked.
    pub(crate) key: u32,
    /// What it costs.
    pub(crate) cost: Cost,
}

/// A buffer that sorts by time, stably, over a window.
#[derive(Debug)]
pub(crate) struct Reorder {
    window: u64,
    most: usize,
    /// Events that came in order. Most do, and for them this is a queue.
    queue: VecDeque<Event>,
    /// Those that came after a later one.
    strays: BinaryHeap<Reverse<Event>>,
    /// The latest time read, and the latest given out.
    latest: u64,
    released: u64,
    strayed: u64,
    late: u64,
    furthest: u64,
}

impl Reorder {
    pub(crate) fn new(window: u64, most: usize) -> Reorder {
        Reorder {
            window,
            most: most.max(1),
            queue: VecDeque::new(),
            strays: BinaryHeap::new(),
            latest: 0,
            released: 0,
            strayed: 0,
            late: 0,
            furthest: 0,
        }
    }

    /// Takes an event. One that belongs before what was already given out is
    /// late, and is dated by that.
    pub(crate) fn push(&mut self, mut event: Event) {
        if event.time >= self.latest {
            self.latest = event.time;
        } else {
            self.strayed += 1;
            self.furthest = self.furthest.max(self.latest - event.time);
        }
        if event.time < self.released {
            self.late += 1;
            event.time = self.released;
        }
        match self.queue.back() {
            Some(last) if event.time < last.time => self.strays.push(Reverse(event)),
            _ => self.queue.push_back(event),
        }
    }

    /// Gives out the next event that nothing can come before any more; at the
    /// end of the input, any.
    pub(crate) fn pop(&mut self, at_end: bool) -> Option<Event> {
        let from_strays = match (self.strays.peek(), self.queue.front()) {
            (Some(Reverse(stray)), Some(front)) => stray < front,
            (stray, _) => stray.is_some(),
        };
        let next = if from_strays { &self.strays.peek()?.0 } else { self.queue.front()? };
        let is_due = self.latest - next.time > self.window || self.queue.len() + self.strays.len() > self.most;
        if !is_due && !at_end {
            return None;
        }
        let next = if from_strays { self.strays.pop()?.0 } else { self.queue.pop_front()? };
        self.released = next.time;
        Some(next)
    }

    /// How many events came after a later one.
    pub(crate) fn strayed(&self) -> u64 {
        self.strayed
    }

    /// How many came too late to be put in their place.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// How far behind the latest time an event came, at most.
    pub(crate) fn furthest(&self) -> u64 {
        self.furthest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(times: &[u64], window: u64, most: usize) -> (Vec<(u64, u64)>, u64) {
        let mut reorder = Reorder::new(window, most);
        let mut out = Vec::new();
        for (order, &time) in times.iter().enumerate() {
            reorder.push(Event { time, order: order as u64, key: 0, cost: Cost::ONE });
            while let Some(event) = reorder.pop(false) {
                out.push((event.time, event.order));
            }
            assert!(reorder.queue.len() + reorder.strays.len() <= most);
        }
        while let Some(event) = reorder.pop(true) {
            out.push((event.time, event.order));
        }
        (out, reorder.late())
    }

    #[test]
    fn late_is_what_belongs_before_something_given_out() {
        // 10 has gone out when 31 came: 9 is dated by it, 11 is still in time.
        assert_eq!(run(&[10, 31, 9, 11], 20, 100), (vec![(10, 0), (10, 2), (11, 3), (31, 1)], 1));
        // Exactly as far behind as the window is long: in time.
        assert_eq!(run(&[10, 30, 10], 20, 100), (vec![(10, 0), (10, 2), (30, 1)], 0));
    }

    #[test]
    fn the_count_bounds_the_wait() {
        assert_eq!(run(&[5, 6, 7, 1], 100, 2), (vec![(5, 0), (5, 3), (6, 1), (7, 2)], 1));
    }

    proptest! {
        /// Where nobody is further behind than the window, it is a stable sort.
        #[test]
        fn is_a_stable_sort(steps in prop::collection::vec((0_u64..20, 0_u64..=50), 0..200)) {
            let mut clock = 100;
            let times: Vec<u64> = steps.iter().map(|(step, behind)| { clock += step; clock - behind }).collect();
            let mut sorted: Vec<(u64, u64)> = times.iter().copied().zip(0..).collect();
            sorted.sort_by_key(|event| event.0);
            prop_assert_eq!(run(&times, 50, usize::MAX), (sorted, 0));
        }

        /// However they come, nothing is lost and the times never run back.
        #[test]
        fn loses_nothing(times in prop::collection::vec(0_u64..1000, 0..200), window in 0_u64..300, most in 1_usize..50) {
            let (out, late) = run(&times, window, most);
            prop_assert!(out.is_sorted_by_key(|event| event.0));
            let mut orders: Vec<u64> = out.iter().map(|event| event.1).collect();
            orders.sort_unstable();
            prop_assert!(orders.into_iter().eq(0..times.len() as u64));
            let moved = out.iter().filter(|(time, order)| times[*order as usize] != *time).count() as u64;
            prop_assert_eq!(moved, late);
        }
    }
}
