//! Jobs in: lines of JSON, the options of a single job, what is wrong with them.

use std::process::Command;

use crate::common::suimon;
use crate::support::{Place, script};

#[test]
fn lines_become_jobs_in_their_order() {
    let place = Place::new();
    let input: String = (0..1201).map(|n| format!("{{\"handler\":\"h{}\",\"payload\":{n}}}\r\n\n", n % 2)).collect();
    let ran = place.jobs_with(&["dispatch", "-", "--ids"], &format!("\u{feff}{input}"));
    assert_eq!((ran.code, &*ran.err), (0, ""));
    let ids: Vec<i64> = ran.out.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(ids, (1..=1201).collect::<Vec<_>>());
    assert_eq!((place.counts("h0"), place.counts("h1")), ([601, 0, 0, 0], [600, 0, 0, 0]));
    assert_eq!(place.job(1201).payload, "1200");
    assert_eq!(place.jobs_with(&["dispatch", "-"], "").out, "dispatched 0 jobs\n");
    // The last line may have no end.
    assert_eq!(place.jobs_with(&["dispatch", "-"], "{\"handler\":\"a\"}").out, "dispatched 1 job\n");
}

#[test]
fn wrong_lines_are_told_and_nothing_is_dispatched() {
    let place = Place::new();
    let input = "{\"handler\":\"a\"}\n{\"handler\":\"a\",\"prio\":3}\n\nhello\n{\"handler\":\"a\",\"limit\":\"5/s\"}\n";
    let ran = place.jobs_with(&["dispatch", "-", "--ids"], input);
    assert_eq!((ran.code, &*ran.out), (1, ""));
    for says in [
        "line 2: unknown field `prio`, expected one of `handler`, `payload`, `limit`, `key_limit`, `count`, `key`, `cost`, \
         `delay`, `priority`, `unique`, `attempts`",
        "line 4: a line is a JSON object, as {\"handler\"",
        "line 5: the limit `5/s`",
        "3 lines cannot be a job; nothing was dispatched",
    ] {
        assert!(ran.err.contains(says), "{says} is not in\n{}", ran.err);
    }
    assert!(!place.path("q.db").exists());
    let ran = place.jobs_with(&["dispatch", "-"], &"x\n".repeat(30));
    assert_eq!(ran.err.matches("error: line").count(), 20);
    assert!(ran.err.contains("30 lines cannot be a job"), "{}", ran.err);
}

#[test]
fn a_single_job_with_all_its_options() {
    let place = Place::new();
    let all =
        ["dispatch", "call", "{\"n\": 1}", "--limit", "window 5/2s", "--key-limit", "pace 1/s", "--count", "completed"];
    let more = ["--key", "k", "--cost", "2.5", "--priority", "9", "--unique", "u", "--attempts", "7", "--ids"];
    let all = [&all[..], &more].concat();
    assert_eq!(place.done(&all), "1\n");
    // It waits still, so it is the same.
    assert_eq!(place.done(&all), "1\n");
    let status = place.status("call");
    assert_eq!(status["limit"], "window 5/2s");
    assert_eq!(status["key_limit"], "pace 1/s");
    assert_eq!(status["count"], "completed");
    assert_eq!(place.counts("call"), [1, 0, 0, 0]);
    let job = place.job(1);
    assert_eq!((job.payload.as_str(), job.key.as_deref()), ("{\"n\": 1}", Some("k")));
    assert_eq!(place.done(&["dispatch", "later", "--delay", "1h"]), "dispatched 1 job\n");
    let exec = script("later", "true");
    let ran = place.jobs(&["work", "--exec", &exec, "--once"]);
    assert!(ran.code == 0 && ran.err.contains("nothing could start"), "{}", ran.err);
    assert_eq!(place.job(2).payload, "null");
}

#[test]
fn higher_priorities_go_first() {
    let place = Place::new();
    place.dispatch(&[
        r#"{"handler":"a","payload":"low"}"#,
        r#"{"handler":"a","payload":"high","priority":9}"#,
        r#"{"handler":"a","payload":"middle","priority":4}"#,
    ]);
    let exec = script("a", &format!("cat >> {}", place.path("log").display()));
    place.done(&["work", "--exec", &exec, "--drain", "--slots", "1"]);
    assert_eq!(place.lines("log"), ["\"high\"", "\"middle\"", "\"low\""]);
}

#[test]
fn a_relative_path_is_made_where_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for url in ["sqlite:q.db", "sqlite://r.db", "sqlite:./s.db"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_suimon"));
        command.args(["jobs", "dispatch", "--db", url, "a"]).current_dir(folder.path());
        assert_eq!(command.output().unwrap().stdout, b"dispatched 1 job\n", "{url}");
    }
    assert!(["q.db", "r.db", "s.db"].iter().all(|name| folder.path().join(name).exists()));
}

#[test]
fn prefixes_share_nothing() {
    let place = Place::new();
    place.done(&["dispatch", "a", "--prefix", "one"]);
    assert!(place.done(&["status", "--prefix", "one"]).contains('a'));
    assert!(place.done(&["status"]).starts_with("no handler is known"));
}

#[test]
fn what_is_wrong_is_said() {
    let place = Place::new();
    for (args, code, says) in [
        (&["dispatch", "a", "text"][..], 2, "the payload `text` is not JSON"),
        (&["dispatch", ""], 2, "the handler is empty"),
        (&["dispatch", "a", "--limit", "5/s"], 2, "the limit `5/s`"),
        (&["dispatch", "a", "--key-limit", "nothing"], 2, "the limit `nothing`"),
        (&["dispatch", "a", "--count", "all"], 2, "allowed are `started` and `completed`"),
        (&["dispatch", "a", "--cost=-1"], 2, "a cost is zero or more"),
        (&["dispatch", "a", "--delay", "5"], 2, "delay: `5`: a time has a unit"),
        (&["dispatch", "a", "--priority", "10"], 2, "10 was asked for, allowed is 0 to 9"),
        (&["dispatch", "a", "--priority", "x"], 2, "invalid value 'x' for '--priority <N>'"),
        (&["dispatch", "a", "--attempts", "0"], 2, "allowed is 1 to 1000000"),
        (&["dispatch", "a", "--unique", ""], 2, "the id of a unique job is empty"),
        (&["dispatch", "-", "--limit", "pace 1/s"], 2, "--limit is for a single job"),
        (&["dispatch", "-", "1"], 2, "a payload is for a single job"),
        (&["dispatch"], 2, "<HANDLER>"),
        (&["dispatch", "a", "--prefix", "A-b"], 2, "prefix of tables: `A-b` was asked for"),
        (&["dispatch", "a", "--db", "oracle:x"], 2, "`sqlite:q.db`, `postgres://user@host/db`"),
        (&["dispatch", "a", "--db", "sqlite::memory:"], 1, "a database in memory is shared with nobody"),
        (&["dispatch", "a", "--db", "sqlite:/no/such/folder/q.db"], 1, "unable to open database file"),
        (&["status", "--db", "postgres://127.0.0.1:1/x"], 1, "Connection refused"),
        (&["limit", "a"], 2, "<LIMIT>"),
        (&["limit", "a", "10/min"], 2, "the limit: "),
        (&["limit", "a", "pace 1/s", "--count", "x"], 2, "--count: `x`: allowed are"),
        (&["limit", "a", "pace 1/s", "--clear"], 2, "cannot be used with"),
        (&["pause", "a", "--for", "5"], 2, "a time has a unit"),
        (&["retry"], 2, "<ID"),
        (&["retry", "x"], 2, "invalid value 'x'"),
        (&["purge", "--older-than", "x"], 2, "a time"),
        (&["work"], 2, "--exec <HANDLER=COMMAND>"),
        (&["work", "--exec", "true"], 2, "it begins with a handler and `=`"),
        (&["work", "--exec", "a="], 2, "--exec a: the command is empty"),
        (&["work", "--exec", "a='x"], 2, "a quote is not closed"),
        (&["work", "--exec", "a=no-such-program-here"], 2, "there is no program `no-such-program-here`"),
        (&["work", "--exec", "a=true", "--exec", "a=false"], 2, "two commands for this handler"),
        (&["work", "--exec", "a=true", "--limit", "b=pace 1/s"], 2, "there is no --exec for the handler `b`"),
        (&["work", "--exec", "a=true", "--limit", "a=1/s"], 2, "the limit of `a`: "),
        (&["work", "--exec", "a=true", "--attempts", "a=0"], 2, "a whole number from 1 to 1000000"),
        (&["work", "--exec", "a=true", "--attempts", "a=1", "--attempts", "a=2"], 2, "given twice for the handler `a`"),
        (&["work", "--exec", "a=true", "--timeout", "a=0"], 2, "longer than nothing"),
        (&["work", "--exec", "a=true", "--backoff", "a=5s"], 2, "`fixed:5s`, `linear:5s` and `exponential:1s..1h`"),
        (&["work", "--exec", "a=true", "--count", "a=x"], 2, "allowed are `started` and `completed`"),
        (&["work", "--exec", "a=true", "--slots", "0"], 2, "--slots"),
        (&["work", "--exec", "a=true", "--once", "--drain"], 2, "cannot be used with"),
    ] {
        let ran = place.jobs(args);
        assert_eq!((ran.code, &*ran.out), (code, ""), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(says), "{args:?}: {says} is not in\n{}", ran.err);
    }
    let ran = suimon(&["jobs", "status"]);
    assert!(ran.code == 2 && ran.err.contains("--db <URL>"), "{}", ran.err);
}

#[test]
fn a_password_is_never_printed() {
    for url in [
        "postgres://ann:topsecret@127.0.0.1:1/x",
        "mysql://ann:topsecret@127.0.0.1:1/x",
        "mariadb://ann:topsecret@:x/x",
    ] {
        let place = Place::of(url.to_string());
        for args in [
            &["status"][..],
            &["status", "--help"],
            &["dispatch", "a"],
            &["work", "--exec", "a=true", "-v", "--once"],
            &["work", "--exec", "bad"],
            &["retry", "1", "--wrong"],
        ] {
            let ran = place.jobs(args);
            assert!(
                !ran.out.contains("topsecret") && !ran.err.contains("topsecret"),
                "{args:?}: {}{}",
                ran.out,
                ran.err
            );
        }
    }
}
