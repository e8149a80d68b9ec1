//! Workers in processes of their own, which are killed: this very program, started again.

use std::env;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use suimon_jobs::{Config, Count, Job, Worker};
use suimon_testkit::servers::with_clock;

use crate::support::{Diary, Kind, Place, assert_at_most, block_on, done, eventually, micros, on_all, status, working};

on_all!(killed_workers_lose_nothing_and_overrun_nothing_on, a_dispatch_of_another_process_wakes_on);

async fn killed_workers_lose_nothing_and_overrun_nothing_on(kind: Kind) {
    tokio::task::spawn_blocking(move || killed_workers_lose_nothing_and_overrun_nothing(kind)).await.unwrap();
}

async fn a_dispatch_of_another_process_wakes_on(kind: Kind) {
    tokio::task::spawn_blocking(move || a_dispatch_of_another_process_wakes(kind)).await.unwrap();
}

const PLACE: &str = "SUIMON_TEST_JOBS";
const LEASE: Duration = Duration::from_millis(700);

fn config(limit: &str) -> Config {
    Config::new().limit(limit).count(Count::Completed).attempts(1000)
}

fn start(place: &Place, limit: &str) -> Child {
    work(Command::new(env::current_exe().unwrap()), place, limit)
}

fn work(mut worker: Command, place: &Place, limit: &str) -> Child {
    worker.args(["processes::worker", "--exact", "--nocapture"]);
    worker.env(PLACE, [&*place.url, &place.prefix, limit].join("\t"));
    worker.stdout(Stdio::null()).stdin(Stdio::null()).spawn().unwrap()
}

/// The part of a worker; without a place there is nothing to do.
#[test]
fn worker() {
    let Ok(told) = env::var(PLACE) else { return };
    let told: Vec<_> = told.split('\t').collect();
    let [url, prefix, limit] = told[..] else { panic!("{told:?}") };
    let place = Place { url: url.to_owned(), prefix: prefix.to_owned() };
    block_on(async {
        let queue = place.queue().await;
        let worker = Diary::default().serve(
            Worker::builder(&queue).slots(3).lease(LEASE),
            "a",
            config(limit),
            Duration::from_millis(3),
        );
        worker.build().await.unwrap().run().await.unwrap();
    });
}

/// While they run and while they claim, at moments that nothing is known about.
fn killed_workers_lose_nothing_and_overrun_nothing(kind: Kind) {
    let place = kind.place();
    let limit = "window 15/100ms";
    let queue = block_on(place.queue());
    block_on(async {
        queue.dispatch_all(&(0..200).map(|n| Job::new("a", &n)).collect::<Vec<_>>()).await.unwrap();
    });
    let mut survivors = vec![start(&place, limit)];
    for round in 0..6 {
        let mut victim = start(&place, limit);
        std::thread::sleep(Duration::from_millis(150 + 37 * round));
        victim.kill().unwrap();
        victim.wait().unwrap();
    }
    block_on(done(&queue, "a", 200));
    for survivor in &mut survivors {
        survivor.kill().unwrap();
        survivor.wait().unwrap();
    }
    block_on(async {
        let ends = place.numbers("SELECT finished_at FROM {p}_jobs WHERE state = 'done'").await;
        assert_eq!(ends.len(), 200);
        assert_at_most(15, Duration::from_millis(100), &ends);
        // Each ran once, unless one of the six was killed at it.
        let more = place.number("SELECT count(*) FROM {p}_jobs WHERE attempts > 1").await;
        assert!(more <= 6 * 3, "{more} ran twice");
        assert_eq!(place.number("SELECT count(*) FROM {p}_job_limits WHERE held <> '0'").await, 0);
        assert_eq!(status(&queue, "a").await.running, 0);
    });
}

fn a_dispatch_of_another_process_wakes(kind: Kind) {
    block_on(async {
        let place = kind.place();
        let diary = Diary::default();
        let worker = diary.worker(&place.queue().await, "a", Config::new()).await;
        let other = place.queue().await;
        working(vec![worker], async {
            let mut waits = Vec::new();
            for n in 1..=5 {
                tokio::time::sleep(Duration::from_millis(300)).await;
                let dispatched = std::time::Instant::now();
                other.dispatch("a", n).await.unwrap();
                eventually("the run", || async { diary.count() == n }).await;
                waits.push(diary.entries()[n - 1].began.saturating_duration_since(dispatched));
            }
            waits.sort_unstable();
            // In the middle, on a machine that has more to do; without a word it would be five seconds, and with
            // MariaDB it is a quarter of one at most.
            assert!(waits[2] < Duration::from_millis(1000), "{waits:?}");
        })
        .await;
    });
}

/// The clock of the server counts. (On a file it is the machine's, and there is one for all.)
#[test]
fn clocks_an_hour_apart_change_nothing() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = kind.place();
        let queue = block_on(place.queue());
        block_on(async {
            queue.dispatch_all(&(0..90).map(|n| Job::new("a", &n)).collect::<Vec<_>>()).await.unwrap();
        });
        let program = env::current_exe().unwrap();
        let workers = ["+1h", "-1h"].map(|off| work(with_clock(off, &program), &place, "window 10/100ms"));
        block_on(done(&queue, "a", 90));
        for mut worker in workers {
            worker.kill().unwrap();
            worker.wait().unwrap();
        }
        block_on(async {
            let now = micros();
            let ends = place.numbers("SELECT finished_at FROM {p}_jobs WHERE state = 'done'").await;
            assert_eq!(ends.len(), 90);
            assert_at_most(10, Duration::from_millis(100), &ends);
            assert!(ends.iter().all(|at| (now - 600_000_000..=now).contains(at)));
            assert_eq!(place.number("SELECT count(*) FROM {p}_jobs WHERE attempts > 1").await, 0);
        });
    }
}
