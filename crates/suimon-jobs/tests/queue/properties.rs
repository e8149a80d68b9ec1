//! Any small plan, worked off by several workers at the same time: no more than the limits allow, and in the end
//! everything has run that can.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};
use suimon_jobs::{Backoff, Config, Count, Job, JobError, Pause, Worker};

use crate::support::{Kind, assert_at_most, block_on, eventually, working};

/// A job: key, cost, delay and priority, and how often it fails.
type Planned = (u8, u32, u64, u8, u32);

#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    PauseHandler,
    PauseKey(u8),
    /// To a higher one and back.
    RaiseKeys,
    Cancel(usize),
}

#[derive(Clone, Debug)]
struct Plan {
    jobs: Vec<Planned>,
    meanwhile: Vec<Meanwhile>,
    most: u32,
    of_key: u32,
    completed: bool,
    concurrency: Option<u32>,
    workers: usize,
}

fn plans() -> impl Strategy<Value = Plan> {
    let job = (0..4_u8, 1..=3_u32, 0..60_u64, 0..3_u8, prop_oneof![4 => Just(0_u32), 1 => 1..3_u32]);
    let meanwhile = prop_oneof![
        Just(Meanwhile::PauseHandler),
        (0..4_u8).prop_map(Meanwhile::PauseKey),
        Just(Meanwhile::RaiseKeys),
        (0..40_usize).prop_map(Meanwhile::Cancel),
    ];
    let jobs = prop::collection::vec(job, 1..40);
    let rest = (3..12_u32, 3..6_u32, any::<bool>(), prop::option::of(1..5_u32), 2..4_usize);
    (jobs, prop::collection::vec(meanwhile, 0..4), rest).prop_map(
        |(jobs, meanwhile, (most, of_key, completed, concurrency, workers))| Plan {
            jobs,
            meanwhile,
            most,
            of_key,
            completed,
            concurrency,
            workers,
        },
    )
}

const PERIOD: Duration = Duration::from_millis(60);

async fn carry_out(plan: Plan) {
    let place = Kind::Sqlite.place();
    let queue = place.queue().await;
    let count = if plan.completed { Count::Completed } else { Count::Started };
    let mut config = Config::new().limit(format!("window {}/60ms", plan.most));
    config = config.key_limit(format!("window {}/60ms", plan.of_key)).count(count).attempts(5);
    config = config.backoff(Backoff::Fixed(Duration::from_millis(5)));
    if let Some(most) = plan.concurrency {
        config = config.concurrency(most);
    }
    let key = |n: u8| if n == 0 { None } else { Some(format!("key {n}")) };
    let job = |&(of, cost, delay, priority, fails): &Planned| {
        let job = Job::new("a", &fails).cost(cost).delay(Duration::from_millis(delay)).priority(priority);
        key(of).into_iter().fold(job, Job::key)
    };
    let acts = |fails: u32, job: suimon_jobs::Context| async move {
        tokio::time::sleep(Duration::from_millis(1)).await;
        if job.attempt() <= fails { Err(JobError::failed("not yet")) } else { Ok(()) }
    };
    let mut workers = Vec::new();
    for _ in 0..plan.workers {
        let queue = place.queue().await;
        workers.push(Worker::builder(&queue).slots(4).function("a", config.clone(), acts).build().await.unwrap());
    }
    let ids = queue.dispatch_all(&plan.jobs.iter().map(job).collect::<Vec<_>>()).await.unwrap();
    working(workers, async {
        for event in &plan.meanwhile {
            match *event {
                Meanwhile::PauseHandler => queue.pause("a", Pause::For(Duration::from_millis(30))).await.unwrap(),
                Meanwhile::PauseKey(of) => {
                    let Some(key) = key(of) else { continue };
                    queue.pause_key("a", &key, Pause::UntilResumed).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    queue.resume_key("a", &key).await.unwrap();
                }
                Meanwhile::RaiseKeys => queue.set_key_limit("a", "window 6/60ms", count).await.unwrap(),
                Meanwhile::Cancel(nth) => {
                    if let Some(id) = ids.get(nth) {
                        queue.cancel(*id).await.unwrap();
                    }
                }
            }
        }
        let left = "SELECT count(*) FROM {p}_jobs WHERE state <> 'done'";
        eventually("everything has run", || async { place.number(left).await == 0 }).await;
    })
    .await;
    // Each unit of the cost as one time; a job that failed has one start more than the table knows of.
    let column = if plan.completed { "finished_at" } else { "started_at" };
    let times = |of: &str| format!("SELECT {column}, cost + 0 FROM {{p}}_jobs WHERE {of}");
    let raised = plan.meanwhile.iter().any(|event| matches!(event, Meanwhile::RaiseKeys));
    let of_key = if raised { plan.of_key.max(6) } else { plan.of_key };
    let limits = [(plan.most, "1 = 1".to_owned())].into_iter();
    for (most, of) in limits.chain((1..4).map(|n| (of_key, format!("job_key = 'key {n}'")))) {
        let starts = place.numbers(&times(&of)).await;
        let costs = place.numbers(&format!("SELECT cost + 0 FROM {{p}}_jobs WHERE {of}")).await;
        let units: Vec<_> =
            starts.iter().zip(costs).flat_map(|(at, cost)| vec![*at; usize::try_from(cost).unwrap()]).collect();
        assert_at_most(most as usize, PERIOD, &units);
    }
    assert_eq!(place.number("SELECT count(*) FROM {p}_job_limits WHERE held <> '0' OR running <> 0").await, 0);
    assert_eq!(place.number("SELECT count(*) FROM {p}_jobs WHERE attempts > 3").await, 0);
}

#[test]
fn any_plan() {
    let mut runner =
        TestRunner::new(Runs { cases: 24, max_shrink_iters: 20, failure_persistence: None, ..Runs::default() });
    runner
        .run(&plans(), |plan| {
            block_on(carry_out(plan));
            Ok(())
        })
        .unwrap();
}
