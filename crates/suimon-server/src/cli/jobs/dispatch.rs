//! `suimon jobs dispatch`.

use std::io::{self, Write};

use serde::de::IgnoredAny;

use super::{Db, Ending, Failure, say};
use crate::jobs::dispatch;
use crate::jobs::job::Given;

const EXAMPLES: &str = "\
Examples:
  suimon jobs dispatch --db sqlite:q.db mail '{\"to\": \"ann@example.org\"}' --key customer:42 --delay 5min
  suimon jobs dispatch --db sqlite:q.db - < jobs.jsonl";

const DETAILS: &str = "\
With `-` each line of standard input is a job, a JSON object:
  {\"handler\": \"call\", \"payload\": {\"n\": 1}, \"limit\": \"window 5/2s\", \"key_limit\": \"pace 1/s\", \"count\": \"completed\",
   \"key\": \"customer:42\", \"cost\": 2.5, \"delay\": \"5s\", \"priority\": 3, \"unique\": \"invoice:7\", \"attempts\": 5}
Only `handler` has to be there; an unknown field is an error. Blank lines are passed over. A line has 4 MiB at most.

All lines are checked before the first job is dispatched, if they come to less than 128 MiB (each counting for 512
bytes more): then a wrong line means that nothing is dispatched, and each is told with its number. Of a longer input
those 128 MiB are checked first, and then each batch before it is sent; what has been dispatched is told. A batch is
one transaction, of 500 jobs or 1 MiB.

A `limit` is that of the handler and not of the job: it holds for all jobs of the handler and in all workers from now
on. The last of a batch counts.";

const EXIT_CODES: &str = "\
Exit codes:
  0  all jobs were dispatched
  1  a line is no job, or the database could not be asked; what was dispatched is told
  2  the command line is wrong";

/// Put a job into the queue, or one for each line of JSON.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{DETAILS}\n\n{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(super) struct Args {
    #[command(flatten)]
    db: Db,

    /// Who is to run it; `-` for jobs as lines of JSON on standard input.
    #[arg(value_name = "HANDLER")]
    handler: String,

    /// What it is given, JSON.
    #[arg(value_name = "PAYLOAD", default_value = "null", hide_default_value = true)]
    payload: String,

    /// The limit of the handler, in all workers from now on, as `window 10/60s`.
    #[arg(long, value_name = "LIMIT")]
    limit: Option<String>,

    /// The limit that each key of the handler has.
    #[arg(long, value_name = "LIMIT")]
    key_limit: Option<String>,

    /// Which runs the limits given here count: `started` (those that started) or `completed`.
    #[arg(long, value_name = "WHICH")]
    count: Option<String>,

    /// On whose behalf: keys have a limit of their own where the handler has one for keys, and take turns.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// What it costs in each of its limits, a decimal; 1 without it.
    #[arg(long, value_name = "COST")]
    cost: Option<String>,

    /// Not before so much time has passed, as `5min`.
    #[arg(long, value_name = "TIME")]
    delay: Option<String>,

    /// From 0, which is the default, to 9: higher ones go first.
    #[arg(long, value_name = "N")]
    priority: Option<u8>,

    /// While a job of this handler with the same id waits or runs, no other is added.
    #[arg(long, value_name = "ID")]
    unique: Option<String>,

    /// How often it is tried in all, instead of what the handler says.
    #[arg(long, value_name = "N")]
    attempts: Option<u32>,

    /// Print the number of each job, instead of how many there are.
    ///
    /// For a unique job that is there already it is the number of that one.
    #[arg(long)]
    ids: bool,
}

pub(super) async fn run(args: Args) -> Result<Ending, Failure> {
    let sent = if args.handler == "-" { lines(&args).await? } else { one(&args).await? };
    if !args.ids {
        say(&format!("dispatched {}", crate::jobs::jobs(sent)))?;
    }
    Ok(Ending::Done)
}

async fn lines(args: &Args) -> Result<u64, Failure> {
    let given = [
        ("a payload", args.payload != "null"),
        ("--limit", args.limit.is_some()),
        ("--key-limit", args.key_limit.is_some()),
        ("--count", args.count.is_some()),
        ("--key", args.key.is_some()),
        ("--cost", args.cost.is_some()),
        ("--delay", args.delay.is_some()),
        ("--priority", args.priority.is_some()),
        ("--unique", args.unique.is_some()),
        ("--attempts", args.attempts.is_some()),
    ];
    if let Some((what, _)) = given.iter().find(|(_, is_given)| *is_given) {
        let why = format!("{what} is for a single job; with `-` each line has fields of its own");
        return Err(Failure::Usage(why));
    }
    let mut out = io::stdout().lock();
    let ids: Option<&mut dyn Write> = if args.ids { Some(&mut out) } else { None };
    Ok(dispatch::lines(async || args.db.open().await, io::stdin().lock(), ids).await?)
}

async fn one(args: &Args) -> Result<u64, Failure> {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(&args.payload) {
        let shown = crate::replay::show::short(args.payload.as_bytes());
        let why = format!("the payload `{shown}` is not JSON: {error}; a text has quotes of its own, as '\"text\"'");
        return Err(Failure::Usage(why));
    }
    let job = Given {
        handler: args.handler.clone(),
        payload: Some(args.payload.clone()),
        limit: args.limit.clone(),
        key_limit: args.key_limit.clone(),
        count: args.count.clone(),
        key: args.key.clone(),
        cost: args.cost.clone(),
        delay: args.delay.clone(),
        priority: args.priority,
        unique: args.unique.clone(),
        attempts: args.attempts,
    };
    let job = job.job().map_err(Failure::Usage)?;
    let queue = args.db.open().await?;
    let ids = queue.dispatch_all(&[job]).await.map_err(crate::jobs::Error::from)?;
    queue.close().await;
    if args.ids {
        for id in &ids {
            say(&id.to_string())?;
        }
    }
    Ok(ids.len() as u64)
}
