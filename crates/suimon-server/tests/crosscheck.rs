//! The replay against an independent one in Python, on the shipped sample.

mod common;

use common::suimon;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn python(policy: &str) -> Value {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = Command::new("python3")
        .arg(here.join("tests/crosscheck.py"))
        .arg(here.join("sample/access.log.gz"))
        .arg(policy)
        .output()
        .expect("the cross-check needs python3");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn an_independent_replay_finds_the_same() {
    for policy in [
        "bucket 2/s burst 20",
        "bucket 30/min burst 10",
        "bucket 7/13s burst 3",
        "pace 60/min",
        "pace 20/min savings 5",
        "window 30/60s",
        "window 3/10s",
        "fixed 500/day",
        "fixed 40/6h",
    ] {
        let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/sample/access.log.gz");
        let ours =
            suimon(&["replay", "--policy", policy, "--key", "client", "--json", "--top", "100000", sample]).json();
        let theirs = python(policy);
        for total in ["requests", "allowed", "denied", "keys", "unreadable"] {
            assert_eq!(ours[total], theirs[total], "{policy}: {total}");
        }
        let refused = ours["policies"][0]["most_denied"].as_array().unwrap().iter();
        let by_key: BTreeMap<&str, u64> =
            refused.map(|key| (key["key"]["client"].as_str().unwrap(), key["denied"].as_u64().unwrap())).collect();
        let theirs_by_key: BTreeMap<&str, u64> = theirs["denied_by_key"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, denied)| (&key[..], denied.as_u64().unwrap()))
            .collect();
        assert_eq!(by_key, theirs_by_key, "{policy}");

        let searched = ours["policies"][0]["smallest"].as_array().unwrap();
        assert_eq!(searched.len(), theirs["smallest"].as_object().unwrap().len(), "{policy}");
        for found in searched {
            for bound in ["nobody", "percent_of_keys", "percent_of_requests"] {
                let axis = found["axis"].as_str().unwrap();
                assert_eq!(found[bound]["value"], theirs["smallest"][axis][bound], "{policy}: {axis}, {bound}");
            }
        }
    }
}
