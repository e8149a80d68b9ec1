//! How workers and commands are ended.

use std::process::Command;
use std::time::{Duration, Instant};

use suimon_jobs::JobState;

use crate::common::rest;
use crate::support::{Place, eventually, script};

/// Does a process of this number run, which is not only waiting for its status to be collected?
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[test]
fn a_signal_lets_commands_end() {
    let place = Place::new();
    place.dispatch(&[r#"{"handler":"a"}"#, r#"{"handler":"a"}"#]);
    let gate = place.path("gate");
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let text = format!("echo x >> {}; read line < {}", place.path("begun").display(), gate.display());
    let mut worker = place.worker(&["--exec", &script("a", &text), "--slots", "1"]);
    eventually("the first has begun", || place.lines("begun").len() == 1);
    worker.signal("TERM");
    let told = worker.until("stopping: ");
    assert_eq!(told, "stopping: what runs has 30s to end; a second signal kills it\n");
    std::fs::write(&gate, "go\n").unwrap();
    assert_eq!(worker.0.wait().unwrap().code(), Some(0));
    assert_eq!(place.counts("a"), [1, 0, 1, 0]);
    assert_eq!(place.lines("begun").len(), 1);
}

#[test]
fn after_the_grace_commands_are_ended_with_all_that_they_started() {
    let place = Place::new();
    place.dispatch(&[r#"{"handler":"a"}"#]);
    let text = format!(
        "cd {}; trap \"echo asked > asked; exit 1\" TERM; sleep 1000 & echo $! > sleeper; wait",
        place.folder().display()
    );
    let worker = place.worker(&["--exec", &script("a", &text), "--grace", "200ms"]);
    eventually("it has begun", || place.lines("sleeper").len() == 1);
    worker.signal("INT");
    let (code, err) = worker.end();
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("1 interrupted and given back"), "{err}");
    let job = place.job(1);
    assert_eq!((job.state, job.attempts, job.error), (JobState::Pending, 0, None));
    assert_eq!(place.lines("asked"), ["asked"]);
    assert!(!runs(&place.lines("sleeper")[0]));
}

#[test]
fn a_second_signal_kills_them() {
    let place = Place::new();
    place.dispatch(&[r#"{"handler":"a"}"#]);
    let text = format!("cd {}; trap \"\" TERM INT; sleep 1000 & echo $! > sleeper; wait", place.folder().display());
    let mut worker = place.worker(&["--exec", &script("a", &text)]);
    eventually("it has begun", || place.lines("sleeper").len() == 1);
    let begun = Instant::now();
    // Signals that come at the same time are one: the next is sent until it has ended.
    while worker.0.try_wait().unwrap().is_none() {
        worker.signal("TERM");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(worker.0.wait().unwrap().code(), Some(143), "{}", rest(worker.0.stderr.take()));
    eventually("it is gone", || !runs(&place.lines("sleeper")[0]));
    let job = place.job(1);
    assert_eq!((job.state, job.attempts), (JobState::Pending, 0));
}

#[test]
fn a_command_that_takes_too_long_is_ended() {
    let place = Place::new();
    place.dispatch(&[r#"{"handler":"a","attempts":1}"#, r#"{"handler":"b","attempts":1}"#]);
    let dir = place.folder().display();
    let a = format!("cd {dir}; echo working >&2; sleep 1000 & echo $! > a; wait");
    // Deaf to SIGTERM.
    let b = format!("cd {dir}; trap \"\" TERM; sleep 1000 & echo $! > b; while :; do wait; sleep 0.1; done");
    let (a, b) = (script("a", &a), script("b", &b));
    let begun = Instant::now();
    let ran =
        place.jobs(&["work", "--drain", "--exec", &a, "--exec", &b, "--timeout", "a=300ms", "--timeout", "b=300ms"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(begun.elapsed() >= Duration::from_secs(5));
    assert!(ran.err.contains("job 1 a: failed: it took longer than 300ms: working"), "{}", ran.err);
    assert!(ran.err.contains("job 2 b: failed: it took longer than 300ms"), "{}", ran.err);
    assert!(!runs(&place.lines("a")[0]));
    eventually("it is gone", || !runs(&place.lines("b")[0]));
}

#[test]
fn the_job_of_a_killed_worker_is_taken_up_by_another() {
    let place = Place::new();
    place.dispatch(&[r#"{"handler":"a"}"#]);
    let text = format!(
        "cd {}; [ $SUIMON_JOB_ATTEMPT = 2 ] || {{ echo $$ > first; exec sleep 1000; }}",
        place.folder().display()
    );
    let exec = script("a", &text);
    let first = place.worker(&["--exec", &exec, "--lease", "1s"]);
    eventually("it has begun", || place.lines("first").len() == 1);
    first.signal("KILL");
    let (code, _) = {
        let mut first = first;
        (first.0.wait().unwrap().code(), drop(first))
    };
    assert_eq!(code, None);
    let second = place.worker(&["--exec", &exec, "--lease", "1s"]);
    eventually("it is done", || place.counts("a") == [0, 0, 1, 0]);
    let err = second.stop();
    assert!(err.contains("warning: workers were lost; their jobs go on"), "{err}");
    assert!(err.contains("job 1 a: done"), "{err}");
    assert_eq!(place.job(1).attempts, 2);
    // Nobody was left to end the command of the first.
    assert!(Command::new("kill").args(["-9", &place.lines("first")[0]]).status().unwrap().success());
}

#[test]
fn a_slow_reader_holds_up_commands_and_not_the_worker() {
    let place = Place::new();
    place.dispatch(&[r#"{"handler":"loud"}"#, r#"{"handler":"quiet"}"#]);
    let loud = script("loud", "head -c 20000000 /dev/zero");
    let quiet = format!("echo x >> {}; sleep 2.5", place.path("quiet").display());
    // Nobody reads what it tells. It gives signs of life all the same, so that nothing runs twice.
    let args = ["--exec", &loud, "--exec", &script("quiet", &quiet), "--lease", "1s"];
    let (slow, other) = (place.worker(&args), place.worker(&["--exec", "none=true", "--lease", "1s"]));
    eventually("it is done", || place.counts("quiet") == [0, 0, 1, 0]);
    // Nor does it wait to tell of the end of a job.
    place.dispatch(&[r#"{"handler":"quiet"}"#]);
    eventually("the next is done", || place.counts("quiet") == [0, 0, 2, 0]);
    assert_eq!((place.counts("loud"), place.lines("quiet").len()), ([0, 1, 0, 0], 2));
    other.stop();
    slow.signal("TERM");
    let (code, err) = slow.end();
    assert_eq!((code, place.counts("loud")), (Some(0), [0, 0, 1, 0]));
    assert!(err.len() > 20_000_000);
}
