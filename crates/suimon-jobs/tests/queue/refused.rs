//! Runs that meet somebody else's limit, fail, panic, take too long.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use suimon_jobs::{Backoff, Config, Context, Job, JobError, JobState, Limited, Permanent, Worker};

use crate::support::{Diary, Kind, eventually, job, on_all, status, working};

on_all!(
    a_limit_met_uses_no_attempt_and_pauses_its_key,
    a_limit_met_without_a_key_pauses_the_handler_everywhere,
    backoff_is_for_failures_alone,
    a_panic_is_a_failure,
    what_never_works_fails_at_once,
    a_timeout_cuts_off,
    errors_that_databases_do_not_take,
    a_late_end_changes_nothing,
    a_stop_waits_and_then_gives_back,
);

const AGES: Duration = Duration::from_secs(3600);

/// QUE-01, taskforcesh/bullmq #1571, laravel/framework #36250; hatchet #4880.
async fn a_limit_met_uses_no_attempt_and_pauses_its_key(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    let jobs = ["x", "x", "y", "x"].map(|key| Job::new("a", &1).key(key).attempts(1));
    let ids = queue.dispatch_all(&jobs).await.unwrap();
    let diary = Diary::default();
    let told = Arc::new(AtomicUsize::new(0));
    let answer = told.clone();
    // The first run of `x` is told to come back later; afterwards it is let in.
    let acts = move |_: usize, job: Context| {
        let refuses = job.key() == Some("x") && answer.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if refuses { Err(Limited { retry_after: Duration::from_millis(300) })? } else { Ok(()) } }
    };
    let worker = Worker::builder(&queue).slots(1).function("a", Config::new(), acts).build().await.unwrap();
    let ran: BTreeSet<_> = worker.drain().await.unwrap().into_iter().map(|ran| ran.id).collect();
    assert_eq!(ran, [ids[0], ids[2]].into());
    let refused = job(&queue, ids[0]).await;
    assert_eq!((refused.state, refused.attempts, refused.deferrals), (JobState::Pending, 0, 1));
    assert!(refused.error.unwrap().contains("300ms"));
    // In another process it is paused too, and another key is not.
    let other = place.queue().await;
    assert!(other.time_until_key_available("a", "x").await.unwrap() > Duration::ZERO);
    assert_eq!(other.time_until_key_available("a", "y").await.unwrap(), Duration::ZERO);
    assert_eq!(diary.worker(&other, "a", Config::new()).await.drain().await.unwrap().len(), 0);
    // It keeps its place in the order.
    tokio::time::sleep(other.time_until_key_available("a", "x").await.unwrap()).await;
    let ran = worker.drain().await.unwrap();
    assert_eq!(ran.iter().map(|ran| ran.id).collect::<Vec<_>>(), [ids[0], ids[1], ids[3]]);
    assert_eq!(job(&queue, ids[0]).await.attempts, 1);
}

async fn a_limit_met_without_a_key_pauses_the_handler_everywhere(kind: Kind) {
    for has_key in [false, true] {
        let place = kind.place();
        let queue = place.queue().await;
        let jobs = [(); 3].map(|()| if has_key { Job::new("a", &1).key("x") } else { Job::new("a", &1) });
        queue.dispatch_all(&jobs).await.unwrap();
        queue.dispatch("free", 1).await.unwrap();
        let acts = move |_: usize, _: Context| async move {
            if has_key { Err(JobError::limited_handler(AGES)) } else { Err(Limited { retry_after: AGES })? }
        };
        let worker = Worker::builder(&queue).slots(1).function("a", Config::new(), acts).build().await.unwrap();
        assert_eq!(worker.drain().await.unwrap().len(), 1);
        let other = place.queue().await;
        let diary = Diary::default();
        let worker = diary.serve(Worker::builder(&other), "a", Config::new(), Duration::ZERO);
        let worker = diary.serve(worker, "free", Config::new(), Duration::ZERO).build().await.unwrap();
        assert_eq!(worker.drain().await.unwrap().len(), 1);
        let paused = status(&other, "a").await;
        assert!(paused.paused_for.unwrap() > AGES / 2);
        assert!(paused.pause_reason.unwrap().contains("3600s"));
        other.resume("a").await.unwrap();
        assert_eq!(worker.drain().await.unwrap().len(), 3);
    }
}

/// QUE-02, taskforcesh/bullmq #1302: limited jobs got the pause that is for failures.
async fn backoff_is_for_failures_alone(kind: Kind) {
    let queue = kind.queue().await;
    let jobs: Vec<_> = (0..10).map(|_| Job::new("a", &true)).collect();
    queue.dispatch_all(&jobs).await.unwrap();
    let fails = queue.dispatch("a", false).await.unwrap();
    let acts = |works: bool, _: Context| async move { if works { Ok(()) } else { Err(JobError::failed("no")) } };
    let config = Config::new().limit("window 2/50ms").backoff(Backoff::Fixed(AGES));
    let worker = Worker::builder(&queue).function("a", config, acts).build().await.unwrap();
    working(vec![worker], async {
        eventually("eleven runs", || async {
            let status = status(&queue, "a").await;
            (status.done, status.pending, job(&queue, fails).await.attempts) == (10, 1, 1)
        })
        .await;
    })
    .await;
    let failed = job(&queue, fails).await;
    assert_eq!((failed.state, failed.error.as_deref()), (JobState::Pending, Some("no")));
}

async fn a_panic_is_a_failure(kind: Kind) {
    let queue = kind.queue().await;
    let acts = |n: usize, job: Context| async move {
        assert!(n == 0 || job.attempt() > 1, "number {n} is bad");
        Ok(())
    };
    let config = Config::new().backoff(Backoff::Fixed(Duration::ZERO)).concurrency(1);
    let worker = Worker::builder(&queue).function("a", config, acts).build().await.unwrap();
    let last = queue.dispatch("a", 7).attempts(1).await.unwrap();
    let again = queue.dispatch("a", 8).await.unwrap();
    let good = queue.dispatch("a", 0).await.unwrap();
    assert_eq!(worker.drain().await.unwrap().len(), 4);
    let failed = job(&queue, last).await;
    assert_eq!(failed.state, JobState::Failed);
    assert_eq!(failed.error.unwrap(), "it panicked: number 7 is bad");
    assert_eq!((job(&queue, again).await.state, job(&queue, again).await.attempts), (JobState::Done, 2));
    assert_eq!(job(&queue, good).await.state, JobState::Done);
}

async fn what_never_works_fails_at_once(kind: Kind) {
    let queue = kind.queue().await;
    let acts = |_: usize, _: Context| async move { Err(Permanent("never".to_owned()))? };
    let worker = Worker::builder(&queue).function("a", Config::new().attempts(5), acts).build().await.unwrap();
    let permanent = queue.dispatch("a", 7).await.unwrap();
    let unreadable = queue.dispatch("a", "text").await.unwrap();
    let no_json = queue.dispatch_all(&[Job::from_json("a", "{")]).await.unwrap()[0];
    assert_eq!(worker.drain().await.unwrap().len(), 3);
    for (id, why) in [(permanent, "never"), (unreadable, "does not parse"), (no_json, "does not parse")] {
        let job = job(&queue, id).await;
        assert_eq!((job.state, job.attempts), (JobState::Failed, 1));
        assert!(job.error.as_deref().unwrap().contains(why), "{job:?}");
    }
}

async fn a_timeout_cuts_off(kind: Kind) {
    let queue = kind.queue().await;
    let config = Config::new().timeout(Duration::from_millis(20)).attempts(1);
    let acts = |_: usize, _: Context| async move { std::future::pending::<Result<(), JobError>>().await };
    let worker = Worker::builder(&queue).function("a", config, acts).build().await.unwrap();
    let id = queue.dispatch("a", 1).await.unwrap();
    worker.drain().await.unwrap();
    let job = job(&queue, id).await;
    assert_eq!((job.state, job.error.as_deref()), (JobState::Failed, Some("it took longer than 20ms")));
}

/// A zero byte is no text for PostgreSQL: the end of the run could never be written down, and the
/// worker did nothing else any more.
async fn errors_that_databases_do_not_take(kind: Kind) {
    let queue = kind.queue().await;
    let acts = |long: bool, _: Context| async move {
        Err(JobError::failed(if long { "é\u{1f980}".repeat(4_000_000) } else { "a\0b'\\\u{1f980}".to_owned() }))
    };
    let worker = Worker::builder(&queue).function("a", Config::new().attempts(1), acts).build().await.unwrap();
    let (short, long) = (queue.dispatch("a", false).await.unwrap(), queue.dispatch("a", true).await.unwrap());
    assert_eq!(worker.drain().await.unwrap().len(), 2);
    assert_eq!(job(&queue, short).await.error.unwrap(), "a\u{fffd}b'\\\u{1f980}");
    let long = job(&queue, long).await.error.unwrap();
    assert!(long.len() <= 10_003 && long.ends_with("..."), "{}", long.len());
}

/// The lease runs out while a run goes on, since its worker is cut off from the database: another takes over, and what the
/// first one says later counts no more.
async fn a_late_end_changes_nothing(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    let id = queue.dispatch("a", 1).await.unwrap();
    let config = Config::new().limit("window 2/600s").count(suimon_jobs::Count::Completed).concurrency(2);
    let release = Arc::new(tokio::sync::Notify::new());
    let waits = release.clone();
    let acts = move |_: usize, _: Context| {
        let waits = waits.clone();
        async move {
            waits.notified().await;
            Err(JobError::failed("late"))
        }
    };
    // With one slot, so that it does not take it up itself.
    let first = Worker::builder(&queue).slots(1).function("a", config.clone(), acts).build().await.unwrap();
    working(vec![first], async {
        eventually("it runs", || async { job(&queue, id).await.state == JobState::Running }).await;
        place.sql("UPDATE {p}_jobs SET lease_until = 1").await;
        let other = place.queue().await;
        let second = Diary::default().worker(&other, "a", config).await;
        // The first may have given a sign of life just then.
        eventually("the second has done it", || async {
            place.sql("UPDATE {p}_jobs SET lease_until = 1 WHERE attempts = 1").await;
            second.drain().await.unwrap();
            job(&queue, id).await.state == JobState::Done
        })
        .await;
        release.notify_one();
    })
    .await;
    let done = job(&queue, id).await;
    assert_eq!((done.state, done.attempts, done.error), (JobState::Done, 2, None));
    let held = "SELECT count(*) FROM {p}_job_limits WHERE held = '0' AND running = 0 AND handler = 'a'";
    assert_eq!(place.number(held).await, 1);
    // One place is used, and one free.
    queue.dispatch_all(&[(); 3].map(|()| Job::new("a", &1))).await.unwrap();
    let worker = Diary::default()
        .worker(&queue, "a", Config::new().limit("window 2/600s").count(suimon_jobs::Count::Completed))
        .await;
    assert_eq!(worker.drain().await.unwrap().len(), 1);
}

async fn a_stop_waits_and_then_gives_back(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    let quick = queue.dispatch("a", 30).await.unwrap();
    let slow = queue.dispatch("a", 600_000).await.unwrap();
    let config = Config::new().concurrency(5).limit("window 9/600s").count(suimon_jobs::Count::Completed);
    let acts = |time: u64, _: Context| async move {
        tokio::time::sleep(Duration::from_millis(time)).await;
        Ok(())
    };
    let worker = Worker::builder(&queue).grace(Duration::from_millis(200)).function("a", config, acts);
    working(vec![worker.build().await.unwrap()], async {
        eventually("both run", || async { place.starts("a").await.len() == 2 }).await;
    })
    .await;
    assert_eq!(job(&queue, quick).await.state, JobState::Done);
    let given_back = job(&queue, slow).await;
    assert_eq!((given_back.state, given_back.attempts), (JobState::Pending, 0));
    let held = "SELECT count(*) FROM {p}_job_limits WHERE held = '0' AND running = 0 AND handler = 'a'";
    assert_eq!(place.number(held).await, 1);
}
