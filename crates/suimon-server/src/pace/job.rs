//! The life of one line whose command has been started: its repetitions and pauses.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use suimon_core::Cost;

use super::backoff;
use super::exec::{self, NotStarted, Outcome, Started};
use super::run::Control;
use super::stop::Cause;
use super::turn::Refusal;
use crate::replay::show;

/// How often a line is run again because a command was told to come later, before
/// it counts as failed.
pub(super) const MOST_LIMITED: u32 = 100;

/// The pause where a command was told to come later and did not say when; doubled
/// each time for the same line.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// A line of its own, and what it costs each time.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) text: Vec<u8>,
    pub(super) whole: Vec<u8>,
    pub(super) cost: Cost,
}

/// Looks after a line until its command has succeeded or there is no hope; answers
/// whether it has.
pub(super) fn look_after(control: &Control, exec: &exec::Options, job: &Job, started: Started) -> bool {
    // Whoever waits for this thread has to hear of it in any case.
    let outcome = catch_unwind(AssertUnwindSafe(|| run(control, exec, job, started)));
    match outcome.unwrap_or_else(|_| Err("its thread failed".to_string())) {
        Ok(()) => true,
        // That its output was closed is what ended it.
        Err(_) if control.stop.cause() == Some(Cause::Closed) => false,
        Err(message) => {
            control.screen.error(&format!("line {}, `{}`: {message}", job.number, show::short(&job.text)));
            false
        }
    }
}

fn run(control: &Control, exec: &exec::Options, job: &Job, mut started: Started) -> Result<(), String> {
    let (mut failed, mut limited) = (0, 0);
    loop {
        let (why, goes_on) = match exec::finish(control, exec, started) {
            Outcome::Succeeded => return Ok(()),
            Outcome::Limited(after) => {
                limited += 1;
                if limited > MOST_LIMITED {
                    return Err(format!("it was told to come later {limited} times, which is the most"));
                }
                let pause = after.unwrap_or_else(|| backoff(FIRST_PAUSE, limited));
                control.screen.note(&format!("line {}: limited, all pause for {pause:?}", job.number));
                ("it was told to come later".to_string(), control.turn.pause_for(pause))
            }
            Outcome::Failed(why) => {
                failed += 1;
                if failed > exec.retries {
                    let times = if failed > 1 { format!(", {failed} times") } else { String::new() };
                    return Err(format!("{why}{times}"));
                }
                let slept = control.stop.sleep(backoff(exec.delay, failed));
                (why, if slept { Ok(()) } else { Err(Refusal::Stopped) })
            }
        };
        match goes_on.and_then(|()| control.turn.wait(job.cost, &control.stop, &control.screen)) {
            Ok(()) => {}
            Err(Refusal::Stopped) => return Err(format!("{why}, and the run ended before it could be run again")),
            Err(Refusal::Cost(message)) => return Err(message),
            Err(Refusal::Broken(message)) => {
                control.fail(&message);
                return Err(format!("{why}, and it could not be run again"));
            }
        }
        let start = exec::start(control, exec, &job.text, &job.whole);
        started = start.map_err(|NotStarted { message, .. }| message)?;
    }
}
