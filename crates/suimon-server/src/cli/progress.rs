//! The progress bar of long files.

use crate::replay::Progress;
use crate::terminal::is_unicode;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Work that is over sooner shows no bar.
const PATIENCE: Duration = Duration::from_millis(400);

/// A bar on standard error, if that is a terminal.
pub(super) struct Bar {
    bar: Option<ProgressBar>,
    total: Option<u64>,
    begun: Instant,
    is_searching: bool,
}

impl Bar {
    /// For files of `total` bytes, where that is known.
    pub(super) fn new(total: Option<u64>) -> Bar {
        let bar =
            std::io::stderr().is_terminal().then(|| ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden()));
        Bar { bar, total, begun: Instant::now(), is_searching: false }
    }

    pub(super) fn show(&mut self, progress: Progress<'_>) {
        let Some(bar) = &self.bar else { return };
        if bar.is_hidden() && self.begun.elapsed() > PATIENCE {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.set_style(reading(self.total.is_some()));
        }
        match progress {
            Progress::Reading { bytes, events } => {
                bar.set_position(bytes);
                bar.set_message(format!("{events} requests"));
            }
            Progress::Searching { axis, value } => {
                if !self.is_searching {
                    self.is_searching = true;
                    bar.set_style(searching());
                }
                bar.set_message(format!("trying {} {value}", axis.name()));
                bar.tick();
            }
            Progress::Done(_) => bar.finish_and_clear(),
        }
    }
}

fn reading(has_total: bool) -> ProgressStyle {
    let template = if has_total {
        "{bar:30} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {msg}  {eta} left"
    } else {
        "{spinner} {bytes}  {bytes_per_sec}  {msg}"
    };
    style(template)
}

fn searching() -> ProgressStyle {
    style("{spinner} the smallest limit: {msg}")
}

/// The templates are fixed, so the plain bar never takes their place.
fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    if is_unicode() { style } else { style.progress_chars("#>-").tick_chars("|/-\\ ") }
}
