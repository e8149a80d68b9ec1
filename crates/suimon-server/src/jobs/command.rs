//! The command of a job: started in a process group of its own, ended with all that it started.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use suimon_jobs::{Context, JobError, Limited, Permanent};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::answer::{self, End, Verdict};
use super::output::Output;

/// How long a command that was told to end (SIGTERM) has until it is killed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How long a command that has been killed may keep its output open: something that it has started
/// has left its group.
const LET_GO: Duration = Duration::from_secs(1);

/// What runs the jobs of a handler.
#[derive(Clone, Debug)]
pub(crate) struct Exec {
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    pub(crate) timeout: Option<Duration>,
}

impl Exec {
    /// Splits a text into words as a shell does; nothing else of a shell is done.
    pub(crate) fn parse(text: &str) -> Result<Exec, String> {
        let words = shell_words::split(text).map_err(|_| format!("a quote is not closed in `{text}`"))?;
        match words.first() {
            Some(program) if !program.is_empty() => Ok(Exec { words, timeout: None }),
            _ => Err("the command is empty; name a program, as in --exec 'call=./call-api --json'".to_string()),
        }
    }
}

/// What the commands of a worker share.
pub(super) struct Shared {
    pub(super) output: Output,
    /// How long they may go on when the worker is told to stop.
    pub(super) grace: Duration,
    /// Whether they are to be killed at once.
    pub(super) cut: watch::Receiver<bool>,
    pub(super) tally: Tally,
}

/// How runs have ended.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) done: AtomicU64,
    pub(super) limited: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) given_back: AtomicU64,
}

/// Why a command is ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Timeout,
    Stop,
}

/// How far the ending of a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Runs,
    Asked,
    Killed,
}

/// Runs the command of a job.
pub(super) async fn run(exec: &Exec, payload: String, job: Context, shared: &Shared) -> Result<(), JobError> {
    tracing::debug!(job = job.id().0, handler = job.handler(), "started, attempt {}", job.attempt());
    let tally = &shared.tally;
    let (ended, out, err, why) = match act(exec, payload, &job, shared).await {
        Ok(ended) => ended,
        Err(error) => {
            tally.failed.fetch_add(1, Ordering::Relaxed);
            return Err(JobError::failed(format!("`{}` cannot be run: {error}", exec.words[0])));
        }
    };
    let told = ended.map_or_else(|| "it was killed".to_string(), |status| status.to_string());
    let end = End { code: ended.and_then(|status| status.code()), told, out: &out, err: &err };
    let (mut verdict, cost) = answer::read(&end);
    if let Some(cost) = cost {
        job.settle(cost);
    }
    match why {
        Some(Why::Timeout) => {
            let time = exec.timeout.unwrap_or_default();
            verdict = Verdict::Failed(answer::error(&format!("it took longer than {time:?}"), &err));
        }
        Some(Why::Stop) if !matches!(verdict, Verdict::Done | Verdict::Limited(_)) => {
            tally.given_back.fetch_add(1, Ordering::Relaxed);
            return Err(JobError::given_back());
        }
        Some(Why::Stop) | None => {}
    }
    match verdict {
        Verdict::Done => {
            tally.done.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        Verdict::Limited(retry_after) => {
            tally.limited.fetch_add(1, Ordering::Relaxed);
            Err(Limited { retry_after }.into())
        }
        Verdict::Permanent(why) => {
            tally.failed.fetch_add(1, Ordering::Relaxed);
            Err(Permanent(why).into())
        }
        Verdict::Failed(why) => {
            tally.failed.fetch_add(1, Ordering::Relaxed);
            Err(JobError::failed(why))
        }
    }
}

/// The status (none if it could not be waited for), the ends of both outputs, and why it was ended.
type Acted = (Option<ExitStatus>, Vec<u8>, Vec<u8>, Option<Why>);

async fn act(exec: &Exec, payload: String, job: &Context, shared: &Shared) -> std::io::Result<Acted> {
    let mut child = command(exec, job).spawn()?;
    let mut group = Group::of(&child);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let mut running = std::pin::pin!(async {
        // Its status is collected last: until then its number is that of nobody else.
        let output = &shared.output;
        let ((), out, err) = tokio::join!(feed(stdin, payload), output.pass_on(stdout), output.pass_on(stderr));
        (child.wait().await, out, err)
    });
    let mut stopping = std::pin::pin!(async {
        job.stopping().await;
        sleep(shared.grace).await;
    });
    let mut cut = std::pin::pin!(cut(shared.cut.clone()));
    let mut stage = Stage::Runs;
    let mut why = None;
    // A timeout that the clock cannot count is none.
    let mut deadline = exec.timeout.and_then(|time| Instant::now().checked_add(time));
    loop {
        tokio::select! {
            (status, out, err) = &mut running => {
                group.is_over = true;
                return Ok((status.ok(), out, err, why));
            }
            () = at(deadline) => match stage {
                Stage::Runs => {
                    why = Some(Why::Timeout);
                    stage = group.ask();
                    deadline = Some(Instant::now() + PATIENCE);
                }
                Stage::Asked => {
                    stage = group.kill();
                    deadline = Some(Instant::now() + LET_GO);
                }
                Stage::Killed => return Ok((None, Vec::new(), Vec::new(), why)),
            },
            () = &mut stopping, if why.is_none() => {
                why = Some(Why::Stop);
                stage = group.ask();
                deadline = Some(Instant::now() + PATIENCE);
            }
            () = &mut cut, if stage != Stage::Killed => {
                why = why.or(Some(Why::Stop));
                stage = group.kill();
                deadline = Some(Instant::now() + LET_GO);
            }
        }
    }
}

fn command(exec: &Exec, job: &Context) -> Command {
    let mut command = Command::new(&exec.words[0]);
    command.args(&exec.words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("SUIMON_JOB_ID", job.id().to_string()).env("SUIMON_JOB_HANDLER", job.handler());
    command.env("SUIMON_JOB_KEY", job.key().unwrap_or_default());
    command.env("SUIMON_JOB_ATTEMPT", job.attempt().to_string());
    // Ctrl-C on a terminal is for the worker, which lets commands end.
    #[cfg(unix)]
    command.process_group(0);
    command.kill_on_drop(true);
    command
}

/// Gives a command its payload. It need not read it.
async fn feed(stdin: Option<ChildStdin>, payload: String) {
    if let Some(mut stdin) = stdin {
        let line = payload + "\n";
        let _ = stdin.write_all(line.as_bytes()).await;
    }
}

/// Waits until all commands are to be killed.
async fn cut(mut cut: watch::Receiver<bool>) {
    if cut.wait_for(|is_cut| *is_cut).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The process group that a command leads. It is killed with this, unless the command is over.
struct Group {
    #[cfg(unix)]
    leader: Option<rustix::process::Pid>,
    is_over: bool,
}

impl Group {
    fn of(child: &Child) -> Group {
        #[cfg(not(unix))]
        let _ = child;
        Group {
            #[cfg(unix)]
            leader: child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw),
            is_over: false,
        }
    }

    /// Asks all of it to end.
    fn ask(&self) -> Stage {
        #[cfg(unix)]
        self.signal(rustix::process::Signal::TERM);
        Stage::Asked
    }

    fn kill(&self) -> Stage {
        #[cfg(unix)]
        self.signal(rustix::process::Signal::KILL);
        Stage::Killed
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(leader) = self.leader {
            // One that has just ended needs no signal.
            let _ = rustix::process::kill_process_group(leader, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_over {
            self.kill();
        }
    }
}

/// A handler that runs a command.
pub(super) fn handler(
    exec: Exec,
    shared: Arc<Shared>,
) -> impl Fn(String, Context) -> std::pin::Pin<Box<dyn Future<Output = Result<(), JobError>> + Send>> + Send + Sync {
    let exec = Arc::new(exec);
    move |payload, job| {
        let (exec, shared) = (exec.clone(), shared.clone());
        Box::pin(async move { run(&exec, payload, job, &shared).await })
    }
}
