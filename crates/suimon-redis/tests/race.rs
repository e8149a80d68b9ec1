//! Many at once, on one key: exactly as many pass as there are tokens.

mod support;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use support::{allow, allow_with_id, fresh_key, limits, passes, runtime, server, store, store_at, valkey_url};

/// A hundred tokens, and next to none that come back.
const POLICY: &str = "bucket 1/year burst 100";

/// What a child process is to do: the server, the key, how many calls.
const TASK: &str = "SUIMON_TEST_TASK";

/// Runs this program again, to make calls of its own.
fn child(url: &str, key: &str, calls: u32) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "calls_of_a_child_process", "--nocapture"]);
    command.env(TASK, format!("{url} {key} {calls}")).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// The calls that a child process said had passed.
fn passed(output: &[u8]) -> u64 {
    String::from_utf8_lossy(output).lines().filter(|line| line.trim_end() == "passed").count() as u64
}

/// Does the task of a child process; in the process of the tests there is none.
#[test]
fn calls_of_a_child_process() {
    let Ok(task) = std::env::var(TASK) else { return };
    let [url, key, calls] = task.split(' ').collect::<Vec<_>>()[..] else { panic!("{task}") };
    let (store, limits, key) = (store_at(url), limits(POLICY), Arc::from(key));
    println!();
    for _ in 0..calls.parse::<u32>().unwrap() {
        let reply = runtime().block_on(allow(&store, &key, &limits, 1)).unwrap();
        if passes(&reply) {
            println!("passed");
        }
    }
}

#[test]
fn eight_processes_share_a_hundred_tokens() {
    for url in [server().url(), valkey_url()] {
        let key = fresh_key("race");
        let children: Vec<_> = (0..8).map(|_| child(&url, &key, 1000).spawn().unwrap()).collect();
        let outputs = children.into_iter().map(|child| child.wait_with_output().unwrap());
        let passed: u64 = outputs
            .map(|output| {
                assert!(output.status.success());
                passed(&output.stdout)
            })
            .sum();
        assert_eq!(passed, 100);
    }
}

#[test]
fn eight_threads_with_a_connection_each_share_a_hundred_tokens() {
    let (key, limits) = (fresh_key("threads"), limits(POLICY));
    let passed = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let store = store();
                for _ in 0..1000 {
                    let reply = runtime().block_on(allow(&store, &key, &limits, 1)).unwrap();
                    passed.fetch_add(u64::from(passes(&reply)), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(passed.into_inner(), 100);
}

#[test]
fn concurrent_twins_of_an_id_are_charged_once() {
    let (store, key, limits) = (store(), fresh_key("twins"), limits(POLICY));
    runtime().block_on(async {
        for round in 0..50 {
            let id = format!("{key}:{round}");
            let twins: Vec<_> = (0..8)
                .map(|_| {
                    let (store, key, limits, id) = (store.clone(), key.clone(), limits.clone(), id.clone());
                    tokio::spawn(async move { allow_with_id(&store, &key, &limits, 1, &id).await.unwrap() })
                })
                .collect();
            let mut replies = Vec::new();
            for twin in twins {
                replies.push(twin.await.unwrap());
            }
            assert_eq!(replies.iter().filter(|reply| !reply.replayed).count(), 1);
            assert!(replies.iter().all(|reply| reply.outcome == replies[0].outcome && reply.now == replies[0].now));
            assert_eq!(support::remaining(&replies[0]), 99 - round);
        }
    });
}

/// Whoever is killed in the middle of a call has been charged or not, and nobody passes
/// who was not charged.
#[test]
fn clients_that_are_killed_let_nobody_pass_twice() {
    let (url, key) = (server().url(), fresh_key("killed"));
    let mut total = 0;
    for round in 0..6 {
        let mut child = child(&url, &key, 100_000).spawn().unwrap();
        thread::sleep(Duration::from_millis(60 + 17 * round));
        child.kill().unwrap();
        total += passed(&child.wait_with_output().unwrap().stdout);
    }
    let (store, limits) = (store(), limits(POLICY));
    let mut rest = 0;
    while passes(&runtime().block_on(allow(&store, &key, &limits, 1)).unwrap()) {
        rest += 1;
    }
    assert!(total + rest <= 100 && total + rest >= 94, "{total} and {rest}");
}
