//! Jobs that come by plain SQL, rows that somebody has changed by hand, names and values at their edges.

use std::time::{Duration, SystemTime};

use suimon_jobs::{Config, Count, Job, JobId, JobState, Worker};

use crate::support::{Diary, Kind, eventually, job, on_all, status, working};

on_all!(
    jobs_by_sql_run_and_set_limits,
    wrong_jobs_by_sql_fail_and_hold_up_nothing,
    unknown_handlers_wait_or_fail,
    names_at_their_edges,
    values_at_their_edges,
    rows_changed_by_hand_stop_nobody,
    a_limit_that_cannot_be_read_holds_back_its_handler_alone,
    unique_cancel_retry_purge,
    nothing_is_left_when_all_is_done,
);

async fn jobs_by_sql_run_and_set_limits(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    let diary = Diary::default();
    let worker = diary.worker(&queue, "a", Config::new()).await;
    working(vec![worker], async {
        for _ in 0..3 {
            place
                .sql("INSERT INTO {p}_jobs (handler, payload, rate_limit) VALUES ('a', '{\"x\": 1}', 'window 2/600s')")
                .await;
        }
        place.sql("INSERT INTO {p}_jobs (handler) VALUES ('b')").await;
        eventually("two runs", || async { diary.count() == 2 }).await;
    })
    .await;
    let status = status(&queue, "a").await;
    assert_eq!((status.done, status.pending), (2, 1));
    assert_eq!(status.limit.as_deref(), Some("window 2/10min"));
}

async fn wrong_jobs_by_sql_fail_and_hold_up_nothing(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    let wrong = [
        ("handler, cost", "'a', 'x'", "cost"),
        ("handler, cost", "'a', '-1'", "cost"),
        ("handler, priority", "'a', 99", "priority"),
        ("handler, priority", "'a', -1", "priority"),
        ("handler, rate_limit", "'a', '60/min'", "the limit `60/min`"),
        ("handler, key_limit", "'a', 'window 0/s'", "window 0/s"),
        ("handler, count_on", "'a', 'often'", "often"),
        ("handler", "''", "the handler is empty"),
    ];
    for (columns, values, _) in wrong {
        place.sql(&format!("INSERT INTO {{p}}_jobs ({columns}) VALUES ({values})")).await;
    }
    if kind == Kind::Sqlite {
        // Any value fits into any column there.
        place.sql("INSERT INTO {p}_jobs (handler, priority) VALUES ('a', 'high')").await;
        place.sql("INSERT INTO {p}_jobs (handler, run_at) VALUES ('a', 'tomorrow')").await;
    }
    place.sql("INSERT INTO {p}_jobs (handler, payload) VALUES ('a', '{not json')").await;
    place.sql("INSERT INTO {p}_jobs (handler, payload, max_attempts, cost) VALUES ('a', NULL, 1, '0.5')").await;
    let worker = Worker::builder(&queue).function("a", Config::new(), |_: Option<u32>, _| async { Ok(()) });
    assert_eq!(worker.build().await.unwrap().drain().await.unwrap().len(), 2);
    for (id, (_, _, why)) in (1..).zip(wrong) {
        let job = job(&queue, JobId(id)).await;
        assert_eq!((job.state, job.attempts), (JobState::Failed, 0), "{job:?}");
        assert!(job.error.as_deref().unwrap().contains(why), "{job:?}");
    }
    assert_eq!(place.number("SELECT count(*) FROM {p}_jobs WHERE state = 'done'").await, 1);
    assert_eq!(place.number("SELECT count(*) FROM {p}_jobs WHERE state IN ('new', 'pending')").await, 0);
    assert_eq!(place.number("SELECT count(*) FROM {p}_job_lanes").await, 0);
}

async fn unknown_handlers_wait_or_fail(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    let unknown = queue.dispatch("unknown", 1).key("k").await.unwrap();
    let diary = Diary::default();
    let worker = diary.worker(&queue, "a", Config::new()).await;
    assert_eq!(worker.drain().await.unwrap().len(), 0);
    assert_eq!(job(&queue, unknown).await.state, JobState::Pending);
    place.sql("INSERT INTO {p}_jobs (handler) VALUES ('by sql')").await;
    let strict = diary.serve(Worker::builder(&queue).fail_unknown(true), "a", Config::new(), Duration::ZERO);
    strict.build().await.unwrap().drain().await.unwrap();
    for handler in ["unknown", "by sql"] {
        let failed = queue.jobs(handler, JobState::Failed, 2).await.unwrap();
        assert_eq!(failed.len(), 1, "{handler}");
        assert_eq!(failed[0].error.as_deref(), Some("no handler of this name is known"));
    }
}

async fn names_at_their_edges(kind: Kind) {
    let queue = kind.queue().await;
    let names =
        ["a", "a ", "A", "é", "e\u{301}", "'; DROP TABLE x; --", "\"`\\%_", "\u{1f980}", "null", &"x".repeat(100)];
    let diary = Diary::default();
    let mut worker = Worker::builder(&queue);
    for name in names {
        worker = diary.serve(worker, name, Config::new().limit("window 1/600s"), Duration::ZERO);
        let key = if name.len() == 100 { "k".repeat(190) } else { name.to_owned() };
        queue.dispatch_all(&[(); 2].map(|()| Job::new(name, &name).key(&key))).await.unwrap();
    }
    assert_eq!(worker.build().await.unwrap().drain().await.unwrap().len(), names.len());
    for name in names {
        let status = status(&queue, name).await;
        assert_eq!((status.done, status.pending), (1, 1), "{name:?}");
        assert!(diary.entries().iter().any(|entry| entry.handler == name));
    }
    for name in [String::new(), "x".repeat(101), "\u{1f980}".repeat(26), "zero\0byte".to_owned()] {
        assert!(queue.dispatch(&name, 1).await.is_err(), "{name:?}");
        assert!(queue.set_limit(&name, "window 1/s", Count::Started).await.is_err(), "{name:?}");
    }
    for key in [String::new(), "x".repeat(191), "zero\0byte".to_owned()] {
        assert!(queue.dispatch("a", 1).key(&key).await.is_err(), "{key:?}");
        assert!(queue.dispatch("a", 1).unique(&key).await.is_err(), "{key:?}");
    }
    assert!(queue.dispatch("a", 1).priority(10).await.is_err());
    assert!(queue.dispatch("a", 1).limit("60/min").await.is_err());
}

async fn values_at_their_edges(kind: Kind) {
    let queue = kind.queue().await;
    let large = "\u{1f980}'\\".repeat(180_000);
    queue.dispatch("a", &large).await.unwrap();
    let centuries = queue.dispatch("a", 1).delay(Duration::MAX).await.unwrap();
    let later = queue.dispatch("a", 1).at(SystemTime::now() + Duration::from_secs(40_000_000_000)).await.unwrap();
    queue.dispatch("a", 1).at(SystemTime::UNIX_EPOCH).await.unwrap();
    queue.dispatch("a", 1).cost(u32::MAX).await.unwrap();
    let worker = Worker::builder(&queue).grace(Duration::MAX).keep_done(Some(Duration::MAX));
    let worker = worker.json("a", Config::new().timeout(Duration::MAX), move |payload, _| {
        assert!(payload.len() < 100 || payload.len() > 1_000_000);
        async { Ok(()) }
    });
    let worker = worker.build().await.unwrap();
    assert_eq!(worker.drain().await.unwrap().len(), 3);
    for id in [centuries, later] {
        assert_eq!(job(&queue, id).await.state, JobState::Pending);
        assert!(queue.cancel(id).await.unwrap());
    }
    assert_eq!(status(&queue, "a").await.done, 3);
    queue.pause("a", suimon_jobs::Pause::For(Duration::MAX)).await.unwrap();
    assert_eq!(queue.time_until_available("a").await.unwrap(), Duration::MAX);
}

async fn rows_changed_by_hand_stop_nobody(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    let config = Config::new().limit("window 2/600s").count(Count::Completed).concurrency(2);
    let diary = Diary::default();
    let stuck = |_: u32, _| std::future::pending::<Result<(), suimon_jobs::JobError>>();
    let hangs = Worker::builder(&queue).grace(Duration::ZERO).function("a", config.clone(), stuck);
    let ids = queue.dispatch_all(&[(); 2].map(|()| Job::new("a", &1))).await.unwrap();
    working(vec![hangs.build().await.unwrap()], async {
        eventually("both run", || async { status(&queue, "a").await.running == 2 }).await;
        // One is removed, the other loses what it holds.
        place.sql(&format!("DELETE FROM {{p}}_jobs WHERE id = {}", ids[0])).await;
        place.sql("UPDATE {p}_jobs SET booking = 'nonsense', lease_until = NULL").await;
    })
    .await;
    place.sql("UPDATE {p}_jobs SET state = 'banana'").await;
    queue.dispatch_all(&[(); 5].map(|()| Job::new("a", &1))).await.unwrap();
    let worker = diary.worker(&queue, "a", config).await;
    // What they held is counted anew, so that two can complete.
    assert_eq!(worker.drain().await.unwrap().len(), 2);
    place.sql("UPDATE {p}_job_limits SET held = 'nonsense'").await;
    queue.set_limit("a", "window 3/600s", Count::Completed).await.unwrap();
    assert_eq!(worker.drain().await.unwrap().len(), 1);
}

async fn a_limit_that_cannot_be_read_holds_back_its_handler_alone(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    let diary = Diary::default();
    for (name, nonsense) in [
        ("x", "policy = 'nonsense'"),
        ("y", "state = NULL, state_policy = 'nonsense'"),
        ("z", "key_policy = '60/min', key_given_by = 2"),
    ] {
        queue.set_limit(name, "window 5/600s", Count::Started).await.unwrap();
        let first = diary.worker(&queue, name, Config::new()).await;
        queue.dispatch(name, 1).key("k").await.unwrap();
        assert_eq!(first.drain().await.unwrap().len(), 1);
        place.sql(&format!("UPDATE {{p}}_job_limits SET {nonsense} WHERE handler = '{name}' AND job_key = ''")).await;
        if name == "y" {
            let bytes = if kind == Kind::Postgres { "'\\x0102'" } else { "x'0102'" };
            place.sql(&format!("UPDATE {{p}}_job_limits SET state = {bytes} WHERE handler = 'y'")).await;
        }
        let held_back = queue.dispatch(name, 1).key("k").await.unwrap();
        queue.dispatch("free", 1).await.unwrap();
        let worker = diary.serve(Worker::builder(&queue), name, Config::new(), Duration::ZERO);
        let worker = diary.serve(worker, "free", Config::new(), Duration::ZERO).build().await.unwrap();
        assert_eq!(worker.drain().await.unwrap().len(), 1, "{name}");
        assert_eq!(job(&queue, held_back).await.state, JobState::Pending);
        if name != "z" {
            assert!(status(&queue, name).await.pause_reason.is_some(), "{name}");
        }
        // It is mended by setting it anew.
        queue.clear_limit(name).await.unwrap();
        queue.set_limit(name, "window 2/600s", Count::Started).await.unwrap();
        queue.resume(name).await.unwrap();
        queue.resume_key(name, "k").await.unwrap();
        assert_eq!(worker.drain().await.unwrap().len(), 1, "{name}");
    }
}

async fn unique_cancel_retry_purge(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    let acts = |works: bool, _| async move { if works { Ok(()) } else { Err(suimon_jobs::JobError::failed("no")) } };
    let worker = Worker::builder(&queue).function("a", Config::new().attempts(1), acts).build().await.unwrap();
    let first = queue.dispatch("a", false).unique("u").await.unwrap();
    let other = place.queue().await;
    assert_eq!(other.dispatch("a", false).unique("u").await.unwrap(), first);
    let twins = queue.dispatch_all(&[(); 2].map(|()| Job::new("a", &true).unique("v"))).await.unwrap();
    assert_eq!(twins[0], twins[1]);
    assert!(queue.cancel(twins[0]).await.unwrap());
    assert!(!queue.cancel(twins[0]).await.unwrap());
    assert_eq!(worker.drain().await.unwrap().len(), 1);
    assert!(!queue.cancel(first).await.unwrap());
    // It has ended, so another may come; and of two that failed one alone can be tried again.
    let second = queue.dispatch("a", false).unique("u").await.unwrap();
    assert_ne!(first, second);
    assert_eq!(worker.drain().await.unwrap().len(), 1);
    assert_eq!(queue.retry_failed("a").await.unwrap(), 1);
    assert_eq!(worker.drain().await.unwrap().len(), 1);
    assert!(queue.retry(second).await.unwrap());
    assert!(!queue.retry(JobId(999)).await.unwrap());
    assert_eq!(worker.drain().await.unwrap().len(), 1);
    assert_eq!(job(&queue, second).await.attempts, 1);
    assert_eq!(queue.purge(JobState::Failed, Duration::from_secs(60)).await.unwrap(), 0);
    assert_eq!(queue.purge(JobState::Failed, Duration::ZERO).await.unwrap(), 2);
    assert!(queue.purge(JobState::Running, Duration::ZERO).await.is_err());
    assert_eq!(place.number("SELECT count(*) FROM {p}_jobs").await, 0);
}

async fn nothing_is_left_when_all_is_done(kind: Kind) {
    let place = kind.place();
    let queue = place.queue().await;
    let jobs: Vec<_> =
        (0..600).map(|n| Job::new("a", &n).key(format!("key {}", n / 2)).priority((n % 3) as u8)).collect();
    let ids = queue.dispatch_all(&jobs).await.unwrap();
    queue.dispatch_all(&jobs).await.unwrap();
    for id in &ids[..3] {
        assert!(queue.cancel(*id).await.unwrap());
    }
    let diary = Diary::default();
    let config = Config::new().key_limit("window 5/10ms");
    let make =
        || diary.serve(Worker::builder(&queue).keep_done(Some(Duration::ZERO)), "a", config.clone(), Duration::ZERO);
    working(vec![make().build().await.unwrap()], async {
        eventually("all runs", || async { diary.count() == 1197 }).await;
        // Longer ago than clocks step back.
        place.sql("UPDATE {p}_job_limits SET fresh_at = 1").await;
    })
    .await;
    working(vec![make().build().await.unwrap()], async {
        for table in ["job_lanes", "jobs", "job_limits WHERE job_key <> ''"] {
            let left = format!("SELECT count(*) FROM {{p}}_{table}");
            eventually(table, || async { place.number(&left).await == 0 }).await;
        }
    })
    .await;
}
