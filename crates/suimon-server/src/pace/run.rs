//! The run: lines in, one after the other, each at its turn.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use suimon::clock::MachineClock;

use super::exec::{self, Groups, NotStarted};
use super::job::{self, Job};
use super::lines::{Batch, Line, Lines};
use super::progress::Screen;
use super::shared::Shared;
use super::stop::{Cause, Stop};
use super::turn::{self, CalendarClock, Refusal, Turn};
use super::{Ending, Error, OnError, Options, signals};

/// What all threads of a run share.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) turn: Turn,
    pub(super) stop: Stop,
    pub(super) screen: Screen,
    pub(super) groups: Groups,
    events: Sender<Event>,
}

/// What the thread that decides hears of.
#[derive(Debug)]
enum Event {
    /// The input has more lines, or none, or cannot be read.
    Read(io::Result<Option<Batch>>),
    /// A command has ended for good; has it succeeded?
    Ended(bool),
    Stop,
}

impl Control {
    /// Ends the run: no more lines, and those who wait for their turn wake.
    pub(super) fn stop(&self, cause: Cause) {
        self.stop.ask(cause);
        self.turn.close();
        // The receiver is gone when the run is over already.
        let _ = self.events.send(Event::Stop);
    }

    /// Ends the run because of an error.
    pub(super) fn fail(&self, message: &str) {
        self.screen.error(message);
        self.stop(Cause::Failed);
    }
}

/// Passes the lines of `input` on, or runs a command for each.
pub(crate) fn run(options: &Options, input: impl Read + Send + 'static) -> Result<Ending, Error> {
    let turn = match &options.shared {
        Some(path) => Turn::Shared(Shared::open(path, &options.policy)?),
        None if turn::needs_calendar(&options.policy) => {
            Turn::Local(turn::local(&options.policy, CalendarClock::new())?)
        }
        None => Turn::Local(turn::local(&options.policy, MachineClock)?),
    };
    let (events, inbox) = channel();
    let screen = Screen::new(options.quiet, options.exec.is_none());
    let control = Arc::new(Control { turn, stop: Stop::default(), screen, groups: Groups::default(), events });
    signals::watch(&control)?;
    let credit = read(Lines::new(input, options.lines), control.events.clone())?;
    let mut run =
        Run { options, control, inbox, credit, batches: VecDeque::new(), is_read: false, tally: Tally::default() };
    run.take_lines();
    run.await_commands();
    run.control.screen.finish();
    Ok(run.end())
}

/// Reads lines on a thread of its own, which is at most two batches ahead.
fn read(mut lines: Lines<impl Read + Send + 'static>, events: Sender<Event>) -> Result<Sender<()>, Error> {
    let (credit, credits) = channel();
    let read = move || {
        loop {
            let batch = lines.next();
            let is_last = !matches!(batch, Ok(Some(_)));
            if events.send(Event::Read(batch)).is_err() || is_last || credits.recv().is_err() {
                break;
            }
        }
    };
    let thread = thread::Builder::new().name("input".to_string()).spawn(read);
    thread.map(|_| credit).map_err(|error| Error::Io(format!("no thread to read with: {error}")))
}

/// How many lines came to which end.
#[derive(Debug, Default)]
struct Tally {
    /// The last line that something was done about.
    taken: u64,
    /// Printed, or their command succeeded.
    gone: u64,
    /// Their command failed.
    failed: u64,
    left_out: u64,
    /// Their command is running.
    running: usize,
}

struct Run<'a> {
    options: &'a Options,
    control: Arc<Control>,
    inbox: Receiver<Event>,
    /// Lets the input be read on.
    credit: Sender<()>,
    batches: VecDeque<Batch>,
    is_read: bool,
    tally: Tally,
}

impl Run<'_> {
    fn take_lines(&mut self) {
        while let Some(batch) = self.next_batch() {
            for line in batch.lines() {
                if self.control.stop.is_asked() {
                    return;
                }
                match line {
                    Ok(line) => self.take(line),
                    Err(long) => self.leave_out(long.number, self.options.lines.max, &self.options.too_long()),
                }
            }
        }
    }

    fn next_batch(&mut self) -> Option<Batch> {
        loop {
            if self.control.stop.is_asked() {
                return None;
            }
            if let Some(batch) = self.batches.pop_front() {
                return Some(batch);
            }
            if self.is_read {
                return None;
            }
            self.listen();
        }
    }

    fn listen(&mut self) {
        // There is a sender as long as there is this run.
        let Ok(event) = self.inbox.recv() else { return };
        match event {
            Event::Read(Ok(Some(batch))) => {
                self.batches.push_back(batch);
                // The reader ends after the last batch and needs no more credit.
                let _ = self.credit.send(());
            }
            Event::Read(Ok(None)) => self.is_read = true,
            Event::Read(Err(error)) => {
                self.is_read = true;
                let after = self.tally.taken;
                self.control.fail(&format!("standard input: {error} (after line {after})"));
            }
            Event::Ended(succeeded) => {
                self.tally.running -= 1;
                if succeeded {
                    self.tally.gone += 1;
                } else {
                    self.tally.failed += 1;
                }
            }
            Event::Stop => {}
        }
    }

    /// Waits for the turn of a line, then prints it or starts its command.
    fn take(&mut self, line: Line<'_>) {
        let cost = match self.options.cost_of(line.text) {
            Ok(cost) => cost,
            Err(message) => return self.leave_out(line.number, line.whole.len(), &message),
        };
        // A free place first: a turn that has come is not to be let go by.
        if let Some(exec) = &self.options.exec {
            while self.tally.running >= exec.jobs {
                if self.control.stop.is_asked() {
                    return;
                }
                self.listen();
            }
        }
        match self.control.turn.wait(cost, &self.control.stop, &self.control.screen) {
            Ok(()) => {}
            Err(Refusal::Stopped) => return,
            Err(Refusal::Cost(message)) => {
                let message = self.options.in_field(&message);
                return self.leave_out(line.number, line.whole.len(), &message);
            }
            Err(Refusal::Broken(message)) => return self.control.fail(&message),
        }
        match &self.options.exec {
            None => self.print(line),
            Some(exec) => {
                let job = Job { number: line.number, text: line.text.to_vec(), whole: line.whole.to_vec(), cost };
                self.start(exec.clone(), job);
            }
        }
    }

    fn print(&mut self, line: Line<'_>) {
        match self.control.screen.out(line.whole) {
            Ok(()) => {
                self.tally.taken = line.number;
                self.tally.gone += 1;
                self.control.screen.line_done(line.whole.len());
            }
            Err(error) if error.kind() == ErrorKind::BrokenPipe => self.control.stop(Cause::Closed),
            Err(error) => self.control.fail(&format!("standard output: {error} (at line {})", line.number)),
        }
    }

    fn start(&mut self, exec: exec::Options, job: Job) {
        let started = match exec::start(&self.control, &exec, &job.text, &job.whole) {
            Ok(started) => started,
            Err(NotStarted { message, is_hopeless: true }) => return self.control.fail(&message),
            Err(NotStarted { message, is_hopeless: false }) => {
                let text = crate::replay::show::short(&job.text);
                self.control.screen.error(&format!("line {}, `{text}`: {message}", job.number));
                self.tally.taken = job.number;
                self.tally.failed += 1;
                return;
            }
        };
        self.tally.taken = job.number;
        self.tally.running += 1;
        self.control.screen.line_done(job.whole.len());
        let control = self.control.clone();
        let look_after = move || {
            let succeeded = job::look_after(&control, &exec, &job, started);
            let _ = control.events.send(Event::Ended(succeeded));
        };
        let thread = thread::Builder::new().name("command".to_string()).spawn(look_after);
        if let Err(error) = thread {
            // Its output is closed with what was to look after it.
            self.tally.running -= 1;
            self.tally.failed += 1;
            self.control.fail(&format!("line {}: no thread to look after its command: {error}", self.tally.taken));
        }
    }

    /// Reports a line that cannot go.
    fn leave_out(&mut self, number: u64, bytes: usize, message: &str) {
        let message = format!("line {number}: {message}");
        match self.options.on_error {
            OnError::Skip => {
                self.control.screen.error(&message);
                self.control.screen.line_done(bytes);
                self.tally.taken = number;
                self.tally.left_out += 1;
            }
            OnError::Stop => {
                self.control
                    .fail(&format!("{message}\n  stopped before this line; --on-error skip leaves such lines out"));
            }
        }
    }

    fn await_commands(&mut self) {
        while self.tally.running > 0 {
            self.listen();
        }
    }

    /// Says what is to be said at the end.
    fn end(&self) -> Ending {
        let Tally { taken, gone, failed, left_out, .. } = self.tally;
        let cause = self.control.stop.cause();
        if let Some(Cause::Signal(_)) = cause {
            let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
            let left_out = if left_out > 0 { format!(", {left_out} left out") } else { String::new() };
            let s = if gone == 1 { "" } else { "s" };
            let next = taken + 1;
            self.control
                .screen
                .note(&format!("stopped: {gone} line{s} gone{failed}{left_out}; the next is line {next}"));
        } else if failed + left_out > 0 && cause != Some(Cause::Closed) {
            let all = gone + failed + left_out;
            self.control.screen.note(&format!("{gone} of {all} lines gone, {failed} failed, {left_out} left out"));
        }
        match cause {
            Some(Cause::Signal(signal)) => Ending::Signal(signal),
            Some(Cause::Failed) => Ending::Failed,
            None if failed + left_out > 0 => Ending::Failed,
            // What is left concerns nobody.
            Some(Cause::Closed) | None => Ending::Done,
        }
    }
}
