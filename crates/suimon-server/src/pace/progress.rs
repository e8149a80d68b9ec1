//! What is printed, and the progress below it.
//!
//! All output goes through [`Screen`], so that the progress on a terminal makes
//! room for it.

use std::fmt;
use std::io::{self, IsTerminal, Seek, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::terminal;

/// How often the progress is drawn anew while nothing happens.
const TICK: Duration = Duration::from_millis(200);

/// Standard output and standard error, with a progress line where that can be shown.
#[derive(Debug)]
pub(super) struct Screen {
    bar: Option<ProgressBar>,
    seen: Arc<Seen>,
    is_quiet: bool,
    /// Does standard output go where the progress is?
    is_shared: bool,
}

/// What the progress tells.
#[derive(Debug)]
struct Seen {
    begun: Instant,
    lines: AtomicU64,
    /// When the next line goes.
    due: Mutex<Option<Instant>>,
}

impl Screen {
    /// `prints_lines`: lines come to standard output, and on a terminal are progress enough.
    pub(super) fn new(is_quiet: bool, prints_lines: bool) -> Screen {
        let seen = Arc::new(Seen { begun: Instant::now(), lines: AtomicU64::new(0), due: Mutex::new(None) });
        let is_shared = io::stdout().is_terminal();
        let shows = io::stderr().is_terminal() && !is_quiet && !(is_shared && prints_lines);
        let bar = shows.then(|| {
            let total = stdin_bytes();
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
            bar.set_style(style(&seen, total.is_some()));
            bar.enable_steady_tick(TICK);
            bar
        });
        Screen { bar, seen, is_quiet, is_shared }
    }

    /// Writes to standard output, at once.
    pub(super) fn out(&self, bytes: &[u8]) -> io::Result<()> {
        let write = || {
            let mut out = io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        };
        if self.is_shared { self.beside(write) } else { write() }
    }

    /// Passes on what a command wrote to standard error.
    pub(super) fn err(&self, bytes: &[u8]) -> io::Result<()> {
        self.beside(|| io::stderr().lock().write_all(bytes))
    }

    pub(super) fn error(&self, message: &str) {
        self.beside(|| terminal::error(message));
    }

    /// Says what is good to know, unless nothing but errors is wanted.
    pub(super) fn note(&self, message: &str) {
        if !self.is_quiet {
            // There is nobody left to tell if this fails.
            self.beside(|| drop(writeln!(io::stderr(), "{message}")));
        }
    }

    /// A line of so many bytes has been dealt with.
    pub(super) fn line_done(&self, bytes: usize) {
        if let Some(bar) = &self.bar {
            self.seen.lines.fetch_add(1, Ordering::Relaxed);
            bar.inc(bytes as u64);
        }
    }

    /// The next line goes at this time.
    pub(super) fn waits_until(&self, due: Option<Instant>) {
        if self.bar.is_some() {
            *self.seen.due.lock().unwrap_or_else(PoisonError::into_inner) = due;
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn beside<R>(&self, write: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

impl Seen {
    fn lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }

    fn wait(&self) -> Duration {
        let due = *self.due.lock().unwrap_or_else(PoisonError::into_inner);
        due.map_or(Duration::ZERO, |due| due.saturating_duration_since(Instant::now()))
    }
}

/// What is left of standard input, if it is a regular file.
fn stdin_bytes() -> Option<u64> {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd;
        let mut file = std::fs::File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
        let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(metadata.len().saturating_sub(file.stream_position().ok()?))
    }
    #[cfg(not(unix))]
    None
}

/// The templates are fixed, so the plain bar never takes their place.
fn style(seen: &Arc<Seen>, has_total: bool) -> ProgressStyle {
    let template = if has_total {
        "{bar:30} {percent:>3} %  {lines} lines  {pace}  {eta} left  {next}"
    } else {
        "{spinner} {lines} lines  {pace}  {next}"
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let style = if terminal::is_unicode() { style } else { style.progress_chars("#>-").tick_chars("|/-\\ ") };
    let (lines, pace, next) = (seen.clone(), seen.clone(), seen.clone());
    // Writing to a text cannot fail.
    style
        .with_key("lines", move |_: &ProgressState, out: &mut dyn fmt::Write| {
            let _ = write!(out, "{}", lines.lines());
        })
        .with_key("pace", move |_: &ProgressState, out: &mut dyn fmt::Write| {
            let _ = out.write_str(&rate(pace.lines(), pace.begun.elapsed()));
        })
        .with_key("next", move |_: &ProgressState, out: &mut dyn fmt::Write| {
            let _ = out.write_str(&waiting(next.wait()));
        })
}

/// Lines a second, or a minute where that says more.
fn rate(lines: u64, time: Duration) -> String {
    let a_second = lines as f64 / time.as_secs_f64().max(0.001);
    if a_second < 1.0 { format!("{:.1}/min", a_second * 60.0) } else { format!("{a_second:.1}/s") }
}

/// The wait for the next line, where it is long enough to be read.
fn waiting(wait: Duration) -> String {
    match wait.as_secs() {
        0 if wait < TICK * 2 => String::new(),
        0..60 => format!("next in {:.1} s", wait.as_secs_f64()),
        60..3600 => format!("next in {:.0} min", wait.as_secs_f64() / 60.0),
        _ => format!("next in {:.1} h", wait.as_secs_f64() / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_waits_are_short() {
        assert_eq!(rate(25, Duration::from_millis(2500)), "10.0/s");
        assert_eq!(rate(1, Duration::from_secs(10)), "6.0/min");
        assert_eq!(rate(0, Duration::ZERO), "0.0/min");
        let waits = [100, 1500, 59_999, 600_000, 9_000_000].map(|ms| waiting(Duration::from_millis(ms)));
        assert_eq!(waits, ["", "next in 1.5 s", "next in 60.0 s", "next in 10 min", "next in 2.5 h"]);
    }

    /// A terminal that keeps what is written to it.
    #[derive(Clone, Debug, Default)]
    struct Paper(Arc<Mutex<String>>);

    impl indicatif::TermLike for Paper {
        fn width(&self) -> u16 {
            120
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_templates_are_right() {
        for has_total in [false, true] {
            let seen = Arc::new(Seen { begun: Instant::now(), lines: AtomicU64::new(7), due: Mutex::new(None) });
            *seen.due.lock().unwrap() = Instant::now().checked_add(Duration::from_secs(5000));
            let paper = Paper::default();
            let target = ProgressDrawTarget::term_like(Box::new(paper.clone()));
            let bar = ProgressBar::with_draw_target(has_total.then_some(100), target);
            bar.set_style(style(&seen, has_total));
            bar.set_position(50);
            bar.tick();
            let shown = paper.0.lock().unwrap().clone();
            assert!(shown.contains("7 lines") && shown.contains("next in 1.4 h"), "{shown}");
            assert_eq!(shown.contains(" 50 %"), has_total, "{shown}");
        }
    }
}
