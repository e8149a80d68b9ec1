//! The time of a shared limit.
//!
//! Each process reads two clocks: the system's, which all of them share and
//! which can be set, and its own monotonic one, which cannot. At each visit the
//! file's time moves on by what has gone by since the visit before:
//!
//! - If that was the same process, by its monotonic clock.
//! - Otherwise by the difference of the system's clock to what it showed then. If it
//!   was put back meanwhile, that is nothing at all, or too little.
//!
//! So the file's time never goes faster than true time, whichever way the clock is
//! put back, and nothing is minted. It does not stand still until the clock has
//! caught up either: what is lost is at most the time between two visits, once for
//! each step, and nobody waits longer than what was owed at the visit before and
//! what it asks for itself. A clock put forward cannot be told from idling by who was
//! not there, and gives what idling gives: at most the burst. A process that was
//! there before bounds it by its monotonic clock.

use std::time::{Duration, Instant};

use super::record::Record;

/// The two clocks of a process.
pub(super) trait Clocks: std::fmt::Debug + Send + Sync {
    /// The system's clock, in nanoseconds since 1970.
    fn wall(&self) -> u64;
    /// The time since an origin of the process's own.
    fn monotonic(&self) -> Duration;
}

/// Those of the machine.
#[derive(Debug)]
pub(super) struct Machine(Instant);

impl Machine {
    pub(super) fn new() -> Machine {
        Machine(Instant::now())
    }
}

impl Clocks for Machine {
    fn wall(&self) -> u64 {
        crate::pace::turn::wall().as_nanos()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

/// The last visit of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen(Option<Visit>);

#[derive(Clone, Copy, Debug)]
struct Visit {
    monotonic: Duration,
    time: u64,
    wall: u64,
}

impl Seen {
    /// Moves the time of a record on to now.
    pub(super) fn bring_up_to_date(&mut self, record: &mut Record, clocks: &dyn Clocks) {
        let (wall, monotonic) = (clocks.wall(), clocks.monotonic());
        let by_wall = record.time.saturating_add(wall.saturating_sub(record.wall));
        let now = match self.0 {
            Some(visit) => {
                let gone = u64::try_from(monotonic.saturating_sub(visit.monotonic).as_nanos()).unwrap_or(u64::MAX);
                let latest = visit.time.saturating_add(gone);
                let was_last = (visit.time, visit.wall) == (record.time, record.wall);
                if was_last { latest } else { by_wall.min(latest) }
            }
            None => by_wall,
        };
        record.time = record.time.max(now);
        record.wall = wall;
        self.0 = Some(Visit { monotonic, time: record.time, wall });
    }
}
