//! One limit for several processes of a machine, in a file.
//!
//! Whoever wants to pass locks the file, reads the state, books the next start by
//! the gates of the core, writes the state and unlocks: a few microseconds. Then it
//! sleeps until its start. So turns are given in the order in which processes came
//! to the file, nobody has to be alive for the others to go on, and a process that
//! is killed while it waits loses its own turn and no more.
//!
//! Policies made of `pace` and `bucket` keep one word for each limit, which is why
//! the file does not grow; the others keep more and are refused.

mod record;
#[cfg(test)]
mod tests;
mod time;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use suimon_core::{Booking, Cost, Gate, Limit, Policy, State, Timestamp};

use super::Error;
use super::progress::Screen;
use super::stop::Stop;
use super::turn::Refusal;
use record::Record;
use time::{Clocks, Machine, Seen};

/// A limit in a file, as one process sees it.
#[derive(Debug)]
pub(super) struct Shared {
    path: PathBuf,
    policy: String,
    /// One for each limit of the policy.
    gates: Vec<Gate>,
    clocks: Box<dyn Clocks>,
    /// A lock on a file does not hold threads of one process apart.
    file: Mutex<(File, Seen)>,
}

/// A start that has been booked.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// What pauses had moved when it was booked.
    shifted: u64,
    /// The wait from the booking on.
    wait: Duration,
    /// When it was booked, by the process's own clock: that is what it sleeps by.
    booked: Duration,
}

impl Shared {
    /// Joins those who share the file, which is made if there is none.
    pub(super) fn open(path: &Path, policy: &Policy) -> Result<Shared, Error> {
        Shared::with_clocks(path, policy, Box::new(Machine::new()))
    }

    fn with_clocks(path: &Path, policy: &Policy, clocks: Box<dyn Clocks>) -> Result<Shared, Error> {
        let gates = policy.limits().iter().map(gate).collect::<Result<_, _>>()?;
        let failed = |error: String| Error::Io(format!("{}: {error}", path.display()));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| failed(error.to_string()))?;
        if !file.metadata().map_err(|error| failed(error.to_string()))?.is_file() {
            return Err(failed("it is not a regular file, and only such a file can hold a limit".to_string()));
        }
        let file = Mutex::new((file, Seen::default()));
        let shared = Shared { path: path.to_path_buf(), policy: policy.to_string(), gates, clocks, file };
        // Whatever is wrong with the file is known before the first line is read.
        match shared.visit(|_| Ok(())) {
            Ok(()) => Ok(shared),
            Err(Refusal::Broken(message)) => Err(Error::Io(message)),
            Err(Refusal::Cost(_) | Refusal::Stopped) => Err(failed("it cannot be used".to_string())),
        }
    }

    /// Waits until a cost may pass, and takes it.
    pub(super) fn wait(&self, cost: Cost, stop: &Stop, screen: &Screen) -> Result<(), Refusal> {
        if cost.is_zero() {
            return Ok(());
        }
        let place = self.book(cost)?;
        let mut wait = place.wait;
        while !wait.is_zero() {
            screen.waits_until(Instant::now().checked_add(wait));
            let slept = stop.sleep(wait);
            screen.waits_until(None);
            if !slept {
                return Err(Refusal::Stopped);
            }
            // A pause moves the starts of those who have not begun.
            wait = self.left(place)?;
        }
        Ok(())
    }

    /// Books the next start for a cost.
    fn book(&self, cost: Cost) -> Result<Place, Refusal> {
        self.visit(|record| {
            let from = record.time.max(record.paused);
            let (start, words) = self.charge(&record.words, Timestamp::from_nanos(from), cost)?;
            record.words = words;
            let wait = Duration::from_nanos(start.saturating_sub(record.time));
            Ok(Place { shifted: record.shifted, wait, booked: self.clocks.monotonic() })
        })
    }

    /// How long a place has still to wait.
    fn left(&self, place: Place) -> Result<Duration, Refusal> {
        self.visit(|record| {
            let moved = record.shifted.saturating_sub(place.shifted);
            let waited = self.clocks.monotonic().saturating_sub(place.booked);
            Ok(place.wait.saturating_add(Duration::from_nanos(moved)).saturating_sub(waited))
        })
    }

    /// Lets nothing begin for this long: everything that has not begun, and what
    /// limits have to be paid, moves by what the pause adds.
    pub(super) fn pause_for(&self, pause: Duration) -> Result<(), Refusal> {
        let pause = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        self.visit(|record| {
            let was = record.paused.max(record.time);
            let until = record.time.saturating_add(pause).max(was);
            let more = until - was;
            record.paused = until;
            record.shifted = record.shifted.saturating_add(more);
            for (word, gate) in record.words.iter_mut().zip(&self.gates) {
                let ticks = gate.gcra().map_or(0, |gcra| gcra.ticks().at(Timestamp::from_nanos(more)));
                // Rounded up, so that a pause mints nothing.
                *word = word.saturating_add(ticks).saturating_add(u64::from(more > 0));
            }
            Ok(())
        })
    }

    /// The start of a cost that comes at `from`, and the words with it charged.
    ///
    /// The same as the reservation of one gate with all limits: the limit that is
    /// ready last names the start, and the others are charged for then.
    fn charge(&self, words: &[u64], from: Timestamp, cost: Cost) -> Result<(u64, Vec<u64>), Refusal> {
        let refused = |error: suimon_core::Error| Refusal::Cost(error.to_string());
        let mut start = from;
        let mut own_starts = Vec::with_capacity(words.len());
        for (gate, word) in self.gates.iter().zip(words) {
            let mut state = gate.fresh();
            state.set_word(*word);
            let own = gate.ready(&state, from, cost).map_err(refused)?.unwrap_or(Timestamp::MAX);
            start = start.max(own);
            own_starts.push((gate, state, own));
        }
        let charged = |(gate, mut state, own): (&Gate, State, Timestamp)| {
            // Its own start is exact to a tick only from where it was asked.
            let asked = if own == start { from } else { start };
            let booking = gate.reserve(&mut state, asked, cost, None).map_err(refused)?;
            match (booking, state.word()) {
                (Booking::Booked(..), Some(word)) => Ok(word),
                _ => Err(Refusal::Cost(format!("a cost of {cost} can never pass"))),
            }
        };
        let words = own_starts.into_iter().map(charged).collect::<Result<_, _>>()?;
        Ok((start.as_nanos(), words))
    }

    /// Reads the state of now, lets it be changed and writes it, all under the lock.
    fn visit<R>(&self, act: impl FnOnce(&mut Record) -> Result<R, Refusal>) -> Result<R, Refusal> {
        let broken = |error: &dyn std::fmt::Display| Refusal::Broken(format!("{}: {error}", self.path.display()));
        let mut guard: MutexGuard<'_, (File, Seen)> = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, seen) = &mut *guard;
        file.lock().map_err(|error| broken(&format!("it cannot be locked: {error}")))?;
        let file = Locked(file);
        file.check_place().map_err(|error| broken(&error))?;
        let bytes = file.read().map_err(|error| broken(&error))?;
        let mut record = match bytes.as_slice() {
            // Just made, by this process or by one that was killed right then.
            [] => Record::fresh(&self.policy, self.gates.len(), self.clocks.wall()),
            bytes => Record::decode(bytes).map_err(|error| broken(&error))?,
        };
        if record.policy != self.policy || record.words.len() != self.gates.len() {
            return Err(broken(&format!(
                "it holds the limit `{}`, and `{}` is asked for; use that limit or another file",
                record.policy, self.policy
            )));
        }
        seen.bring_up_to_date(&mut record, &*self.clocks);
        let result = act(&mut record)?;
        file.write(&record.encode()).map_err(|error| broken(&error))?;
        Ok(result)
    }
}

/// A file under the exclusive lock.
struct Locked<'a>(&'a File);

impl Locked<'_> {
    /// A file that has been removed or replaced is shared with nobody new.
    fn check_place(&self) -> Result<(), String> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let metadata = self.0.metadata().map_err(|error| error.to_string())?;
            if metadata.nlink() == 0 {
                return Err("it has been removed or replaced while it was in use, so the limit is no longer shared with those who start now; start this anew".to_string());
            }
        }
        Ok(())
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        let mut file = self.0;
        let mut bytes = Vec::with_capacity(512);
        file.seek(SeekFrom::Start(0))?;
        file.take(record::LONGEST).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.0;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(bytes)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Closing the file would unlock it too; nothing else can be done.
        let _ = self.0.unlock();
    }
}

/// A gate for one limit of one word.
fn gate(limit: &Limit) -> Result<Gate, Error> {
    match limit {
        Limit::Pace(_) | Limit::Bucket(_) => Gate::new(limit.clone()).map_err(|error| Error::Usage(error.to_string())),
        _ => Err(Error::Usage(format!(
            "--shared: `{}` cannot be shared through a file; `pace` and `bucket` can, and several of them joined with `and`",
            Policy::from(limit.clone())
        ))),
    }
}
