//! The worker: handlers that run commands, until it is told to stop or nothing is left.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use suimon_jobs::{Config, Error as QueueError, Queue, Ran, Worker};
use tokio::sync::watch;
use tokio::time::sleep;

use super::command::{self, Exec, PATIENCE, Shared, Tally};
use super::log::{self, Loudness};
use super::output::Output;
use super::{Error, jobs};

/// How long the end may take once a second signal has come.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// What a worker is to do.
pub(crate) struct Options {
    pub(crate) handlers: Vec<Handler>,
    pub(crate) slots: usize,
    pub(crate) lease: Duration,
    pub(crate) grace: Duration,
    pub(crate) keep_done: Duration,
    pub(crate) fails_unknown: bool,
    pub(crate) until: Until,
    pub(crate) loudness: Loudness,
}

/// A handler and its command.
pub(crate) struct Handler {
    pub(crate) name: String,
    pub(crate) exec: Exec,
    pub(crate) config: Config,
}

/// When it ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    Never,
    /// One job has run, or none could.
    One,
    /// None can start.
    Idle,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// In order.
    Done,
    /// In order, but a run failed of those that were asked for.
    SomeFailed,
    /// By a second signal, of this number.
    Signal(i32),
}

/// Works.
///
/// # Errors
/// When the handlers are wrong or the database cannot be asked.
pub(crate) async fn work(queue: &Queue, options: Options) -> Result<Ending, Error> {
    let (output, writer) =
        Output::start().map_err(|error| Error::Io(format!("no thread to write the output: {error}")))?;
    log::start(output.clone(), options.loudness);
    let ending = run(queue, options, output).await;
    writer.finish();
    ending
}

async fn run(queue: &Queue, options: Options, output: Output) -> Result<Ending, Error> {
    let is_quiet = options.loudness == Loudness::Quiet;
    let until = options.until;
    let (stop, cut) = (watch::Sender::new(0), watch::Sender::new(false));
    let grace = options.grace;
    let shared = Shared { output: output.clone(), grace, cut: cut.subscribe(), tally: Tally::default() };
    let shared = Arc::new(shared);
    let worker = build(queue, options, &shared).await?;
    let stopping = stop.subscribe();
    let mut asked = stop.subscribe();
    let signals = tokio::spawn(signals(stop, cut, output.clone(), grace, is_quiet)?);
    let told_to_stop = async move {
        // The task that listens is there until the end.
        let _ = asked.wait_for(|signals| *signals > 0).await.is_ok();
    };
    let ran = match until {
        Until::Never => worker.run_until(told_to_stop).await.map(|()| Vec::new()),
        Until::One => worker.once_until(told_to_stop).await.map(Vec::from_iter),
        Until::Idle => worker.drain_until(told_to_stop).await,
    };
    signals.abort();
    queue.close().await;
    let ran = ran?;
    if !is_quiet {
        output.tell(&summary(until, &ran, &shared.tally));
    }
    let second = *stopping.borrow();
    Ok(match until {
        _ if second > 1 => Ending::Signal(second),
        Until::One | Until::Idle if shared.tally.failed.load(Ordering::Relaxed) > 0 => Ending::SomeFailed,
        _ => Ending::Done,
    })
}

async fn build(queue: &Queue, options: Options, shared: &Arc<Shared>) -> Result<Worker, QueueError> {
    // Commands are ended after the grace, which takes a while; only then is the rest cut off.
    let grace = options.grace.saturating_add(PATIENCE).saturating_add(PATIENCE);
    let mut worker = Worker::builder(queue).slots(options.slots).lease(options.lease).grace(grace);
    worker = worker.keep_done(Some(options.keep_done)).fail_unknown(options.fails_unknown);
    for Handler { name, exec, config } in options.handlers {
        worker = worker.json(&name, config, command::handler(exec, shared.clone()));
    }
    worker.build().await
}

fn summary(until: Until, ran: &[Ran], tally: &Tally) -> String {
    let count = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed);
    let (done, limited, failed) = (count(&tally.done), count(&tally.limited), count(&tally.failed));
    if until != Until::Never && ran.is_empty() {
        return "nothing could start: no job is ready, or its limit is used up".to_string();
    }
    let mut told = format!("{}: {done} done, {failed} failed, {limited} limited", jobs(done + limited + failed));
    let given_back = count(&tally.given_back);
    if given_back > 0 {
        told += &format!("; {given_back} interrupted and given back");
    }
    told
}

/// Listens to Ctrl-C and SIGTERM: the first stops the worker, the second its commands.
#[cfg(unix)]
fn signals(
    stop: watch::Sender<i32>,
    cut: watch::Sender<bool>,
    output: Output,
    grace: Duration,
    is_quiet: bool,
) -> Result<impl Future<Output = ()> + Send, Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |error| Error::Io(format!("signals cannot be listened to: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let tell = move |line: &str| {
        if !is_quiet {
            output.tell(line);
        }
    };
    Ok(async move {
        let mut next = async || {
            tokio::select! {
                _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
                _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
            }
        };
        next().await;
        tell(&format!("stopping: what runs has {grace:?} to end; a second signal kills it"));
        stop.send_replace(1);
        let signal = next().await;
        stop.send_replace(signal);
        cut.send_replace(true);
        sleep(LAST_PATIENCE).await;
        // The database does not answer. The groups have been killed.
        std::process::exit(128 + signal);
    })
}

/// Elsewhere there is Ctrl-C alone.
#[cfg(not(unix))]
fn signals(
    stop: watch::Sender<i32>,
    cut: watch::Sender<bool>,
    output: Output,
    grace: Duration,
    is_quiet: bool,
) -> Result<impl Future<Output = ()> + Send, Error> {
    const INTERRUPT: i32 = 2;
    Ok(async move {
        if tokio::signal::ctrl_c().await.is_err() {
            return std::future::pending().await;
        }
        if !is_quiet {
            output.tell(&format!("stopping: what runs has {grace:?} to end; a second signal kills it"));
        }
        stop.send_replace(1);
        drop(tokio::signal::ctrl_c().await);
        stop.send_replace(INTERRUPT);
        cut.send_replace(true);
        sleep(LAST_PATIENCE).await;
        std::process::exit(128 + INTERRUPT);
    })
}
