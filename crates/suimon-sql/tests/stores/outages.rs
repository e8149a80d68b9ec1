//! Servers that are killed, stopped, paused; each test has its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use suimon_sql::SqlStore;
use suimon_testkit::servers::{MariaDb, Postgres};

use crate::support::{allow, block_on, limits, ok, remaining, runtime};

macro_rules! on_servers {
    ($($test:ident),+) => {
        $(on_servers!(@ $test Postgres postgres); on_servers!(@ $test MariaDb mariadb);)+
    };
    (@ $test:ident $kind:ident $name:ident) => {
        mod $name {
            use super::*;

            #[test]
            fn $test() {
                let mut server = $kind::start();
                super::$test(&server.url(), &mut |what| match what {
                    Does::Kill => server.kill(),
                    Does::Stop => server.stop(),
                    Does::Restart => server.restart(),
                    Does::Pause => server.pause(),
                    Does::Resume => server.resume(),
                });
            }
        }
    };
}

enum Does {
    Kill,
    Stop,
    Restart,
    Pause,
    Resume,
}

on_servers!(a_server_goes_through_everything_under_load);

const DEADLINE: Duration = Duration::from_millis(400);
const BURST: u64 = 800_000;

/// What callers have been through.
#[derive(Default)]
struct Told {
    passed: u64,
    failed: u64,
}

/// Killed and stopped under load and started again, then paused: never more passes than was charged,
/// a store needs no care, and an outage costs each call one deadline.
fn a_server_goes_through_everything_under_load(url: &str, server: &mut dyn FnMut(Does)) {
    let store = ok(block_on(SqlStore::builder(url).connections(4).timeout(DEADLINE).open()));
    let limits = limits("bucket 1/h burst 800000");
    let ends = Arc::new(AtomicBool::new(false));
    let callers = (0..4).map(|_| {
        let (store, limits, ends) = (store.clone(), limits.clone(), ends.clone());
        runtime().spawn(async move {
            let mut told = Told::default();
            while !ends.load(Ordering::Relaxed) {
                match allow(&store, "key", &limits).await {
                    Ok(passed) => told.passed += u64::from(passed),
                    Err(error) => {
                        assert!(error.is_unavailable(), "{error}");
                        told.failed += 1;
                    }
                }
            }
            told
        })
    });
    let callers: Vec<_> = callers.collect();
    for end in [Does::Kill, Does::Stop] {
        std::thread::sleep(Duration::from_millis(300));
        server(end);
        server(Does::Restart);
    }
    std::thread::sleep(Duration::from_millis(300));
    ends.store(true, Ordering::Relaxed);
    let mut told = Told::default();
    for caller in callers {
        let one = block_on(caller).unwrap();
        told.passed += one.passed;
        told.failed += one.failed;
    }
    let patient = ok(block_on(SqlStore::builder(url).timeout(Duration::from_secs(30)).open()));
    let charged = BURST - block_on(remaining(&patient, "key", &limits));
    assert!(told.passed > 20, "{} passed", told.passed);
    // Charged in vain is at most what was under way when an error was told.
    assert!(
        (told.passed..=told.passed + told.failed).contains(&charged),
        "{charged} charged, {} passed, {} failed",
        told.passed,
        told.failed
    );
    paused(&store, &patient, server);
    gone(&store, &patient, server);
}

fn paused(store: &SqlStore, patient: &SqlStore, server: &mut dyn FnMut(Does)) {
    let limits = limits("bucket 1/day burst 100");
    assert!(ok(block_on(allow(patient, "calm", &limits))));
    server(Does::Pause);
    for _ in 0..6 {
        one_deadline(store);
    }
    server(Does::Resume);
    assert!(ok(block_on(allow(patient, "calm", &limits))));
    let charged = 100 - block_on(remaining(patient, "calm", &limits));
    assert!((2..=8).contains(&charged), "{charged}");
}

fn gone(store: &SqlStore, patient: &SqlStore, server: &mut dyn FnMut(Does)) {
    server(Does::Stop);
    one_deadline(store);
    server(Does::Restart);
    let limits = limits("bucket 1/day burst 100");
    assert!(ok(block_on(allow(patient, "calm", &limits))));
    assert!(ok(block_on(allow(store, "calm", &limits))));
}

fn one_deadline(store: &SqlStore) {
    let limits = limits("bucket 1/day burst 100");
    let start = Instant::now();
    let error = block_on(allow(store, "calm", &limits)).unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    // With time to spare on a busy machine, for what would take for ever.
    assert!(start.elapsed() < DEADLINE * 12, "{:?}", start.elapsed());
}
