//! What the numbers that a script tells mean: statuses and waits, exactly.

use std::time::Duration;

use suimon::store::LeaseTicket;
use suimon::{Retry, Status, Timestamp};

use crate::asking::Does;
use crate::booked::{Booked, Mark};
use crate::plan::{Gcra, Plan, Rule};
use crate::record::Doubles;
use crate::units::{billionths, from_billionths, from_cost_pair, from_nanos_pair};

/// What a script tells of one limit.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Gcra(Mark),
    Window {
        /// The last entry, and the last that costs anything.
        last: Option<u64>,
        last_counting: Option<u64>,
        used: u128,
        /// When the cost passes.
        ready: u64,
    },
    Fixed {
        start: u64,
        end: u64,
        used: u128,
    },
    Nothing,
}

/// What a script tells of all limits of a call.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) passes: bool,
    pub(crate) now: u64,
    pub(crate) start: u64,
    /// For each part, each limit of it.
    pub(crate) told: Vec<Vec<Told>>,
    /// Of a booking, the epoch of each part.
    pub(crate) epochs: Vec<u64>,
    /// What was lent.
    pub(crate) lease: Option<LeaseTicket>,
}

impl Answer {
    /// What `one.lua` tells.
    pub(crate) fn of_one(bytes: &[u8], gcra: &Gcra, charged: Option<u128>) -> Option<Answer> {
        let (passes, bytes) = match bytes.strip_prefix(b"D") {
            Some(rest) if rest.len() % 8 == 0 => (false, rest),
            _ => (true, bytes),
        };
        let mut doubles = Doubles(bytes);
        let now = from_nanos_pair(doubles.pair()?);
        let mut mark = Mark { arrival: gcra.units.of_pair(doubles.pair()?), back: 0 };
        let (mut start, mut epochs) = (0, Vec::new());
        if let (Some(ahead), true) = (charged, passes) {
            // Before it was charged, and less what it may run ahead.
            start = gcra.units.nanos_up(mark.arrival.saturating_sub(ahead));
            mark.back = gcra.units.of_pair(doubles.pair()?);
            epochs.push(doubles.next()? as u64);
        }
        let told = vec![vec![Told::Gcra(mark)]];
        let answer = Answer { passes, now, start: start.max(now), told, epochs, lease: None };
        doubles.0.is_empty().then_some(answer)
    }

    /// What `decide.lua` tells.
    pub(crate) fn of_many<'a>(bytes: &[u8], does: Does, plans: impl Iterator<Item = &'a Plan>) -> Option<Answer> {
        let (passes, mut doubles) = head(bytes)?;
        let (now, start) = (from_nanos_pair(doubles.pair()?), from_nanos_pair(doubles.pair()?));
        let mut told = Vec::new();
        for plan in plans {
            told.push(plan.rules.iter().map(|rule| rule.told(&mut doubles)).collect::<Option<Vec<_>>>()?);
        }
        let (mut epochs, mut lease) = (Vec::new(), None);
        if does == Does::Reserve {
            for _ in &told {
                epochs.push(doubles.next()? as u64);
            }
        } else if does == Does::Lease && passes {
            let (id, expires) = (doubles.next()? as u64, from_nanos_pair(doubles.pair()?));
            let granted = from_billionths(from_cost_pair(doubles.pair()?));
            lease = Some(LeaseTicket { id, expires: Timestamp::from_nanos(expires), granted });
        }
        doubles.0.is_empty().then_some(Answer { passes, now, start, told, epochs, lease })
    }

    /// The tightest limit of the tightest part.
    pub(crate) fn status<'a>(&self, plans: impl Iterator<Item = &'a Plan>) -> Status {
        let mut tightest: Option<Status> = None;
        for (plan, told) in plans.zip(&self.told) {
            let statuses = plan.rules.iter().zip(told).map(|(rule, told)| rule.status(told, self.now));
            let of_part = statuses.reduce(|least, next| if is_tighter(&next, &least) { next } else { least });
            let Some(of_part) = of_part else { continue };
            if tightest.is_none_or(|least| of_part.burst_left() < least.burst_left()) {
                tightest = Some(of_part);
            }
        }
        tightest.unwrap_or(Status::UNLIMITED)
    }

    /// The limit that holds longest, and until when beyond the longest wait.
    pub(crate) fn refusal<'a>(
        &self,
        parts: impl Iterator<Item = (&'a Plan, suimon::Cost)>,
        max_wait: Duration,
    ) -> (Status, Retry) {
        let mut longest: Option<(Option<u64>, usize, Status)> = None;
        let mut index = 0;
        for ((plan, cost), told) in parts.zip(&self.told) {
            for (rule, told) in plan.rules.iter().zip(told) {
                let ready = rule.ready(told, self.now, cost);
                let is_longer = longest.is_none_or(|(most, ..)| match (ready, most) {
                    (Some(ready), Some(most)) => ready > most,
                    (None, Some(_)) => true,
                    (_, None) => false,
                });
                if is_longer {
                    longest = Some((ready, index, rule.status(told, self.now)));
                }
                index += 1;
            }
        }
        let (ready, limit, status) = longest.unwrap_or((None, 0, Status::UNLIMITED));
        let retry = match ready {
            None => Retry::Never { limit },
            Some(ready) => {
                let wait = Duration::from_nanos(ready.saturating_sub(self.now));
                Retry::After { wait: wait.saturating_sub(max_wait), limit }
            }
        };
        (status, retry)
    }

    /// The place of a part, by which it is settled.
    pub(crate) fn booked(&self, part: usize, plan: &Plan, estimate: suimon::Cost) -> Booked {
        let marks = self.told.get(part).into_iter().flatten().map(|told| match told {
            Told::Gcra(mark) => *mark,
            _ => Mark::default(),
        });
        let epoch = self.epochs.get(part).copied().unwrap_or_default();
        Booked { tag: plan.tag.clone(), epoch, start: self.start, estimate, marks: marks.collect() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    pub(crate) fn wait(&self) -> Duration {
        Duration::from_nanos(self.start.saturating_sub(self.now))
    }
}

fn head(bytes: &[u8]) -> Option<(bool, Doubles<'_>)> {
    let (kind, rest) = bytes.split_first()?;
    matches!(kind, b'A' | b'D').then_some((*kind == b'A', Doubles(rest)))
}

fn is_tighter(a: &Status, b: &Status) -> bool {
    (a.burst_left(), b.reset_after()) < (b.burst_left(), a.reset_after())
}

impl Rule {
    fn told(&self, doubles: &mut Doubles<'_>) -> Option<Told> {
        let optional = |pair: [f64; 2]| (pair[0] >= 0.0).then(|| from_nanos_pair(pair));
        Some(match self {
            Rule::Gcra(Gcra { units, .. }) => {
                Told::Gcra(Mark { arrival: units.of_pair(doubles.pair()?), back: units.of_pair(doubles.pair()?) })
            }
            Rule::Window { .. } => Told::Window {
                last: optional(doubles.pair()?),
                last_counting: optional(doubles.pair()?),
                used: from_cost_pair(doubles.pair()?),
                ready: from_nanos_pair(doubles.pair()?),
            },
            Rule::Fixed { .. } => Told::Fixed {
                start: from_nanos_pair(doubles.pair()?),
                end: from_nanos_pair(doubles.pair()?),
                used: from_cost_pair(doubles.pair()?),
            },
            Rule::Unlimited | Rule::Block => Told::Nothing,
        })
    }

    fn status(&self, told: &Told, now: u64) -> Status {
        match (self, told) {
            (Rule::Gcra(gcra), Told::Gcra(mark)) => gcra.status(mark.arrival, now),
            (Rule::Window { limit, period }, Told::Window { last, last_counting, used, .. }) => {
                let from = last.map_or(now, |last| last.max(now));
                // Whoever comes before a reservation has to wait for it.
                let used = if from > now { billionths(*limit) } else { *used };
                let as_new = last_counting.map_or(from, |last| last.saturating_add(*period));
                counted(*limit, used, as_new.saturating_sub(now))
            }
            (Rule::Fixed { limit, .. }, Told::Fixed { start, end, used }) => {
                let used = if now >= *end { 0 } else { *used };
                let as_new = if used == 0 { *start } else { *end };
                let used = if *start > now { billionths(*limit) } else { used };
                counted(*limit, used, as_new.saturating_sub(now))
            }
            (Rule::Block, _) => Status::of(0, 0, 0, Duration::ZERO),
            _ => Status::UNLIMITED,
        }
    }

    /// When the cost passes, rounded up; `None` for never.
    fn ready(&self, told: &Told, now: u64, cost: suimon::Cost) -> Option<u64> {
        let at = match (self, told) {
            (Rule::Block, _) => return None,
            _ if cost.is_zero() => now,
            (Rule::Gcra(gcra), Told::Gcra(mark)) => gcra.units.nanos_up(mark.arrival.saturating_sub(gcra.spare(cost))),
            (Rule::Window { .. }, Told::Window { ready, .. }) => *ready,
            (Rule::Fixed { limit, .. }, Told::Fixed { start, end, used }) => {
                let fits = used.saturating_add(billionths(cost)) <= billionths(*limit);
                match (now >= *end, fits) {
                    (true, _) => now,
                    (false, true) => *start,
                    (false, false) => *end,
                }
            }
            _ => now,
        };
        Some(at.max(now))
    }
}

impl Gcra {
    fn status(&self, arrival: u128, now: u64) -> Status {
        let limit = self.max_cost.as_whole();
        let used = arrival.saturating_sub(self.units.at(now));
        let reset = Duration::from_nanos(self.units.nanos_up(arrival).saturating_sub(now));
        let Some(left) = self.savings.checked_sub(used) else { return Status::of(limit, 0, 0, reset) };
        let tokens = u64::try_from(left / self.units.per_token).unwrap_or(u64::MAX);
        let (remaining, burst_left) =
            if self.pays_first { (tokens.min(limit), tokens) } else { (limit, tokens.saturating_add(1)) };
        // A call of cost 1 is too large for ever.
        Status::of(limit, remaining, if limit == 0 { 0 } else { burst_left }, reset)
    }
}

fn counted(limit: suimon::Cost, used: u128, reset_after: u64) -> Status {
    let left = from_billionths(billionths(limit).saturating_sub(used)).as_whole();
    Status::of(limit.as_whole(), left, left, Duration::from_nanos(reset_after))
}
