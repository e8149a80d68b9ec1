//! What users of a job queue with limits for handlers rely on: given, when, then.

use std::time::Duration;

use suimon_jobs::{Config, Count, Job, JobState, Worker};

use crate::support::{Diary, Kind, job, on_all, status};

on_all!(
    limited_after_as_many_runs_as_allowed,
    free_again_after_the_window,
    an_unknown_handler_is_never_limited,
    a_limited_handler_leaves_others_alone,
    runs_of_before_count_in_a_fresh_process,
    what_is_over_the_limit_waits_without_an_attempt,
    once_on_a_limited_job_leaves_it_alone,
    a_limit_given_at_dispatch_holds_for_all_workers,
    without_a_limit_everything_runs,
    a_limit_of_zero_holds_back_its_handler_alone,
);

/// Runs so many jobs of a handler to their end.
async fn run(queue: &suimon_jobs::Queue, handler: &str, config: Config, jobs: usize) -> usize {
    let all: Vec<_> = (0..jobs).map(|n| Job::new(handler, &n)).collect();
    queue.dispatch_all(&all).await.unwrap();
    Diary::default().worker(queue, handler, config).await.drain().await.unwrap().len()
}

async fn limited_after_as_many_runs_as_allowed(kind: Kind) {
    for count in [Count::Started, Count::Completed] {
        let queue = kind.queue().await;
        let config = |max| Config::new().rate_limit(max, 600).count(count);
        queue.set_limit("five", "window 5/600s", count).await.unwrap();
        assert!(!queue.is_limited("five").await.unwrap());
        assert_eq!(run(&queue, "two", config(2), 2).await, 2);
        assert!(queue.is_limited("two").await.unwrap());
        assert_eq!(run(&queue, "three", config(3), 2).await, 2);
        assert!(!queue.is_limited("three").await.unwrap());
        assert_eq!(run(&queue, "three", config(3), 1).await, 1);
        assert!(queue.is_limited("three").await.unwrap());
        let until = queue.time_until_available("three").await.unwrap();
        assert!(until > Duration::from_secs(500) && until <= Duration::from_secs(600), "{until:?}");
    }
}

async fn free_again_after_the_window(kind: Kind) {
    let queue = kind.queue().await;
    assert_eq!(run(&queue, "a", Config::new().limit("window 2/300ms"), 3).await, 2);
    let until = queue.time_until_available("a").await.unwrap();
    assert!(until <= Duration::from_millis(300));
    tokio::time::sleep(until).await;
    assert!(!queue.is_limited("a").await.unwrap());
    assert_eq!(queue.time_until_available("a").await.unwrap(), Duration::ZERO);
}

async fn an_unknown_handler_is_never_limited(kind: Kind) {
    let queue = kind.queue().await;
    assert!(!queue.is_limited("nobody").await.unwrap());
    assert_eq!(queue.time_until_available("nobody").await.unwrap(), Duration::ZERO);
    queue.register("unused", 3, 60).await.unwrap();
    assert_eq!(queue.time_until_available("unused").await.unwrap(), Duration::ZERO);
}

async fn a_limited_handler_leaves_others_alone(kind: Kind) {
    let queue = kind.queue().await;
    let limited: Vec<_> = (0..50).map(|n| Job::new("a", &n).priority(9)).collect();
    queue.dispatch_all(&limited).await.unwrap();
    let free: Vec<_> = (0..20).map(|n| Job::new("b", &n)).collect();
    queue.dispatch_all(&free).await.unwrap();
    let diary = Diary::default();
    let worker = diary.serve(Worker::builder(&queue), "a", Config::new().rate_limit(1, 600), Duration::ZERO);
    let worker = diary.serve(worker, "b", Config::new(), Duration::ZERO).build().await.unwrap();
    worker.drain().await.unwrap();
    let ran = |handler: &str| diary.entries().iter().filter(|entry| entry.handler == handler).count();
    assert_eq!((ran("a"), ran("b")), (1, 20));
    assert!(queue.is_limited("a").await.unwrap());
    assert!(!queue.is_limited("b").await.unwrap());
}

async fn runs_of_before_count_in_a_fresh_process(kind: Kind) {
    for count in [Count::Started, Count::Completed] {
        let place = kind.place();
        assert_eq!(run(&place.queue().await, "a", Config::new(), 2).await, 2);
        let fresh = place.queue().await;
        fresh.set_limit("a", "window 2/600s", count).await.unwrap();
        assert!(fresh.is_limited("a").await.unwrap(), "{count:?}");
        fresh.set_limit("a", "window 3/600s", count).await.unwrap();
        assert!(!fresh.is_limited("a").await.unwrap());
        // More runs than are allowed: as many have to leave the window as are over it.
        let place = kind.place();
        assert_eq!(run(&place.queue().await, "a", Config::new(), 5).await, 5);
        let fresh = place.queue().await;
        fresh.set_limit("a", "window 2/600s", count).await.unwrap();
        let until = fresh.time_until_available("a").await.unwrap();
        assert!(until <= Duration::from_secs(600), "{until:?}");
    }
}

async fn what_is_over_the_limit_waits_without_an_attempt(kind: Kind) {
    let queue = kind.queue().await;
    assert_eq!(run(&queue, "a", Config::new().rate_limit(2, 60), 4).await, 2);
    let status = status(&queue, "a").await;
    assert_eq!((status.done, status.pending, status.running, status.failed), (2, 2, 0, 0));
    assert_eq!(status.limit.as_deref(), Some("window 2/min"));
    for job in queue.jobs("a", JobState::Pending, 10).await.unwrap() {
        assert_eq!((job.attempts, job.deferrals), (0, 0));
    }
}

async fn once_on_a_limited_job_leaves_it_alone(kind: Kind) {
    let queue = kind.queue().await;
    assert_eq!(run(&queue, "a", Config::new().rate_limit(1, 60), 1).await, 1);
    let id = queue.dispatch("a", 1).await.unwrap();
    let worker = Diary::default().worker(&queue, "a", Config::new().rate_limit(1, 60)).await;
    assert_eq!(worker.once().await.unwrap(), None);
    let job = job(&queue, id).await;
    assert_eq!((job.state, job.attempts), (JobState::Pending, 0));
}

async fn a_limit_given_at_dispatch_holds_for_all_workers(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    for n in 0..10 {
        queue.dispatch("a", n).rate_limit(5, 120).await.unwrap();
    }
    let diary = Diary::default();
    let (one, other) = (place.queue().await, place.queue().await);
    // What the handlers say gives way, also in one that starts later.
    let early = diary.worker(&one, "a", Config::new().rate_limit(100, 1)).await;
    early.drain().await.unwrap();
    let late = diary.worker(&other, "a", Config::new()).await;
    late.drain().await.unwrap();
    assert_eq!(diary.count(), 5);
    assert_eq!(status(&other, "a").await.limit.as_deref(), Some("window 5/2min"));
}

async fn without_a_limit_everything_runs(kind: Kind) {
    let queue = kind.queue().await;
    assert_eq!(run(&queue, "a", Config::new(), 100).await, 100);
    assert_eq!(status(&queue, "a").await.done, 100);
}

async fn a_limit_of_zero_holds_back_its_handler_alone(kind: Kind) {
    let queue = kind.queue().await;
    let id = queue.dispatch("never", 1).rate_limit(0, 60).await.unwrap();
    queue.dispatch("free", 1).await.unwrap();
    let diary = Diary::default();
    let worker = diary.serve(Worker::builder(&queue), "never", Config::new(), Duration::ZERO);
    let worker = diary.serve(worker, "free", Config::new(), Duration::ZERO).build().await.unwrap();
    assert_eq!(worker.drain().await.unwrap().len(), 1);
    assert_eq!(job(&queue, id).await.state, JobState::Pending);
    assert_eq!(queue.time_until_available("never").await.unwrap(), Duration::MAX);
    queue.register("never", 1, 60).await.unwrap();
    assert_eq!(worker.drain().await.unwrap().len(), 1);
}
