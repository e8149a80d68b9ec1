//! Looking at a queue and changing it.

use crate::support::{Place, script};

/// A queue in which three jobs of `a` are done and two of `b` have failed.
fn place() -> Place {
    let place = Place::new();
    let [a, b] = [r#"{"handler":"a"}"#, r#"{"handler":"b","attempts":1}"#];
    place.dispatch(&[a, a, a, b, b]);
    let ran = place.jobs(&["work", "--drain", "--exec", "a=true", "--exec", &script("b", "echo broken >&2; exit 3")]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    place
}

#[test]
fn status_tells_people_and_programs() {
    let place = place();
    place.done(&["limit", "a", "window 4/600s"]);
    place.done(&["limit", "a", "pace 1/s", "--each-key"]);
    place.done(&["pause", "b"]);
    let status = place.status("a");
    assert_eq!(place.counts("a"), [0, 0, 3, 0]);
    assert_eq!((&status["limit"], &status["key_limit"]), (&"window 4/10min".into(), &"pace 1/s".into()));
    assert_eq!(
        (&status["limited"], &status["limited_until"], &status["available_in"]),
        (&false.into(), &().into(), &0.0.into())
    );
    assert_eq!((&status["paused"], &status["count"]), (&false.into(), &"started".into()));
    assert!(status["served_ago"].as_f64().unwrap() < 600.0);

    // The runs of before count.
    place.done(&["limit", "a", "window 3/600s"]);
    let status = place.status("a");
    assert_eq!(status["limited"], true);
    let left = status["available_in"].as_f64().unwrap();
    assert!(left > 0.0 && left <= 600.0, "{left}");
    let until = status["limited_until"].as_str().unwrap();
    assert!(until.starts_with("20") && until.ends_with('Z') && until.contains('T'), "{until}");

    let status = place.status("b");
    assert_eq!(place.counts("b"), [0, 0, 0, 2]);
    assert_eq!((&status["limited"], &status["paused"]), (&true.into(), &true.into()));
    assert_eq!(
        (&status["limited_until"], &status["available_in"], &status["paused_for"]),
        (&().into(), &().into(), &().into())
    );

    let table = place.done(&["status"]);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("handler  pending  running  done  failed  limit"), "{table}");
    assert!(lines[1].contains("window 3/10min, pace 1/s each key") && lines[1].contains("for 9 min"), "{table}");
    assert!(lines[2].contains("until that changes") && lines[2].contains("until resumed"), "{table}");
    assert_eq!(lines.len(), 3);
}

#[test]
fn limits_are_set_and_taken_away() {
    let place = Place::new();
    let job = r#"{"handler":"a"}"#;
    place.dispatch(&[job, job, job, r#"{"handler":"a","key":"big"}"#, r#"{"handler":"a","key":"big"}"#]);
    place.done(&["limit", "a", "block"]);
    let drain = || {
        // What a worker brings along gives way.
        let ran = place.jobs(&["work", "--drain", "--exec", "a=true", "--limit", "a=window 3/600s"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        place.counts("a")[2]
    };
    assert_eq!(drain(), 0);
    place.done(&["limit", "a", "--clear"]);
    assert_eq!(place.status("a")["limit"], serde_json::Value::Null);
    place.done(&["limit", "a", "--key", "big", "block"]);
    assert_eq!(drain(), 3);
    place.done(&["limit", "a", "unlimited", "--count", "completed"]);
    assert_eq!((drain(), place.status("a")["count"].as_str()), (3, Some("completed")));
    place.done(&["limit", "a", "--key", "big", "--clear"]);
    assert_eq!(drain(), 5);
}

#[test]
fn of_several_workers_the_last_that_starts_says_the_limit() {
    let place = Place::new();
    let start = |limit: &[&str]| {
        place.done(&[&["work", "--drain", "--exec", "a=true"], limit].concat());
        place.status("a")["limit"].clone()
    };
    assert_eq!(start(&["--limit", "a=pace 1/s"]), "pace 1/s");
    assert_eq!(start(&["--limit", "a=pace 2/s"]), "pace 2/s");
    assert_eq!(start(&[]), serde_json::Value::Null);
    place.done(&["limit", "a", "pace 3/s"]);
    assert_eq!(start(&["--limit", "a=pace 1/s"]), "pace 3/s");
    assert_eq!(start(&[]), "pace 3/s");
}

#[test]
fn pauses_hold_and_end() {
    let place = Place::new();
    place.dispatch(&[r#"{"handler":"a"}"#, r#"{"handler":"a","key":"k"}"#, r#"{"handler":"b"}"#]);
    let drain = || {
        let ran = place.jobs(&["work", "--drain", "--exec", "a=true", "--exec", "b=true"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        (place.counts("a")[2], place.counts("b")[2])
    };
    place.done(&["pause", "a", "--for", "1h"]);
    assert_eq!(drain(), (0, 1));
    assert!(place.status("a")["paused_for"].as_f64().unwrap() > 3000.0);
    place.done(&["resume", "a"]);
    place.done(&["pause", "a", "--key", "k"]);
    assert_eq!(drain(), (1, 1));
    place.done(&["resume", "a", "--key", "k"]);
    assert_eq!(drain(), (2, 1));
}

#[test]
fn failed_jobs_are_tried_again() {
    let place = place();
    let ran = place.jobs(&["retry", "4", "1", "99"]);
    assert_eq!((ran.code, &*ran.out), (1, "1 job to be tried again\n"));
    assert!(ran.err.contains("job 1: it has not failed: it is done"), "{}", ran.err);
    assert!(ran.err.contains("job 99: there is no such job"), "{}", ran.err);
    assert_eq!(place.counts("b"), [1, 0, 0, 1]);
    assert_eq!(place.done(&["retry", "--handler", "b"]), "1 job to be tried again\n");
    assert_eq!(place.done(&["retry", "--handler", "b"]), "0 jobs to be tried again\n");
    place.done(&["work", "--drain", "--exec", "b=true"]);
    assert_eq!(place.counts("b"), [0, 0, 2, 0]);
}

#[test]
fn ended_jobs_are_removed() {
    let place = place();
    assert_eq!(place.done(&["purge", "--older-than", "7d"]), "0 jobs removed\n");
    assert_eq!(place.done(&["purge"]), "3 jobs removed\n");
    assert_eq!((place.counts("a"), place.counts("b")), ([0, 0, 0, 0], [0, 0, 0, 2]));
    assert_eq!(place.done(&["purge", "--failed", "--older-than", "1h"]), "0 jobs removed\n");
    assert_eq!(place.done(&["purge", "--failed"]), "2 jobs removed\n");
    assert_eq!(place.counts("b"), [0, 0, 0, 0]);
}
