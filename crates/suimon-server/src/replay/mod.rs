//! Replays a log in virtual time: what a policy would have let through and what
//! it would have refused, asking the same gates as the library does.
//!
//! ```text
//! input       files -> bytes -> records      decompress, records
//! formats     record -> time, key, cost      combined, json, csv, detect
//! reorder     events in the order of time
//! engine      each event -> every policy     timeline
//! spool       the events, for the search
//! search      the smallest limit
//! report      text, JSON, HTML, SVG
//! ```
//!
//! Memory grows with the number of keys, never with that of lines.

mod engine;
mod error;
mod formats;
mod input;
mod keys;
mod outcome;
mod reorder;
pub mod report;
mod search;
pub(crate) mod show;
mod spool;
pub mod time;
mod timeline;

pub use engine::Sum;
pub use error::Error;
pub use formats::{Format, Wanted};
pub use input::{Compression, FileSummary, Input, Unreadable};
pub use outcome::{Outcome, PolicyOutcome, RefusedKey};
pub use search::{Axis, Found, Smallest};
pub use timeline::Timeline;

use engine::Engine;
use input::{Merged, Shared, Source};
use spool::Spool;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use suimon_core::{Gate, Policy};

/// Why a line cannot be read. Allocates nothing in most cases: there may be
/// millions of such lines.
pub(crate) type Cause = Cow<'static, str>;

/// How many events lie between two looks at the clock for the progress bar.
const STEP: u64 = 8192;

/// What to replay, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The logs.
    pub inputs: Vec<Input>,
    /// Their format.
    pub format: Format,
    /// The fields that matter.
    pub wanted: Wanted,
    /// How far out of order a line may be.
    pub reorder: Duration,
    /// The policies, side by side; the first is the one that is asked about.
    pub policies: Vec<Policy>,
    /// How many of the most refused keys are named.
    pub top: usize,
    /// How many of the unreadable lines are named.
    pub show_unreadable: usize,
    /// Is the smallest limit searched?
    pub search: bool,
}

/// How far the replay is.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// It has read this many bytes of all files, as they are stored, and replayed these events.
    Reading {
        /// Bytes.
        bytes: u64,
        /// Events.
        events: u64,
    },
    /// It tries a number in a limit.
    Searching {
        /// What is varied.
        axis: Axis,
        /// The number that is tried.
        value: u64,
    },
    /// It is at the end.
    Done(&'a Outcome),
}

/// A policy ready to decide, in the time zones of the IANA database.
pub(crate) fn gate(policy: impl Into<Policy>) -> Result<Gate, suimon_core::Error> {
    Gate::with_calendar(policy, &suimon::zones::Zones)
}

/// Replays the logs.
///
/// A file that is damaged on the way does not end the replay: what could be read
/// is in the outcome, and [`FileSummary::damage`] says what happened.
///
/// # Errors
///
/// A file that cannot be opened, a format that cannot be told, a field that is
/// not there, a policy whose time zone is unknown, and a log of which not one
/// line can be read.
pub fn run(options: &Options, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Outcome, Error> {
    let gates = options.policies.iter().map(|policy| gate(policy.clone())).collect::<Result<Vec<_>, _>>();
    let mut engine = Engine::new(gates.map_err(|error| Error::usage("--policy", error))?);

    let read = Arc::new(AtomicU64::new(0));
    let window = u64::try_from(options.reorder.as_nanos()).unwrap_or(u64::MAX);
    let open = |(index, input)| Source::open(index, input, options.format, &options.wanted, window, &read);
    let mut log = Merged::new(options.inputs.iter().enumerate().map(open).collect::<Result<_, _>>()?);
    let mut shared = Shared { keep_unreadable: options.show_unreadable, ..Shared::default() };
    let mut spool = options.search.then(|| Spool::new(options.wanted.cost.is_some()));

    while let Some(event) = log.next(&mut shared) {
        engine.feed(&event);
        if let Some(spool) = &mut spool {
            spool.push(&event).map_err(Error::spool)?;
        }
        if engine.requests.is_multiple_of(STEP) {
            progress(Progress::Reading { bytes: read.load(Ordering::Relaxed), events: engine.requests });
        }
    }
    let files = log.summaries();
    if engine.requests == 0 {
        refuse_unreadable(&files, &shared)?;
    }

    let mut found = Vec::new();
    for run in &engine.runs {
        found.push(match &mut spool {
            Some(spool) if engine.requests > 0 => {
                Some(search::search(&engine, run, spool, progress).map_err(Error::spool)?)
            }
            _ => None,
        });
    }
    let outcome = outcome::build(options, engine, shared, files, found);
    progress(Progress::Done(&outcome));
    Ok(outcome)
}

/// Not one line could be read: that is not an empty log but a wrong option.
fn refuse_unreadable(files: &[FileSummary], shared: &Shared) -> Result<(), Error> {
    let Some(file) = files.iter().find(|file| file.unreadable > 0) else { return Ok(()) };
    let example =
        shared.unreadable.first().map_or(String::new(), |line| format!("; line {}: {}", line.line, line.cause));
    let what = format!(
        "not one of its {} lines could be read as {}{example}; see --format, --time, --key and --cost",
        file.lines,
        file.format.name()
    );
    Err(Error::input(&file.name, what))
}
