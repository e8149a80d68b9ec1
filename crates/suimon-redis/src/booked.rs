//! What the caller keeps of a booking.

use suimon::Cost;

use crate::record::Tag;

/// A booking of one key, by which it can be settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Booked {
    pub(crate) tag: Tag,
    /// That of the value that it was made in.
    pub(crate) epoch: u64,
    pub(crate) start: u64,
    pub(crate) estimate: Cost,
    /// For each limit; those of windows are zero.
    pub(crate) marks: Vec<Mark>,
}

/// How a pace or bucket stood right after a booking, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) arrival: u128,
    /// What had been given back before.
    pub(crate) back: u128,
}

impl Booked {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [self.epoch, self.start] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.estimate.as_whole().to_le_bytes());
        bytes.extend_from_slice(&self.estimate.subsec_nanos().to_le_bytes());
        for number in self.marks.iter().flat_map(|mark| [mark.arrival, mark.back]) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend(self.tag.to_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Booked> {
        let (tag, bytes) = Tag::split(bytes)?;
        let (epoch, bytes) = bytes.split_first_chunk()?;
        let (start, bytes) = bytes.split_first_chunk()?;
        let (whole, bytes) = bytes.split_first_chunk()?;
        let (nanos, bytes) = bytes.split_first_chunk()?;
        let estimate = Cost::new(u64::from_le_bytes(*whole), u32::from_le_bytes(*nanos)).ok()?;
        let (marks, rest) = bytes.as_chunks::<32>();
        let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u128::from_le_bytes(*bytes));
        let mark = |bytes: &[u8; 32]| Some(Mark { arrival: number(bytes)?, back: number(&bytes[16..])? });
        let marks = marks.iter().map(mark).collect::<Option<_>>()?;
        let (epoch, start) = (u64::from_le_bytes(*epoch), u64::from_le_bytes(*start));
        rest.is_empty().then_some(Booked { tag, epoch, start, estimate, marks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_booking_is_read_as_it_was_written() {
        let tag = Tag { version: 3, policy: "bucket 7/s".to_owned() };
        let marks = vec![Mark { arrival: 1 << 100, back: 3 }, Mark::default()];
        let booked = Booked { tag, epoch: 9, start: 7, estimate: Cost::new(2, 5).unwrap(), marks };
        let bytes = booked.to_bytes();
        assert_eq!(Booked::from_bytes(&bytes), Some(booked));
        assert_eq!(Booked::from_bytes(&bytes[1..]), None);
        assert_eq!(Booked::from_bytes(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Booked::from_bytes(&bytes[40..]), None);
    }
}
