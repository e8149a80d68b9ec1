//! A slow and simple limiter with a queue, written from the description alone:
//! whole numbers of nanoseconds and tokens, logs that forget nothing, a plain list
//! of those who wait.

/// One limit and all that it has seen.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    /// Time of a token, savings in ns, does it pay first, the largest cost.
    Gcra {
        token: u128,
        savings: u128,
        pays_first: bool,
        max: u128,
        tat: u128,
        refunded: u128,
    },
    Window {
        limit: u128,
        period: u128,
        log: Vec<(u128, u128)>,
    },
    Fixed {
        limit: u128,
        period: u128,
        log: Vec<(u128, u128)>,
    },
}

/// What a booking has to remember: its start, its cost, and for each limit the
/// word after it and what had been given back before.
#[derive(Clone, Debug)]
pub(crate) struct Booked {
    pub(crate) start: u128,
    pub(crate) cost: u128,
    version: u32,
    marks: Vec<(u128, u128)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    TooLarge,
    Closed,
    QueueFull,
    /// It would have had to wait so long.
    RateLimited(u128),
}

#[derive(Clone, Debug)]
pub(crate) enum Fate {
    Granted(Booked),
    Failed(Refusal),
}

#[derive(Clone, Debug)]
struct Waiter {
    id: usize,
    cost: u128,
    excess: u128,
    arrived: u128,
    deadline: Option<u128>,
}

#[derive(Clone, Debug)]
pub(crate) struct Reference {
    rules: Vec<Rule>,
    version: u32,
    queue: Vec<Waiter>,
    max_queue: Option<u128>,
    not_before: u128,
    paused_until: u128,
    closed: bool,
    /// What has become of those who waited, in the order in which it did.
    pub(crate) fates: Vec<(usize, Fate)>,
}

pub(crate) enum Joined {
    Now(Booked),
    Queued(u128),
}

impl Reference {
    pub(crate) fn new(rules: Vec<Rule>, max_queue: Option<u128>) -> Reference {
        Reference {
            rules,
            version: 0,
            queue: Vec::new(),
            max_queue,
            not_before: 0,
            paused_until: 0,
            closed: false,
            fates: Vec::new(),
        }
    }

    /// Everybody whose turn has come until now; each as of the instant at which it came.
    pub(crate) fn serve(&mut self, now: u128) {
        while let Some(due) = self.head_due().filter(|due| *due <= now) {
            let head = self.queue.remove(0);
            let booked = self.charge(due, head.cost);
            if head.excess > 0 {
                self.settle(due, &booked, head.cost + head.excess);
            }
            self.not_before = due;
            self.fates.push((head.id, Fate::Granted(booked)));
        }
        self.not_before = self.not_before.max(now);
    }

    pub(crate) fn head_due(&self) -> Option<u128> {
        let head = self.queue.first()?;
        Some(first_ready(&self.rules, self.not_before.max(head.arrived).max(self.paused_until), head.cost))
    }

    pub(crate) fn queued(&self) -> u128 {
        self.queue.iter().map(|waiter| waiter.cost).sum()
    }

    /// The wait that `allow` would name, zero if it passes.
    pub(crate) fn peek(&self, now: u128, cost: u128) -> Result<u128, Refusal> {
        if cost > self.max_cost() {
            return Err(Refusal::TooLarge);
        }
        if self.closed {
            return Err(Refusal::Closed);
        }
        Ok(if cost == 0 { 0 } else { self.start_of_next(now, cost) - now })
    }

    pub(crate) fn allow(&mut self, now: u128, cost: u128) -> Result<u128, Refusal> {
        let wait = self.peek(now, cost)?;
        if wait == 0 {
            self.charge(now, cost);
        }
        Ok(wait)
    }

    pub(crate) fn join(&mut self, id: usize, now: u128, cost: u128, within: Option<u128>) -> Result<Joined, Refusal> {
        let wait = self.peek(now, cost)?;
        if wait == 0 {
            return Ok(Joined::Now(self.charge(now, cost)));
        }
        if self.max_queue.is_some_and(|most| self.queued() + cost > most) {
            return Err(Refusal::QueueFull);
        }
        if within.is_some_and(|within| wait > within) {
            return Err(Refusal::RateLimited(wait));
        }
        let deadline = within.map(|within| now + within);
        self.queue.push(Waiter { id, cost, excess: 0, arrived: now, deadline });
        Ok(Joined::Queued(wait))
    }

    /// Leaves the queue without a trace.
    pub(crate) fn leave(&mut self, id: usize) {
        self.queue.retain(|waiter| waiter.id != id);
    }

    /// Nobody will come for it; it is served all the same.
    pub(crate) fn abandon(&mut self, id: usize) {
        self.queue.iter_mut().filter(|waiter| waiter.id == id).for_each(|waiter| waiter.deadline = None);
    }

    /// A place in the queue will cost what is known now.
    pub(crate) fn settle_queued(&mut self, id: usize, actual: u128) {
        if actual == 0 {
            return self.leave(id);
        }
        let most = self.max_cost();
        self.abandon(id);
        for waiter in self.queue.iter_mut().filter(|waiter| waiter.id == id) {
            waiter.cost = actual.min(most);
            waiter.excess = actual - waiter.cost;
        }
        self.give_up_on_the_late();
    }

    pub(crate) fn settle(&mut self, now: u128, booked: &Booked, actual: u128) {
        let excess = actual.saturating_sub(booked.cost);
        let back = booked.cost.saturating_sub(actual);
        let same_version = booked.version == self.version;
        for (rule, mark) in self.rules.iter_mut().zip(booked.marks.iter().copied().chain(std::iter::repeat((0, 0)))) {
            match rule {
                Rule::Gcra { token, tat, .. } if excess > 0 => *tat = (*tat).max(now) + excess * *token,
                Rule::Gcra { token, tat, refunded, .. } if same_version => {
                    let unpaid = mark.0.saturating_sub(*refunded - mark.1).saturating_sub(now);
                    let back = (back * *token).min(unpaid);
                    *tat -= back;
                    *refunded += back;
                }
                Rule::Gcra { .. } => {}
                Rule::Window { log, .. } | Rule::Fixed { log, .. } if excess > 0 => log.push((now, excess)),
                Rule::Window { log, .. } | Rule::Fixed { log, .. } if same_version => {
                    let mut rest = back;
                    for entry in log.iter_mut().filter(|entry| entry.0 == booked.start) {
                        let part = rest.min(entry.1);
                        (entry.1, rest) = (entry.1 - part, rest - part);
                    }
                }
                _ => {}
            }
        }
        if excess > 0 {
            self.give_up_on_the_late();
        }
    }

    pub(crate) fn pause(&mut self, until: u128) {
        self.paused_until = self.paused_until.max(until);
        self.give_up_on_the_late();
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
        for waiter in std::mem::take(&mut self.queue) {
            self.fates.push((waiter.id, Fate::Failed(Refusal::Closed)));
        }
    }

    /// New limits; what was used stays used (`keep`), or all is as good as new.
    pub(crate) fn change(&mut self, now: u128, mut rules: Vec<Rule>, keep: bool) {
        if keep {
            for (new, old) in rules.iter_mut().zip(&self.rules) {
                new.keep(old, now);
            }
        }
        self.rules = rules;
        self.version += 1;
        self.give_up_on_the_late();
    }

    pub(crate) fn max_cost(&self) -> u128 {
        self.rules.iter().map(Rule::max_cost).min().unwrap_or_default()
    }

    fn start_of_next(&self, now: u128, cost: u128) -> u128 {
        let mut rules = self.rules.clone();
        let mut from = self.not_before;
        for waiter in &self.queue {
            from = play(&mut rules, from.max(waiter.arrived).max(self.paused_until), waiter);
        }
        first_ready(&rules, from.max(now).max(self.paused_until), cost)
    }

    /// After something that delays: who cannot be served in time any more, or
    /// never can, fails and takes nothing.
    fn give_up_on_the_late(&mut self) {
        let mut rules = self.rules.clone();
        let mut from = self.not_before;
        let most = self.max_cost();
        for waiter in std::mem::take(&mut self.queue) {
            if waiter.cost > most {
                self.fates.push((waiter.id, Fate::Failed(Refusal::TooLarge)));
                continue;
            }
            let earliest = from.max(waiter.arrived).max(self.paused_until);
            let start = first_ready(&rules, earliest, waiter.cost);
            if waiter.deadline.is_some_and(|deadline| start > deadline) {
                self.fates.push((waiter.id, Fate::Failed(Refusal::RateLimited(0))));
                continue;
            }
            from = play(&mut rules, earliest, &waiter);
            self.queue.push(waiter);
        }
    }

    fn charge(&mut self, at: u128, cost: u128) -> Booked {
        if cost > 0 {
            self.rules.iter_mut().for_each(|rule| rule.charge(at, cost));
        }
        let marks = self.rules.iter().map(Rule::mark).collect();
        Booked { start: at, cost, version: self.version, marks }
    }
}

/// Serves one; answers its start.
fn play(rules: &mut [Rule], from: u128, waiter: &Waiter) -> u128 {
    let start = first_ready(rules, from, waiter.cost);
    rules.iter_mut().for_each(|rule| rule.charge(start, waiter.cost));
    if waiter.excess > 0 {
        rules.iter_mut().for_each(|rule| rule.charge(start, waiter.excess));
    }
    start
}

/// The first instant at which all let it pass.
fn first_ready(rules: &[Rule], from: u128, cost: u128) -> u128 {
    let mut at = from;
    while let Some(later) = rules.iter().map(|rule| rule.ready(at, cost)).max().filter(|later| *later > at) {
        at = later;
    }
    at
}

impl Rule {
    pub(crate) fn pace(tokens: u128, period: u128, savings: u128) -> Rule {
        let token = period / tokens;
        Rule::Gcra { token, savings: savings * token, pays_first: false, max: tokens, tat: 0, refunded: 0 }
    }

    pub(crate) fn bucket(tokens: u128, period: u128, burst: u128) -> Rule {
        let token = period / tokens;
        Rule::Gcra { token, savings: burst * token, pays_first: true, max: burst, tat: 0, refunded: 0 }
    }

    pub(crate) fn window(limit: u128, period: u128) -> Rule {
        Rule::Window { limit, period, log: Vec::new() }
    }

    pub(crate) fn fixed(limit: u128, period: u128) -> Rule {
        Rule::Fixed { limit, period, log: Vec::new() }
    }

    fn max_cost(&self) -> u128 {
        match self {
            Rule::Gcra { max, .. } => *max,
            Rule::Window { limit, .. } | Rule::Fixed { limit, .. } => *limit,
        }
    }

    /// The first instant, not before `from`, at which it would pass.
    fn ready(&self, from: u128, cost: u128) -> u128 {
        match self {
            // balance(t) = (t + savings - max(tat, t)), which must reach what is paid first.
            Rule::Gcra { token, savings, pays_first, tat, .. } => {
                let needed = if *pays_first { cost * token } else { 0 };
                from.max((tat + needed).saturating_sub(*savings))
            }
            Rule::Window { limit, period, log } => {
                let ends = log.iter().map(|(at, _)| at + period).filter(|end| *end > from);
                let fits = |t: &u128| {
                    let used: u128 = log.iter().filter(|(at, _)| at + period > *t).map(|(_, cost)| cost).sum();
                    used + cost <= *limit
                };
                let mut instants: Vec<u128> = std::iter::once(from).chain(ends).collect();
                instants.sort_unstable();
                instants.into_iter().find(fits).expect("a window that is empty again lets it pass")
            }
            Rule::Fixed { limit, period, .. } => {
                let mut at = from;
                while self.used_in_window(at) + cost > *limit {
                    at = (at / period + 1) * period;
                }
                at
            }
        }
    }

    fn charge(&mut self, now: u128, cost: u128) {
        match self {
            Rule::Gcra { token, tat, .. } => *tat = (*tat).max(now) + cost * *token,
            Rule::Window { log, .. } | Rule::Fixed { log, .. } => log.push((now, cost)),
        }
    }

    fn used_in_window(&self, at: u128) -> u128 {
        match self {
            Rule::Fixed { period, log, .. } => {
                log.iter().filter(|(then, _)| then / period == at / period).map(|(_, cost)| cost).sum()
            }
            _ => 0,
        }
    }

    fn mark(&self) -> (u128, u128) {
        match self {
            Rule::Gcra { tat, refunded, .. } => (*tat, *refunded),
            _ => (0, 0),
        }
    }

    /// Takes over what was used of a limit of the same kind.
    fn keep(&mut self, old: &Rule, now: u128) {
        let used_of_fixed = old.used_in_window(now);
        match (self, old) {
            (
                Rule::Gcra { token, savings, tat, .. },
                Rule::Gcra { token: old_token, savings: old_savings, tat: old_tat, .. },
            ) => {
                let convert = |time: u128| (time * *token).div_ceil(*old_token);
                let used = old_tat.saturating_sub(now);
                let debt = convert(used.saturating_sub(*old_savings));
                *tat = now + convert(used).min(*savings + debt);
            }
            (Rule::Window { log, .. }, Rule::Window { log: old_log, period: old_period, .. }) => {
                *log = old_log.iter().copied().filter(|(at, _)| at + old_period > now).collect();
            }
            (Rule::Fixed { log, limit, .. }, Rule::Fixed { .. }) => *log = vec![(now, used_of_fixed.min(*limit))],
            _ => {}
        }
    }

    pub(crate) fn is_like(&self, other: &Rule) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Does so much pass in every interval, by the definition of the limit alone?
    /// Starts and costs, in the order of the starts.
    pub(crate) fn admits(&self, passed: &[(u128, u128)]) -> bool {
        (0..passed.len()).all(|first| {
            (first..passed.len()).all(|last| {
                let (span, costs) =
                    (passed[last].0 - passed[first].0, passed[first..=last].iter().map(|(_, cost)| cost));
                let sum: u128 = costs.sum();
                match self {
                    Rule::Gcra { token, savings, pays_first: true, .. } => sum * token <= savings + span,
                    // The last one is paid afterwards.
                    Rule::Gcra { token, savings, .. } => (sum - passed[last].1) * token <= savings + span,
                    Rule::Window { limit, period, .. } => span >= *period || sum <= *limit,
                    Rule::Fixed { limit, period, .. } => {
                        passed[first].0 / period != passed[last].0 / period || sum <= *limit
                    }
                }
            })
        })
    }
}
