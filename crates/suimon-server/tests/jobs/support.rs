//! A queue in a folder of its own, workers as processes.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use suimon_jobs::{JobId, JobInfo, Queue};

use crate::common::{Ran, signal, suimon_with};

/// A queue that nobody else has.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    pub(crate) url: String,
}

impl Place {
    /// In a file.
    pub(crate) fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/q.db", folder.path().display());
        Place { folder, url }
    }

    /// In another database.
    pub(crate) fn of(url: String) -> Place {
        Place { folder: tempfile::tempdir().unwrap(), url }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs `suimon jobs` to its end.
    pub(crate) fn jobs(&self, args: &[&str]) -> Ran {
        self.jobs_with(args, "")
    }

    /// The same with standard input.
    pub(crate) fn jobs_with(&self, args: &[&str], input: &str) -> Ran {
        suimon_with(&[&["jobs"], args].concat(), input.as_bytes(), &[("SUIMON_DB", &self.url)])
    }

    /// The same, which has to succeed; standard output.
    pub(crate) fn done(&self, args: &[&str]) -> String {
        let ran = self.jobs(args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        ran.out
    }

    /// Puts in jobs as lines.
    pub(crate) fn dispatch(&self, lines: &[&str]) {
        let ran = self.jobs_with(&["dispatch", "-"], &(lines.join("\n") + "\n"));
        assert_eq!((ran.code, &*ran.err), (0, ""));
    }

    /// Starts `suimon jobs work`.
    pub(crate) fn worker(&self, args: &[&str]) -> Worker {
        let mut command = Command::new(env!("CARGO_BIN_EXE_suimon"));
        command.args(["jobs", "work"]).args(args).env("SUIMON_DB", &self.url).current_dir(self.folder());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Worker(command.spawn().unwrap())
    }

    /// How a handler stands, as `status --json` has it.
    pub(crate) fn status(&self, handler: &str) -> Value {
        let all: Value = serde_json::from_str(&self.done(&["status", "--json"])).unwrap();
        let found = all["handlers"].as_array().unwrap().iter().find(|one| one["handler"] == handler).cloned();
        found.unwrap_or_else(|| panic!("no handler `{handler}`: {all}"))
    }

    /// Pending, running, done and failed jobs of a handler.
    pub(crate) fn counts(&self, handler: &str) -> [u64; 4] {
        let status = self.status(handler);
        ["pending", "running", "done", "failed"].map(|state| status[state].as_u64().unwrap())
    }

    /// A job, by the library.
    pub(crate) fn job(&self, id: i64) -> JobInfo {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let job = runtime.block_on(async { Queue::open(&self.url).await.unwrap().job(JobId(id)).await.unwrap() });
        job.unwrap_or_else(|| panic!("no job {id}"))
    }

    /// The lines of a file, none if there is none.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_string).collect()
    }
}

/// A worker that is killed with the test.
pub(crate) struct Worker(pub(crate) Child);

impl Worker {
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.0, name);
    }

    /// Waits until it tells a line that begins so. What it tells later is lost.
    pub(crate) fn until(&mut self, begin: &str) -> String {
        let mut err = BufReader::new(self.0.stderr.take().unwrap());
        let mut line = String::new();
        while !line.starts_with(begin) {
            line.clear();
            assert_ne!(err.read_line(&mut line).unwrap(), 0, "{begin}");
        }
        // A pipe that nobody reads is one that cannot be written to; that does it no harm.
        line
    }

    /// Waits for its end: exit code and standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut err = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.0.wait().unwrap().code(), err)
    }

    /// Stops it in order.
    pub(crate) fn stop(self) -> String {
        self.signal("TERM");
        let (code, err) = self.end();
        assert_eq!(code, Some(0), "{err}");
        err
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until something holds, for as long as a busy machine may need.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A script of the shell as the command of a handler.
pub(crate) fn script(handler: &str, text: &str) -> String {
    assert!(!text.contains('\''));
    format!("{handler}=sh -c '{text}'")
}
