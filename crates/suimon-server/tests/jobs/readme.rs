//! What the README shows is run.

use std::process::Command;

use crate::support::Place;

/// The first block of the shell behind a heading.
fn block(heading: &str) -> String {
    let text = include_str!("../../README.md");
    let (_, rest) = text.split_once(&format!("\n{heading}\n")).unwrap();
    let (_, rest) = rest.split_once("```sh\n").unwrap();
    rest.split_once("```").unwrap().0.to_string()
}

#[test]
fn the_example_runs_as_it_is() {
    let place = Place::new();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_suimon")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", &block("## jobs")]).current_dir(place.folder()).env("PATH", path);
    shell.env_remove("SUIMON_DB");
    let output = shell.output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("dispatched 6 jobs"), "{out}");
    assert_eq!(err.matches("answer to question").count(), 6, "{err}");
    assert_eq!(place.counts("call"), [0, 0, 6, 0]);
    assert_eq!(place.status("call")["limit"], "window 4/2s");
}
