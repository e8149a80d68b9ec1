//! Ends in good order, and requests that are refused as a whole.

use std::sync::Arc;
use std::time::{Duration, Instant};

use suimon_jobs::{Config, Count, Job, JobError, JobState, Queue, Worker};
use tokio::sync::Notify;

use crate::support::{Diary, Kind, job, on_all, status};

on_all!(
    a_wrong_limit_among_many_jobs_changes_nothing,
    a_drain_can_be_stopped,
    what_is_given_back_uses_no_attempt,
    what_stops_a_worker_may_use_its_connection,
    a_grace_of_for_ever_is_a_long_one,
    a_key_gets_the_limit_of_all_keys_back,
    any_error_can_be_written_down,
);

async fn a_wrong_limit_among_many_jobs_changes_nothing(kind: Kind) {
    let queue = kind.queue().await;
    // Limits are set from the last to the first, so the good one would come first.
    for bad in [Job::new("bad", &1).limit("10/min"), Job::new("bad", &1).key_limit("window 0/s")] {
        let error = queue.dispatch_all(&[bad, Job::new("good", &1).rate_limit(5, 60)]).await.unwrap_err();
        assert!(!error.is_database() && error.to_string().starts_with("the limit `"), "{error}");
        assert_eq!(queue.status().await.unwrap(), []);
    }
}

async fn a_drain_can_be_stopped(kind: Kind) {
    let queue = kind.queue().await;
    queue.dispatch_all(&[Job::new("a", &1), Job::new("a", &2)]).await.unwrap();
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (has_begun, goes) = (begun.clone(), go.clone());
    let act = move |_, _| {
        let (begun, go) = (begun.clone(), go.clone());
        async move {
            begun.notify_one();
            go.notified().await;
            Ok(())
        }
    };
    let worker = Worker::builder(&queue).slots(1).json("a", Config::new(), act).build().await.unwrap();
    let stop = async {
        has_begun.notified().await;
        goes.notify_one();
    };
    // The first may end; the second is not begun any more.
    assert_eq!(worker.drain_until(stop).await.unwrap().len(), 1);
    let all = status(&queue, "a").await;
    assert_eq!((all.done, all.pending, all.running), (1, 1, 0));
}

async fn what_is_given_back_uses_no_attempt(kind: Kind) {
    let queue = kind.queue().await;
    let id = queue.dispatch("a", ()).await.unwrap();
    let begun = Arc::new(Notify::new());
    let has_begun = begun.clone();
    let act = move |_, context: suimon_jobs::Context| {
        begun.notify_one();
        async move {
            context.stopping().await;
            Err(JobError::given_back())
        }
    };
    let worker = Worker::builder(&queue).json("a", Config::new().attempts(1), act).build().await.unwrap();
    worker.run_until(async { has_begun.notified().await }).await.unwrap();
    let job = job(&queue, id).await;
    assert_eq!((job.state, job.attempts, job.deferrals, job.error), (JobState::Pending, 0, 0, None));
}

/// It was left alone with the only connection while the worker waited for that.
async fn what_stops_a_worker_may_use_its_connection(kind: Kind) {
    let place = kind.place();
    let queue = Queue::builder(&place.url).prefix(&place.prefix).connections(1).open().await.unwrap();
    queue.dispatch_all(&[(); 40].map(|()| Job::new("a", &1))).await.unwrap();
    let diary = Diary::default();
    let worker = diary.worker(&queue, "a", Config::new().limit("window 2/10ms")).await;
    let begun = Instant::now();
    let all_done = async { while queue.status().await.unwrap()[0].done < 40 {} };
    worker.run_until(all_done).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

async fn a_grace_of_for_ever_is_a_long_one(kind: Kind) {
    let queue = kind.queue().await;
    let worker = Worker::builder(&queue).grace(Duration::MAX);
    let worker = Diary::default().serve(worker, "a", Config::new(), Duration::ZERO).build().await.unwrap();
    let begun = Instant::now();
    worker.run_until(std::future::ready(())).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(60));
}

async fn a_key_gets_the_limit_of_all_keys_back(kind: Kind) {
    let queue = kind.queue().await;
    queue.set_key_limit("a", "window 1/600s", Count::Started).await.unwrap();
    queue.set_limit_of_key("a", "big", "window 3/600s", Count::Started).await.unwrap();
    let diary = Diary::default();
    let worker = diary.worker(&queue, "a", Config::new()).await;
    let jobs: Vec<_> = (0..5).map(|n| Job::new("a", &n).key("big")).collect();
    queue.dispatch_all(&jobs).await.unwrap();
    assert_eq!(worker.drain().await.unwrap().len(), 3);
    queue.clear_limit_of_key("a", "big").await.unwrap();
    assert!(queue.time_until_key_available("a", "big").await.unwrap() > Duration::from_secs(500));
    assert_eq!(worker.drain().await.unwrap().len(), 0);
}

async fn any_error_can_be_written_down(kind: Kind) {
    let queue = kind.queue().await;
    let texts = [format!("a\0b {}", "\u{e9}".repeat(20_000_000)), "c\0d".to_owned()];
    let jobs = [Job::new("a", &texts[0].len()), Job::new("a", &texts[1].len())];
    let ids = queue.dispatch_all(&jobs).await.unwrap();
    let act = move |length: usize, _| {
        let text = texts.iter().find(|text| text.len() == length).cloned().unwrap_or_default();
        async move { Err(JobError::failed(text)) }
    };
    let worker = Worker::builder(&queue).function("a", Config::new().attempts(1), act).build().await.unwrap();
    assert_eq!(worker.drain().await.unwrap().len(), 2);
    let errors = [job(&queue, ids[0]).await.error.unwrap(), job(&queue, ids[1]).await.error.unwrap()];
    assert!(errors[0].starts_with("a\u{fffd}b \u{e9}") && errors[0].ends_with("\u{e9}...") && errors[0].len() < 10_010);
    assert_eq!(errors[1], "c\u{fffd}d");
}
