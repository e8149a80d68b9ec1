use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// The machine's clocks: true time, and a system clock that can be set.
#[derive(Debug, Default)]
struct Clock {
    monotonic: AtomicU64,
    wall: AtomicU64,
}

impl Clock {
    fn advance(&self, nanos: u64) {
        self.monotonic.fetch_add(nanos, Ordering::Relaxed);
        self.wall.fetch_add(nanos, Ordering::Relaxed);
    }

    fn put_back(&self, nanos: u64) {
        let wall = self.wall.load(Ordering::Relaxed);
        self.wall.store(wall.saturating_sub(nanos), Ordering::Relaxed);
    }
}

impl Clocks for Arc<Clock> {
    fn wall(&self) -> u64 {
        self.wall.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.monotonic.load(Ordering::Relaxed))
    }
}

struct Setting {
    dir: tempfile::TempDir,
    clock: Arc<Clock>,
    policy: Policy,
}

impl Setting {
    fn new(policy: &str) -> Setting {
        let clock = Arc::new(Clock::default());
        clock.advance(1_700_000_000 * SECOND);
        Setting { dir: tempfile::tempdir().unwrap(), clock, policy: policy.parse().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("limit")
    }

    fn process(&self) -> Shared {
        self.try_process().unwrap()
    }

    fn try_process(&self) -> Result<Shared, Error> {
        Shared::with_clocks(&self.path(), &self.policy, Box::new(self.clock.clone()))
    }

    fn now(&self) -> u64 {
        self.clock.monotonic.load(Ordering::Relaxed)
    }
}

fn wait(process: &Shared) -> u64 {
    u64::try_from(process.book(Cost::ONE).unwrap().wait.as_nanos()).unwrap()
}

#[test]
fn processes_take_turns() {
    let machine = Setting::new("pace 10/s");
    let (a, b) = (machine.process(), machine.process());
    let waits = [&a, &b, &b, &a].map(wait);
    assert_eq!(waits, [0, 1, 2, 3].map(|n| n * SECOND / 10));
    machine.clock.advance(10 * SECOND);
    assert_eq!([&b, &a].map(wait), [0, SECOND / 10]);
    // A process that comes later finds the same limit.
    assert_eq!(wait(&machine.process()), SECOND / 5);
}

#[test]
fn several_limits_hold_together_as_one_gate_of_the_core_does() {
    for policy in [
        "bucket 7/s burst 5 and pace 30/s and bucket 100/min burst 9.5",
        "pace 3/s savings 2 and bucket 5/s",
        "pace 3/s and bucket 5/s",
    ] {
        let machine = Setting::new(policy);
        let process = machine.process();
        let gate = Gate::new(machine.policy.clone()).unwrap();
        let mut state = gate.fresh();
        let begun = machine.now();
        let costs = ["1", "0.3", "2.000000001", "1", "3"];
        for (step, cost) in (0_u64..500).zip(costs.iter().cycle()) {
            let cost: Cost = cost.parse().unwrap();
            machine.clock.advance(step * step * 7919 % 400_000_000);
            let now = Timestamp::from_nanos(machine.now() - begun);
            let expected = gate.reserve(&mut state, now, cost, None).unwrap().reservation().unwrap();
            let place = process.book(cost).unwrap();
            assert_eq!(place.wait, expected.wait(), "{policy}: {step}");
        }
    }
}

#[test]
fn a_clock_that_was_put_back_neither_mints_nor_locks_out() {
    let machine = Setting::new("bucket 1/s burst 5");
    let process = machine.process();
    assert_eq!([0; 5].map(|_| wait(&process)), [0; 5]);
    machine.clock.put_back(3600 * SECOND);
    // A new process finds what was owed, and no more.
    assert_eq!(wait(&machine.process()), SECOND);
    machine.clock.advance(SECOND);
    assert_eq!(wait(&process), SECOND);
    // From there on the time goes on as before, for both kinds of process.
    machine.clock.advance(4 * SECOND);
    assert_eq!(wait(&machine.process()), 0);
    assert_eq!(wait(&process), 0);
    // A clock put forward gives a new process what idling gives: a burst.
    machine.clock.wall.fetch_add(86_400 * SECOND, Ordering::Relaxed);
    let late = machine.process();
    assert_eq!([0; 6].map(|_| wait(&late)), [0, 0, 0, 0, 0, SECOND]);
}

/// One process books behind a clock that was put back, another knows better what time it is.
#[test]
fn what_one_process_knows_of_the_time_mints_nothing_for_another() {
    let machine = Setting::new("bucket 1/s burst 5");
    let process = machine.process();
    assert_eq!([0; 5].map(|_| wait(&process)), [0; 5]);
    machine.clock.put_back(3600 * SECOND);
    machine.clock.advance(10 * SECOND);
    let late = wait(&machine.process());
    let starts = [0; 6].map(|_| wait(&process));
    let in_time = starts.iter().chain([&late]).filter(|start| **start <= SECOND).count();
    assert!(in_time <= 6, "{starts:?} and {late}");
}

#[test]
fn a_process_counts_on_by_its_own_clock() {
    let machine = Setting::new("bucket 1/s burst 5");
    let (process, other) = (machine.process(), machine.process());
    assert_eq!([0; 6].map(|_| wait(&process)), [0, 0, 0, 0, 0, SECOND]);
    // Alone at the file, it loses nothing by a clock that is put back.
    machine.clock.put_back(3600 * SECOND);
    machine.clock.advance(4 * SECOND);
    assert_eq!([0; 4].map(|_| wait(&process)), [0, 0, 0, SECOND]);
    // And a clock that is put forward gives it nothing, also when others were there in between.
    machine.clock.advance(1);
    assert_eq!(wait(&other), 2 * SECOND - 1);
    machine.clock.wall.fetch_add(86_400 * SECOND, Ordering::Relaxed);
    assert_eq!(wait(&process), 3 * SECOND - 1);
}

#[test]
fn a_pause_moves_everybody() {
    let machine = Setting::new("pace 10/s");
    let (a, b) = (machine.process(), machine.process());
    wait(&a);
    let place = b.book(Cost::ONE).unwrap();
    assert_eq!(place.wait, Duration::from_millis(100));
    a.pause_for(Duration::from_secs(3)).unwrap();
    // A shorter one adds nothing.
    b.pause_for(Duration::from_secs(2)).unwrap();
    machine.clock.advance(SECOND / 10);
    assert_eq!(b.left(place).unwrap(), Duration::from_secs(3));
    assert!(wait(&a).abs_diff(31 * SECOND / 10) <= 2);
    a.pause_for(Duration::from_secs(4)).unwrap();
    assert_eq!(b.left(place).unwrap(), Duration::from_millis(4100));
    machine.clock.advance(41 * SECOND / 10);
    assert_eq!(b.left(place).unwrap(), Duration::ZERO);
    // An idle limit is idle after a pause, and not before.
    machine.clock.advance(100 * SECOND);
    a.pause_for(Duration::from_secs(1)).unwrap();
    assert!(wait(&a).abs_diff(SECOND) <= 2);
    assert!(wait(&b).abs_diff(11 * SECOND / 10) <= 2);
}

#[test]
fn what_is_wrong_with_a_file_is_an_error_and_the_file_stays() {
    let machine = Setting::new("pace 10/s");
    let text = |error: Error| match error {
        Error::Io(text) | Error::Usage(text) => text,
        Error::Closed => unreachable!(),
    };
    let good = {
        machine.process();
        std::fs::read(machine.path()).unwrap()
    };
    for (bytes, says) in [
        (&b"my notes\n"[..], "not a file of `suimon pace --shared`"),
        (&good[..good.len() / 2], "damaged or half written"),
        (&[&good[..], b"x"].concat(), "damaged or half written"),
    ] {
        std::fs::write(machine.path(), bytes).unwrap();
        let error = text(machine.try_process().unwrap_err());
        assert!(error.contains(says) && error.contains("limit: "), "{error}");
        assert_eq!(std::fs::read(machine.path()).unwrap(), bytes);
    }
    std::fs::write(machine.path(), &good).unwrap();
    let other = "pace 20/s".parse().unwrap();
    let error = Shared::open(&machine.path(), &other).unwrap_err();
    assert!(text(error).contains("holds the limit `pace 10/s`, and `pace 20/s` is asked for"));
    for policy in ["window 2/60s", "fixed 1/day", "unlimited", "block", "pace 1/s and window 2/60s"] {
        let error = Shared::open(&machine.path(), &policy.parse().unwrap()).unwrap_err();
        assert!(matches!(&error, Error::Usage(text) if text.contains("`pace` and `bucket` can")), "{error:?}");
    }
    assert!(text(Shared::open(machine.dir.path(), &other).unwrap_err()).contains("directory"));
    assert_eq!(std::fs::read(machine.path()).unwrap(), good);
}

#[cfg(unix)]
#[test]
fn a_file_that_is_removed_in_use_is_an_error() {
    let machine = Setting::new("pace 10/s");
    let process = machine.process();
    std::fs::remove_file(machine.path()).unwrap();
    let error = process.book(Cost::ONE).unwrap_err();
    assert!(matches!(error, Refusal::Broken(text) if text.contains("removed or replaced")));
}

#[test]
fn a_cost_that_never_passes_takes_nothing() {
    let machine = Setting::new("pace 10/s and bucket 10/s burst 3");
    let process = machine.process();
    let before = std::fs::read(machine.path()).unwrap();
    let error = process.book(Cost::whole(4)).unwrap_err();
    assert!(matches!(error, Refusal::Cost(text) if text.contains("at most 3")));
    assert_eq!(std::fs::read(machine.path()).unwrap(), before);
}

#[derive(Clone, Debug)]
enum Step {
    Advance(u64),
    PutBack(u64),
    Book(usize),
    /// A process ends, and another takes its place.
    Restart(usize),
    Pause(usize, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..SECOND).prop_map(Step::Advance),
        2 => (0..5000 * SECOND).prop_map(Step::PutBack),
        6 => (0_usize..3).prop_map(Step::Book),
        2 => (0_usize..3).prop_map(Step::Restart),
        1 => (0_usize..3, 0..3 * SECOND).prop_map(|(process, pause)| Step::Pause(process, pause)),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// However processes come and go and the clock is put back: in true time never
    /// more than the burst and what the rate brings, and no wait longer than what
    /// has been booked takes.
    #[test]
    fn no_step_back_of_the_clock_mints_or_locks_out(steps in steps()) {
        let machine = Setting::new("bucket 5/s burst 3");
        let mut processes = [0; 3].map(|_| machine.process());
        let mut starts: Vec<u64> = Vec::new();
        let (mut booked, mut paused) = (0, 0);
        for step in steps {
            match step {
                Step::Advance(nanos) => machine.clock.advance(nanos),
                Step::PutBack(nanos) => machine.clock.put_back(nanos),
                Step::Restart(process) => processes[process] = machine.process(),
                Step::Pause(process, pause) => {
                    processes[process].pause_for(Duration::from_nanos(pause)).unwrap();
                    paused += pause;
                    // Starts that lie ahead have moved; only those behind are compared.
                    starts.retain(|start| *start <= machine.now());
                }
                Step::Book(process) => {
                    let wait = wait(&processes[process]);
                    booked += 1;
                    prop_assert!(wait <= booked * SECOND / 5 + paused + 50, "waits {wait}");
                    starts.push(machine.now() + wait);
                }
            }
        }
        starts.sort_unstable();
        for (from, first) in starts.iter().enumerate() {
            for (to, last) in starts.iter().enumerate().skip(from) {
                let (count, time) = ((to - from + 1) as u64, last - first);
                prop_assert!(count * SECOND <= 3 * SECOND + time * 5 + 10, "{count} in {time} ns");
            }
        }
    }
}
