//! What a shared file holds, as text that a person can read.
//!
//! All numbers have the same width, so each writing replaces all of the one
//! before with a single write of a few hundred bytes: a process that is killed
//! leaves the old record or the new one.

use std::fmt::Write;

use flate2::Crc;

/// The first line, up to the version of the format.
const MAGIC: &str = "suimon shared limit, version ";
const VERSION: u32 = 1;

/// No record is longer: a policy has at most 64 limits.
pub(super) const LONGEST: u64 = 64 * 1024;

/// The state of a limit that several processes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The limit, as suimon writes it.
    pub(super) policy: String,
    /// The time of this limit in nanoseconds since the file was made; never runs back.
    pub(super) time: u64,
    /// What the system's clock showed then, in nanoseconds since 1970.
    pub(super) wall: u64,
    /// Nothing begins before this time.
    pub(super) paused: u64,
    /// By how much pauses have moved all that had not begun.
    pub(super) shifted: u64,
    /// One word for each limit of the policy.
    pub(super) words: Vec<u64>,
}

impl Record {
    /// A limit that has not been used.
    pub(super) fn fresh(policy: &str, limits: usize, wall: u64) -> Record {
        let words = vec![suimon_core::gcra::FRESH; limits];
        Record { policy: policy.to_string(), time: 0, wall, paused: 0, shifted: 0, words }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut text = format!("{MAGIC}{VERSION}\npolicy {}\n", self.policy);
        for (name, value) in self.numbers() {
            let _ = writeln!(text, "{name} {value:020}");
        }
        for word in &self.words {
            let _ = writeln!(text, "word {word:020}");
        }
        let mut crc = Crc::new();
        crc.update(text.as_bytes());
        let _ = writeln!(text, "crc32 {:08x}", crc.sum());
        text.into_bytes()
    }

    /// Reads a record, or says what is wrong with it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Record, String> {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let Some(rest) = text.strip_prefix(MAGIC) else {
            return Err("it is not a file of `suimon pace --shared`; name another file".to_string());
        };
        let (version, rest) = rest.split_once('\n').unwrap_or((rest, ""));
        if version.parse() != Ok(VERSION) {
            let version = crate::replay::show::short(version.as_bytes());
            return Err(format!("it has version {version} of the format, and this suimon knows version {VERSION}"));
        }
        // Nothing but what this would write itself is right, so the checks are one.
        Record::parse(rest).filter(|record| record.encode() == bytes).ok_or_else(|| {
            "it is damaged or half written. Nothing is known of what has passed: when no process uses it any more, remove it to begin anew".to_string()
        })
    }

    fn parse(rest: &str) -> Option<Record> {
        let mut lines = rest.lines();
        let mut next = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let policy = next("policy")?.to_string();
        let mut number = |name: &str| next(name)?.parse().ok();
        let (time, wall, paused, shifted) = (number("time")?, number("wall")?, number("paused")?, number("shifted")?);
        let words = std::iter::from_fn(|| number("word")).collect();
        Some(Record { policy, time, wall, paused, shifted, words })
    }

    fn numbers(&self) -> [(&'static str, u64); 4] {
        [("time", self.time), ("wall", self.wall), ("paused", self.paused), ("shifted", self.shifted)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn records() -> impl Strategy<Value = Record> {
        let policy = prop_oneof![Just("pace 10/s"), Just("bucket 1/h and pace 10/s savings 2.5")];
        let numbers = any::<(u64, u64, u64, u64)>();
        (policy, numbers, prop::collection::vec(any::<u64>(), 1..4)).prop_map(
            |(policy, (time, wall, paused, shifted), words)| Record {
                policy: policy.to_string(),
                time,
                wall,
                paused,
                shifted,
                words,
            },
        )
    }

    #[test]
    fn a_record_is_text() {
        let text = String::from_utf8(Record::fresh("pace 10/s", 1, 5).encode()).unwrap();
        assert_eq!(text.lines().count(), 8);
        assert!(text.starts_with("suimon shared limit, version 1\npolicy pace 10/s\ntime 00000000000000000000\n"));
    }

    #[test]
    fn what_is_foreign_is_told_apart_from_what_is_damaged() {
        for (bytes, says) in [
            (&b"hello\n"[..], "not a file of"),
            (b"\xff\xfe", "not a file of"),
            (b"suimon shared limit, version 2\n", "has version 2 of the format"),
            (b"suimon shared limit, version 1\npolicy pace 10/s\n", "damaged or half written"),
        ] {
            let error = Record::decode(bytes).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    proptest! {
        #[test]
        fn records_are_read_as_they_were_written(record in records()) {
            prop_assert_eq!(Record::decode(&record.encode()), Ok(record));
        }

        /// Its beginning, and it with any byte changed or added, is an error.
        #[test]
        fn damage_is_noticed(record in records(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let bytes = record.encode();
            let at = at.index(bytes.len());
            prop_assert!(Record::decode(&bytes[..at]).is_err());
            let mut changed = bytes.clone();
            changed[at] = byte;
            prop_assert_eq!(Record::decode(&changed).is_ok(), changed == bytes);
            prop_assert!(Record::decode(&[&bytes[..], &[byte]].concat()).is_err());
        }

        /// One writing covers the one before.
        #[test]
        fn the_length_stays(record in records(), words in any::<(u64, u64)>()) {
            let other = Record { time: words.0, words: vec![words.1; record.words.len()], ..record.clone() };
            prop_assert_eq!(record.encode().len(), other.encode().len());
        }

        #[test]
        fn any_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let headed = [MAGIC.as_bytes(), b"1\n", &bytes].concat();
            prop_assert!(Record::decode(&bytes).is_err() && Record::decode(&headed).is_err());
        }
    }
}
