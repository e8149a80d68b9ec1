//! Files, from their bytes to events in the order of time.

mod decompress;
mod records;

pub use decompress::Compression;

use super::formats::{Detected, Draft, Format, Parser, Wanted, detect};
use super::keys::Keys;
use super::reorder::{Event, MOST, Reorder};
use super::{Cause, Error};
use decompress::unpack;
use records::{Framing, Records};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use suimon_core::Cost;

/// How much of a file is looked at to tell its format.
const HEAD: usize = 64 * 1024;

/// Where a log comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Stdin,
    /// Bytes in memory.
    Memory {
        /// What it is called in the report.
        name: &'static str,
        /// What it holds, compressed or not.
        bytes: &'static [u8],
    },
}

impl Input {
    /// What it is called in the report.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Input::File(path) => path.display().to_string(),
            Input::Stdin => "standard input".to_string(),
            Input::Memory { name, .. } => (*name).to_string(),
        }
    }

    /// Its length in bytes as it is stored, where that is known.
    #[must_use]
    pub fn stored_bytes(&self) -> Option<u64> {
        match self {
            Input::File(path) => path.metadata().ok().filter(std::fs::Metadata::is_file).map(|about| about.len()),
            Input::Stdin => None,
            Input::Memory { bytes, .. } => Some(bytes.len() as u64),
        }
    }

    fn open(&self) -> Result<Box<dyn Read + Send>, Error> {
        match self {
            Input::File(path) => open_file(path),
            Input::Stdin => Ok(Box::new(io::stdin())),
            Input::Memory { bytes, .. } => Ok(Box::new(Cursor::new(*bytes))),
        }
    }
}

fn open_file(path: &Path) -> Result<Box<dyn Read + Send>, Error> {
    if path.is_dir() {
        let advice = format!("it is a directory; name the files in it, as {}", path.join("*.log").display());
        return Err(Error::input(path.display(), advice));
    }
    match File::open(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(Error::input(path.display(), error)),
    }
}

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The file, by its place in the list.
    pub file: usize,
    /// The number of the line, from 1.
    pub line: u64,
    /// Why.
    pub cause: String,
}

/// What was found in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSummary {
    /// What it is called.
    pub name: String,
    /// Its format.
    pub format: Format,
    /// How it is compressed.
    pub compression: Compression,
    /// Its lines.
    pub lines: u64,
    /// Those that could not be read.
    pub unreadable: u64,
    /// Events that came after a later one.
    pub out_of_order: u64,
    /// Those that came too late to be put in their place.
    pub late: u64,
    /// How far behind the latest time an event came, at most, in nanoseconds.
    pub furthest_behind: u64,
    /// Why it could not be read to its end, if so.
    pub damage: Option<String>,
}

/// What all files share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) keys: Keys,
    /// The first unreadable lines.
    pub(crate) unreadable: Vec<Unreadable>,
    /// How many of them are kept.
    pub(crate) keep_unreadable: usize,
    /// Reused from line to line.
    pub(crate) draft: Draft,
}

/// One file, read event by event.
pub(crate) struct Source {
    index: usize,
    records: Records<Box<dyn Read + Send>>,
    parser: Parser,
    reorder: Reorder,
    /// Is the next line that of the names?
    has_header: bool,
    at_end: bool,
    events: u64,
    summary: FileSummary,
}

impl Source {
    /// Opens a file and looks at its first lines. `read` counts the bytes that
    /// are read, as they are stored.
    pub(crate) fn open(
        index: usize,
        input: &Input,
        format: Format,
        wanted: &Wanted,
        window: u64,
        read: &Arc<AtomicU64>,
    ) -> Result<Source, Error> {
        let name = input.name();
        let stored = Counted { inner: input.open()?, read: Arc::clone(read) };
        let (plain, compression) = unpack(Box::new(stored)).map_err(|error| Error::input(&name, error))?;
        let mut records = Records::new(plain);
        let Detected { format, parser } =
            detect(records.peek(HEAD), format, wanted).map_err(|what| Error::usage(&name, what))?;
        let mut has_header = false;
        if let Parser::Csv(csv) = &parser {
            has_header = true;
            records.set_framing(Framing::Csv { delimiter: csv.delimiter() });
        }
        let summary = FileSummary {
            name,
            format,
            compression,
            lines: 0,
            unreadable: 0,
            out_of_order: 0,
            late: 0,
            furthest_behind: 0,
            damage: None,
        };
        Ok(Source {
            index,
            records,
            parser,
            reorder: Reorder::new(window, MOST),
            has_header,
            at_end: false,
            events: 0,
            summary,
        })
    }

    /// The next event by time; `None` at the end.
    pub(crate) fn next(&mut self, shared: &mut Shared) -> Option<Event> {
        loop {
            if let Some(event) = self.reorder.pop(self.at_end) {
                return Some(event);
            }
            if self.at_end {
                return None;
            }
            self.read_one(shared);
        }
    }

    /// Reads a line into the reorder buffer, or finds that it cannot.
    fn read_one(&mut self, shared: &mut Shared) {
        let record = match self.records.next() {
            Ok(Some(record)) => record,
            end => {
                self.summary.damage = end.err().map(|error| error.to_string());
                self.at_end = true;
                return;
            }
        };
        let draft = &mut shared.draft;
        draft.key.clear();
        draft.cost = Cost::ONE;
        let parsed = match record.bytes {
            None => Err(Cause::from("the line is longer than 1 MiB")),
            Some(bytes) if bytes.trim_ascii().is_empty() => return,
            Some(_) if std::mem::take(&mut self.has_header) => return,
            Some(bytes) => self.parser.parse(bytes, draft),
        };
        match parsed {
            Ok(()) => {
                let key = shared.keys.intern(&draft.key);
                self.reorder.push(Event { time: draft.time, order: self.events, key, cost: draft.cost });
                self.events += 1;
            }
            Err(cause) => {
                self.summary.unreadable += 1;
                if shared.unreadable.len() < shared.keep_unreadable {
                    shared.unreadable.push(Unreadable {
                        file: self.index,
                        line: record.line,
                        cause: cause.into_owned(),
                    });
                }
            }
        }
    }

    /// What was found, once it has been read.
    pub(crate) fn summary(&self) -> FileSummary {
        FileSummary {
            lines: self.records.lines(),
            out_of_order: self.reorder.strayed(),
            late: self.reorder.late(),
            furthest_behind: self.reorder.furthest(),
            ..self.summary.clone()
        }
    }
}

/// Several files as one log: whichever has the earliest event is next, and of
/// equal times the file that was named first.
pub(crate) struct Merged {
    sources: Vec<Source>,
    /// The next event of each file that has one.
    waiting: BinaryHeap<Reverse<(u64, usize, Event)>>,
    begun: bool,
}

impl Merged {
    pub(crate) fn new(sources: Vec<Source>) -> Merged {
        Merged { sources, waiting: BinaryHeap::new(), begun: false }
    }

    pub(crate) fn next(&mut self, shared: &mut Shared) -> Option<Event> {
        if let [only] = &mut self.sources[..] {
            return only.next(shared);
        }
        if !std::mem::replace(&mut self.begun, true) {
            for index in 0..self.sources.len() {
                self.advance(index, shared);
            }
        }
        let Reverse((_, index, event)) = self.waiting.pop()?;
        self.advance(index, shared);
        Some(event)
    }

    fn advance(&mut self, index: usize, shared: &mut Shared) {
        if let Some(event) = self.sources[index].next(shared) {
            self.waiting.push(Reverse((event.time, index, event)));
        }
    }

    pub(crate) fn summaries(&self) -> Vec<FileSummary> {
        self.sources.iter().map(Source::summary).collect()
    }
}

/// Counts the bytes that were read.
struct Counted {
    inner: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
