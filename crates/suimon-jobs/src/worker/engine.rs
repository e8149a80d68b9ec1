//! The loop of a worker.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{Instrument, debug, info_span, warn};

use super::watch::Watch;
use super::{Ran, Served, Worker};
use crate::Error;
use crate::claim::{Claim, Claimed, Claims, Recall, sleep_until};
use crate::db::{NEVER, micros};
use crate::finish::{Beat, FindLost, Finish, Outcome, Run, Written, told};
use crate::handler::{Context, JobError, Kind, Running};
use crate::job::{JobId, JobState};
use crate::lane::{Lane, Tidy};
use crate::look::Look;

/// As many jobs are claimed in one transaction at most.
const MOST: usize = 32;
/// When others hold what could be started.
const BUSY: Duration = Duration::from_millis(3);
/// How often done jobs are removed, and unknown handlers looked for.
const TIDYING: Duration = Duration::from_secs(30);
/// The same when there was more than is removed in one go, so that tables stay as small as they are to be.
const TIDYING_ON: Duration = Duration::from_millis(200);
/// As many done jobs are removed in one go.
const PURGED: u64 = 1000;

/// The longest error that is kept, in bytes.
const LONGEST: usize = 10_000;

/// When to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    Stopped,
    /// One job has run, or none can.
    One,
    /// None can run.
    Idle,
}

pub(super) struct Engine<'a> {
    worker: &'a Worker,
    until: Until,
    names: Vec<String>,
    tasks: JoinSet<Result<(), JobError>>,
    running: HashMap<Id, (Claimed, Context, Instant)>,
    /// Runs that have ended and are not written down yet.
    ended: Vec<Run>,
    ran: Vec<Ran>,
    stopping: watch::Sender<bool>,
    turn: usize,
    /// A claim whose answer was lost.
    lost_claim: Option<i64>,
    next_beat: Instant,
    next_search: Instant,
    next_tidying: Instant,
}

/// What a look at the queue has come to.
enum Found {
    /// Something was started or tidied: look again.
    More,
    /// Nothing until then.
    Nothing(Duration),
}

impl<'a> Engine<'a> {
    pub(super) fn new(worker: &'a Worker, until: Until) -> Engine<'a> {
        let now = Instant::now();
        Engine {
            worker,
            until,
            names: worker.handlers.keys().cloned().collect(),
            tasks: JoinSet::new(),
            running: HashMap::new(),
            ended: Vec::new(),
            ran: Vec::new(),
            stopping: watch::Sender::new(false),
            turn: 0,
            lost_claim: None,
            next_beat: now,
            next_search: now,
            next_tidying: now,
        }
    }

    pub(super) async fn run(mut self, stop: impl Future<Output = ()>) -> Result<Vec<Ran>, Error> {
        let until = self.until;
        let shared = self.worker.queue.0.clone();
        let watch = Watch::start(&shared);
        let mut stop = pin!(stop);
        let mut deadline: Option<Instant> = None;
        let mut outage = Duration::ZERO;
        loop {
            // Before looking, so that news of meanwhile are not missed.
            let mut news = pin!(shared.news.notified());
            news.as_mut().enable();
            self.collect();
            let is_stopping = deadline.is_some();
            // What tells it to stop may use the same connections: if it were left alone while it holds one, the step would
            // wait for it.
            let mut is_told = false;
            let stepped = {
                let mut step = pin!(self.step(is_stopping));
                loop {
                    tokio::select! {
                        biased;
                        stepped = &mut step => break stepped,
                        () = &mut stop, if !is_stopping && !is_told => is_told = true,
                    }
                }
            };
            if is_told {
                deadline = Some(self.tell_to_stop());
                continue;
            }
            if stepped.is_ok() {
                outage = Duration::ZERO;
            }
            let mut wait = match stepped {
                Ok(Found::More) => Duration::ZERO,
                Ok(Found::Nothing(wait)) => wait,
                Err(error) if error.is_database() && until == Until::Stopped && !is_stopping => {
                    warn!(%error, "the queue cannot be reached");
                    outage = (outage * 2).clamp(Duration::from_millis(50), Duration::from_secs(2));
                    outage
                }
                Err(error) if is_stopping && deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    return Err(error);
                }
                Err(error) if is_stopping && error.is_database() => Duration::from_millis(100),
                Err(error) => return Err(error),
            };
            let is_idle = self.tasks.is_empty() && self.ended.is_empty();
            if is_idle && (is_stopping || self.is_over(wait)) {
                return Ok(self.ran);
            }
            if let Some(deadline) = deadline {
                if Instant::now() >= deadline {
                    self.release().await;
                    continue;
                }
                wait = wait.min(deadline - Instant::now());
            }
            if wait.is_zero() {
                // Others get their turn.
                tokio::task::yield_now().await;
                continue;
            }
            // In an outage no sign of life can be given: another try then is as good as any.
            let beat = self.next_beat.saturating_duration_since(Instant::now()).max(outage).max(BUSY);
            let wait = wait.min(watch.longest).min(beat);
            tokio::select! {
                Some(ended) = self.tasks.join_next_with_id() => self.end(ended),
                () = news => {}
                () = &mut stop, if deadline.is_none() => deadline = Some(self.tell_to_stop()),
                () = sleep(wait) => {}
            }
        }
    }

    /// Tells those that run, and says until when they may.
    fn tell_to_stop(&self) -> Instant {
        self.stopping.send_replace(true);
        Instant::now() + self.worker.settings.grace
    }

    fn is_over(&self, wait: Duration) -> bool {
        match self.until {
            Until::Stopped => false,
            Until::One => !self.ran.is_empty() || wait > BUSY,
            Until::Idle => wait > BUSY,
        }
    }

    /// Writes down what has ended, gives signs of life, starts what can start.
    async fn step(&mut self, is_stopping: bool) -> Result<Found, Error> {
        let until = self.until;
        self.write_down().await?;
        self.beat().await?;
        if is_stopping || until == Until::One && !self.ran.is_empty() {
            return Ok(Found::Nothing(self.worker.settings.lease));
        }
        self.search().await?;
        let slots = if until == Until::One { 1 } else { self.worker.settings.slots };
        let free = slots.saturating_sub(self.tasks.len());
        if free == 0 {
            return Ok(Found::Nothing(self.worker.settings.lease / 2));
        }
        self.claim(free.min(MOST)).await
    }

    async fn claim(&mut self, most: usize) -> Result<Found, Error> {
        let worker = self.worker;
        let db = &worker.queue.0.db;
        if let Some(token) = self.lost_claim {
            let jobs = db.run(&Recall { token }).await?;
            self.lost_claim = None;
            if !jobs.is_empty() {
                self.start(jobs);
                return Ok(Found::More);
            }
        }
        let seen = db.run(&Look { handlers: &self.names, turn: self.turn }).await?;
        self.turn = self.turn.wrapping_add(1);
        if seen.has_new && worker.queue.take_in().await? > 0 {
            if worker.settings.fails_unknown {
                worker.queue.fail_unknown(&self.names).await?;
            }
            return Ok(Found::More);
        }
        let mut claims = Claims { next_at: NEVER, ..Claims::default() };
        if !seen.open.is_empty() {
            let token = RandomState::new().hash_one(self.turn).cast_signed();
            let (lease, calendar) = (micros(worker.settings.lease), &*worker.queue.0.calendar);
            let claimed = db.run(&Claim { seen: &seen, most, token, lease, calendar }).await;
            claims = claimed.inspect_err(|_| self.lost_claim = Some(token))?;
        }
        let stale: BTreeSet<Lane> = seen.stale.into_iter().chain(claims.stale).collect();
        if !stale.is_empty() {
            db.run(&Tidy { lanes: &stale }).await?;
        }
        for (id, why) in &claims.failed {
            warn!(job = id, why, "a job can never run");
        }
        let is_started = !claims.jobs.is_empty();
        self.start(claims.jobs);
        if is_started || !claims.failed.is_empty() {
            return Ok(Found::More);
        }
        let next_at = seen.next_at.min(claims.next_at);
        let rest = sleep_until(next_at, seen.now, worker.settings.lease).max(Duration::from_micros(200));
        // Something was open, and is closed or taken by now: what is left shows in another look.
        Ok(Found::Nothing(if seen.open.is_empty() && stale.is_empty() { rest.max(BUSY + BUSY) } else { BUSY }))
    }

    fn start(&mut self, jobs: Vec<Claimed>) {
        for job in jobs {
            let Some(Served { config, runs }) = self.worker.handlers.get(&job.lane.0) else { continue };
            let context = Context(Arc::new(Running {
                id: JobId(job.id),
                handler: job.lane.0.clone(),
                key: Some(job.lane.1.clone()).filter(|key| !key.is_empty()),
                attempt: job.attempts,
                cost: job.cost,
                actual: Mutex::new(None),
                stopping: self.stopping.subscribe(),
            }));
            let (runs, run, payload, time) = (runs.clone(), context.clone(), job.payload.clone(), config.timeout);
            let span = info_span!("job", id = job.id, handler = job.lane.0, attempt = job.attempts);
            let acting = async move {
                let acting = runs.run(payload, run);
                match time {
                    None => acting.await,
                    Some(time) => match timeout(time, acting).await {
                        Ok(done) => done,
                        Err(_) => Err(JobError::failed(format!("it took longer than {time:?}"))),
                    },
                }
            };
            let task = self.tasks.spawn(acting.instrument(span));
            self.running.insert(task.id(), (job, context, Instant::now()));
        }
    }

    /// Takes in what has ended.
    fn collect(&mut self) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.end(ended);
        }
    }

    fn end(&mut self, ended: Result<(Id, Result<(), JobError>), JoinError>) {
        let (id, result) = match ended {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(JobError::failed(panicked(error)))),
        };
        let Some((job, context, began)) = self.running.remove(&id) else { return };
        let actual = *context.0.actual.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = match result {
            Ok(()) => Outcome::Done(actual),
            Err(JobError(Kind::Permanent(error))) => {
                Outcome::Failed { error: told(LONGEST, &error), retry_after: None, actual }
            }
            Err(JobError(Kind::GivenBack)) => Outcome::Released,
            Err(JobError(Kind::Limited { retry_after, whole_handler, reason })) => {
                Outcome::Limited { retry_after, whole_handler, reason: told(LONGEST, &reason) }
            }
            Err(JobError(Kind::Failed(error))) => {
                let config = self.worker.handlers.get(&job.lane.0).map(|served| &served.config);
                let most = job.max_attempts.or(config.map(|config| config.attempts)).unwrap_or(1);
                let backoff = config.map(|config| config.backoff).unwrap_or_default();
                let retry_after = (job.attempts < most).then(|| backoff.after(job.attempts));
                Outcome::Failed { error: told(LONGEST, &error), retry_after, actual }
            }
        };
        self.ended.push(Run { job, outcome, time: Some(began.elapsed()) });
    }

    async fn write_down(&mut self) -> Result<(), Error> {
        while !self.ended.is_empty() {
            let runs = &self.ended[..self.ended.len().min(128)];
            let shared = &self.worker.queue.0;
            let written = shared.db.run(&Finish { runs, calendar: &*shared.calendar }).await?;
            if runs.iter().any(|run| !matches!(run.outcome, Outcome::Done(_)) || run.job.booking.holds()) {
                shared.news.notify_waiters();
            }
            let runs: Vec<_> = self.ended.drain(..written.len()).collect();
            for (run, written) in runs.into_iter().zip(written) {
                self.report(run, written);
            }
        }
        Ok(())
    }

    fn report(&mut self, Run { job, outcome, time }: Run, written: Written) {
        let handler = job.lane.0;
        if written == Written::Overtaken {
            crate::metrics::ended(&handler, "overtaken", time);
            warn!(job = job.id, handler, "its lease had run out, and another worker has taken it up");
            return;
        }
        let (state, outcome, error) = match outcome {
            Outcome::Done(_) => (JobState::Done, "done", None),
            Outcome::Failed { error, retry_after: None, .. } => (JobState::Failed, "failed", Some(error)),
            Outcome::Failed { error, .. } => (JobState::Pending, "retried", Some(error)),
            Outcome::Limited { reason, .. } => (JobState::Pending, "limited", Some(reason)),
            Outcome::Released | Outcome::Lost { .. } => (JobState::Pending, "released", None),
        };
        debug!(job = job.id, handler, outcome, error, "a run has ended");
        crate::metrics::ended(&handler, outcome, time);
        // A worker that runs for ever does not remember what it has done.
        if self.until != Until::Stopped {
            self.ran.push(Ran { id: JobId(job.id), handler, state, error });
        }
    }

    /// Signs of life, three in a lease.
    async fn beat(&mut self) -> Result<(), Error> {
        let lease = self.worker.settings.lease;
        if Instant::now() < self.next_beat {
            return Ok(());
        }
        let runs: Vec<_> = self.running.values().map(|(job, ..)| (job.id, job.token)).collect();
        let beat = Beat { runs: &runs, lease: micros(lease), handlers: &self.names };
        let ours = self.worker.queue.0.db.run(&beat).await?;
        for (id, _) in runs.iter().filter(|(id, _)| !ours.contains(id)) {
            warn!(job = id, "its lease has run out: it may run twice");
        }
        self.next_beat = Instant::now() + (lease / 3).min(Duration::from_secs(20));
        Ok(())
    }

    /// Jobs of workers that give no sign of life, and what else is to be tidied up.
    async fn search(&mut self) -> Result<(), Error> {
        let (queue, settings) = (&self.worker.queue, &self.worker.settings);
        if Instant::now() >= self.next_search {
            let lost = queue.0.db.run(&FindLost { handlers: &self.names, most: 100 }).await?;
            let runs: Vec<_> = lost.into_iter().map(|job| self.lost(job)).collect();
            if !runs.is_empty() {
                queue.0.db.run(&Finish { runs: &runs, calendar: &*queue.0.calendar }).await?;
                runs.iter().for_each(|run| crate::metrics::lost(&run.job.lane.0));
                queue.0.news.notify_waiters();
                warn!(jobs = runs.len(), "workers were lost; their jobs go on");
            }
            self.next_search = Instant::now() + settings.lease / 2;
        }
        if Instant::now() >= self.next_tidying {
            let mut has_more = match settings.keep_done {
                Some(keep) => queue.purge_some(JobState::Done, keep, PURGED).await? == PURGED,
                None => false,
            };
            if settings.fails_unknown {
                queue.fail_unknown(&self.names).await?;
            }
            has_more |= queue.forget_keys().await?;
            queue.recount().await?;
            self.next_tidying = Instant::now() + if has_more { TIDYING_ON } else { TIDYING };
        }
        Ok(())
    }

    fn lost(&self, job: Claimed) -> Run {
        let config = self.worker.handlers.get(&job.lane.0).map(|served| &served.config);
        let most = job.max_attempts.or(config.map(|config| config.attempts));
        let is_last = most.is_some_and(|most| job.attempts >= most);
        Run { job, outcome: Outcome::Lost { is_last }, time: None }
    }

    /// Cuts off what still runs and gives it back.
    async fn release(&mut self) {
        self.tasks.abort_all();
        while let Some(ended) = self.tasks.join_next_with_id().await {
            match ended {
                Err(error) if error.is_cancelled() => {}
                // It had ended by itself, and must not run again.
                ended => self.end(ended),
            }
        }
        let rest = self.running.drain().map(|(_, (job, ..))| Run { job, outcome: Outcome::Released, time: None });
        self.ended.extend(rest);
    }
}

fn panicked(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => {
            let told = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            format!("it panicked: {}", told.unwrap_or("without words"))
        }
        Err(_) => "it was cut off".to_owned(),
    }
}
