//! What stands in Redis: one string for each key.
//!
//! It ends with a *tag*, which says under which limits it was written: the limits as
//! text, their version, the length of both, and two bytes that mark the format. A script
//! decides only about values with the tag that it was called with. The others are
//! first carried over by [`carry`](crate::carry).
//!
//! It begins with doubles, little-endian: a number that stands for the tag and is compared
//! sooner (negative where there are leases), the microsecond at which the key expires (0 where
//! that is not known), the *epoch*, the latest instant at which it was decided about, and then for each limit
//!
//! | limit | what is kept |
//! |---|---|
//! | pace, bucket | the theoretical arrival time, and what settling has given back |
//! | window | how many entries, their sum, and each: the instant and the cost |
//! | fixed | the first and the last instant of the latest window, and what was used of it |
//!
//! each of them, but for the count, a pair as in [`units`](crate::units). Where there are leases they follow: how many,
//! the arrival down to which bookings are given back, and for each when it ends, its number, its
//! tokens in units, and its tokens.
//!
//! The epoch is the microsecond in which the value came to be, or a later one. What settling
//! has given back is counted in the value. When that goes, or is carried over to other limits, the
//! count begins anew, and a booking from before would be given back what others got already: so it
//! knows its epoch, and gets nothing in another. A value may therefore go when it is as good as new.

use crate::leases::Leases;
use crate::units::{Units, cost_pair, from_cost_pair, from_nanos_pair, nanos_pair};

const MARK: &[u8; 2] = b"s2";

/// Under which limits a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) version: u64,
    pub(crate) policy: String,
}

impl Tag {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.policy.as_bytes().to_vec();
        bytes.extend_from_slice(&self.version.to_le_bytes());
        // 64 limits at most are shorter than that.
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(MARK);
        bytes
    }

    /// The tag at the end of some bytes, and what is before it.
    pub(crate) fn split(bytes: &[u8]) -> Option<(Tag, &[u8])> {
        let bytes = bytes.strip_suffix(MARK)?;
        let (bytes, length) = bytes.split_last_chunk()?;
        let length = usize::from(u16::from_le_bytes(*length));
        let (rest, tag) = bytes.split_at_checked(bytes.len().checked_sub(length)?)?;
        let (policy, version) = tag.split_last_chunk()?;
        let policy = std::str::from_utf8(policy).ok()?.to_owned();
        Some((Tag { version: u64::from_le_bytes(*version), policy }, rest))
    }

    /// A whole number below 2^53 that no other tag has, in all likelihood: FNV-1a, with its
    /// upper bits mixed into the lower ones.
    pub(crate) fn number(&self) -> f64 {
        let hash = self.to_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        ((hash ^ hash >> 29).wrapping_mul(0x9fb2_1c65_1e98_df25) >> 11) as f64
    }
}

/// What is kept of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Gcra {
        /// The theoretical arrival time, in units.
        arrival: u128,
        /// What settling has given back, in units.
        back: u128,
    },
    Window {
        /// Nanoseconds and billionths of a token, the oldest first.
        entries: Vec<(u64, u128)>,
    },
    Fixed {
        start: u64,
        end: u64,
        used: u128,
    },
    Nothing,
}

/// How a slot is laid out: what a reader has to know of a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Layout {
    Gcra(Units),
    Window,
    Fixed,
    Nothing,
}

/// What stands behind the tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) epoch: u64,
    pub(crate) seen: u64,
    pub(crate) slots: Vec<Slot>,
    pub(crate) leases: Leases,
}

impl Body {
    /// Reads what stands before a tag.
    pub(crate) fn read(bytes: &[u8], tag: &Tag, layouts: impl Iterator<Item = Layout>) -> Option<Body> {
        let mut doubles = Doubles(bytes);
        let [number, _expiry] = doubles.pair()?;
        if number.abs() != tag.number() {
            return None;
        }
        let epoch = doubles.next()? as u64;
        let seen = from_nanos_pair(doubles.pair()?);
        let layouts: Vec<_> = layouts.collect();
        let slots = layouts.iter().map(|layout| doubles.slot(*layout)).collect::<Option<Vec<_>>>()?;
        let leases = if number < 0.0 { Leases::read(&mut doubles, only(&layouts))? } else { Leases::default() };
        doubles.0.is_empty().then_some(Body { epoch, seen, slots, leases })
    }

    /// The value, but for its expiry.
    pub(crate) fn write(&self, tag: &Tag, layouts: impl Iterator<Item = Layout>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let sign = if self.leases.is_empty() { 1.0 } else { -1.0 };
        put(&mut bytes, &[sign * tag.number(), 0.0, self.epoch as f64]);
        put(&mut bytes, &nanos_pair(self.seen));
        let layouts: Vec<_> = layouts.collect();
        for (slot, layout) in self.slots.iter().zip(&layouts) {
            match (slot, layout) {
                (Slot::Gcra { arrival, back }, Layout::Gcra(units)) => {
                    put(&mut bytes, &units.pair(*arrival));
                    put(&mut bytes, &units.pair(*back));
                }
                (Slot::Window { entries }, _) => {
                    put(&mut bytes, &[entries.len() as f64]);
                    put(&mut bytes, &cost_pair(entries.iter().map(|(_, cost)| cost).sum()));
                    for (at, cost) in entries {
                        put(&mut bytes, &nanos_pair(*at));
                        put(&mut bytes, &cost_pair(*cost));
                    }
                }
                (Slot::Fixed { start, end, used }, _) => {
                    put(&mut bytes, &nanos_pair(*start));
                    put(&mut bytes, &nanos_pair(*end));
                    put(&mut bytes, &cost_pair(*used));
                }
                _ => {}
            }
        }
        if !self.leases.is_empty() {
            self.leases.write(&mut bytes, only(&layouts));
        }
        bytes.extend(tag.to_bytes());
        bytes
    }
}

/// The units of one pace or bucket.
fn only(layouts: &[Layout]) -> Option<Units> {
    match layouts {
        [Layout::Gcra(units)] => Some(*units),
        _ => None,
    }
}

/// Appends doubles.
pub(crate) fn put(bytes: &mut Vec<u8>, numbers: &[f64]) {
    for number in numbers {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
}

/// Doubles that are left to be read. Each method is `None` where the bytes are wrong.
pub(crate) struct Doubles<'a>(pub(crate) &'a [u8]);

impl Doubles<'_> {
    pub(crate) fn next(&mut self) -> Option<f64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(f64::from_le_bytes(*bytes))
    }

    pub(crate) fn pair(&mut self) -> Option<[f64; 2]> {
        Some([self.next()?, self.next()?])
    }

    fn slot(&mut self, layout: Layout) -> Option<Slot> {
        Some(match layout {
            Layout::Gcra(units) => {
                Slot::Gcra { arrival: units.of_pair(self.pair()?), back: units.of_pair(self.pair()?) }
            }
            Layout::Window => {
                let (count, _sum) = (self.next()?, self.pair()?);
                let mut entries = Vec::new();
                for _ in 0..count as u64 {
                    entries.push((from_nanos_pair(self.pair()?), from_cost_pair(self.pair()?)));
                }
                Slot::Window { entries }
            }
            Layout::Fixed => Slot::Fixed {
                start: from_nanos_pair(self.pair()?),
                end: from_nanos_pair(self.pair()?),
                used: from_cost_pair(self.pair()?),
            },
            Layout::Nothing => Slot::Nothing,
        })
    }
}

#[cfg(test)]
mod tests {
    use suimon::{Cost, Quota};

    use super::*;
    use crate::leases::Lease;

    #[test]
    fn what_is_written_is_read() {
        let tag = Tag { version: u64::MAX, policy: "bucket 7/s and window 3/10s".to_owned() };
        let units = Units::of(Quota::per_second(7).unwrap()).unwrap();
        let arrival = Slot::Gcra { arrival: 12_571_977_600_000_000_003, back: 5 };
        let all = Body {
            epoch: 1_795_996_800_000_003,
            seen: 1_795_996_800_000_000_001,
            slots: vec![
                arrival.clone(),
                Slot::Window { entries: vec![(1, 2), (1_795_996_800_000_000_001, 1 << 90)] },
                Slot::Fixed { start: 3, end: 9, used: 1 },
            ],
            leases: Leases::default(),
        };
        let lease = |number| Lease { expires: 1_795_996_800_000_000_001, number, tokens: Cost::new(2, 5).unwrap() };
        let leases = Leases { floor: 3, out: vec![lease(7), lease(1_795_996_800_000_000)] };
        let one = Body { slots: vec![arrival], leases, ..all.clone() };
        let all = (all, vec![Layout::Gcra(units), Layout::Window, Layout::Fixed]);
        for (body, layouts) in [all, (one, vec![Layout::Gcra(units)])] {
            let bytes = body.write(&tag, layouts.iter().copied());
            let (read, rest) = Tag::split(&bytes).unwrap();
            assert_eq!(Body::read(rest, &read, layouts.iter().copied()), Some(body));
            assert_eq!(read, tag);
            for cut in 1..bytes.len() {
                let read =
                    |bytes| Tag::split(bytes).and_then(|(tag, rest)| Body::read(rest, &tag, layouts.iter().copied()));
                assert_eq!((read(&bytes[..cut]), read(&bytes[cut..])), (None, None), "{cut}");
            }
        }
        assert_eq!(Tag::split(b"1795996800"), None);
    }

    #[test]
    fn tags_have_numbers_of_their_own() {
        let mut numbers = std::collections::HashSet::new();
        for version in 0..1000 {
            for policy in ["bucket 10/s", "bucket 11/s", "bucket 10/s burst 20"] {
                let number = Tag { version, policy: policy.to_owned() }.number();
                assert!(number.fract() == 0.0 && number < 9_007_199_254_740_992.0);
                assert!(numbers.insert(number.to_bits()));
            }
        }
    }
}
