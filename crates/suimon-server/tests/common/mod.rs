//! Runs the real binary.

#![allow(dead_code, reason = "not every test file uses all of it")]

use std::io::Write;
use std::process::{Command, Stdio};

/// What a run printed, and how it ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Standard output, which must be one JSON object.
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.out.lines().count(), 1, "{}\n{}", self.out, self.err);
        serde_json::from_str(&self.out).unwrap()
    }
}

/// Runs `suimon` with arguments, nothing on standard input.
pub(crate) fn suimon(args: &[&str]) -> Ran {
    suimon_with(args, b"", &[])
}

/// The same with standard input and environment variables.
pub(crate) fn suimon_with(args: &[&str], input: &[u8], env: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_suimon"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in ["NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR", "COLUMNS", "LC_ALL", "LC_CTYPE", "LANG", "SUIMON_DB"] {
        command.env_remove(name);
    }
    command.envs(env.iter().copied());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may end without reading it all.
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let out = child.wait_with_output().unwrap();
    let _ = writer.join();
    Ran {
        code: out.status.code().expect("an exit code"),
        out: String::from_utf8(out.stdout).unwrap(),
        err: String::from_utf8(out.stderr).unwrap(),
    }
}

/// `suimon pace` to be started with all its streams in pipes.
pub(crate) fn pace(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_suimon"));
    command.arg("pace").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("CLICOLOR_FORCE");
    command
}

/// Runs `suimon pace` on an input: its exit code, standard output as bytes, and
/// standard error.
pub(crate) fn paced(args: &[&str], input: &[u8]) -> (i32, Vec<u8>, String) {
    let mut child = pace(args).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may end without reading it all.
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let out = child.wait_with_output().unwrap();
    let _ = writer.join();
    (out.status.code().expect("an exit code"), out.stdout, String::from_utf8(out.stderr).unwrap())
}

/// Sends a signal, as `INT` or `KILL`.
pub(crate) fn signal(child: &std::process::Child, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// What is left on a stream of a child.
pub(crate) fn rest(stream: Option<impl std::io::Read>) -> String {
    let mut text = String::new();
    stream.unwrap().read_to_string(&mut text).unwrap();
    text
}
