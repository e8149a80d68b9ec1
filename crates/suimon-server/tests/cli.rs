//! The real binary, from outside.

mod common;

use common::{suimon, suimon_with};
use std::io::Write;
use std::path::PathBuf;

const LINE: &str = "10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"x\"\n";

fn file(dir: &tempfile::TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_string()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn sample() -> String {
    suimon(&["sample"]).out
}

/// Replays under `bucket 1/s burst 2`, with `--json`.
fn replay(args: &[&str], input: &[u8]) -> common::Ran {
    suimon_with(&[&["replay", "--policy", "bucket 1/s burst 2", "--json"], args].concat(), input, &[])
}

#[test]
fn without_arguments_it_shows_what_it_does() {
    let ran = suimon(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for part in [
        "4,999 requests, 925 clients",
        "bucket 30/min burst 10",
        "198.18.104.57",
        "bucket 30/min burst 47",
        "line 3,899: the user agent is not closed",
        "suimon replay --policy",
    ] {
        assert!(ran.out.contains(part), "{part} is not in\n{}", ran.out);
    }
    assert!(ran.out.trim_end().lines().rev().take(4).any(|line| line.starts_with("Try next")), "{}", ran.out);
    assert_eq!(ran.err, "");
}

#[test]
fn the_sample_is_the_log_that_was_replayed() {
    let sample = sample();
    assert_eq!(sample.lines().count(), 5000);
    assert!(sample.contains(r"\xe4\xe5\xe3"));
    let ran = suimon_with(
        &["replay", "--policy", "bucket 30/min burst 10", "--key", "client", "--json", "-"],
        sample.as_bytes(),
        &[],
    );
    let report = ran.json();
    assert_eq!((&report["requests"], &report["denied"], &report["unreadable"]), (&4999.into(), &111.into(), &1.into()));
}

#[test]
fn help_has_examples_and_exit_codes() {
    for args in [&["--help"][..], &["replay", "--help"]] {
        let ran = suimon(args);
        assert_eq!(ran.code, 0);
        assert!(ran.out.contains("Examples:") && ran.out.contains("Exit codes:"), "{}", ran.out);
    }
    let ran = suimon(&["--version"]);
    assert_eq!((ran.code, ran.out.trim()), (0, concat!("suimon ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn a_wrong_command_line_is_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let log = file(&dir, "access.log", LINE);
    for (args, says) in [
        (vec!["replay", "--policy", "60/min", &log], "pace 60/min"),
        (vec!["replay", "--policy", "bucket 2/s brust 20", &log], "--policy: "),
        (vec!["replay", "--policy", "bucket 2/s", "--compare", "bukket 2/s", &log], "--compare: "),
        (vec!["replay", "--policy", "fixed 1/day in Europe/Atlantis", &log], "Europe/Atlantis"),
        (vec!["replay", &log], "--policy"),
        (vec!["replay", "--policy", "bucket 2/s"], "LOG"),
        (vec!["replay", "--policy", "bucket 2/s", "--key", "cleint", &log], "Did you mean `client`?"),
        (vec!["replay", "--policy", "bucket 2/s", "--key", "", &log], "empty name"),
        (vec!["replay", "--policy", "bucket 2/s", "--out", "report.pdf", &log], ".html or .svg"),
        (vec!["replay", "--policy", "bucket 2/s", "--reorder", "5", &log], "a time has a unit"),
        (vec!["replay", "--policy", "bucket 2/s", "--fail-over", "101", &log], "0 to 100"),
        (vec!["replay", "--policy", "bucket 2/s", "-", "-"], "only once"),
        (vec!["relpay"], "replay"),
    ] {
        let ran = suimon(&args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(says), "{args:?}: {}", ran.err);
        assert_eq!(ran.out, "", "{args:?}");
    }
}

#[test]
fn a_bad_policy_is_shown_where_it_is_bad() {
    let ran = suimon(&["replay", "--policy", "bucket 2/s brust 20", "-"]);
    assert_eq!(ran.code, 2);
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!(lines[1], "  bucket 2/s brust 20", "{}", ran.err);
    assert_eq!(lines[2], "             ^", "{}", ran.err);
    assert!(lines[0].contains("at byte 11") && lines[0].contains("burst"), "{}", ran.err);
}

#[test]
fn what_cannot_be_read_is_code_1() {
    let dir = tempfile::tempdir().unwrap();
    let garbage = file(&dir, "garbage.log", LINE.replace("May", "Mai"));
    let ran = suimon(&["replay", "--policy", "bucket 2/s", "--format", "combined", &garbage]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(
        ran.err.contains("not one of its 1 lines") && ran.err.contains("line 1: the time is not like"),
        "{}",
        ran.err
    );

    let ran = suimon(&["replay", "--policy", "bucket 2/s", "/nowhere/access.log"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("/nowhere/access.log: No such file"), "{}", ran.err);

    let ran = suimon(&["replay", "--policy", "bucket 2/s", dir.path().to_str().unwrap()]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("directory") && ran.err.contains("*.log"), "{}", ran.err);

    let zip = file(&dir, "access.zip", b"PK\x03\x04rest");
    let ran = suimon(&["replay", "--policy", "bucket 2/s", &zip]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("unzip -p"), "{}", ran.err);

    let unwritable = dir.path().join("none/report.html");
    let log = file(&dir, "access.log", LINE);
    let ran = suimon(&["replay", "--policy", "bucket 2/s", "--out", unwritable.to_str().unwrap(), &log]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("none/report.html"), "{}", ran.err);
}

#[test]
fn an_empty_log_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    for content in [&b""[..], b"\n\n", &gzip(b"")] {
        let log = file(&dir, "empty.log", content);
        let ran = suimon(&["replay", "--policy", "bucket 2/s", "--key", "client", "--fail-over", "0", &log]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.out.contains("no request in the log"), "{}", ran.out);
        let report = replay(&["--key", "client", &log], b"").json();
        assert_eq!(
            (&report["requests"], &report["keys"], &report["from"]),
            (&0.into(), &0.into(), &serde_json::Value::Null)
        );
    }
}

#[test]
fn colours_only_where_they_are_wanted() {
    let demo = |env: &[(&str, &str)], args: &[&str]| suimon_with(args, b"", env).out.contains('\u{1b}');
    assert!(!demo(&[], &[]), "in a pipe");
    assert!(demo(&[], &["--color", "always"]));
    assert!(demo(&[("CLICOLOR_FORCE", "1")], &[]));
    assert!(!demo(&[("NO_COLOR", "1")], &[]));
    assert!(!demo(&[], &["--color", "never"]));
    assert!(!suimon(&["replay", "--policy", "x", "-"]).err.contains('\u{1b}'));
}

#[test]
fn ascii_where_the_locale_has_no_more() {
    let demo = |locale: &str| suimon_with(&[], b"", &[("LC_ALL", locale), ("COLUMNS", "80")]).out;
    assert!(demo("C").is_ascii());
    assert!(demo("en_GB.UTF-8").contains('█'));
    assert!(demo("C.utf8").lines().all(|line| line.chars().count() <= 110));
}

#[test]
fn fail_over_is_code_3() {
    let sample = sample();
    let run = |percent: &str, input: &[u8]| {
        let args =
            ["replay", "--policy", "bucket 30/min burst 10", "--key", "client", "--json", "--fail-over", percent, "-"];
        suimon_with(&args, input, &[])
    };
    assert_eq!(run("3", sample.as_bytes()).code, 0);
    let over = run("2%", sample.as_bytes());
    assert_eq!(over.code, 3);
    assert!(over.err.contains("2.22 %") && over.err.contains("allows 2 %"), "{}", over.err);
    assert_eq!(over.json()["denied"], 111, "the report comes all the same");
    // A log that is cut short proves nothing.
    let packed = gzip(sample.as_bytes());
    assert_eq!(run("3", &packed[..packed.len() / 2]).code, 1);
}

#[test]
fn compressed_logs_of_several_kinds_are_one_log() {
    let dir = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (0..40).map(|second| LINE.replace(":03 ", &format!(":{second:02} "))).collect();
    // Newer and older lines in the wrong order, one file plain, one of two gzip members.
    let newer = file(&dir, "b.log", lines[20..].concat());
    let older =
        file(&dir, "a.gz", [gzip(lines[..10].concat().as_bytes()), gzip(lines[10..20].concat().as_bytes())].concat());
    let report = replay(&["--key", "client", &newer, &older], b"").json();
    assert_eq!((&report["requests"], &report["denied"], &report["late"]), (&40.into(), &0.into(), &0.into()));
    assert_eq!(report["files"][1]["compression"], "gzip");
    assert_eq!(report["from"], "2015-05-17T10:05:00Z");
}

#[test]
fn a_damaged_archive_is_reported_as_far_as_it_goes() {
    let packed = gzip(sample().as_bytes());
    let ran = replay(&["--key", "client", "-"], &packed[..packed.len() / 2]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("standard input: the gzip data ends too early: the file was cut short"), "{}", ran.err);
    let report = ran.json();
    assert!(report["requests"].as_u64().unwrap() > 1000);
    // The line that the cut went through is no unreadable line.
    assert_eq!(report["unreadable"], 0);
    assert!(report["files"][0]["damage"].as_str().unwrap().contains("cut short"));
}

#[test]
fn json_lines_with_nested_fields_and_costs() {
    let log = r#"{"ts":"2015-05-17T10:05:03.5Z","user":{"id":7},"tokens":1.5}
{"ts":"2015-05-17T10:05:03.9Z","user":{"id":7},"tokens":0.6}
{"ts":"2015-05-17T10:05:03.6Z","user":{"id":7},"tokens":0.5}
{"ts":1431857104000,"user":{"id":"a\u001b[31m"},"tokens":99}
{"ts":1431857104,"user":{},"tokens":1}
{"ts":1431857104,"user":{"id":9},"tokens":-1}
{"ts":1431857104,"user"
"#;
    let ran = replay(&["--key", "user.id", "--cost", "tokens", "-"], log.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report = ran.json();
    // In order: 1.5 passes, 0.5 passes, 0.6 has 0.4 left; 99 can never pass.
    assert_eq!(
        [
            &report["requests"],
            &report["allowed"],
            &report["denied"],
            &report["impossible"],
            &report["keys"],
            &report["unreadable"]
        ],
        [4, 2, 2, 1, 2, 3].map(serde_json::Value::from).each_ref()
    );
    let causes: Vec<&str> =
        report["unreadable_lines"].as_array().unwrap().iter().map(|line| line["cause"].as_str().unwrap()).collect();
    assert!(
        causes[0].contains("no field `user.id`")
            && causes[1].contains("negative")
            && causes[2].contains("the line ends"),
        "{causes:?}"
    );
    let policy = &report["policies"][0];
    assert_eq!((&policy["allowed_cost"], &policy["denied_cost"]), (&"2".into(), &"99.6".into()));
    assert_eq!(policy["most_denied"][1]["key"]["user.id"], "a\u{1b}[31m");
}

#[test]
fn csv_with_quotes_and_several_fields_in_the_key() {
    let log = "time;client;path\r\n1431857103;a;\"/x;y\"\r\n1431857103;a;\"/x;y\"\r\n1431857103;a;\"/x;y\"\r\n1431857103;a;/\r\n1431857103;a\r\n";
    let report = replay(&["--key", "client,path", "-"], log.as_bytes()).json();
    assert_eq!(
        (&report["requests"], &report["denied"], &report["keys"], &report["unreadable"]),
        (&4.into(), &1.into(), &2.into(), &1.into())
    );
    assert_eq!(report["policies"][0]["most_denied"][0]["key"], serde_json::json!({ "client": "a", "path": "/x;y" }));
    assert_eq!(report["unreadable_lines"][0]["line"], 6);
}

#[test]
fn policies_side_by_side() {
    let sample = sample();
    let args = [
        "replay",
        "--policy",
        "bucket 30/min burst 10",
        "--compare",
        "window 30/60s",
        "-p",
        "fixed 40/6h",
        "--key",
        "client",
        "-",
    ];
    let ran = suimon_with(&args, sample.as_bytes(), &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report = suimon_with(&[&args[..], &["--json"]].concat(), sample.as_bytes(), &[]).json();
    let denied: Vec<u64> =
        report["policies"].as_array().unwrap().iter().map(|policy| policy["denied"].as_u64().unwrap()).collect();
    // The policies of --policy come first, then those of --compare.
    let names: Vec<&str> =
        report["policies"].as_array().unwrap().iter().map(|policy| policy["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["bucket 30/min burst 10", "fixed 40/6h", "window 30/min"]);
    assert_eq!((denied[0], denied[2]), (111, 213));
    assert_eq!(report["denied"], 111);
    for denied in denied {
        assert!(ran.out.contains(&format!("  {denied}  ")), "{}", ran.out);
    }
}

#[test]
fn late_lines_are_counted_and_taken_at_the_latest_time() {
    let at = |clock: &str| LINE.replace("10:05:03", clock);
    let log = [at("10:00:00"), at("12:00:00"), at("11:00:00"), at("12:00:01")].concat();
    let report = replay(&["-"], log.as_bytes()).json();
    assert_eq!((&report["late"], &report["out_of_order"], &report["denied"]), (&0.into(), &1.into(), &0.into()));
    let log = [at("10:00:00"), at("12:00:00"), at("12:02:00"), at("11:00:00"), at("12:04:00")].concat();
    let report = replay(&["-"], log.as_bytes()).json();
    assert_eq!((&report["late"], &report["requests"]), (&1.into(), &5.into()));
    let report = replay(&["--reorder", "2h", "-"], log.as_bytes()).json();
    assert_eq!(report["late"], 0);
}

#[test]
fn reports_are_written_and_hold_no_markup_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let evil = LINE.replace("10.0.0.1", "<script>alert(1)</script>\"&\u{1b}[2J");
    let log = file(&dir, "<b>.log", evil.repeat(9));
    let out = |name: &str| -> PathBuf { dir.path().join(name) };
    let (page, picture) = (out("r.html"), out("r.svg"));
    let args = [
        "replay",
        "--policy",
        "bucket 1/s burst 2",
        "--key",
        "client",
        "-o",
        page.to_str().unwrap(),
        "-o",
        picture.to_str().unwrap(),
        &log,
    ];
    let ran = suimon(&args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!ran.out.contains('\u{1b}') && ran.out.contains("\\u{1b}[2J"), "{}", ran.out);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&amp;\\u{1b}[2J"));
    for forbidden in ["<script", "<b>", "http:", "https:", "url(", "@import", " on"] {
        let found = page.find(forbidden).filter(|at| forbidden != " on" || page[*at..].starts_with(" onload"));
        assert_eq!(found, None, "{forbidden}");
    }
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("<svg"));
    let picture = std::fs::read_to_string(picture).unwrap();
    assert!(picture.starts_with("<svg xmlns") && picture.contains("prefers-color-scheme:dark"));
}

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_suimon"))
        .arg("sample")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn days_are_those_of_the_named_zone() {
    // Midnight in Los Angeles is 07:00 UTC.
    let log =
        ["18/May/2015:06:30:00", "18/May/2015:07:30:00"].map(|at| LINE.replace("17/May/2015:10:05:03", at)).concat();
    let denied = |policy: &str| {
        let report = suimon_with(&["replay", "--policy", policy, "--json", "-"], log.as_bytes(), &[]).json();
        report["denied"].as_u64().unwrap()
    };
    assert_eq!([denied("fixed 1/day"), denied("fixed 1/day in America/Los_Angeles")], [1, 0]);
    assert_eq!(denied("fixed 1/day at 07:00"), 0);
}

#[test]
fn policies_at_the_edges() {
    let log = LINE.repeat(5);
    for (policy, denied, smallest) in [
        ("unlimited", 0, vec![]),
        ("block", 5, vec![]),
        // At lower rates such a burst would take more than a century to fill.
        ("bucket 1000000000/s burst 3000000000000000000", 0, vec![Some(5), None]),
        ("bucket 1/year", 4, vec![Some(5), None]),
        ("pace 1/year", 4, vec![Some(4), None]),
        ("window 1/ns", 4, vec![Some(5)]),
        ("fixed 1/month in Europe/Paris", 4, vec![Some(5)]),
        ("bucket 2/s and window 3/min", 3, vec![Some(5), None, Some(5)]),
    ] {
        let ran = suimon_with(&["replay", "--policy", policy, "--json", "-"], log.as_bytes(), &[]);
        assert_eq!(ran.code, 0, "{policy}: {}", ran.err);
        let report = ran.json();
        assert_eq!(report["denied"], denied, "{policy}");
        let found = report["policies"][0]["smallest"].as_array().unwrap().iter();
        let mut values: Vec<Option<u64>> = found.map(|found| found["nobody"]["value"].as_u64()).collect();
        if policy.contains("3000000000000000000") {
            // The least rate at which there can be that burst.
            assert!(values[1].take().is_some_and(|rate| rate > 900_000_000), "{report}");
        }
        assert_eq!(values, smallest, "{policy}");
    }
}
