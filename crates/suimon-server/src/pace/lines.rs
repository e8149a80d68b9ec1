//! Bytes cut into lines, whatever they are.
//!
//! Lines come in batches: what one read of the input completed. So a line is there
//! as soon as its end is, and a fast input costs no handing over for each line.

use std::io::{self, ErrorKind, Read};

/// What is read at once.
const CHUNK: usize = 64 * 1024;

/// Where lines end, and how long they may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// The byte that ends a line: a newline, or NUL.
    pub(crate) end: u8,
    /// The most bytes of a line, its end not counted.
    pub(crate) max: usize,
}

/// The lines of a reader.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: R,
    cut: Cut,
    chunk: Box<[u8]>,
    /// The line that has begun and has no end yet; at most `max` bytes.
    begun: Vec<u8>,
    /// The line that has begun is too long: the rest of it is passed over.
    is_passing_over: bool,
    /// The number of the next line.
    number: u64,
}

/// Some lines that follow each other.
#[derive(Debug)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// The offsets behind each line, its end included.
    ends: Vec<usize>,
    first: u64,
    cut: Cut,
    /// The line behind these is too long, and its bytes are not kept.
    is_next_too_long: bool,
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// Counted from 1.
    pub(crate) number: u64,
    /// As it came: with its end, if it has one.
    pub(crate) whole: &'a [u8],
    /// Without its end.
    pub(crate) text: &'a [u8],
}

/// A line that is longer than lines may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    pub(crate) number: u64,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(reader: R, cut: Cut) -> Lines<R> {
        let chunk = vec![0; CHUNK].into_boxed_slice();
        Lines { reader, cut, chunk, begun: Vec::new(), is_passing_over: false, number: 1 }
    }

    /// The lines that the input completes next; `None` at its end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Batch>> {
        loop {
            let read = match self.reader.read(&mut self.chunk) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let batch = if read == 0 {
                let rest = std::mem::take(&mut self.begun);
                let ends = if rest.is_empty() { Vec::new() } else { vec![rest.len()] };
                self.batch(rest, ends)
            } else {
                self.take(read)
            };
            if !batch.ends.is_empty() || batch.is_next_too_long {
                return Ok(Some(batch));
            }
            if read == 0 {
                return Ok(None);
            }
        }
    }

    /// What the first `read` bytes of the chunk complete.
    fn take(&mut self, read: usize) -> Batch {
        let mut new = &self.chunk[..read];
        if self.is_passing_over {
            match memchr::memchr(self.cut.end, new) {
                Some(end) => new = &new[end + 1..],
                None => return self.batch(Vec::new(), Vec::new()),
            }
            self.is_passing_over = false;
        }
        let complete = memchr::memrchr(self.cut.end, new).map_or(0, |end| end + 1);
        let (new, rest) = new.split_at(complete);
        let mut bytes = Vec::new();
        let mut ends = Vec::new();
        if !new.is_empty() {
            bytes = std::mem::take(&mut self.begun);
            let before = bytes.len();
            bytes.extend_from_slice(new);
            ends.extend(memchr::memchr_iter(self.cut.end, new).map(|end| before + end + 1));
        }
        if self.begun.len() + rest.len() > self.cut.max {
            self.begun = Vec::new();
            self.is_passing_over = true;
        } else {
            self.begun.extend_from_slice(rest);
        }
        let mut batch = self.batch(bytes, ends);
        if self.is_passing_over {
            batch.is_next_too_long = true;
            self.number += 1;
        }
        batch
    }

    fn batch(&mut self, bytes: Vec<u8>, ends: Vec<usize>) -> Batch {
        let first = self.number;
        self.number += ends.len() as u64;
        Batch { bytes, ends, first, cut: self.cut, is_next_too_long: false }
    }
}

impl Batch {
    /// Its lines, in order.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Result<Line<'_>, TooLong>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let kept = starts.zip(&self.ends).zip(self.first..).map(|((start, end), number)| {
            let whole = &self.bytes[start..*end];
            let text = whole.strip_suffix(&[self.cut.end]).unwrap_or(whole);
            if text.len() > self.cut.max { Err(TooLong { number }) } else { Ok(Line { number, whole, text }) }
        });
        let behind = TooLong { number: self.first + self.ends.len() as u64 };
        kept.chain(self.is_next_too_long.then_some(Err(behind)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A reader that gives what it has in pieces of these lengths, and is interrupted in between.
    struct Pieces<'a> {
        bytes: &'a [u8],
        lengths: std::iter::Cycle<std::vec::IntoIter<usize>>,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.lengths.next().unwrap_or(1);
            if length == 0 {
                return Err(ErrorKind::Interrupted.into());
            }
            let length = length.min(self.bytes.len()).min(buffer.len());
            let (now, later) = self.bytes.split_at(length);
            buffer[..length].copy_from_slice(now);
            self.bytes = later;
            Ok(length)
        }
    }

    type Numbered = Vec<(u64, Result<Vec<u8>, ()>)>;

    fn read(bytes: &[u8], lengths: Vec<usize>, cut: Cut) -> Numbered {
        let mut lines = Lines::new(Pieces { bytes, lengths: lengths.into_iter().cycle() }, cut);
        let mut all = Vec::new();
        while let Some(batch) = lines.next().unwrap() {
            assert!(batch.bytes.len() <= cut.max.max(CHUNK) + CHUNK);
            all.extend(batch.lines().map(|line| match line {
                Ok(line) => (line.number, Ok(line.whole.to_vec())),
                Err(TooLong { number }) => (number, Err(())),
            }));
        }
        assert!(lines.next().unwrap().is_none(), "the end stays the end");
        all
    }

    fn expected(bytes: &[u8], cut: Cut) -> Numbered {
        let lines = bytes.split_inclusive(|byte| *byte == cut.end);
        let kept = |line: &[u8]| {
            let length = line.strip_suffix(&[cut.end]).unwrap_or(line).len();
            if length > cut.max { Err(()) } else { Ok(line.to_vec()) }
        };
        (1..).zip(lines.map(kept)).collect()
    }

    #[test]
    fn the_last_line_stays_as_it_is() {
        let cut = Cut { end: b'\n', max: 10 };
        assert_eq!(read(b"", vec![1], cut), []);
        assert_eq!(read(b"a\n\nb", vec![100], cut), expected(b"a\n\nb", cut));
        let mut lines = Lines::new(&b"a\r\nb"[..], cut);
        let batch = lines.next().unwrap().unwrap();
        assert_eq!(batch.lines().next(), Some(Ok(Line { number: 1, whole: b"a\r\n", text: b"a\r" })));
        let batch = lines.next().unwrap().unwrap();
        assert_eq!(batch.lines().next(), Some(Ok(Line { number: 2, whole: b"b", text: b"b" })));
    }

    #[test]
    fn a_line_without_end_takes_no_more_than_the_bound() {
        let cut = Cut { end: b'\n', max: 100_000 };
        let mut lines = Lines::new(io::repeat(b'x').take(1 << 28), cut);
        let batch = lines.next().unwrap().unwrap();
        assert_eq!(batch.lines().collect::<Vec<_>>(), [Err(TooLong { number: 1 })]);
        assert!(lines.next().unwrap().is_none());
        assert!(lines.begun.capacity() <= 200_000);
    }

    #[test]
    fn an_error_of_the_input_comes_after_what_was_read() {
        struct Broken(bool);
        impl Read for Broken {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, true) {
                    return Err(io::Error::other("broken"));
                }
                buffer[..4].copy_from_slice(b"a\nbc");
                Ok(4)
            }
        }
        let mut lines = Lines::new(Broken(false), Cut { end: b'\n', max: 10 });
        assert_eq!(lines.next().unwrap().unwrap().lines().count(), 1);
        assert_eq!(lines.next().unwrap_err().to_string(), "broken");
    }

    proptest! {
        /// Cut in any way, the lines are those of the naive split.
        #[test]
        fn lines_are_those_of_a_split(
            bytes in prop::collection::vec(prop_oneof![3 => Just(b'\n'), 2 => Just(0), 9 => any::<u8>()], 0..400),
            lengths in prop::collection::vec(0_usize..40, 0..6),
            end in prop_oneof![Just(b'\n'), Just(0)],
            max in prop_oneof![0_usize..20, Just(1 << 20)],
        ) {
            let cut = Cut { end, max };
            let lengths = [lengths, vec![7]].concat();
            prop_assert_eq!(read(&bytes, lengths, cut), expected(&bytes, cut));
        }

        /// The same across the bounds of chunks.
        #[test]
        fn long_lines_are_those_of_a_split(
            lengths in prop::collection::vec(0_usize..150_000, 0..5),
            max in prop_oneof![Just(100_000_usize), Just(1 << 20)],
        ) {
            let bytes: Vec<u8> = lengths.iter().flat_map(|length| [vec![b'x'; *length], vec![b'\n']].concat()).collect();
            let cut = Cut { end: b'\n', max };
            prop_assert_eq!(read(&bytes, vec![CHUNK], cut), expected(&bytes, cut));
        }
    }
}
