//! `suimon pace --shared` from outside: several processes, one limit.

#![cfg(unix)]

mod common;

use common::{pace, paced, rest, signal};
use std::io::{BufRead, BufReader, Write};
use std::process::Child;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

const LINES: usize = 40;

fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// A process whose commands print when they run; its times come in as they are printed.
fn start(policy: &str, file: &str, lines: usize) -> (Child, mpsc::Receiver<f64>) {
    let args = [policy, "--shared", file, "--exec", "date +%s.%N", "--jobs", "4"];
    let mut child = pace(&args).spawn().unwrap();
    child.stdin.take().unwrap().write_all("x\n".repeat(lines).as_bytes()).unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, times) = mpsc::channel();
    std::thread::spawn(move || {
        for line in stdout.lines() {
            sender.send(line.unwrap().parse().unwrap()).unwrap();
        }
    });
    (child, times)
}

/// From the beginning on never more than the burst and what the rate brings.
fn check(mut times: Vec<f64>, begun: f64, burst: f64, rate: f64) {
    times.sort_by(f64::total_cmp);
    for (n, time) in (1_u32..).zip(&times) {
        assert!(f64::from(n) <= burst + rate * (time - begun), "{n} at {} s: {times:?}", time - begun);
    }
}

#[test]
fn three_processes_hold_one_rate_and_one_of_them_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("limit");
    let file = file.to_str().unwrap();
    let (policy, burst, rate) = ("bucket 50/s burst 5", 5.0, 50.0);
    let (begun, clock) = (now(), Instant::now());
    let mut processes = [0; 3].map(|_| start(policy, file, LINES));
    let mut times = Vec::new();
    // In the middle: it waits for a turn nearly all the time.
    times.extend(processes[0].1.iter().take(LINES / 4));
    signal(&processes[0].0, "KILL");
    processes[0].0.wait().unwrap();
    let killed = times.len() + processes[0].1.iter().map(|time| times.push(time)).count();
    for (child, received) in &mut processes[1..] {
        let before = times.len();
        times.extend(received.iter());
        assert_eq!((child.wait().unwrap().code(), rest(child.stderr.take())), (Some(0), String::new()));
        assert_eq!(times.len() - before, LINES);
    }
    assert!(killed < LINES, "it was killed before its end");
    check(times.clone(), begun, burst, rate);
    // Somebody who comes later goes on with the same limit.
    let (mut child, received) = start(policy, file, 10);
    times.extend(received.iter());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(times.len(), killed + 2 * LINES + 10);
    check(times, begun, burst, rate);
    // Nobody waits for the one that was killed: all this takes two seconds.
    assert!(clock.elapsed() < Duration::from_secs(20));
}

#[test]
fn turns_go_to_who_came_first() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("limit");
    let args = ["pace 4/s and bucket 100/h", "--shared", file.to_str().unwrap()];
    assert_eq!(paced(&args, b"a\n"), (0, b"a\n".to_vec(), String::new()));
    // It goes at once if it comes late enough, and else has to wait, although the one before has ended.
    let begun = Instant::now();
    assert_eq!(paced(&args, b"b\nc\nd\n"), (0, b"b\nc\nd\n".to_vec(), String::new()));
    assert!(begun.elapsed() >= Duration::from_millis(500));
}

#[test]
fn a_process_that_waits_in_a_shared_limit_can_be_ended() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("limit");
    let mut child = pace(&["pace 1/h", "--shared", file.to_str().unwrap()]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a\nb\n").unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(rest(child.stderr.take()), "stopped: 1 line gone; the next is line 2\n");
}

#[test]
fn a_pause_reaches_the_other_process() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("limit");
    let file = file.to_str().unwrap();
    let flag = dir.path().join("flag");
    let text = format!("[ -e {0} ] || {{ touch {0}; echo retry-after: 1 >&2; exit 75; }}", flag.display());
    let exec = format!("sh -c '{text}'");
    let begun = Instant::now();
    let (code, _, err) = paced(&["pace 1000/s", "--shared", file, "--exec", &exec], b"x\n");
    assert_eq!(code, 0, "{err}");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    // Paused by a process that has been killed right after.
    let mut child =
        pace(&["pace 1000/s", "--shared", file, "--exec", "sh -c 'echo retry-after: 2; exit 75'"]).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"x\n").unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut note = String::new();
    stderr.read_line(&mut note).unwrap();
    assert_eq!(note, "line 1: limited, all pause for 2s\n");
    // The note comes before the pause is written, its line waits behind it.
    let written = || std::fs::read_to_string(file).unwrap();
    let shifted = |text: &str| text.lines().find(|line| line.starts_with("shifted")).map(str::to_string);
    let begun = Instant::now();
    let first = shifted(&written());
    while shifted(&written()) == first && begun.elapsed() < Duration::from_millis(500) {
        std::thread::yield_now();
    }
    signal(&child, "KILL");
    child.wait().unwrap();
    assert_eq!(paced(&["pace 1000/s", "--shared", file], b"x\n").0, 0);
    assert!(begun.elapsed() >= Duration::from_millis(1500), "{:?}", begun.elapsed());
}

#[test]
fn a_file_that_is_none_of_these_stays_and_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("limit");
    let file = path.to_str().unwrap();
    assert_eq!(paced(&["pace 10/s", "--shared", file], b"x\n").0, 0);
    let good = std::fs::read(&path).unwrap();
    let (code, out, err) = paced(&["pace 20/s", "--shared", file], b"x\n");
    assert_eq!((code, out), (1, Vec::new()));
    assert!(err.contains("holds the limit `pace 10/s`, and `pace 20/s` is asked for"), "{err}");
    for (bytes, says) in [(&b"notes\n"[..], "not a file of"), (&good[..50], "damaged or half written")] {
        std::fs::write(&path, bytes).unwrap();
        let (code, out, err) = paced(&["pace 10/s", "--shared", file], b"x\n");
        assert_eq!((code, out), (1, Vec::new()));
        assert!(err.contains(file) && err.contains(says), "{err}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
    let (code, _, err) = paced(&["pace 10/s", "--shared", "/nowhere/limit"], b"x\n");
    assert!(code == 1 && err.contains("/nowhere/limit: No such file"), "{err}");
    let (code, _, err) = paced(&["pace 10/s and fixed 9/day", "--shared", file], b"x\n");
    assert!(code == 2 && err.contains("`fixed 9/day` cannot be shared"), "{err}");
}
