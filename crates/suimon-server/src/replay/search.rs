//! The smallest limit that would have refused nobody, or hardly anybody.
//!
//! Candidates are tried on the whole log, through the same gates that decide in
//! production. Two facts keep that cheap:
//!
//! - A key is refused at all exactly if what it needs without any refusal is more
//!   than the limit. So the keys refused by a larger limit are among those refused
//!   by a smaller one, and only these are tried again.
//! - The same fact makes "how many keys are refused" fall as the limit grows, so
//!   halving the range finds the smallest limit. "How many requests" falls too
//!   where all cost the same; where they do not, a larger limit may let an
//!   expensive request through that then stands in the way of several cheap ones.
//!   The limit found is then one that keeps the bound while the next smaller
//!   number does not.

use super::engine::{Engine, Run};
use super::spool::Spool;
use super::{Progress, gate};
use std::collections::BTreeMap;
use std::io;
use suimon_core::{Bucket, Cost, Decision, Fixed, Gate, Limit, Pace, Quota, Timestamp, Window};

/// What is varied, the rest of the limit staying as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The burst of a bucket.
    Burst,
    /// The savings of a pace.
    Savings,
    /// The tokens of a period.
    Rate,
    /// The limit of a window, sliding or fixed.
    Limit,
}

impl Axis {
    /// Its name in a report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Axis::Burst => "burst",
            Axis::Savings => "savings",
            Axis::Rate => "rate",
            Axis::Limit => "limit",
        }
    }

    /// What can be varied in a limit.
    fn of(limit: &Limit) -> &'static [Axis] {
        match limit {
            Limit::Bucket(_) => &[Axis::Burst, Axis::Rate],
            Limit::Pace(_) => &[Axis::Savings, Axis::Rate],
            Limit::Window(_) | Limit::Fixed(_) => &[Axis::Limit],
            _ => &[],
        }
    }

    fn least(self) -> u64 {
        u64::from(self != Axis::Savings)
    }

    /// Where the search begins: at what the limit says.
    fn stated(self, limit: &Limit) -> u64 {
        let stated = match (self, limit) {
            (Axis::Burst, Limit::Bucket(bucket)) => bucket.burst().as_whole(),
            (Axis::Savings, Limit::Pace(pace)) => pace.savings().as_whole(),
            (Axis::Rate, Limit::Bucket(bucket)) => bucket.quota().tokens(),
            (Axis::Rate, Limit::Pace(pace)) => pace.quota().tokens(),
            (_, Limit::Window(window)) => window.limit().as_whole(),
            (_, Limit::Fixed(fixed)) => fixed.limit().as_whole(),
            _ => 0,
        };
        stated.max(self.least())
    }

    /// The limit with another value here, if there can be such a limit.
    fn with(self, limit: &Limit, value: u64) -> Option<Limit> {
        let size = Cost::whole(value);
        match (self, limit) {
            (Axis::Burst, Limit::Bucket(bucket)) => bucket.with_burst(size).ok().map(Limit::Bucket),
            (Axis::Savings, Limit::Pace(pace)) => pace.with_savings(size).ok().map(Limit::Pace),
            (Axis::Rate, Limit::Bucket(bucket)) => {
                let quota = Quota::new(value, bucket.quota().period()).ok()?;
                Bucket::new(quota).with_burst(bucket.burst()).ok().map(Limit::Bucket)
            }
            (Axis::Rate, Limit::Pace(pace)) => {
                let quota = Quota::new(value, pace.quota().period()).ok()?;
                let pace = Pace::new(quota).with_max_cost(pace.max_cost()).ok()?.with_savings(pace.savings()).ok()?;
                Some(Limit::Pace(pace))
            }
            (_, Limit::Window(window)) => Window::new(size, window.period()).ok().map(Limit::Window),
            (_, Limit::Fixed(fixed)) => Fixed::new(size, fixed.every().clone()).ok().map(Limit::Fixed),
            _ => None,
        }
    }
}

/// The smallest whole number at which a bound holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Smallest {
    /// This one: the limit with it.
    Found {
        /// The number.
        value: u64,
        /// The limit that has it.
        limit: Limit,
    },
    /// None: even with the largest the bound does not hold.
    None,
}

/// What was found for one limit and what was varied in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The limit as it was asked about, taken alone.
    pub limit: Limit,
    /// What was varied.
    pub axis: Axis,
    /// Refusing nothing.
    pub nobody: Smallest,
    /// Refusing something to at most one key in a hundred.
    pub percent_of_keys: Smallest,
    /// Refusing at most one request in a hundred.
    pub percent_of_requests: Smallest,
}

/// Searches each limit of a policy on its own, as if it stood alone.
pub(crate) fn search(
    engine: &Engine,
    run: &Run,
    spool: &mut Spool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    let limits = run.gate.policy().limits();
    for limit in limits {
        for &axis in Axis::of(limit) {
            let mut known = BTreeMap::new();
            let stated = axis.stated(limit);
            if limits.len() == 1 && axis.with(limit, stated).as_ref() == Some(limit) {
                known.insert(stated, Outcome::of(run));
            }
            let mut trials = Trials { limit, axis, engine, spool: &mut *spool, progress: &mut *progress, known };
            found.push(trials.find()?);
        }
    }
    Ok(found)
}

/// Candidates for one number in one limit, and how they fared.
struct Trials<'a> {
    limit: &'a Limit,
    axis: Axis,
    engine: &'a Engine,
    spool: &'a mut Spool,
    progress: &'a mut dyn FnMut(Progress<'_>),
    known: BTreeMap<u64, Outcome>,
}

/// How a candidate fared.
struct Outcome {
    requests: u64,
    /// The keys that were refused something, in order.
    keys: Vec<u32>,
}

impl Outcome {
    /// What the replay has already found out.
    fn of(run: &Run) -> Outcome {
        let keys = run.tallies.iter().zip(0..).filter(|(tally, _)| tally.denied > 0).map(|(_, key)| key).collect();
        Outcome { requests: run.denied, keys }
    }
}

/// A bound on what may be refused.
#[derive(Clone, Copy)]
enum Bound {
    Keys(u64),
    Requests(u64),
}

impl Bound {
    fn holds(self, outcome: &Outcome) -> bool {
        match self {
            Bound::Keys(most) => outcome.keys.len() as u64 <= most,
            Bound::Requests(most) => outcome.requests <= most,
        }
    }
}

impl Trials<'_> {
    fn find(&mut self) -> io::Result<Found> {
        let keys = self.engine.asked.iter().filter(|asked| asked.requests > 0).count() as u64;
        // The easiest first: what it learns narrows the others.
        let percent_of_requests = self.smallest(Bound::Requests(self.engine.requests / 100))?;
        let percent_of_keys = self.smallest(Bound::Keys(keys / 100))?;
        let nobody = self.smallest(Bound::Keys(0))?;
        Ok(Found { limit: self.limit.clone(), axis: self.axis, nobody, percent_of_keys, percent_of_requests })
    }

    /// Brackets the number between one that fails and one that holds, from what
    /// the limit says outwards, and halves the bracket.
    fn smallest(&mut self, bound: Bound) -> io::Result<Smallest> {
        let least = self.axis.least();
        let stated = self.axis.stated(self.limit);
        let (mut fails, mut holds) = (None, None);
        for (&value, outcome) in &self.known {
            if bound.holds(outcome) {
                holds = holds.or(Some(value));
            } else if holds.is_none() {
                fails = Some(value);
            }
        }
        if fails.is_none() && holds.is_none() {
            if self.holds(stated, bound)? { holds = Some(stated) } else { fails = Some(stated) }
        }
        while let (None, Some(value)) = (fails, holds) {
            if value == least {
                return Ok(self.found(value));
            }
            let lower = (value / 2).max(least);
            if self.holds(lower, bound)? { holds = Some(lower) } else { fails = Some(lower) }
        }
        let fails_at = fails.unwrap_or(least);
        let holds_at = match holds {
            Some(value) => value,
            // Is there any at all? The largest tells.
            None => {
                let most = self.most(fails_at);
                if most == fails_at || !self.holds(most, bound)? {
                    return Ok(Smallest::None);
                }
                most
            }
        };
        let (mut fails, mut holds) = (fails_at, holds_at);
        while holds - fails > 1 {
            // In a wide bracket the number is more likely near its lower end.
            let middle = (fails + (holds - fails) / 2).min(fails.saturating_mul(2).max(fails + 1));
            if self.holds(middle, bound)? { holds = middle } else { fails = middle }
        }
        Ok(self.found(holds))
    }

    fn found(&self, value: u64) -> Smallest {
        match self.axis.with(self.limit, value) {
            Some(limit) => Smallest::Found { value, limit },
            None => Smallest::None,
        }
    }

    /// The largest number that can make a difference: all that one key asked for
    /// in the whole log, or for a rate the largest there can be.
    fn most(&self, at_least: u64) -> u64 {
        let enough = match self.axis {
            Axis::Rate => u64::MAX,
            _ => self.engine.asked.iter().map(|asked| asked.cost.ceil()).max().unwrap_or(0),
        };
        let valid = |value: u64| self.axis.with(self.limit, value).is_some();
        if enough <= at_least || valid(enough) {
            return enough.max(at_least);
        }
        let (mut valid_at, mut invalid) = (at_least, enough);
        while invalid - valid_at > 1 {
            let middle = valid_at + (invalid - valid_at) / 2;
            if valid(middle) { valid_at = middle } else { invalid = middle }
        }
        valid_at
    }

    /// Does the bound hold there? Where there can be no such limit, it does not.
    fn holds(&mut self, value: u64, bound: Bound) -> io::Result<bool> {
        if !self.known.contains_key(&value) {
            let Some(limit) = self.axis.with(self.limit, value) else { return Ok(false) };
            let gate = gate(limit).map_err(io::Error::other)?;
            let outcome = self.try_out(value, &gate)?;
            self.known.insert(value, outcome);
        }
        Ok(self.known.get(&value).is_some_and(|outcome| bound.holds(outcome)))
    }

    fn try_out(&mut self, value: u64, gate: &Gate) -> io::Result<Outcome> {
        (self.progress)(Progress::Searching { axis: self.axis, value });
        let all = self.engine.asked.len();
        let smaller = self.known.range(..value).next_back().map(|(_, outcome)| &outcome.keys[..]);
        if smaller.is_some_and(<[u32]>::is_empty) {
            return Ok(Outcome { requests: 0, keys: Vec::new() });
        }
        // Where the state of a key is; none for keys that cannot be refused here.
        const IDLE: u32 = u32::MAX;
        let mut places = vec![IDLE; all];
        let tried: Vec<u32> = smaller.map_or_else(|| (0..all as u32).collect(), <[u32]>::to_vec);
        for (place, &key) in tried.iter().enumerate() {
            places[key as usize] = place as u32;
        }
        let mut states = vec![(gate.fresh(), false); tried.len()];
        let mut requests = 0;
        self.spool.replay(|key, time, cost| {
            let place = places[key as usize];
            if place == IDLE {
                return;
            }
            let (state, refused) = &mut states[place as usize];
            if !matches!(gate.allow(state, Timestamp::from_nanos(time), cost), Ok(Decision::Allow(_))) {
                requests += 1;
                *refused = true;
            }
        })?;
        let keys = tried.iter().zip(&states).filter(|(_, (_, refused))| *refused).map(|(key, _)| *key).collect();
        Ok(Outcome { requests, keys })
    }
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
