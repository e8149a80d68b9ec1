//! `suimon jobs`: a queue of jobs with a limit for each handler.

mod control;
mod dispatch;
mod work;

use std::io::{self, Write};
use std::time::Duration;

use clap::Subcommand;
use suimon_jobs::Queue;

use super::{Ending, Failure};
use crate::jobs::Error;

const EXAMPLES: &str = "\
Examples:
  export SUIMON_DB=sqlite:q.db
  suimon jobs dispatch call '{\"prompt\": \"Why?\"}' --limit 'window 10/60s'
  jq -c '{handler: \"call\", payload: .}' prompts.json | suimon jobs dispatch -
  suimon jobs work --exec 'call=./call-api' --limit 'call=window 10/60s' --timeout call=30s
  suimon jobs status";

const EXIT_CODES: &str = "\
Exit codes:
  0    done; a worker: it has stopped in order, also by Ctrl-C or SIGTERM
  1    the database could not be asked, a line is no job, a job is not there to be tried again;
       a worker with --once or --drain: a run failed
  2    the command line is wrong: an option, a limit, the kind of the database
  130  a worker was ended by a second signal, which was Ctrl-C (SIGINT)
  143  the same, by SIGTERM";

/// Run commands as background jobs, each handler at its limit, over all workers and machines.
///
/// The queue is a file of SQLite, or lies in PostgreSQL or MariaDB. Any number of workers serve it;
/// the limit of a handler holds over all of them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Dispatch(Box<dispatch::Args>),
    Work(Box<work::Args>),
    Status(control::Status),
    Limit(control::Limit),
    Pause(control::Pause),
    Resume(control::Resume),
    Retry(control::Retry),
    Purge(control::Purge),
}

/// Where the queue is.
#[derive(clap::Args)]
struct Db {
    /// The database: `sqlite:q.db` (made if it is missing), `postgres://user@host/db`, `mariadb://user@host/db`.
    ///
    /// In SUIMON_DB a password stays out of the list of processes.
    #[arg(long, value_name = "URL", env = "SUIMON_DB", hide_env_values = true)]
    db: String,

    /// What the names of the tables begin with: queues with different prefixes share nothing.
    #[arg(long, value_name = "PREFIX", default_value = "suimon")]
    prefix: String,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the URL, which may have a password in it.
        f.debug_struct("Db").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Db {
    async fn open(&self) -> Result<Queue, Error> {
        let scheme = self.db.split(':').next().unwrap_or_default();
        if !["sqlite", "postgres", "postgresql", "mysql", "mariadb"].contains(&scheme) {
            let kinds = "`sqlite:q.db`, `postgres://user@host/db` or `mariadb://user@host/db`";
            return Err(Error::Usage(format!("--db: the URL of a database is {kinds}")));
        }
        Ok(Queue::builder(&self.db).prefix(&self.prefix).open().await?)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Usage(message) => Failure::Usage(message),
            Error::Io(message) => Failure::Io(message),
            Error::Closed => Failure::Closed,
        }
    }
}

pub(super) fn run(args: Args) -> Result<Ending, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Io(format!("the runtime: {error}")))?;
    let ending = runtime.block_on(async {
        match args.command {
            Command::Dispatch(args) => dispatch::run(*args).await,
            Command::Work(args) => work::run(*args).await,
            Command::Status(args) => args.run().await,
            Command::Limit(args) => args.run().await,
            Command::Pause(args) => args.run().await,
            Command::Resume(args) => args.run().await,
            Command::Retry(args) => args.run().await,
            Command::Purge(args) => args.run().await,
        }
    });
    // What a driver still does in the background is of no use any more.
    runtime.shutdown_timeout(Duration::from_millis(500));
    ending
}

/// Prints a line.
fn say(line: &str) -> Result<(), Failure> {
    Ok(writeln!(io::stdout().lock(), "{line}")?)
}
