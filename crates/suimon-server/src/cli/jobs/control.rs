//! Looking at a queue and changing it: `status`, `limit`, `pause`, `resume`, `retry`, `purge`.

use std::io;
use std::time::Duration;

use suimon_jobs::{JobId, JobState, Queue};

use super::{Db, Ending, Failure, say};
use crate::cli::values::{parse_policy, parse_time};
use crate::jobs::job::parse_count;
use crate::jobs::{Error, jobs, status};
use crate::terminal;

/// Show how the handlers stand: their jobs, limits, pauses, and when a worker was there last.
#[derive(Debug, clap::Args)]
pub(super) struct Status {
    #[command(flatten)]
    db: Db,

    /// Print one JSON object, times in seconds.
    #[arg(long)]
    json: bool,
}

/// Set the limit of a handler, for all workers from now on, or take it away.
///
/// It goes before those given at dispatch and by workers. What was used stays used.
#[derive(Debug, clap::Args)]
pub(super) struct Limit {
    #[command(flatten)]
    db: Db,

    /// The name of the handler; it need not be known yet.
    #[arg(value_name = "HANDLER")]
    handler: String,

    /// The limit, as `window 10/60s`, `pace 100/min`, `block`; several are joined with `and`.
    #[arg(value_name = "LIMIT", required_unless_present = "clear")]
    limit: Option<String>,

    /// The limit of this key alone, instead of that which all keys have.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// The limit that each key has.
    #[arg(long, conflicts_with_all = ["key", "clear"])]
    each_key: bool,

    /// Which runs it counts: `started` or `completed`.
    #[arg(long, value_name = "WHICH", default_value = "started", conflicts_with = "clear")]
    count: String,

    /// Take away all limits of the handler, or that of the key; those of a worker come back when it starts.
    #[arg(long, conflicts_with = "limit")]
    clear: bool,
}

/// Let no job of a handler start, in any worker; what runs goes on.
#[derive(Debug, clap::Args)]
pub(super) struct Pause {
    #[command(flatten)]
    db: Db,

    /// The name of the handler; it need not be known yet.
    #[arg(value_name = "HANDLER")]
    handler: String,

    /// The jobs of this key alone.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// For this time, as `5min`; until it is resumed without it. A pause that lasts longer already stays.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    time: Option<Duration>,
}

/// End the pause of a handler, whoever asked for it.
#[derive(Debug, clap::Args)]
pub(super) struct Resume {
    #[command(flatten)]
    db: Db,

    /// The name of the handler; it need not be known yet.
    #[arg(value_name = "HANDLER")]
    handler: String,

    /// The pause of this key alone.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

/// Let jobs that failed for good run again, as if they were new.
#[derive(Debug, clap::Args)]
pub(super) struct Retry {
    #[command(flatten)]
    db: Db,

    /// The numbers of the jobs.
    #[arg(value_name = "ID", required_unless_present = "handler")]
    ids: Vec<i64>,

    /// All that failed of this handler.
    #[arg(long, value_name = "HANDLER", conflicts_with = "ids")]
    handler: Option<String>,
}

/// Remove jobs that have been done, or have failed for good. Limits do not forget them.
#[derive(Debug, clap::Args)]
pub(super) struct Purge {
    #[command(flatten)]
    db: Db,

    /// Those that failed for good, instead of those that have been done.
    #[arg(long)]
    failed: bool,

    /// Only those that ended so long ago, as `7d`; all without it.
    #[arg(long, value_name = "TIME", default_value = "0", hide_default_value = true, value_parser = parse_time)]
    older_than: Duration,
}

impl Status {
    pub(super) async fn run(self) -> Result<Ending, Failure> {
        let queue = self.db.open().await?;
        let all = queue.status().await.map_err(Error::from)?;
        let mut out = io::stdout().lock();
        if self.json {
            status::json(&all, &mut out)?;
        } else {
            status::table(&all, &mut out)?;
        }
        done(&queue).await
    }
}

impl Limit {
    pub(super) async fn run(self) -> Result<Ending, Failure> {
        let Limit { db, handler, limit, key, each_key, count, .. } = self;
        let count = parse_count(&count).map_err(|error| Failure::Usage(format!("--{error}")))?;
        if let Some(text) = &limit {
            parse_policy("the limit", text)?;
        }
        let queue = db.open().await?;
        let changed = match (limit, key) {
            (Some(limit), _) if each_key => queue.set_key_limit(&handler, &limit, count).await,
            (Some(limit), None) => queue.set_limit(&handler, &limit, count).await,
            (Some(limit), Some(key)) => queue.set_limit_of_key(&handler, &key, &limit, count).await,
            (None, None) => queue.clear_limit(&handler).await,
            (None, Some(key)) => queue.clear_limit_of_key(&handler, &key).await,
        };
        changed.map_err(Error::from)?;
        done(&queue).await
    }
}

impl Pause {
    pub(super) async fn run(self) -> Result<Ending, Failure> {
        let queue = self.db.open().await?;
        let pause = self.time.map_or(suimon_jobs::Pause::UntilResumed, suimon_jobs::Pause::For);
        let paused = match self.key {
            None => queue.pause(&self.handler, pause).await,
            Some(key) => queue.pause_key(&self.handler, &key, pause).await,
        };
        paused.map_err(Error::from)?;
        done(&queue).await
    }
}

impl Resume {
    pub(super) async fn run(self) -> Result<Ending, Failure> {
        let queue = self.db.open().await?;
        let resumed = match self.key {
            None => queue.resume(&self.handler).await,
            Some(key) => queue.resume_key(&self.handler, &key).await,
        };
        resumed.map_err(Error::from)?;
        done(&queue).await
    }
}

impl Retry {
    pub(super) async fn run(self) -> Result<Ending, Failure> {
        let queue = self.db.open().await?;
        let mut retried = 0;
        let mut is_complete = true;
        if let Some(handler) = &self.handler {
            retried = queue.retry_failed(handler).await.map_err(Error::from)?;
        }
        for id in self.ids.into_iter().map(JobId) {
            if queue.retry(id).await.map_err(Error::from)? {
                retried += 1;
                continue;
            }
            is_complete = false;
            let why = match queue.job(id).await.map_err(Error::from)? {
                None => "there is no such job".to_string(),
                Some(job) if job.state == JobState::Failed => "another with its unique id waits or runs".to_string(),
                Some(job) => format!("it has not failed: it is {}", job.state.as_str()),
            };
            terminal::error(&format!("job {id}: {why}"));
        }
        say(&format!("{} to be tried again", jobs(retried)))?;
        done(&queue).await?;
        Ok(if is_complete { Ending::Done } else { Ending::SomeFailed })
    }
}

impl Purge {
    pub(super) async fn run(self) -> Result<Ending, Failure> {
        let queue = self.db.open().await?;
        let state = if self.failed { JobState::Failed } else { JobState::Done };
        let removed = queue.purge(state, self.older_than).await.map_err(Error::from)?;
        say(&format!("{} removed", jobs(removed)))?;
        done(&queue).await
    }
}

async fn done(queue: &Queue) -> Result<Ending, Failure> {
    queue.close().await;
    Ok(Ending::Done)
}
