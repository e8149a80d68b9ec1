//! Clocks for the model checker, over one that is set by hand.
#![cfg(shuttle)]

use shuttle::sync::Mutex;
use shuttle::sync::mpsc::Sender;
use shuttle::thread;
use suimon::Timestamp;
use suimon::clock::{Alarm, Clock};

/// A clock whose reading lets others go first, so that a decision may be dated
/// by an instant that is long gone. Its own locks are never held over a switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlowClock<C>(pub(crate) C);

impl<C: Clock> Clock for SlowClock<C> {
    fn now(&self) -> Timestamp {
        let now = self.0.now();
        thread::yield_now();
        now
    }

    fn set_alarm(&self, at: Timestamp, alarm: Alarm) {
        self.0.set_alarm(at, alarm);
    }
}

/// A clock whose alarms go to a thread that rings them in turn, each at its time.
#[derive(Debug)]
pub(crate) struct Bell<C> {
    clock: C,
    alarms: Mutex<Sender<(Timestamp, Alarm)>>,
}

impl<C> Bell<C> {
    pub(crate) fn new(clock: C, alarms: Sender<(Timestamp, Alarm)>) -> Bell<C> {
        Bell { clock, alarms: Mutex::new(alarms) }
    }
}

impl<C: Clock> Clock for Bell<C> {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn set_alarm(&self, at: Timestamp, alarm: Alarm) {
        self.alarms.lock().unwrap().send((at, alarm)).unwrap();
    }
}
