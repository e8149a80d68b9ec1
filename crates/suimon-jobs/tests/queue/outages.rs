//! Servers that are killed and started again in the middle of the work.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use suimon_jobs::{Config, Count, Job, Queue, Worker};
use suimon_testkit::servers::{MariaDb, Postgres};

use crate::support::{Diary, Place, assert_at_most, block_on, eventually, working};

async fn survives(url: String, restart: impl Fn(bool) + Clone + Send + 'static) {
    let place = Place { url, prefix: "jobs".to_owned() };
    let queue = place.queue().await;
    queue.dispatch_all(&(0..120).map(|n| Job::new("a", &n)).collect::<Vec<_>>()).await.unwrap();
    let diary = Diary::default();
    let config = Config::new().limit("window 10/100ms").count(Count::Completed).attempts(50);
    let mut workers = Vec::new();
    for _ in 0..2 {
        // An impatient one: it has to get along with what it does not hear of.
        let queue = Queue::builder(&place.url).prefix(&place.prefix).timeout(Duration::from_millis(800));
        let worker = Worker::builder(&queue.open().await.unwrap()).slots(4).lease(Duration::from_secs(1));
        workers.push(diary.serve(worker, "a", config.clone(), Duration::from_millis(20)).build().await.unwrap());
    }
    working(workers, async {
        for kills in [true, false] {
            let before = diary.count();
            eventually("some runs", || async { diary.count() >= before + 20 }).await;
            let restart = restart.clone();
            tokio::task::spawn_blocking(move || restart(kills)).await.unwrap();
        }
        let left = "SELECT count(*) FROM {p}_jobs WHERE state <> 'done'";
        eventually("all is done", || async { place.number(left).await == 0 }).await;
    })
    .await;
    let ends = place.numbers("SELECT finished_at FROM {p}_jobs WHERE state = 'done'").await;
    assert_eq!(ends.len(), 120);
    assert_at_most(10, Duration::from_millis(100), &ends);
    assert_eq!(place.number("SELECT count(*) FROM {p}_job_limits WHERE held <> '0'").await, 0);
    // Only what ran, or was about to, when the server went can have run twice.
    let more = diary.count() - 120;
    assert!(more <= 2 * 2 * 8, "{more} ran twice");
}

fn killed_and_restarted<S: Send + 'static>(server: S, url: String, kill: fn(&mut S), restart: fn(&mut S)) {
    let server = Arc::new(Mutex::new(server));
    let at_hand = server.clone();
    block_on(survives(url, move |kills| {
        let mut server = at_hand.lock().unwrap();
        if kills {
            kill(&mut server);
        }
        restart(&mut server);
    }));
}

#[test]
fn postgres_killed_and_restarted() {
    let server = Postgres::start();
    let url = server.url();
    killed_and_restarted(server, url, Postgres::kill, Postgres::restart);
}

#[test]
fn mariadb_killed_and_restarted() {
    let server = MariaDb::start();
    let url = server.url();
    killed_and_restarted(server, url, MariaDb::kill, MariaDb::restart);
}
