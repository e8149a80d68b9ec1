//! `suimon pace` from outside: lines in, lines out.

#![cfg(unix)]

mod common;

use common::{pace, paced, rest, signal};
use proptest::prelude::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

fn numbers(count: usize) -> Vec<u8> {
    (1..=count).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

#[test]
fn lines_go_at_the_rate_and_the_first_at_once() {
    let begun = Instant::now();
    let mut child = pace(&["pace 100/s"]).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&numbers(20)).unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let times: Vec<Duration> = lines.map(|line| line.map(|_| begun.elapsed()).unwrap()).collect();
    assert_eq!((child.wait().unwrap().code(), rest(child.stderr.take())), (Some(0), String::new()));
    assert_eq!(times.len(), 20);
    assert!(times[19] >= Duration::from_millis(190) && times[19] < Duration::from_secs(2), "{times:?}");
    // Whatever the machine does, the n-th line never comes before its time.
    for (n, time) in (0..).zip(&times) {
        assert!(*time >= Duration::from_millis(10 * n), "{times:?}");
    }
    // At an hour's distance the first line still goes at once.
    let mut child = pace(&["pace 1/h"]).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(&numbers(2)).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "1\n");
    signal(&child, "KILL");
    child.wait().unwrap();
}

#[test]
fn a_line_comes_out_while_the_next_is_not_written_yet() {
    let mut child = pace(&["unlimited"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for line in ["one\n", "\n", "a longer one\n"] {
        stdin.write_all(line.as_bytes()).unwrap();
        let mut back = String::new();
        stdout.read_line(&mut back).unwrap();
        assert_eq!(back, line);
    }
    // A piece without an end is no line yet; at the end of the input it is one.
    stdin.write_all(b"rest").unwrap();
    drop(stdin);
    assert_eq!(rest(Some(stdout)), "rest");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn bytes_come_out_as_they_went_in(
        bytes in prop::collection::vec(prop_oneof![2 => Just(b'\n'), 2 => Just(0), 9 => any::<u8>()], 0..3000),
        null in any::<bool>(),
    ) {
        let args: &[&str] = if null { &["unlimited", "-0"] } else { &["unlimited"] };
        prop_assert_eq!(paced(args, &bytes), (0, bytes, String::new()));
    }
}

#[test]
fn lines_of_any_length_up_to_the_bound() {
    let long = [vec![b'x'; 10 << 20], b"\nshort\n".to_vec()].concat();
    assert_eq!(paced(&["unlimited"], &long), (0, long.clone(), String::new()));

    let (code, out, err) = paced(&["unlimited", "--max-line", "1KiB"], &[b"first\n", &long[..]].concat());
    assert_eq!((code, &out[..]), (1, &b"first\n"[..]));
    assert!(err.contains("line 2: it is longer than 1024 bytes") && err.contains("--max-line"), "{err}");

    let args = ["unlimited", "--max-line", "1KiB", "--on-error", "skip"];
    let (code, out, err) = paced(&args, &[b"first\n", &long[..], &long[..20 << 10]].concat());
    assert_eq!((code, &out[..]), (1, &b"first\nshort\n"[..]));
    assert!(err.contains("line 2: it is longer") && err.contains("line 4: it is longer"), "{err}");
    assert!(err.contains("2 of 4 lines gone, 0 failed, 2 left out"), "{err}");
}

#[test]
fn a_wrong_command_line_is_code_2() {
    for (args, says) in [
        (&["10/s"][..], "`pace 10/s`"),
        (&["bucket 2/s brust 20"], "burst"),
        (&["fixed 1/day in Europe/Atlantis"], "Europe/Atlantis"),
        (&["block"], "lets nothing pass"),
        (&[], "LIMIT"),
        (&["pace 1/s", "--cost-field", "0"], "--cost-field"),
        (&["pace 1/s", "--delimiter", ","], "--cost-field"),
        (&["pace 1/s", "--cost-field", "1", "--delimiter", "ab"], "one byte"),
        (&["pace 1/s", "--max-line", "0"], "from 1 byte"),
        (&["pace 1/s", "--on-error", "ignore"], "stop"),
        (&["pace 1/s", "--jobs", "2"], "--exec"),
        (&["pace 1/s", "--exec", "true", "--jobs", "0"], "--jobs"),
        (&["pace 1/s", "--exec", "true", "--retry-delay", "1"], "a time has a unit"),
        (&["pace 1/s", "--exec", "echo 'x"], "a quote is not closed"),
        (&["pace 1/s", "--exec", ""], "the command is empty"),
        (&["pace 1/s", "--shared", "/tmp/x", "--dry-run"], "--dry-run"),
        (&["window 2/s", "--shared", "/nowhere/x"], "`pace` and `bucket` can"),
    ] {
        let (code, out, err) = paced(args, b"x\n");
        assert_eq!((code, out), (2, Vec::new()), "{args:?}: {err}");
        assert!(err.contains(says), "{args:?}: {err}");
    }
    let (_, _, err) = paced(&["10/s"], b"");
    let lines: Vec<&str> = err.lines().collect();
    assert!(lines[0].starts_with("error: the limit: "), "{err}");
    assert_eq!(lines[1..], ["  10/s", "  ^"], "{err}");
}

#[test]
fn named_time_zones_are_known() {
    for args in [&["fixed 3/day in Asia/Kolkata"][..], &["fixed 3/week in Europe/Paris and pace 1000/s"]] {
        assert_eq!(paced(args, b"a\nb\n"), (0, b"a\nb\n".to_vec(), String::new()));
    }
}

#[test]
fn costs_are_read_from_a_field() {
    // Behind the first line 20 tokens are to be paid.
    let begun = Instant::now();
    let input = b"a 20\nb 0.5\nc 1\n";
    assert_eq!(paced(&["pace 100/s", "--cost-field", "2"], input), (0, input.to_vec(), String::new()));
    assert!(begun.elapsed() >= Duration::from_millis(205));

    let args = ["pace 100/s", "--cost-field", "2", "--delimiter", "\\t"];
    let input = b"a b\t1\tx\nc\t-1\nd\t1\ne\t101\nf\nlast\t1";
    let (code, out, err) = paced(&args, input);
    assert_eq!((code, &out[..]), (1, &b"a b\t1\tx\n"[..]));
    assert!(err.contains("line 2: field 2, `-1`: invalid cost") && err.contains("stopped before this line"), "{err}");

    let (code, out, err) = paced(&[&args[..], &["--on-error", "skip"]].concat(), input);
    assert_eq!((code, &out[..]), (1, &b"a b\t1\tx\nd\t1\nlast\t1"[..]));
    for says in [
        "line 2: field 2, `-1`: invalid cost",
        "line 4: field 2: a cost of 101 can never pass: the limit lets at most 100",
        "line 5: there is no field 2 with a cost, the line has only 1",
        "3 of 6 lines gone, 0 failed, 3 left out",
    ] {
        assert!(err.contains(says), "{says} is not in {err}");
    }
    let (_, _, err) = paced(&[&args[..], &["--on-error", "skip", "--quiet"]].concat(), input);
    assert!(err.lines().count() == 3 && !err.contains("lines gone"), "{err}");
}

#[test]
fn a_reader_that_stops_is_no_failure() {
    // There is no end of lines; only the closed pipe can end it.
    let mut child = pace(&["unlimited"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || while stdin.write_all(b"line\n").is_ok() {});
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 5]).unwrap();
    drop(stdout);
    assert_eq!((child.wait().unwrap().code(), rest(child.stderr.take())), (Some(0), String::new()));
    writer.join().unwrap();

    let script = format!("yes | {} pace 'pace 100/s' | head -1", env!("CARGO_BIN_EXE_suimon"));
    let out = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!((&out.stdout[..], &out.stderr[..]), (&b"y\n"[..], &b""[..]));
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_written_or_read_is_code_1() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = pace(&["unlimited"]).stdout(full).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"x\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let err = rest(child.stderr.take());
    assert!(err.contains("standard output: No space left") && err.contains("line 1"), "{err}");

    let directory = std::fs::File::open("/").unwrap();
    let out = pace(&["unlimited"]).stdin(directory).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("standard input: Is a directory"));
}

#[test]
fn a_signal_ends_it_in_order() {
    // One waits for its turn, one for more input.
    for (name, code, policy) in [("INT", 130, "pace 1/h"), ("TERM", 143, "pace 1/h"), ("INT", 130, "unlimited")] {
        let mut child = pace(&[policy]).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let lines: &[u8] = if policy == "unlimited" { b"one\n" } else { b"one\ntwo\nthree\n" };
        stdin.write_all(lines).unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert_eq!((line, rest(Some(stdout))), ("one\n".to_string(), String::new()));
        assert_eq!(rest(child.stderr.take()), "stopped: 1 line gone; the next is line 2\n");
    }
    // A reader that reads no more holds it up until the second signal.
    let mut child = pace(&["unlimited"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || while stdin.write_all(&[b'\n'; 4096]).is_ok() {});
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 1]).unwrap();
    while child.try_wait().unwrap().is_none() {
        signal(&child, "INT");
        std::thread::yield_now();
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    writer.join().unwrap();
}

#[test]
fn a_dry_run_prints_all_times_at_once() {
    let begun = Instant::now();
    let (code, out, err) = paced(&["pace 1/h", "--dry-run"], &numbers(25));
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!((code, err), (0, String::new()));
    let out = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = out.lines().map(str::trim).collect();
    assert_eq!((lines[0], lines[24]), ("0 s  line 1  1", "86400 s  line 25  25"));
    assert_eq!(lines[25..], ["25 lines in 86400 s"]);

    let (code, out, _) = paced(&["pace 10/s", "-n", "--exec", "false"], b"a\x1b[31m\nb");
    assert_eq!(code, 0, "nothing is run");
    assert!(!out.contains(&0x1b) && String::from_utf8(out).unwrap().ends_with("2 lines in 0.1 s\n"));
}

#[test]
fn the_help_has_examples_and_exit_codes() {
    let (code, out, _) = paced(&["--help"], b"");
    let out = String::from_utf8(out).unwrap();
    assert_eq!(code, 0);
    for part in ["Examples:", "Exit codes:", "130", "143", "retry-after", "--shared", "100 times", "64MiB"] {
        assert!(out.contains(part), "{part} is not in {out}");
    }
}
