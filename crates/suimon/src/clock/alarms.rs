use std::collections::{BTreeMap, HashMap};

use super::Alarm;

/// Alarms by the time at which they ring, one for each limiter.
#[derive(Debug)]
pub(super) struct Alarms<T> {
    by_time: BTreeMap<(T, u64), Alarm>,
    times: HashMap<u64, T>,
}

impl<T: Ord + Copy> Alarms<T> {
    pub(super) fn new() -> Alarms<T> {
        Alarms { by_time: BTreeMap::new(), times: HashMap::new() }
    }

    /// Sets an alarm, in place of the one that the same limiter had.
    pub(super) fn set(&mut self, at: T, alarm: Alarm) {
        if let Some(before) = self.times.insert(alarm.id, at) {
            self.by_time.remove(&(before, alarm.id));
        }
        self.by_time.insert((at, alarm.id), alarm);
    }

    /// The time of the next one.
    pub(super) fn next(&self) -> Option<T> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the next one that is due at `now`.
    pub(super) fn take_due(&mut self, now: T) -> Option<(T, Alarm)> {
        let entry = self.by_time.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((at, id), alarm) = entry.remove_entry();
        self.times.remove(&id);
        Some((at, alarm))
    }
}
