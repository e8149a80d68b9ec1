//! The events of a log, written down compactly so that the search can go over
//! them again: a few bytes each, in memory while they are few and in an unnamed
//! temporary file when they are many.

use super::reorder::Event;
use super::time::SECOND;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use suimon_core::Cost;

/// What stays in memory.
const MEMORY: usize = 16 * 1024 * 1024;
/// How much of the file is read at a time.
const CHUNK: usize = 256 * 1024;
/// The longest an event can be: four numbers of up to ten bytes.
const LONGEST: usize = 40;

/// Writes events in the order of time, and reads them as often as needed.
#[derive(Debug)]
pub(crate) struct Spool {
    has_costs: bool,
    memory: usize,
    /// What was written first, once it is too much for memory.
    file: Option<File>,
    tail: Vec<u8>,
    last: u64,
}

impl Spool {
    pub(crate) fn new(has_costs: bool) -> Spool {
        Spool::with_memory(has_costs, MEMORY)
    }

    fn with_memory(has_costs: bool, memory: usize) -> Spool {
        Spool { has_costs, memory, file: None, tail: Vec::new(), last: 0 }
    }

    /// Adds an event, which is not earlier than the one before.
    pub(crate) fn push(&mut self, event: &Event) -> io::Result<()> {
        if self.tail.len() + LONGEST > self.memory {
            self.flush()?;
        }
        // Most logs date to the second: then this is one byte.
        let step = event.time - self.last;
        self.last = event.time;
        let step = if step.is_multiple_of(SECOND) { (step / SECOND) << 1 | 1 } else { step << 1 };
        write_number(&mut self.tail, u64::from(event.key));
        write_number(&mut self.tail, step);
        if self.has_costs {
            write_number(&mut self.tail, event.cost.as_whole());
            write_number(&mut self.tail, u64::from(event.cost.subsec_nanos()));
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(tempfile::tempfile()?);
        }
        if let Some(file) = &mut self.file {
            file.write_all(&self.tail)?;
        }
        self.tail.clear();
        Ok(())
    }

    /// Calls `each` with the key, time and cost of every event.
    pub(crate) fn replay(&mut self, mut each: impl FnMut(u32, u64, Cost)) -> io::Result<()> {
        let mut time = 0;
        if let Some(file) = &mut self.file {
            file.seek(SeekFrom::Start(0))?;
            let mut chunk = vec![0; CHUNK + LONGEST];
            let mut kept = 0;
            loop {
                let count = match file.read(&mut chunk[kept..]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read?,
                };
                let all = &chunk[..kept + count];
                // An event may be cut by the end of the chunk, but not by that of the file.
                let margin = if count == 0 { 0 } else { LONGEST };
                let rest = events(all, margin, self.has_costs, &mut time, &mut each).len();
                chunk.copy_within(kept + count - rest..kept + count, 0);
                kept = rest;
                if count == 0 {
                    break;
                }
            }
        }
        events(&self.tail, 0, self.has_costs, &mut time, &mut each);
        Ok(())
    }
}

/// Reads events while more than `margin` bytes are left, and gives back the rest.
fn events<'a>(
    mut bytes: &'a [u8],
    margin: usize,
    has_costs: bool,
    time: &mut u64,
    each: &mut impl FnMut(u32, u64, Cost),
) -> &'a [u8] {
    while bytes.len() > margin {
        let key = read_number(&mut bytes) as u32;
        let step = read_number(&mut bytes);
        *time += if step & 1 == 1 { (step >> 1) * SECOND } else { step >> 1 };
        let cost = if has_costs {
            let (whole, nanos) = (read_number(&mut bytes), read_number(&mut bytes));
            Cost::new(whole, nanos as u32).unwrap_or(Cost::whole(whole))
        } else {
            Cost::ONE
        };
        each(key, *time, cost);
    }
    bytes
}

/// Seven bits a byte, the lowest first; the top bit says that more follow.
fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_number(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    while let [byte, rest @ ..] = *bytes {
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_goes_in_comes_out(
            steps in prop::collection::vec((any::<u32>(), prop_oneof![Just(0), 0_u64..9_000_000_000, (0_u64..90).prop_map(|step| step * SECOND)], any::<u64>(), 0_u32..1_000_000_000), 0..300),
            has_costs: bool,
            memory in LONGEST..2_000,
        ) {
            let mut spool = Spool::with_memory(has_costs, memory);
            let mut time = 1_431_857_103_000_000_000;
            let mut written = Vec::new();
            for (key, step, whole, nanos) in steps {
                time += step;
                let cost = if has_costs { Cost::new(whole, nanos).unwrap() } else { Cost::ONE };
                spool.push(&Event { time, order: 0, key, cost }).unwrap();
                written.push((key, time, cost));
            }
            for _ in 0..2 {
                let mut read = Vec::new();
                spool.replay(|key, time, cost| read.push((key, time, cost))).unwrap();
                prop_assert_eq!(&read, &written);
            }
        }
    }

    #[test]
    fn many_chunks_from_the_file() {
        let mut spool = Spool::with_memory(false, 1000);
        for key in 0..200_000 {
            spool.push(&Event { time: u64::from(key) * 7, order: 0, key, cost: Cost::ONE }).unwrap();
        }
        let mut next = 0;
        spool
            .replay(|key, time, _| {
                assert_eq!((key, time), (next, u64::from(next) * 7));
                next += 1;
            })
            .unwrap();
        assert_eq!(next, 200_000);
    }
}
