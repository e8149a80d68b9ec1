//! Compressed files, told by their first bytes and never by their name.

use flate2::bufread::GzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::fmt;
use std::io::{self, BufRead, BufReader, Cursor, Read};

/// The compressed bytes that are read at a time.
const CHUNK: usize = 64 * 1024;
/// The largest memory an xz file may ask for, in KiB: what `xz -9` needs, twice.
const XZ_MEMORY: u32 = 128 * 1024;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// It is not.
    None,
    /// gzip, of one member or several.
    Gzip,
    /// Zstandard, of one frame or several.
    Zstd,
    /// bzip2.
    Bzip2,
    /// xz.
    Xz,
}

impl Compression {
    /// Its name in a report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Bzip2 => "bzip2",
            Compression::Xz => "xz",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

type Bytes = Box<dyn Read + Send>;
type Source = BufReader<io::Chain<Cursor<Vec<u8>>, Bytes>>;

/// Reads what `file` holds, unpacked.
pub(crate) fn unpack(mut file: Bytes) -> io::Result<(Bytes, Compression)> {
    let mut head = Vec::with_capacity(6);
    file.by_ref().take(6).read_to_end(&mut head)?;
    let compression = match head[..] {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Compression::Bzip2,
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Compression::Xz,
        _ => {
            if let Some((what, tool)) = other(&head) {
                let advice =
                    format!("it is {what}, which is not read directly; `{tool} FILE | suimon replay ... -` does it");
                return Err(io::Error::new(io::ErrorKind::Unsupported, advice));
            }
            Compression::None
        }
    };
    let whole = Cursor::new(head).chain(file);
    if compression == Compression::None {
        return Ok((Box::new(whole), compression));
    }
    let source = BufReader::with_capacity(CHUNK, whole);
    let plain: Bytes = match compression {
        Compression::Gzip => Box::new(Members { current: None, source: Some(source), open: open_gzip, begun: false }),
        Compression::Zstd => Box::new(Members { current: None, source: Some(source), open: open_zstd, begun: false }),
        Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(source)),
        Compression::Xz | Compression::None => Box::new(lzma_rust2::XzReader::new_mem_limit(source, true, XZ_MEMORY)),
    };
    Ok((Box::new(Damage { plain, compression }), compression))
}

/// Formats that are told apart but not read, and the tool that unpacks them.
fn other(head: &[u8]) -> Option<(&'static str, &'static str)> {
    match head {
        [b'P', b'K', 3, 4, ..] => Some(("a zip archive", "unzip -p")),
        [0x04, 0x22, 0x4d, 0x18, ..] => Some(("an lz4 file", "lz4 -dc")),
        [0x1f, 0x9d, ..] => Some(("a compress (.Z) file", "uncompress -c")),
        [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c] => Some(("a 7-Zip archive", "7z x -so")),
        [b'L', b'Z', b'I', b'P', ..] => Some(("an lzip file", "lzip -dc")),
        _ => None,
    }
}

/// Says that an archive is damaged, where its reader would only say how.
struct Damage {
    plain: Bytes,
    compression: Compression,
}

impl Read for Damage {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.plain.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(
                error.kind(),
                format!("the {} data ends too early: the file was cut short", self.compression),
            ),
            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => error,
            kind => io::Error::new(kind, format!("the {} data is damaged: {error}", self.compression)),
        })
    }
}

/// A reader of one member of an archive, which gives the rest back at its end.
trait Member: Read + Send {
    fn rest(self: Box<Self>) -> Source;
}

/// Opens the member that begins here.
type Open = fn(Source) -> io::Result<Opened>;

enum Opened {
    Member(Box<dyn Member>),
    /// There was something without content.
    Skipped(Source),
    /// What follows is no member.
    Foreign,
}

/// The members of an archive one after the other: `gzip` and `zstd` files may
/// be joined with `cat`, and parallel compressors write many.
struct Members {
    current: Option<Box<dyn Member>>,
    source: Option<Source>,
    open: Open,
    begun: bool,
}

impl Read for Members {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(member) = &mut self.current {
                let count = member.read(buffer)?;
                if count > 0 || buffer.is_empty() {
                    return Ok(count);
                }
                self.source = self.current.take().map(Member::rest);
            }
            let Some(mut source) = self.source.take() else { return Ok(0) };
            if source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            if self.begun && only_zeros(&mut source)? {
                return Ok(0);
            }
            match (self.open)(source)? {
                Opened::Member(member) => self.current = Some(member),
                Opened::Skipped(source) => self.source = Some(source),
                Opened::Foreign => {
                    let what = "behind its end something else follows";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
            }
            self.begun = true;
        }
    }
}

/// Tapes and some tools fill the last block with zeros.
fn only_zeros(source: &mut Source) -> io::Result<bool> {
    loop {
        let bytes = source.fill_buf()?;
        match bytes.iter().position(|byte| *byte != 0) {
            None if bytes.is_empty() => return Ok(true),
            None => {
                let count = bytes.len();
                source.consume(count);
            }
            Some(zeros) => {
                source.consume(zeros);
                return Ok(false);
            }
        }
    }
}

impl Member for GzDecoder<Source> {
    fn rest(self: Box<Self>) -> Source {
        self.into_inner()
    }
}

fn open_gzip(mut source: Source) -> io::Result<Opened> {
    if source.fill_buf()?.first() != Some(&0x1f) {
        return Ok(Opened::Foreign);
    }
    Ok(Opened::Member(Box::new(GzDecoder::new(source))))
}

/// A frame of Zstandard.
struct Frame {
    decoder: FrameDecoder,
    source: Source,
}

impl Read for Frame {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
            let decoded = self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1));
            decoded.map_err(zstd_error)?;
        }
        let count = self.decoder.read(buffer)?;
        if count == 0 && !buffer.is_empty() {
            let (said, counted) = (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
            if said.is_some() && said != counted {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the checksum does not agree"));
            }
        }
        Ok(count)
    }
}

impl Member for Frame {
    fn rest(self: Box<Self>) -> Source {
        self.source
    }
}

fn open_zstd(mut source: Source) -> io::Result<Opened> {
    let mut decoder = FrameDecoder::new();
    match decoder.init(&mut source) {
        Ok(()) => Ok(Opened::Member(Box::new(Frame { decoder, source }))),
        Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
            let length = u64::from(length);
            if io::copy(&mut source.by_ref().take(length), &mut io::sink())? < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(Opened::Skipped(source))
        }
        Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::BadMagicNumber(_))) => Ok(Opened::Foreign),
        Err(error) => Err(zstd_error(error)),
    }
}

fn zstd_error(error: FrameDecoderError) -> io::Error {
    if is_cut(&error) { io::ErrorKind::UnexpectedEof.into() } else { io::Error::new(io::ErrorKind::InvalidData, error) }
}

/// Did the decoder fail because there was no more to read? It tells only
/// through the errors below its own.
fn is_cut(error: &FrameDecoderError) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
#[path = "decompress_tests.rs"]
mod tests;
