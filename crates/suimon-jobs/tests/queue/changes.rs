//! Limits that change while jobs are about.

use std::time::Duration;

use suimon_jobs::{Config, Count, Job, Pause, Worker};

use crate::support::{Diary, Kind, eventually, micros, on_all, status, working};

on_all!(
    nothing_slips_through_when_a_limit_is_set,
    nothing_of_a_key_slips_through_when_it_is_paused,
    a_raised_limit_of_keys_opens_them,
    a_limit_that_left_the_configuration_is_gone,
    runs_between_two_limits_count,
    a_lowered_limit_holds_at_once,
    a_blocked_key_opens_again,
);

const MINUTES: &str = "window 1/600s";

/// Whoever had looked before the limit was there must not start anything after it.
async fn nothing_slips_through_when_a_limit_is_set(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    for round in 0..4 {
        let handler = format!("h{round}");
        let jobs: Vec<_> = (0..1500).map(|n| Job::new(&handler, &n)).collect();
        queue.dispatch_all(&jobs).await.unwrap();
        let diary = Diary::default();
        let mut workers = Vec::new();
        for _ in 0..3 {
            let queue = place.queue().await;
            let worker = diary.serve(Worker::builder(&queue).slots(2), &handler, Config::new(), Duration::ZERO);
            workers.push(worker.build().await.unwrap());
        }
        let set_at = async {
            eventually("some runs", || async { diary.count() > 20 }).await;
            queue.set_limit(&handler, MINUTES, Count::Started).await.unwrap();
            let set_at = micros();
            tokio::time::sleep(Duration::from_millis(60)).await;
            let last = place.starts(&handler).await.into_iter().max().unwrap();
            assert!(last <= set_at, "a start {} us after the limit", last - set_at);
            assert!(status(&queue, &handler).await.pending > 0, "too fast for this test");
        };
        working(workers, set_at).await;
    }
}

async fn nothing_of_a_key_slips_through_when_it_is_paused(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    let jobs: Vec<_> = (0..1500).map(|n| Job::new("a", &n).key("k")).collect();
    queue.dispatch_all(&jobs).await.unwrap();
    let diary = Diary::default();
    let worker = diary.serve(Worker::builder(&queue).slots(2), "a", Config::new(), Duration::ZERO);
    let other = place.queue().await;
    working(vec![worker.build().await.unwrap()], async {
        for _ in 0..5 {
            let before = diary.count();
            eventually("some runs", || async { diary.count() > before + 10 }).await;
            other.pause_key("a", "k", Pause::UntilResumed).await.unwrap();
            let paused_at = micros();
            tokio::time::sleep(Duration::from_millis(30)).await;
            let last = place.starts("a").await.into_iter().max().unwrap();
            assert!(last <= paused_at, "a start {} us after the pause", last - paused_at);
            other.resume_key("a", "k").await.unwrap();
        }
    })
    .await;
}

async fn a_raised_limit_of_keys_opens_them(kind: Kind) {
    for count in [Count::Started, Count::Completed] {
        let queue = kind.queue().await;
        let keys = ["x", "y", "z"];
        queue
            .dispatch_all(&keys.repeat(3).into_iter().map(|key| Job::new("a", &1).key(key)).collect::<Vec<_>>())
            .await
            .unwrap();
        let worker = Diary::default().worker(&queue, "a", Config::new().key_limit(MINUTES).count(count)).await;
        assert_eq!(worker.drain().await.unwrap().len(), 3);
        queue.set_key_limit("a", "window 2/600s", count).await.unwrap();
        assert_eq!(worker.drain().await.unwrap().len(), 3, "{count:?}");
        queue.set_limit_of_key("a", "y", "window 3/600s", count).await.unwrap();
        assert_eq!(worker.drain().await.unwrap().len(), 1, "{count:?}");
        queue.clear_limit("a").await.unwrap();
        assert_eq!(worker.drain().await.unwrap().len(), 2, "{count:?}");
    }
}

async fn a_limit_that_left_the_configuration_is_gone(kind: Kind) {
    let queue = kind.queue().await;
    queue.dispatch_all(&[(); 5].map(|()| Job::new("a", &1).key("k"))).await.unwrap();
    let diary = Diary::default();
    let limited = diary.worker(&queue, "a", Config::new().limit(MINUTES).key_limit(MINUTES)).await;
    assert_eq!(limited.drain().await.unwrap().len(), 1);
    let free = diary.worker(&queue, "a", Config::new()).await;
    assert_eq!(status(&queue, "a").await.limit, None);
    assert_eq!(free.drain().await.unwrap().len(), 4);
    // One that was set is nobody's configuration.
    queue.set_limit("a", MINUTES, Count::Started).await.unwrap();
    diary.worker(&queue, "a", Config::new()).await;
    assert_eq!(status(&queue, "a").await.limit.as_deref(), Some("window 1/10min"));
}

async fn runs_between_two_limits_count(kind: Kind) {
    let queue = kind.queue().await;
    let worker = Diary::default().worker(&queue, "a", Config::new()).await;
    queue.set_limit("a", "window 3/600s", Count::Started).await.unwrap();
    queue.dispatch_all(&[(); 3].map(|()| Job::new("a", &1))).await.unwrap();
    assert_eq!(worker.drain().await.unwrap().len(), 3);
    queue.clear_limit("a").await.unwrap();
    queue.dispatch_all(&[(); 3].map(|()| Job::new("a", &1))).await.unwrap();
    assert_eq!(worker.drain().await.unwrap().len(), 3);
    queue.set_limit("a", "window 7/600s", Count::Started).await.unwrap();
    queue.dispatch_all(&[(); 3].map(|()| Job::new("a", &1))).await.unwrap();
    assert_eq!(worker.drain().await.unwrap().len(), 1);
}

async fn a_lowered_limit_holds_at_once(kind: Kind) {
    let queue = kind.queue().await;
    let worker = Diary::default().worker(&queue, "a", Config::new().limit("window 10/600s")).await;
    queue.dispatch_all(&[(); 20].map(|()| Job::new("a", &1))).await.unwrap();
    assert_eq!(worker.drain().await.unwrap().len(), 10);
    queue.set_limit("a", "window 5/600s", Count::Started).await.unwrap();
    assert_eq!(worker.drain().await.unwrap().len(), 0);
    queue.set_limit("a", "window 12/600s", Count::Started).await.unwrap();
    // What was used stays used, as far as it is known under the limit in between.
    let more = worker.drain().await.unwrap().len();
    assert!((2..=7).contains(&more), "{more}");
}

async fn a_blocked_key_opens_again(kind: Kind) {
    let queue = kind.queue().await;
    queue.dispatch_all(&["x", "y"].map(|key| Job::new("a", &1).key(key))).await.unwrap();
    let worker = Diary::default().worker(&queue, "a", Config::new()).await;
    queue.set_limit_of_key("a", "x", "block", Count::Started).await.unwrap();
    assert_eq!(worker.drain().await.unwrap().len(), 1);
    assert_eq!(queue.time_until_key_available("a", "x").await.unwrap(), Duration::MAX);
    queue.set_limit_of_key("a", "x", MINUTES, Count::Started).await.unwrap();
    assert_eq!(worker.drain().await.unwrap().len(), 1);
}
