//! Commands: one for each line, its output passed on, its end looked at.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::run::Control;
use super::stop::Cause;

/// `EX_TEMPFAIL` of sysexits.h: try again later.
pub(crate) const TRY_LATER: i32 = 75;

/// A pause that a command asks for is at most a day: then its line is tried again anyway.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// What is read of a command's output at once, and the longest piece of a line
/// that is held back so that those of two commands do not mix.
const CHUNK: usize = 64 * 1024;

/// The end of the output that a last line is looked for in.
const TAIL: usize = 256;

/// How commands are run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) template: Template,
    /// How many run at a time, at least 1.
    pub(crate) jobs: usize,
    /// How often a command that failed is run again.
    pub(crate) retries: u32,
    /// The wait before the first repetition.
    pub(crate) delay: Duration,
}

/// A command with places for the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// The program and its arguments.
    words: Vec<String>,
    takes_line: bool,
}

impl Template {
    /// Splits a text into words as a shell does; nothing else of a shell is done.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        let words = shell_words::split(text).map_err(|_| "a quote is not closed".to_string())?;
        if words.first().is_none_or(String::is_empty) {
            return Err("the command is empty; name a program, as in --exec 'curl -sS {}'".to_string());
        }
        let takes_line = words.iter().any(|word| word.contains("{}"));
        Ok(Template { words, takes_line })
    }

    /// The words with the line in its places.
    fn words(&self, line: &[u8]) -> io::Result<Vec<OsString>> {
        self.words
            .iter()
            .map(|word| os_string(word.split("{}").map(str::as_bytes).collect::<Vec<_>>().join(line)))
            .collect()
    }

    /// The command for a line, and what it gets on standard input.
    fn command(&self, text: &[u8], whole: &[u8]) -> io::Result<(Command, Option<Vec<u8>>)> {
        let words = self.words(text)?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if self.takes_line { Stdio::null() } else { Stdio::piped() });
        // Ctrl-C on a terminal is for this process, which lets commands end.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok((command, (!self.takes_line).then(|| whole.to_vec())))
    }

    /// Is the program the same for each line?
    fn is_fixed(&self) -> bool {
        !self.words[0].contains("{}")
    }
}

#[cfg(unix)]
fn os_string(bytes: Vec<u8>) -> io::Result<OsString> {
    Ok(std::os::unix::ffi::OsStringExt::from_vec(bytes))
}

#[cfg(not(unix))]
fn os_string(bytes: Vec<u8>) -> io::Result<OsString> {
    let text = String::from_utf8(bytes);
    text.map(OsString::from).map_err(|_| io::Error::new(ErrorKind::InvalidInput, "arguments have to be UTF-8"))
}

/// The commands that run, to be killed if need be: each leads a process group.
#[derive(Debug, Default)]
pub(super) struct Groups(Mutex<Leaders>);

#[derive(Debug, Default)]
struct Leaders {
    ids: BTreeSet<u32>,
    is_over: bool,
}

impl Groups {
    /// Starts a command, unless all are to be killed.
    fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        // Under the lock, so that a command is killed or does not start.
        let mut leaders = self.lock();
        if leaders.is_over {
            return Err(io::Error::other("it was not started: the run was ended"));
        }
        let child = command.spawn()?;
        leaders.ids.insert(child.id());
        Ok(child)
    }

    /// Waits for a command's end. Until it is taken out its number cannot be that of
    /// another process, because nobody has collected its status.
    fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
        #[cfg(unix)]
        {
            use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(error) = waitid(WaitId::Pid(Pid::from_child(child)), options) {
                if error != rustix::io::Errno::INTR {
                    return Err(error.into());
                }
            }
            self.lock().ids.remove(&child.id());
        }
        child.wait()
    }

    /// Kills all, with what they have started, and lets no other start.
    pub(super) fn kill(&self) {
        let mut leaders = self.lock();
        leaders.is_over = true;
        #[cfg(unix)]
        for id in &leaders.ids {
            if let Some(group) = i32::try_from(*id).ok().and_then(rustix::process::Pid::from_raw) {
                // One that has just ended needs no killing.
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Leaders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A command that has been started.
#[derive(Debug)]
pub(super) struct Started {
    child: Child,
    stdin: Option<(ChildStdin, Vec<u8>)>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

/// Why a command did not start.
#[derive(Debug)]
pub(super) struct NotStarted {
    pub(super) message: String,
    /// It would not for any other line.
    pub(super) is_hopeless: bool,
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Succeeded,
    Failed(String),
    /// It was told to come later, after this time if it said so.
    Limited(Option<Duration>),
}

/// Starts the command for a line.
pub(super) fn start(control: &Control, exec: &Options, text: &[u8], whole: &[u8]) -> Result<Started, NotStarted> {
    let template = &exec.template;
    let program = &template.words[0];
    let not_started = |error: io::Error| {
        let is_fault_of_program = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied);
        NotStarted {
            message: format!("`{program}` cannot be run: {error}"),
            is_hopeless: is_fault_of_program && template.is_fixed(),
        }
    };
    let (mut command, input) = template.command(text, whole).map_err(not_started)?;
    let mut child = control.groups.spawn(&mut command).map_err(not_started)?;
    let stdin = child.stdin.take().zip(input);
    Ok(Started { stdin, stdout: child.stdout.take(), stderr: child.stderr.take(), child })
}

/// Passes on what a command prints until it has ended and closed its output.
pub(super) fn finish(control: &Control, exec: &Options, mut started: Started) -> Outcome {
    let by_line = exec.jobs > 1;
    let (out, err) = thread::scope(|scope| {
        if let Some((mut stdin, input)) = started.stdin.take() {
            // A command need not read what it is given.
            scope.spawn(move || drop(stdin.write_all(&input)));
        }
        let stderr = started.stderr.take();
        let err = scope.spawn(move || pass_on(stderr, by_line, |bytes| control.screen.err(bytes).is_ok()));
        let out = pass_on(started.stdout.take(), by_line, |bytes| control.print(bytes));
        (out, err.join().unwrap_or_default())
    });
    match control.groups.wait(&mut started.child) {
        Ok(status) if status.success() => Outcome::Succeeded,
        Ok(status) if status.code() == Some(TRY_LATER) => {
            Outcome::Limited(retry_after(&err).or_else(|| retry_after(&out)))
        }
        Ok(status) => Outcome::Failed(status.to_string()),
        Err(error) => Outcome::Failed(format!("its end cannot be waited for: {error}")),
    }
}

/// Passes output on as it comes, or line by line; answers its end. It is no longer
/// read when it cannot be written any more, which the command will notice.
fn pass_on(from: Option<impl Read>, by_line: bool, mut write: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut tail = Vec::new();
    let Some(mut from) = from else { return tail };
    let mut chunk = vec![0; CHUNK];
    let mut held = Vec::new();
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => &chunk[..read],
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        tail.extend_from_slice(&read[read.len().saturating_sub(TAIL)..]);
        tail.drain(..tail.len().saturating_sub(TAIL));
        held.extend_from_slice(read);
        let ready = match memchr::memrchr(b'\n', &held) {
            Some(end) if by_line && held.len() - end <= CHUNK => end + 1,
            None if by_line && held.len() <= CHUNK => 0,
            _ => held.len(),
        };
        if ready > 0 && !write(&held[..ready]) {
            return tail;
        }
        held.drain(..ready);
    }
    if !held.is_empty() {
        write(&held);
    }
    tail
}

/// The seconds of a last line `retry-after: SECONDS`.
pub(crate) fn retry_after(output: &[u8]) -> Option<Duration> {
    let last = output.trim_ascii_end().rsplit(|byte| *byte == b'\n').next()?;
    let (name, value) = std::str::from_utf8(last).ok()?.split_once(':')?;
    if !name.trim().eq_ignore_ascii_case("retry-after") {
        return None;
    }
    let cost: suimon_core::Cost = value.trim().parse().ok()?;
    Some(Duration::new(cost.as_whole(), cost.subsec_nanos()).min(LONGEST_PAUSE))
}

impl Control {
    /// Prints what a command has printed; answers whether more can be.
    fn print(&self, bytes: &[u8]) -> bool {
        match self.screen.out(bytes) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.stop(Cause::Closed);
                false
            }
            Err(error) => {
                self.fail(&format!("standard output: {error}"));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(template: &str, line: &[u8]) -> Vec<OsString> {
        Template::parse(template).unwrap().words(line).unwrap()
    }

    #[test]
    fn the_line_goes_where_the_braces_are() {
        let split = words(r#"curl -o "{} {}.txt" 'a b' {} c\ d"#, b"x y");
        assert_eq!(split, ["curl", "-o", "x y x y.txt", "a b", "x y", "c d"]);
        assert_eq!(words("cat", b"x"), ["cat"]);
        // No shell: nothing in the line or the template is expanded.
        assert_eq!(words("echo $HOME *", b"x"), ["echo", "$HOME", "*"]);
        assert_eq!(words("echo {}", b"$(rm -rf /); {}"), ["echo", "$(rm -rf /); {}"]);
        for (bad, says) in [("echo 'x", "quote"), ("", "empty"), ("  ", "empty"), ("''", "empty")] {
            assert!(Template::parse(bad).unwrap_err().contains(says));
        }
    }

    #[test]
    fn the_last_line_says_when_to_come_again() {
        let seconds = |output: &[u8]| retry_after(output).map(|wait| wait.as_secs_f64());
        assert_eq!(seconds(b"busy\nretry-after: 2.5\n"), Some(2.5));
        assert_eq!(seconds(b"Retry-After:3\r\n\n"), Some(3.0));
        assert_eq!(seconds(b"retry-after: 0"), Some(0.0));
        assert_eq!(seconds(b"retry-after: 99999999999999999999"), None);
        assert_eq!(seconds(b"retry-after: 9999999"), Some(86_400.0));
        for other in
            [&b""[..], b"retry-after: 3\ndone\n", b"retry-after: -1\n", b"retry-after: soon", b"x retry-after: 1"]
        {
            assert_eq!(seconds(other), None, "{other:?}");
        }
    }

    proptest! {
        /// Whatever a command prints comes out, in whole lines where several run.
        #[test]
        fn output_is_passed_on(
            pieces in prop::collection::vec(prop_oneof!["[a-c\n]{0,20}", Just("x".repeat(CHUNK + 5))], 0..6),
            by_line in any::<bool>(),
        ) {
            let output = pieces.concat().into_bytes();
            let mut written: Vec<Vec<u8>> = Vec::new();
            let tail = pass_on(Some(&output[..]), by_line, |bytes| {
                written.push(bytes.to_vec());
                true
            });
            prop_assert_eq!(&tail[..], &output[output.len().saturating_sub(TAIL)..]);
            if let Some((_, whole)) = written.split_last() {
                let is_whole = |bytes: &Vec<u8>| bytes.ends_with(b"\n") || bytes.len() > CHUNK;
                prop_assert!(!by_line || whole.iter().all(is_whole));
            }
            prop_assert_eq!(written.concat(), output);
        }
    }
}
