use super::*;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use std::io::Write;

fn read(bytes: &[u8]) -> (Vec<u8>, Result<Compression, String>) {
    let mut out = Vec::new();
    let result = unpack(Box::new(Cursor::new(bytes.to_vec()))).and_then(|(mut plain, compression)| {
        // Small reads, so that what comes before the damage is not lost.
        let mut buffer = [0; 1000];
        loop {
            match plain.read(&mut buffer)? {
                0 => return Ok(compression),
                count => out.extend_from_slice(&buffer[..count]),
            }
        }
    });
    (out, result.map_err(|error| error.to_string()))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// `printf 'a line\nanother\n' | xz`: this crate's encoder is not built.
const XZ: &[u8] = include_bytes!("two-lines.xz");
const XZ_TEXT: &[u8] = b"a line\nanother\n";

/// Hardly compressible, so that a cut anywhere cuts data.
fn text() -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b' ' + (state >> 33) as u8 % 90
    };
    (0..50_000).map(|_| next()).collect()
}

type Pack = (fn(&[u8]) -> Vec<u8>, Compression);
const PACKERS: [Pack; 3] = [(gzip, Compression::Gzip), (zstd, Compression::Zstd), (bzip2, Compression::Bzip2)];

#[test]
fn one_member_several_and_an_empty_one() {
    let text = text();
    for (pack, compression) in PACKERS {
        assert_eq!(read(&pack(&text)), (text.clone(), Ok(compression)), "{compression}");
        let joined = [pack(&text), pack(b""), pack(b"more")].concat();
        assert_eq!(read(&joined), ([&text[..], b"more"].concat(), Ok(compression)), "{compression}");
    }
    assert_eq!(read(XZ), (XZ_TEXT.to_vec(), Ok(Compression::Xz)));
    assert_eq!(read(&[XZ, XZ].concat()), (XZ_TEXT.repeat(2), Ok(Compression::Xz)));
    assert_eq!(read(&text), (text, Ok(Compression::None)));
    assert_eq!(read(b""), (vec![], Ok(Compression::None)));
    assert_eq!(read(b"\x1f"), (vec![0x1f], Ok(Compression::None)));
}

#[test]
fn frames_without_content_are_passed_over() {
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let joined = [&skippable[..], &zstd(b"text"), &skippable].concat();
    assert_eq!(read(&joined), (b"text".to_vec(), Ok(Compression::Zstd)));
}

#[test]
fn what_was_read_before_the_cut_is_given() {
    let text = text();
    for (pack, compression) in PACKERS {
        let packed = pack(&text);
        for at in [20, packed.len() / 2, packed.len() - 1] {
            let (plain, result) = read(&packed[..at]);
            let error = result.expect_err("a cut file");
            assert!(
                error.contains("cut short") && error.contains(compression.name()),
                "{compression} at {at}: {error}"
            );
            assert!(text.starts_with(&plain), "{compression} at {at}");
            // bzip2 has blocks of 100,000 bytes at least: the first one is cut.
            assert!(
                compression == Compression::Bzip2 || plain.len() + 135_000 > at,
                "{compression} at {at}: {}",
                plain.len()
            );
        }
    }
    let (_, result) = read(&XZ[..XZ.len() - 1]);
    assert!(result.unwrap_err().contains("cut short"));
}

#[test]
fn damage_is_an_error() {
    let text = text();
    for (pack, compression) in PACKERS {
        let mut packed = pack(&text);
        let at = packed.len() - 5;
        packed[at] ^= 0x55;
        let error = read(&packed).1.expect_err("a damaged file");
        assert!(error.contains(compression.name()), "{compression}: {error}");
    }
    let behind = [gzip(b"text"), b"hello".to_vec()].concat();
    let (plain, result) = read(&behind);
    assert_eq!(plain, b"text");
    assert!(result.unwrap_err().contains("something else follows"));
    assert_eq!(read(&[gzip(b"text"), vec![0; 100]].concat()), (b"text".to_vec(), Ok(Compression::Gzip)));
}

#[test]
fn other_archives_are_named_with_their_tool() {
    for (head, tool) in [
        (&b"PK\x03\x04rest"[..], "unzip -p"),
        (b"\x1f\x9d\x90rest", "uncompress -c"),
        (b"\x04\x22\x4d\x18rest", "lz4 -dc"),
    ] {
        assert!(read(head).1.unwrap_err().contains(tool));
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(which in 0_usize..3, at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let mut packed = PACKERS[which].0(b"some text, some more text, and then some");
        let index = at.index(packed.len());
        packed[index] = byte;
        packed.truncate(cut.index(packed.len() + 1));
        let _ = read(&packed);
        let mut packed = XZ.to_vec();
        let index = at.index(packed.len());
        packed[index] = byte;
        let _ = read(&packed);
    }
}
