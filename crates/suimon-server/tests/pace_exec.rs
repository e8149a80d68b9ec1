//! `suimon pace --exec` from outside: a command for each line.

#![cfg(unix)]

mod common;

use common::{pace, paced, rest, signal};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::time::{Duration, Instant};

fn lines(out: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(out).lines().map(str::to_string).collect()
}

/// A script of the shell that gets the line as `$1`.
fn script(text: &str) -> String {
    assert!(!text.contains('\''));
    format!("sh -c '{text}' sh {{}}")
}

#[test]
fn a_command_that_fails_is_counted_and_named() {
    let (code, out, err) = paced(&["unlimited", "--exec", &script("echo ran $1; exit $1")], b"0\n3\n0\n");
    assert_eq!((code, lines(&out)), (1, vec!["ran 0".into(), "ran 3".into(), "ran 0".into()]));
    assert!(err.contains("line 2, `3`: exit status: 3"), "{err}");
    assert!(err.contains("2 of 3 lines gone, 1 failed, 0 left out"), "{err}");
    let (code, _, err) = paced(&["unlimited", "--exec", &script("kill -9 $$")], b"x\n");
    assert!(code == 1 && err.contains("signal: 9"), "{err}");
    assert_eq!(paced(&["unlimited", "--exec", "true"], b"a\nb\n"), (0, Vec::new(), String::new()));
}

#[test]
fn a_command_that_cannot_be_run_ends_it() {
    let (code, _, err) = paced(&["unlimited", "--exec", "no-such-program-here {}"], b"a\nb\n");
    assert_eq!((code, err.matches("error: ").count()), (1, 1), "{err}");
    assert!(err.contains("`no-such-program-here` cannot be run: No such file"), "{err}");
    // If the line names it, the next line may be better.
    let (code, out, err) = paced(&["unlimited", "--exec", "{} x"], b"no-such-program-here\necho\n");
    assert_eq!((code, &out[..]), (1, &b"x\n"[..]));
    assert!(err.contains("line 1, `no-such-program-here`: `{}` cannot be run"), "{err}");
    let (code, out, err) = paced(&["unlimited", "--exec", "echo {}"], b"a\0b\nc\n");
    assert_eq!((code, &out[..]), (1, &b"c\n"[..]));
    assert!(err.contains("line 1, `a\\u{0}b`"), "{err}");
}

#[test]
fn the_line_is_an_argument_or_the_input() {
    let input = b"a b\n\xff\xfe$HOME `id` '\"\n\nlast";
    let (code, out, _) = paced(&["unlimited", "--exec", "printf '[%s]'  {}"], input);
    assert_eq!((code, &out[..]), (0, &b"[a b][\xff\xfe$HOME `id` '\"][][last]"[..]));
    assert_eq!(paced(&["unlimited", "--exec", "cat"], input), (0, input.to_vec(), String::new()));
    assert_eq!(paced(&["unlimited", "-0", "--exec", "cat"], b"a\nb\0c"), (0, b"a\nb\0c".to_vec(), String::new()));
    // What a command does not read is no failure.
    let long = [vec![b'x'; 1 << 20], b"\n".to_vec()].concat();
    assert_eq!(paced(&["unlimited", "--exec", "true"], &long), (0, Vec::new(), String::new()));
    assert_eq!(paced(&["unlimited", "--exec", "cat"], &long), (0, long, String::new()));
}

#[test]
fn commands_start_at_the_rate_in_order() {
    let begun = Instant::now();
    let input: String = (1..=16).map(|number| format!("{number}\n")).collect();
    let (code, out, err) = paced(&["pace 50/s", "--jobs", "8", "--exec", &script("echo $$ $1")], input.as_bytes());
    assert_eq!((code, err), (0, String::new()));
    assert!(begun.elapsed() >= Duration::from_millis(300));
    // The system numbers processes as they start.
    let pairs = lines(&out);
    let mut pairs: Vec<(u64, u64)> = pairs
        .iter()
        .map(|line| line.split_once(' ').map(|(id, line)| (id.parse().unwrap(), line.parse().unwrap())).unwrap())
        .collect();
    pairs.sort_by_key(|(_, line)| *line);
    assert_eq!(pairs.len(), 16);
    assert!(pairs.is_sorted_by_key(|(id, _)| *id), "{pairs:?}");
}

#[test]
fn so_many_run_at_a_time_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    // All four have to be there before any of them ends.
    let meet = format!("touch {path}/$1; while [ $(ls {path} | wc -l) -lt 4 ]; do sleep 0.01; done");
    let meet = format!("timeout 30 {}", script(&meet));
    assert_eq!(paced(&["unlimited", "-j4", "--exec", &meet], b"1\n2\n3\n4\n").0, 0);

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let slot = format!(
        "cd {path}; if mkdir a 2>/dev/null; then s=a; elif mkdir b; then s=b; else exit 9; fi; sleep 0.01; rmdir $s"
    );
    let input = "x\n".repeat(30);
    assert_eq!(
        paced(&["unlimited", "-j2", "--exec", &script(&slot)], input.as_bytes()),
        (0, Vec::new(), String::new())
    );
}

#[test]
fn the_lines_of_commands_do_not_mix() {
    let text = "for i in 1 2 3 4 5; do printf $1; printf $1; printf \"$1\\n\"; done";
    let input: String =
        (0..20).map(|number| format!("{}\n", char::from(b'a' + number).to_string().repeat(500))).collect();
    let (code, out, _) = paced(&["unlimited", "-j6", "--exec", &script(text)], input.as_bytes());
    let lines = lines(&out);
    assert_eq!((code, lines.len()), (0, 100));
    assert!(lines.iter().all(|line| line.len() == 1500 && line.bytes().all(|byte| byte == line.as_bytes()[0])));
}

/// A script that counts its runs in a file, and then does what it is told.
fn counting(path: &Path, then: &str) -> String {
    script(&format!("echo x >> {0}; runs=$(wc -l < {0}); {then}", path.display()))
}

fn runs(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

#[test]
fn a_command_is_run_again_as_often_as_was_said() {
    let dir = tempfile::tempdir().unwrap();
    let (third, never) = (dir.path().join("third"), dir.path().join("never"));
    let args = |retries: &'static str, exec: &str| {
        ["unlimited", "--retries", retries, "--retry-delay", "20ms", "--exec", exec].map(str::to_string)
    };
    let run = |args: &[String]| paced(&args.iter().map(String::as_str).collect::<Vec<_>>(), b"x\n");
    let begun = Instant::now();
    assert_eq!(run(&args("2", &counting(&third, "[ $runs -ge 3 ]"))), (0, Vec::new(), String::new()));
    assert!(begun.elapsed() >= Duration::from_millis(60), "20 ms, then 40 ms");
    let (code, _, err) = run(&args("2", &counting(&never, "exit 4")));
    assert_eq!((code, runs(&third), runs(&never)), (1, 3, 3));
    assert!(err.contains("line 1, `x`: exit status: 4, 3 times"), "{err}");
}

#[test]
fn a_command_that_is_limited_pauses_all_and_uses_no_attempt() {
    for stream in ["1", "2"] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("runs");
        let then = format!("[ $runs -gt 2 ] || {{ echo Retry-After: 0.2 >&{stream}; exit 75; }}; echo done");
        let begun = Instant::now();
        let (code, out, err) = paced(&["unlimited", "--exec", &counting(&file, &then)], b"x\n");
        assert_eq!((code, runs(&file)), (0, 3), "{err}");
        assert!(begun.elapsed() >= Duration::from_millis(400));
        assert_eq!(lines(&out).last().unwrap(), "done");
        assert_eq!(err.matches("line 1: limited, all pause for 200ms").count(), 2, "{err}");
    }
    // The other line would go after 0.4 s, and has to wait for the pause of the first.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display();
    let text = format!(
        "date +%s.%N; [ $1 = b ] || [ -e {path}/a ] || {{ touch {path}/a; echo retry-after: 1.2 >&2; exit 75; }}"
    );
    let (code, out, _) = paced(&["pace 10/4s", "-j2", "-q", "--exec", &script(&text)], b"a\nb\n");
    let times: Vec<f64> = lines(&out).iter().map(|line| line.parse().unwrap()).collect();
    assert_eq!((code, times.len()), (0, 3));
    assert!(times[1] - times[0] >= 1.2, "{times:?}");
}

#[test]
fn a_command_that_is_always_limited_fails_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("runs");
    let (code, _, err) =
        paced(&["unlimited", "-q", "--exec", &counting(&file, "echo retry-after: 0; exit 75")], b"x\n");
    assert_eq!((code, runs(&file)), (1, 101));
    assert!(err.contains("told to come later 101 times"), "{err}");
}

#[test]
fn without_a_time_to_come_again_there_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("runs");
    let begun = Instant::now();
    let (code, _, err) = paced(&["unlimited", "--exec", &counting(&file, "[ $runs -gt 1 ] || exit 75")], b"x\n");
    assert_eq!((code, runs(&file)), (0, 2));
    assert!(begun.elapsed() >= Duration::from_secs(1) && err.contains("all pause for 1s"), "{err}");
}

#[test]
fn a_signal_lets_commands_end_and_a_second_kills_them() {
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let text = format!("echo started; read line < {}; echo ended", gate.display());
    let mut child = pace(&["unlimited", "--exec", &script(&text)]).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a\nb\nc\n").unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    signal(&child, "INT");
    std::fs::write(&gate, "go\n").unwrap();
    assert_eq!((line, rest(Some(stdout))), ("started\n".to_string(), "ended\n".to_string()));
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(rest(child.stderr.take()), "stopped: 1 line gone; the next is line 2\n");

    // What the command has started is killed too.
    let mut child = pace(&["unlimited", "--exec", &script("sleep 1000 & echo $!; wait")]).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a\nb\n").unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut sleeper = String::new();
    stdout.read_line(&mut sleeper).unwrap();
    let begun = Instant::now();
    // Signals that come at the same time are one: the next is sent until it has ended.
    while child.try_wait().unwrap().is_none() {
        signal(&child, "TERM");
        std::thread::yield_now();
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(rest(Some(stdout)), "", "its output is closed, so it is gone");
    let err = rest(child.stderr.take());
    assert!(err.contains("line 1, `a`: signal: 9"), "{err}");
    assert!(err.contains("stopped: 0 lines gone, 1 failed; the next is line 2"), "{err}");
}

#[test]
fn a_line_that_waits_to_be_run_again_is_not_lost_silently() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("runs");
    let exec = counting(&file, "echo ran; exit 7");
    let mut child = pace(&["unlimited", "-r5", "--retry-delay", "1h", "--exec", &exec]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a\n").unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let err = rest(child.stderr.take());
    assert!(err.contains("line 1, `a`: exit status: 7, and the run ended before it could be run again"), "{err}");
    assert_eq!(runs(&file), 1);
}

#[test]
fn a_reader_that_stops_ends_it_quietly() {
    let mut child = pace(&["unlimited", "-j2", "--exec", "echo {}"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || while stdin.write_all(b"line\n").is_ok() {});
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    drop(stdout);
    assert_eq!((child.wait().unwrap().code(), rest(child.stderr.take())), (Some(0), String::new()));
    writer.join().unwrap();
}
