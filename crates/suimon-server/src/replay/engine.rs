//! Policies asked about every event, at the event's own time.

use super::reorder::Event;
use super::timeline::Timeline;
use std::fmt;
use suimon_core::{Cost, Decision, Gate, State, Timestamp};

/// Marks a key that is not being refused.
const NOT_REFUSED: u64 = u64::MAX;

/// How a policy fared, in all and for each key.
pub(crate) struct Run {
    pub(crate) gate: Gate,
    fresh: State,
    /// By key.
    states: Vec<State>,
    pub(crate) tallies: Vec<Tally>,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) impossible: u64,
    pub(crate) allowed_cost: Sum,
}

/// How a key fared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub(crate) denied: u64,
    /// Those of them that no waiting would have helped.
    pub(crate) impossible: u64,
    /// When it was first refused since it was last let through.
    refused_since: u64,
    /// The longest time between two refusals with nothing let through from the one to the other.
    pub(crate) stretch: u64,
    /// When that began.
    pub(crate) stretch_from: u64,
    /// The longest wait it was told.
    pub(crate) wait: u64,
}

impl Tally {
    const NEW: Tally =
        Tally { denied: 0, impossible: 0, refused_since: NOT_REFUSED, stretch: 0, stretch_from: 0, wait: 0 };

    fn refuse(&mut self, time: u64) {
        self.denied += 1;
        if self.refused_since == NOT_REFUSED {
            self.refused_since = time;
        }
        let stretch = time - self.refused_since;
        if stretch > self.stretch || self.denied == 1 {
            (self.stretch, self.stretch_from) = (stretch, self.refused_since);
        }
    }
}

/// A sum of costs, which may exceed the largest cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// In billionths of a token.
    billionths: u128,
}

impl Sum {
    pub(crate) fn add(&mut self, cost: Cost) {
        self.billionths = self.billionths.saturating_add(billionths(cost));
    }

    /// In whole tokens, rounded down.
    #[must_use]
    pub fn whole(self) -> u128 {
        self.billionths / 1_000_000_000
    }

    /// In whole tokens, rounded up, as far as 64 bits go.
    #[must_use]
    pub fn ceil(self) -> u64 {
        u64::try_from(self.billionths.div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
    }

    /// What is left of it without another.
    #[must_use]
    pub fn without(self, other: Sum) -> Sum {
        Sum { billionths: self.billionths.saturating_sub(other.billionths) }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.billionths / 1_000_000_000, self.billionths % 1_000_000_000);
        if part == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{part:09}").trim_end_matches('0'))
    }
}

fn billionths(cost: Cost) -> u128 {
    u128::from(cost.as_whole()) * 1_000_000_000 + u128::from(cost.subsec_nanos())
}

/// What is known of a key whatever the policy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) requests: u64,
    pub(crate) cost: Sum,
}

/// All policies side by side.
pub(crate) struct Engine {
    pub(crate) runs: Vec<Run>,
    /// By key.
    pub(crate) asked: Vec<Asked>,
    pub(crate) requests: u64,
    pub(crate) cost: Sum,
    pub(crate) timeline: Timeline,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Engine {
    pub(crate) fn new(gates: Vec<Gate>) -> Engine {
        let timeline = Timeline::new(gates.len());
        let runs = gates.into_iter().map(Run::new).collect();
        Engine { runs, asked: Vec::new(), requests: 0, cost: Sum::default(), timeline, first: 0, last: 0 }
    }

    /// Replays one event. Keys are numbered in the order in which they were
    /// read, which is nearly that in which they come here.
    pub(crate) fn feed(&mut self, event: &Event) {
        let key = event.key as usize;
        if key >= self.asked.len() {
            self.asked.resize(key + 1, Asked::default());
            for run in &mut self.runs {
                run.states.resize_with(key + 1, || run.fresh.clone());
                run.tallies.resize(key + 1, Tally::NEW);
            }
        }
        if self.requests == 0 {
            self.first = event.time;
        }
        self.last = event.time;
        self.requests += 1;
        self.asked[key].requests += 1;
        self.asked[key].cost.add(event.cost);
        self.cost.add(event.cost);
        let bar = self.timeline.at(event.time);
        bar[0] += 1;
        for (run, refused) in self.runs.iter_mut().zip(&mut bar[1..]) {
            *refused += u64::from(!run.decide(key, event));
        }
    }
}

impl Run {
    fn new(gate: Gate) -> Run {
        let fresh = gate.fresh();
        Run {
            gate,
            fresh,
            states: Vec::new(),
            tallies: Vec::new(),
            allowed: 0,
            denied: 0,
            impossible: 0,
            allowed_cost: Sum::default(),
        }
    }

    /// Is it let through?
    fn decide(&mut self, key: usize, event: &Event) -> bool {
        let tally = &mut self.tallies[key];
        match self.gate.allow(&mut self.states[key], Timestamp::from_nanos(event.time), event.cost) {
            Ok(Decision::Allow(_)) => {
                tally.refused_since = NOT_REFUSED;
                self.allowed += 1;
                self.allowed_cost.add(event.cost);
                return true;
            }
            Ok(Decision::Deny(_, retry)) => match retry.after() {
                Some(wait) => {
                    tally.wait = tally.wait.max(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
                }
                None => {
                    self.impossible += 1;
                    tally.impossible += 1;
                }
            },
            // More than can ever pass; an error takes nothing.
            Err(_) => {
                self.impossible += 1;
                tally.impossible += 1;
            }
        }
        self.denied += 1;
        tally.refuse(event.time);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(policy: &str, events: &[(u64, &str)]) -> Engine {
        let gate = Gate::new(policy.parse::<suimon_core::Policy>().unwrap()).unwrap();
        let mut engine = Engine::new(vec![gate]);
        for (order, (seconds, cost)) in events.iter().enumerate() {
            let time = seconds * 1_000_000_000;
            engine.feed(&Event { time, order: order as u64, key: 0, cost: cost.parse().unwrap() });
        }
        engine
    }

    #[test]
    fn a_stretch_ends_with_the_next_one_let_through() {
        // Refused at 11 and 19 in one stretch of 8 s, let through at 20, refused at 21.
        let engine = run("bucket 1/10s", &[(10, "1"), (11, "1"), (19, "1"), (20, "1"), (21, "1"), (50, "1")]);
        let (run, tally) = (&engine.runs[0], &engine.runs[0].tallies[0]);
        assert_eq!((run.allowed, run.denied, run.impossible), (3, 3, 0));
        assert_eq!((tally.stretch, tally.stretch_from), (8_000_000_000, 11_000_000_000));
        assert_eq!(tally.wait, 9_000_000_000);
    }

    #[test]
    fn what_can_never_pass_is_counted_apart_and_as_refused() {
        let engine = run("bucket 1/s burst 2", &[(0, "3"), (0, "2"), (0, "1"), (9, "2.5")]);
        let run = &engine.runs[0];
        assert_eq!((run.allowed, run.denied, run.impossible), (1, 3, 2));
        assert_eq!(run.tallies[0].wait, 1_000_000_000);
        assert_eq!((engine.cost.ceil(), engine.cost.whole(), run.allowed_cost.whole()), (9, 8, 2));
        let engine = super::tests::run("block", &[(0, "1")]);
        assert_eq!(engine.runs[0].impossible, 1);
    }
}
