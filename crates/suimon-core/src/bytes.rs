//! States and reservations as bytes, for stores that keep them.
//!
//! A first byte tells the format; numbers are little-endian. What cannot have been
//! written here is refused: a store may hand out anything.

use alloc::vec::Vec;

use crate::cost::Cost;
use crate::error::Error;
use crate::fixed::Count;
use crate::reserve::{Marks, Reservation};
use crate::rule::Mark;
use crate::state::{Slot, State};
use crate::time::Timestamp;
use crate::window::Log;

const FORMAT: u8 = 1;

const WORD: u8 = 0;
const LOG: u8 = 1;
const COUNT: u8 = 2;
const NOTHING: u8 = 3;

impl State {
    /// The state as bytes. The version of the limits is not among them: a store keeps
    /// beside them what tells the policy.
    ///
    /// ```
    /// use suimon_core::{Cost, Gate, Policy, State, Timestamp};
    ///
    /// let gate = Gate::new("bucket 10/s and window 100/h".parse::<Policy>()?)?;
    /// let mut state = gate.fresh();
    /// gate.allow(&mut state, Timestamp::from_secs(5), Cost::whole(3))?;
    /// assert_eq!(State::from_bytes(&state.to_bytes())?, state);
    /// assert!(State::from_bytes(b"something else").unwrap_err().is_corrupt());
    /// # Ok::<(), suimon_core::Error>(())
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(24);
        bytes.push(FORMAT);
        for slot in self.slots() {
            match slot {
                Slot::Word { word, refunded } => {
                    bytes.push(WORD);
                    put(&mut bytes, &[*word, *refunded]);
                }
                Slot::Log(log) => {
                    bytes.push(LOG);
                    let entries = log.entries();
                    put(&mut bytes, &[u64::try_from(entries.len()).unwrap_or(u64::MAX)]);
                    for (at, cost) in entries {
                        put(&mut bytes, &[at.as_nanos()]);
                        put_cost(&mut bytes, cost);
                    }
                }
                Slot::Count(count) => {
                    bytes.push(COUNT);
                    let (start, end, used) = count.parts();
                    put(&mut bytes, &[start.as_nanos(), end.as_nanos()]);
                    put_cost(&mut bytes, used);
                }
                Slot::Nothing => bytes.push(NOTHING),
            }
        }
        bytes
    }

    /// The inverse of [`to_bytes`](State::to_bytes), for gates that have not been
    /// [changed](crate::Gate::changed).
    ///
    /// # Errors
    /// [`Error::is_corrupt`] when the bytes are none of a state.
    pub fn from_bytes(bytes: &[u8]) -> Result<State, Error> {
        let mut reader = Reader::new(bytes).ok_or_else(Error::corrupt)?;
        let mut slots = Vec::new();
        while !reader.is_empty() {
            slots.push(reader.slot().ok_or_else(Error::corrupt)?);
        }
        Ok(State::new(0, slots))
    }
}

impl Reservation {
    /// The reservation as bytes, to be settled by somebody else: once.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        bytes.push(FORMAT);
        put(&mut bytes, &[self.asked.as_nanos(), self.start.as_nanos()]);
        put_cost(&mut bytes, self.estimate);
        for mark in self.marks.as_slice() {
            let (word, refunded) = mark.parts();
            put(&mut bytes, &[word, refunded]);
        }
        bytes
    }

    /// The inverse of [`to_bytes`](Reservation::to_bytes), for gates that have not been
    /// [changed](crate::Gate::changed).
    ///
    /// # Errors
    /// [`Error::is_corrupt`] when the bytes are none of a reservation.
    pub fn from_bytes(bytes: &[u8]) -> Result<Reservation, Error> {
        let read = || {
            let mut reader = Reader::new(bytes)?;
            let (asked, start, estimate) = (reader.instant()?, reader.instant()?, reader.cost()?);
            let mut marks = Vec::new();
            while !reader.is_empty() {
                marks.push(Mark::new(reader.number()?, reader.number()?));
            }
            Some(Reservation { version: 0, asked, start, estimate, marks: Marks::of(marks.into_iter()) })
        };
        read().ok_or_else(Error::corrupt)
    }
}

fn put(bytes: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
}

fn put_cost(bytes: &mut Vec<u8>, cost: Cost) {
    put(bytes, &[cost.as_whole()]);
    bytes.extend_from_slice(&cost.subsec_nanos().to_le_bytes());
}

/// What is left to be read. Each method is `None` where the bytes are wrong.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Option<Reader<'a>> {
        let (format, rest) = bytes.split_first()?;
        (*format == FORMAT).then_some(Reader(rest))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn instant(&mut self) -> Option<Timestamp> {
        self.number().map(Timestamp::from_nanos)
    }

    fn cost(&mut self) -> Option<Cost> {
        let whole = self.number()?;
        Cost::new(whole, self.take().map(u32::from_le_bytes)?).ok()
    }

    fn slot(&mut self) -> Option<Slot> {
        let [kind] = self.take()?;
        Some(match kind {
            WORD => Slot::Word { word: self.number()?, refunded: self.number()? },
            LOG => {
                let mut entries = Vec::new();
                let mut last = None;
                for _ in 0..self.number()? {
                    let (at, cost) = (self.instant()?, self.cost()?);
                    // One entry for each instant, the oldest first.
                    if last.is_some_and(|last| last >= at) {
                        return None;
                    }
                    last = Some(at);
                    entries.push((at, cost));
                }
                Slot::Log(alloc::boxed::Box::new(Log::from_entries(entries)))
            }
            COUNT => Slot::Count(Count::from_parts(self.instant()?, self.instant()?, self.cost()?)),
            NOTHING => Slot::Nothing,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gate, Policy};

    #[test]
    fn what_is_written_is_read_and_goes_on_alike() {
        let policy = "pace 7/s savings 3 and window 5/10s and fixed 9/min and unlimited";
        let gate = Gate::new(policy.parse::<Policy>().unwrap()).unwrap();
        let mut state = gate.fresh();
        for second in 0..40 {
            let now = Timestamp::from_secs(second);
            let cost = Cost::new(1, 500_000_000).unwrap();
            let mut read = State::from_bytes(&state.to_bytes()).unwrap();
            assert_eq!(read, state);
            assert_eq!(gate.allow(&mut read, now, cost), gate.allow(&mut state, now, cost));
            let booked = gate.reserve(&mut state, now, Cost::ONE, None).unwrap().reservation().unwrap();
            let again = Reservation::from_bytes(&booked.to_bytes()).unwrap();
            assert_eq!(again, booked);
            let mut other = state.clone();
            assert_eq!(
                gate.settle(&mut state, now, booked, Cost::ZERO),
                gate.settle(&mut other, now, again, Cost::ZERO)
            );
            assert_eq!(state, other);
        }
    }

    #[test]
    fn whatever_else_is_corrupt() {
        let gate = Gate::new("bucket 1/s and window 5/10s".parse::<Policy>().unwrap()).unwrap();
        let mut state = gate.fresh();
        for second in 1..4 {
            gate.allow(&mut state, Timestamp::from_secs(second), Cost::ONE).unwrap();
        }
        let bytes = state.to_bytes();
        for cut in 0..bytes.len() {
            // Cut between two slots it is a state, of another policy.
            let is_between = cut == 1 || cut == 18;
            let read = State::from_bytes(&bytes[..cut]);
            assert_eq!(read.is_ok(), is_between, "{cut}");
            if let Ok(mut read) = read {
                assert!(gate.allow(&mut read, Timestamp::from_secs(9), Cost::ONE).unwrap_err().is_stale());
            }
        }
        for flip in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[flip] ^= 0xff;
            // Never a panic; a number more or less is a state as well.
            if let Ok(mut read) = State::from_bytes(&wrong) {
                let _ = gate.allow(&mut read, Timestamp::from_secs(9), Cost::ONE);
            }
        }
        assert!(State::from_bytes(&[]).is_err() && Reservation::from_bytes(&[1, 2]).is_err());
    }
}
