//! Workers: what commands get and say, limits over processes, retries.

use std::time::{Duration, Instant};

use suimon_jobs::JobState;

use crate::support::{Place, eventually, script};

#[test]
fn a_command_gets_its_job_and_its_output_is_passed_on() {
    let place = Place::new();
    place.dispatch(&[r#"{"handler":"a","payload":{"n":12345678901234567890123},"key":"k 1"}"#, r#"{"handler":"a"}"#]);
    let text = "read line; echo \"$SUIMON_JOB_ID|$SUIMON_JOB_HANDLER|$SUIMON_JOB_KEY|$SUIMON_JOB_ATTEMPT|$line\"; echo told >&2";
    let ran = place.jobs(&["work", "--drain", "--slots", "1", "--exec", &script("a", text)]);
    assert_eq!((ran.code, &*ran.out), (0, ""));
    let lines: Vec<_> = ran.err.lines().collect();
    for line in [
        "1|a|k 1|1|{\"n\":12345678901234567890123}",
        "2|a||1|null",
        "told",
        "job 1 a: done",
        "job 2 a: done",
        "2 jobs: 2 done, 0 failed, 0 limited",
    ] {
        assert!(lines.contains(&line), "{line} is not in\n{}", ran.err);
    }
    assert_eq!(lines.len(), 7);
    place.dispatch(&[r#"{"handler":"a"}"#]);
    let ran = place.jobs(&["work", "--once", "-q", "--exec", "a=true"]);
    assert_eq!((ran.code, &*ran.err), (0, ""));
    place.dispatch(&[r#"{"handler":"a"}"#]);
    let ran = place.jobs(&["work", "--once", "-v", "--exec", "a=true"]);
    assert!(ran.err.starts_with("job 4 a: started, attempt 1\njob 4 a: done\n"), "{}", ran.err);
    // Large payloads that nobody reads, and output without end of line.
    let large = format!("{{\"handler\":\"a\",\"payload\":\"{}\"}}", "x".repeat(1 << 20));
    place.dispatch(&[&large, &large]);
    let ran = place.jobs(&["work", "--drain", "-q", "--slots", "1", "--exec", "a=printf x"]);
    assert_eq!((ran.code, &*ran.err), (0, "x\nx\n"));
    place.dispatch(&[&large]);
    let ran = place.jobs(&["work", "--drain", "-q", "--exec", "a=cat"]);
    assert_eq!(ran.err.len(), (1 << 20) + 3);
}

/// At most so many starts in any period of so many microseconds.
fn assert_window(mut starts: Vec<i64>, most: usize, period: i64) {
    starts.sort_unstable();
    for pair in starts.windows(most + 1) {
        assert!(pair[most] - pair[0] >= period, "{} starts within {} us", most + 1, pair[most] - pair[0]);
    }
}

#[test]
fn a_limit_holds_over_workers() {
    let place = Place::new();
    let log = place.path("log");
    // The first command of each worker waits until the other has one, too.
    let text = format!(
        "cd {}; touch of.$PPID; while [ $(ls of.* | wc -l) -lt 2 ]; do sleep 0.01; done; \
         echo $SUIMON_JOB_ID $(date +%s%N) $PPID >> {}",
        place.folder().display(),
        log.display()
    );
    let exec = script("call", &text);
    let workers = [(); 2].map(|()| place.worker(&["--exec", &exec, "--slots", "1"]));
    let lines = [r#"{"handler":"call","limit":"window 5/2s"}"#; 15];
    let begun = Instant::now();
    place.dispatch(&lines);
    eventually("all jobs", || place.counts("call")[2] == 15);
    assert!(begun.elapsed() >= Duration::from_secs(4), "three windows: {:?}", begun.elapsed());
    for worker in workers {
        worker.stop();
    }
    let ran: Vec<Vec<i64>> =
        place.lines("log").iter().map(|line| line.split(' ').map(|n| n.parse().unwrap()).collect()).collect();
    let mut ids: Vec<_> = ran.iter().map(|line| line[0]).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=15).collect::<Vec<_>>());
    let starts = started(&place);
    assert_window(starts.iter().map(|(_, at)| *at).collect(), 5, 2_000_000);
    // A command begins after its job has been claimed, however busy the machine.
    for line in &ran {
        let (_, at) = starts.iter().find(|(id, _)| *id == line[0]).unwrap();
        assert!(line[1] / 1000 >= *at - 1, "{line:?} {at}");
    }
    let mut workers: Vec<_> = ran.iter().map(|line| line[2]).collect();
    workers.sort_unstable();
    workers.dedup();
    assert_eq!(workers.len(), 2);
}

/// When jobs were claimed, in microseconds.
fn started(place: &Place) -> Vec<(i64, i64)> {
    let code = "import sqlite3, sys\nfor row in sqlite3.connect(sys.argv[1]).execute('SELECT id, started_at FROM suimon_jobs'): print(*row)";
    let mut python = std::process::Command::new("python3");
    let output = python.args(["-c", code]).arg(place.path("q.db")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let row = |line: &str| line.split_once(' ').map(|(id, at)| (id.parse().unwrap(), at.parse().unwrap())).unwrap();
    text.lines().map(row).collect()
}

#[test]
fn a_command_that_met_a_limit_pauses_its_handler_and_uses_no_attempt() {
    let place = Place::new();
    place.dispatch(&[r#"{"handler":"a"}"#, r#"{"handler":"a"}"#, r#"{"handler":"b"}"#]);
    let a = script("a", "echo {\\\"retry_after\\\": 500.5}; exit 75");
    let ran = place.jobs(&["work", "--drain", "--slots", "1", "--attempts", "a=1", "--exec", &a, "--exec", "b=true"]);
    // That is no failure.
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("job 1 a: limited: retry after 500.5s"), "{}", ran.err);
    assert!(ran.err.contains("2 jobs: 1 done, 0 failed, 1 limited"), "{}", ran.err);
    let job = place.job(1);
    assert_eq!((job.state, job.attempts, job.deferrals), (JobState::Pending, 0, 1));
    assert_eq!((place.counts("a"), place.counts("b")), ([2, 0, 0, 0], [0, 0, 1, 0]));
    let paused = place.status("a")["paused_for"].as_f64().unwrap();
    assert!(paused > 300.0 && paused <= 500.5, "{paused}");

    // A key pauses alone; said by an exit code of 0; without a time it is a minute.
    let place = Place::new();
    place.dispatch(&[r#"{"handler":"a","key":"k"}"#, r#"{"handler":"a","key":"k"}"#, r#"{"handler":"a"}"#]);
    let a = script("a", "[ -z \"$SUIMON_JOB_KEY\" ] || echo {\\\"limited\\\": true}");
    let ran = place.jobs(&["work", "--drain", "--slots", "1", "--exec", &a]);
    assert!(ran.code == 0 && ran.err.contains("limited: retry after 60s"), "{}", ran.err);
    assert_eq!((place.counts("a"), place.status("a")["paused"].as_bool()), ([2, 0, 1, 0], Some(false)));
}

#[test]
fn a_command_that_fails_is_tried_again_as_often_as_was_said() {
    let place = Place::new();
    place.dispatch(&[r#"{"handler":"a"}"#, r#"{"handler":"b","attempts":2}"#, r#"{"handler":"c"}"#]);
    let a = script("a", "[ $SUIMON_JOB_ATTEMPT = 3 ] || { echo not yet >&2; exit 4; }");
    let b = script("b", "for n in 1 2 3 4 5 6; do echo line $n >&2; done; kill -9 $$");
    let c = script("c", "exit 65");
    let worker = place.worker(&[
        "--exec",
        &a,
        "--exec",
        &b,
        "--exec",
        &c,
        "--attempts",
        "a=3",
        "--backoff",
        "a=fixed:50ms",
        "--backoff",
        "b=linear:20ms",
    ]);
    eventually("all are over", || place.counts("a")[2] == 1 && place.counts("b")[3] == 1 && place.counts("c")[3] == 1);
    let err = worker.stop();
    assert_eq!(err.matches("job 1 a: to be tried again: exit status: 4: not yet\n").count(), 2, "{err}");
    assert!(err.contains("job 1 a: done"), "{err}");
    assert_eq!(place.job(1).attempts, 3);
    let b = place.job(2);
    assert_eq!(
        (b.attempts, b.error.as_deref()),
        (2, Some("signal: 9 (SIGKILL): line 2\nline 3\nline 4\nline 5\nline 6"))
    );
    // For good, at the first attempt.
    let c = place.job(3);
    assert_eq!((c.attempts, c.error.as_deref()), (1, Some("exit status: 65")));
}

#[test]
fn a_command_says_what_it_really_cost() {
    let place = Place::new();
    place.dispatch(&[r#"{"handler":"a"}"#; 3]);
    let a = script("a", "echo {\\\"cost\\\": 9.5}");
    place.done(&["work", "--drain", "--slots", "1", "--exec", &a, "--limit", "a=window 10/600s"]);
    assert_eq!(place.counts("a"), [2, 0, 1, 0]);
}

#[test]
fn jobs_that_nobody_serves_wait_or_fail() {
    let place = Place::new();
    place.dispatch(&[r#"{"handler":"a"}"#, r#"{"handler":"b"}"#]);
    place.done(&["work", "--drain", "--exec", "a=true"]);
    assert_eq!(place.counts("b"), [1, 0, 0, 0]);
    place.done(&["work", "--drain", "--exec", "a=true", "--fail-unknown"]);
    assert_eq!(place.counts("b"), [0, 0, 0, 1]);
    assert!(place.job(2).error.unwrap().contains("no handler"));
}

#[test]
fn limits_may_count_what_completed() {
    let place = Place::new();
    place.dispatch(
        &[1, 1, 0, 0].map(|fails| format!("{{\"handler\":\"a\",\"payload\":{fails}}}")).each_ref().map(|line| &**line),
    );
    let a = script("a", "read fails; [ $fails = 0 ] || exit 65");
    let limit = ["--limit", "a=window 1/600s", "--count", "a=completed"];
    let ran = place.jobs(&[&["work", "--drain", "--slots", "1", "--exec", &a], &limit[..]].concat());
    assert_eq!((ran.code, place.counts("a")), (1, [1, 0, 1, 2]), "{}", ran.err);
}

#[test]
fn keys_have_a_limit_of_their_own() {
    let place = Place::new();
    place.dispatch(&[r#"{"handler":"a","key":"x"}"#, r#"{"handler":"a","key":"x"}"#, r#"{"handler":"a","key":"y"}"#]);
    place.done(&["work", "--drain", "--exec", "a=true", "--key-limit", "a=window 1/600s"]);
    assert_eq!(place.counts("a"), [1, 0, 2, 0]);
    assert_eq!(place.status("a")["key_limit"], "window 1/10min");
}

#[test]
fn so_many_run_at_a_time_over_workers_and_no_more() {
    let place = Place::new();
    let slot = place.path("slot");
    let text = format!("mkdir {0} || exit 65; sleep 0.05; rmdir {0}", slot.display());
    let exec = script("a", &text);
    let workers = [(); 2].map(|()| place.worker(&["--exec", &exec, "--concurrency", "a=1"]));
    place.dispatch(&[r#"{"handler":"a"}"#; 10]);
    eventually("all are over", || place.counts("a")[..2] == [0, 0]);
    assert_eq!(place.counts("a"), [0, 0, 10, 0]);
    for worker in workers {
        worker.stop();
    }
}
