//! Who goes first, and that nobody waits for somebody else's limit.

use std::time::{Duration, Instant};

use suimon_jobs::{Config, Count, Job, Queue, Worker};

use crate::support::{Diary, Kind, done, eventually, on_all, status, working};

on_all!(
    keys_take_turns_also_with_one_slot,
    keys_take_turns_with_jobs_without_a_key,
    higher_priorities_go_first,
    free_jobs_do_not_wait_behind_limited_ones,
    free_jobs_do_not_wait_behind_limited_keys,
);

/// Many jobs of one key or none, then some of another.
async fn crowd(queue: &Queue, crowd: Option<&str>) {
    let many = (0..30).map(|n| crowd.iter().fold(Job::new("a", &n), |job, key| job.key(*key)));
    queue.dispatch_all(&many.collect::<Vec<_>>()).await.unwrap();
    queue.dispatch_all(&[(); 5].map(|()| Job::new("a", &0).key("few"))).await.unwrap();
}

/// The places of the few among all runs.
fn places(diary: &Diary) -> Vec<usize> {
    let entries = diary.entries();
    entries.iter().enumerate().filter(|(_, entry)| entry.key.as_deref() == Some("few")).map(|(at, _)| at).collect()
}

/// sidekiq-throttled #188: the jobs of one user stopped everybody.
async fn keys_take_turns_also_with_one_slot(kind: Kind) {
    let queue = kind.queue().await;
    crowd(&queue, Some("many")).await;
    let diary = Diary::default();
    let worker = diary.serve(Worker::builder(&queue).slots(1), "a", Config::new(), Duration::ZERO);
    worker.build().await.unwrap().drain().await.unwrap();
    let places = places(&diary);
    assert!(places.iter().enumerate().all(|(nth, place)| *place <= 2 * nth + 3), "{places:?}");
}

async fn keys_take_turns_with_jobs_without_a_key(kind: Kind) {
    let queue = kind.queue().await;
    crowd(&queue, None).await;
    let diary = Diary::default();
    let config = Config::new().limit("window 1/15ms");
    let worker = diary.serve(Worker::builder(&queue), "a", config, Duration::ZERO).build().await.unwrap();
    working(vec![worker], done(&queue, "a", 20)).await;
    let places = places(&diary);
    assert!(places.len() == 5 && places.iter().enumerate().all(|(nth, place)| *place <= 2 * nth + 3), "{places:?}");
}

async fn higher_priorities_go_first(kind: Kind) {
    let queue = kind.queue().await;
    for priority in [0, 5, 9, 1] {
        let jobs = [(); 3].map(|()| Job::new(format!("p{priority}"), &1).priority(priority));
        queue.dispatch_all(&jobs).await.unwrap();
    }
    let diary = Diary::default();
    let serve = |worker, name| diary.serve(worker, name, Config::new(), Duration::ZERO);
    let worker = ["p0", "p1", "p5", "p9"].into_iter().fold(Worker::builder(&queue).slots(1), serve);
    worker.build().await.unwrap().drain().await.unwrap();
    let order: Vec<_> = diary.entries().into_iter().map(|entry| entry.handler).collect();
    assert_eq!(order, ["p9", "p5", "p1", "p0"].map(|name| [name; 3]).concat());
}

/// How many limited jobs there are; as many as a test may take the time for.
const MANY: usize = 100_000;

/// Jobs as by the crate, put into the table in one statement; one in a lane, or all in one.
async fn fill(place: &crate::support::Place, kind: Kind, jobs: usize, has_keys: bool) {
    let numbers = match kind {
        Kind::Postgres => format!("SELECT generate_series(1, {jobs}) AS n"),
        Kind::MariaDb => format!("SELECT seq AS n FROM seq_1_to_{jobs}"),
        Kind::Sqlite => {
            format!(
                "WITH RECURSIVE all_n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM all_n WHERE n < {jobs}) SELECT n FROM all_n"
            )
        }
    };
    let key = match (has_keys, kind) {
        (false, _) => "''",
        (true, Kind::MariaDb) => "concat('key ', n)",
        (true, _) => "'key ' || n",
    };
    place
        .sql(&format!(
            "INSERT INTO {{p}}_jobs (handler, job_key, run_at, state) SELECT 'limited', {key}, 1, 'pending' FROM ({numbers}) AS numbers; \
             INSERT INTO {{p}}_job_lanes (handler, job_key, priority, next_at) \
             SELECT DISTINCT 'limited', job_key, 0, 1 FROM {{p}}_jobs"
        ))
        .await;
}

/// Runs a thousand free jobs to their end, beside others that are limited; says how many of those ran.
async fn free_ones_run(queue: &Queue, config: Config) -> usize {
    let diary = Diary::default();
    let worker = diary.serve(Worker::builder(queue), "limited", config, Duration::ZERO);
    let worker = diary.serve(worker, "free", Config::new(), Duration::ZERO).build().await.unwrap();
    // Notes the priority of the limited ones.
    queue.dispatch("limited", 0).await.unwrap();
    let jobs: Vec<_> = (0..1000).map(|n| Job::new("free", &n)).collect();
    queue.dispatch_all(&jobs).await.unwrap();
    let begin = Instant::now();
    let ran = |handler: &str| diary.entries().iter().filter(|entry| entry.handler == handler).count();
    working(vec![worker], eventually("a thousand runs", || async { ran("free") == 1000 })).await;
    // Without any limited ones it is no faster; 0 ran in 14 s in the queue in PHP.
    assert!(begin.elapsed() < Duration::from_secs(12), "{:?}", begin.elapsed());
    ran("limited")
}

/// QUE-04, sidekiq-throttled #131, celery #8119, good_job #838: limited jobs before free ones.
async fn free_jobs_do_not_wait_behind_limited_ones(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    fill(&place, kind, MANY, false).await;
    assert_eq!(free_ones_run(&queue, Config::new().limit("window 7/600s")).await, 7);
    assert_eq!(status(&queue, "limited").await.pending, MANY as u64 + 1 - 7);
}

async fn free_jobs_do_not_wait_behind_limited_keys(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    fill(&place, kind, 20_000, true).await;
    queue.set_key_limit("limited", "block", Count::Started).await.unwrap();
    assert_eq!(free_ones_run(&queue, Config::new()).await, 0);
    assert_eq!(status(&queue, "limited").await.pending, 20_001);
}
