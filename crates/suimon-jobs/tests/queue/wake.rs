//! Who sleeps is woken when something can start, and sleeps otherwise.

use std::time::{Duration, Instant};

use suimon_jobs::{Config, Count, Job, JobError, Worker};

use crate::support::{Diary, Kind, block_on, eventually, on_all, working};

on_all!(
    a_limited_handler_starts_when_it_opens,
    a_stream_of_jobs_never_stops_a_limited_worker,
    changes_wake_others,
    a_place_that_comes_back_wakes_others,
);

/// One each 80 ms: how late are they?
async fn a_limited_handler_starts_when_it_opens(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    queue.dispatch_all(&[(); 15].map(|()| Job::new("a", &1))).await.unwrap();
    let diary = Diary::default();
    let worker = diary.worker(&queue, "a", Config::new().limit("window 1/80ms")).await;
    working(vec![worker], eventually("all runs", || async { diary.count() == 15 })).await;
    let mut starts = place.starts("a").await;
    starts.sort_unstable();
    let mut late: Vec<_> = starts.windows(2).map(|two| two[1] - two[0] - 80_000).collect();
    late.sort_unstable();
    assert!(late[0] >= 0, "{late:?}");
    // In the middle, on a machine that has more to do.
    assert!(late[7] < 60_000, "{late:?}");
}

/// QUE-07, apalis-dev/apalis #515: the worker did one job and then nothing, since nobody woke it. Once with a
/// limit that fits the stream, once with half of that.
async fn a_stream_of_jobs_never_stops_a_limited_worker(kind: Kind) {
    let place = kind.place();
    let (queue, other) = (place.queue().await, place.queue().await);
    let diary = Diary::default();
    let worker = diary.serve(Worker::builder(&queue), "fits", Config::new().limit("pace 20/s"), Duration::ZERO);
    let worker = diary.serve(worker, "half", Config::new().limit("pace 10/s"), Duration::ZERO).build().await.unwrap();
    working(vec![worker], async {
        for tick in 0..10 {
            other.dispatch("fits", tick).await.unwrap();
            other.dispatch("half", tick).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        eventually("all of both", || async { diary.count() == 20 }).await;
    })
    .await;
    for (handler, distance) in [("fits", 50_000), ("half", 100_000)] {
        let mut starts = place.starts(handler).await;
        starts.sort_unstable();
        assert!(starts.windows(2).all(|two| two[1] - two[0] >= distance), "{handler}: {starts:?}");
    }
}

async fn changes_wake_others(kind: Kind) {
    let place = kind.place();
    let (queue, other) = (place.queue().await, place.queue().await);
    queue.dispatch_all(&[(); 3].map(|()| Job::new("a", &1))).await.unwrap();
    let diary = Diary::default();
    let worker = diary.worker(&queue, "a", Config::new().limit("window 1/600s")).await;
    working(vec![worker], async {
        eventually("the first", || async { diary.count() == 1 }).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let raised = Instant::now();
        other.set_limit("a", "window 2/600s", Count::Started).await.unwrap();
        eventually("the second", || async { diary.count() == 2 }).await;
        other.pause("a", suimon_jobs::Pause::UntilResumed).await.unwrap();
        other.set_limit("a", "window 3/600s", Count::Started).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(diary.count(), 2);
        other.resume("a").await.unwrap();
        eventually("the third", || async { diary.count() == 3 }).await;
        assert!(raised.elapsed() < Duration::from_secs(3), "{:?}", raised.elapsed());
    })
    .await;
}

async fn a_place_that_comes_back_wakes_others(kind: Kind) {
    let place = kind.place();
    let (queue, other) = (place.queue().await, place.queue().await);
    let config = Config::new().limit("window 1/600s").count(Count::Completed).attempts(1);
    queue.dispatch("a", 1).key("first").await.unwrap();
    let fails = |_: u32, _| async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        Err(JobError::failed("no"))
    };
    let one = Worker::builder(&queue).slots(1).function("a", config.clone(), fails).build().await.unwrap();
    let begin = Instant::now();
    let diary = Diary::default();
    working(vec![one], async {
        eventually("it runs", || async { place.starts("a").await.len() == 1 }).await;
        // Looks at the queue while the only place is taken, and has to be told that it is free.
        let two = diary.worker(&other, "b", Config::new()).await;
        drop(two);
        let two = diary.serve(Worker::builder(&other), "a", config.clone(), Duration::ZERO).build().await.unwrap();
        queue.dispatch("a", 2).await.unwrap();
        working(
            vec![two],
            eventually("a run here or failed there", || async {
                diary.count() == 1 || place.number("SELECT count(*) FROM {p}_jobs WHERE state = 'failed'").await == 2
            }),
        )
        .await;
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    })
    .await;
}

/// good_job #838: what waits was popped and pushed again every second. An idle worker with
/// thousands of limited jobs asks now and then.
#[test]
fn idle_workers_leave_the_database_alone() {
    block_on(async {
        let kind = Kind::Postgres;
        let own = kind.place();
        // A database of its own, whose transactions are counted.
        own.sql("CREATE DATABASE idle").await;
        let place = crate::support::Place { url: own.url.replace("/postgres", "/idle"), prefix: "t".to_owned() };
        let queue = place.queue().await;
        let jobs: Vec<_> = (0..2000).map(|n| Job::new("a", &n).key(format!("{}", n % 50))).collect();
        queue.dispatch_all(&jobs).await.unwrap();
        queue.dispatch("later", 1).delay(Duration::from_secs(3600)).await.unwrap();
        let diary = Diary::default();
        let worker =
            diary.serve(Worker::builder(&queue), "a", Config::new().key_limit("window 1/600s"), Duration::ZERO);
        let worker = diary.serve(worker, "later", Config::new(), Duration::ZERO).build().await.unwrap();
        working(vec![worker], async {
            eventually("fifty runs", || async { diary.count() == 50 }).await;
            tokio::time::sleep(Duration::from_millis(1200)).await;
            let count = "SELECT (xact_commit + xact_rollback)::bigint FROM pg_stat_database WHERE datname = 'idle'";
            let before = own.number(count).await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            let transactions = own.number(count).await - before;
            assert!(transactions < 20, "{transactions} in three seconds");
        })
        .await;
    });
}
