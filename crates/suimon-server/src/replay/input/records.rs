//! Bytes cut into records: lines, or what CSV takes for one.

use crate::replay::formats::record_end;
use memchr::{memchr, memchr_iter};
use std::io::{self, Read};

/// How much is read at a time.
const CHUNK: usize = 256 * 1024;
/// The longest line that is read; what is longer is no line of a log.
const LONGEST: usize = 1024 * 1024;

/// What separates records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// A line end.
    Lines,
    /// A line end outside quotes.
    Csv {
        /// What separates fields.
        delimiter: u8,
    },
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// The number of its first line, from 1.
    pub(crate) line: u64,
    /// The record without its line end; `None` if it is longer than a line may be.
    pub(crate) bytes: Option<&'a [u8]>,
}

/// Reads records from a stream.
pub(crate) struct Records<R> {
    source: R,
    framing: Framing,
    buffer: Vec<u8>,
    /// What lies between these two in `buffer` has not been handed out.
    start: usize,
    end: usize,
    at_end: bool,
    failed: Option<io::Error>,
    lines: u64,
    /// In the middle of a line that is too long.
    skipping: bool,
}

impl<R: Read> Records<R> {
    pub(crate) fn new(source: R) -> Records<R> {
        Records {
            source,
            framing: Framing::Lines,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            at_end: false,
            failed: None,
            lines: 0,
            skipping: false,
        }
    }

    pub(crate) fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
    }

    /// How many lines have been read.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    /// The beginning of the stream, as much of `length` as there is. An error
    /// in it comes to light when it is read.
    pub(crate) fn peek(&mut self, length: usize) -> &[u8] {
        while self.end - self.start < length && !self.at_end {
            self.fill();
        }
        &self.buffer[self.start..self.end.min(self.start + length)]
    }

    /// The next record; `None` at the end. After a failed read, what came before
    /// it is handed out first, without the line that it cut.
    pub(crate) fn next(&mut self) -> io::Result<Option<Record<'_>>> {
        loop {
            let rest = &self.buffer[self.start..self.end];
            let found = match self.framing {
                Framing::Lines => memchr(b'\n', rest),
                Framing::Csv { delimiter } => record_end(rest, delimiter, self.at_end),
            };
            let (length, line_end) = match found {
                Some(length) => (length, 1),
                None if !self.at_end && rest.len() <= LONGEST => {
                    self.fill();
                    continue;
                }
                None if !self.at_end => {
                    self.skipping = true;
                    self.start = self.end;
                    continue;
                }
                None if self.failed.is_some() => {
                    self.start = self.end;
                    return self.failed.take().map_or(Ok(None), Err);
                }
                None if rest.is_empty() && !self.skipping => return Ok(None),
                None => (rest.len(), 0),
            };
            let from = self.start;
            self.start += length + line_end;
            let line = self.lines + 1;
            let bytes = &self.buffer[from..from + length];
            self.lines += 1;
            if let Framing::Csv { .. } = self.framing {
                self.lines += memchr_iter(b'\n', bytes).count() as u64;
            }
            if std::mem::take(&mut self.skipping) || length > LONGEST {
                return Ok(Some(Record { line, bytes: None }));
            }
            return Ok(Some(Record { line, bytes: Some(bytes.strip_suffix(b"\r").unwrap_or(bytes)) }));
        }
    }

    /// Reads on, behind what is there.
    fn fill(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() < self.end + CHUNK {
            self.buffer.resize(self.end + CHUNK, 0);
        }
        match self.source.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.at_end = true,
            Ok(count) => self.end += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                self.at_end = true;
                self.failed = Some(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives its pieces one by one, then fails if it is to.
    struct Pieces(Vec<Vec<u8>>, bool);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return if self.1 { Err(io::Error::other("broken")) } else { Ok(0) };
            }
            let piece = &mut self.0[0];
            let count = piece.len().min(buffer.len());
            buffer[..count].copy_from_slice(&piece[..count]);
            piece.drain(..count);
            if piece.is_empty() {
                self.0.remove(0);
            }
            Ok(count)
        }
    }

    type Read_ = (Vec<(u64, Option<Vec<u8>>)>, bool);

    fn all(pieces: Vec<Vec<u8>>, fails: bool, framing: Framing) -> Read_ {
        let mut records = Records::new(Pieces(pieces.into_iter().filter(|piece| !piece.is_empty()).collect(), fails));
        records.set_framing(framing);
        let mut out = Vec::new();
        loop {
            match records.next() {
                Ok(Some(record)) => out.push((record.line, record.bytes.map(<[u8]>::to_vec))),
                Ok(None) => return (out, false),
                Err(_) => return (out, true),
            }
        }
    }

    #[test]
    fn lines_with_any_end() {
        let read = |text: &str| all(vec![text.as_bytes().to_vec()], false, Framing::Lines).0;
        let line = |line, text: &str| (line, Some(text.as_bytes().to_vec()));
        assert_eq!(read("a\nb\r\n\nc"), [line(1, "a"), line(2, "b"), line(3, ""), line(4, "c")]);
        assert_eq!(read("a\n"), [line(1, "a")]);
        assert_eq!(read(""), []);
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let mut pieces = vec![b"first\n".to_vec()];
        pieces.extend(vec![vec![b'x'; CHUNK]; 40]);
        pieces.push(b"\nlast\n".to_vec());
        let (read, _) = all(pieces.clone(), false, Framing::Lines);
        assert_eq!(read, [(1, Some(b"first".to_vec())), (2, None), (3, Some(b"last".to_vec()))]);
        let (read, _) = all(pieces[..20].to_vec(), false, Framing::Lines);
        assert_eq!(read, [(1, Some(b"first".to_vec())), (2, None)]);
    }

    #[test]
    fn a_failed_read_comes_after_what_was_whole() {
        let (read, failed) = all(vec![b"a\nb\nhalf a li".to_vec()], true, Framing::Lines);
        assert_eq!(read, [(1, Some(b"a".to_vec())), (2, Some(b"b".to_vec()))]);
        assert!(failed);
    }

    #[test]
    fn records_over_several_lines_keep_the_count() {
        let csv = Framing::Csv { delimiter: b',' };
        let (read, _) = all(vec![b"a,b\n\"1\n2\",3\nx,y\n\"open\nz\n".to_vec()], false, csv);
        let lines: Vec<u64> = read.iter().map(|record| record.0).collect();
        assert_eq!(lines, [1, 2, 4, 5, 6]);
    }

    proptest! {
        #[test]
        fn where_the_pieces_are_cut_does_not_matter(
            text in "[a,\"\r\n]{0,80}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
            fails: bool,
            csv: bool,
        ) {
            let framing = if csv { Framing::Csv { delimiter: b',' } } else { Framing::Lines };
            let text = text.into_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| text[pair[0]..pair[1]].to_vec()).collect();
            prop_assert_eq!(all(pieces, fails, framing), all(vec![text], fails, framing));
        }
    }
}
