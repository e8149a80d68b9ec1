//! Jobs: what the limits cost in throughput, beside apalis; the mix of a limited and a free handler
//! in two worker processes; what an idle worker costs.
//!
//! `cargo bench --bench jobs [-- throughput|apalis|mix|idle]`. Medians of rounds taken in turns; beside the
//! rate there is the CPU time of a job, of this process and the database together, which does not depend on what else
//! the machine does. Commits
//! of PostgreSQL reach the operating system, not the disk; SQLite is in WAL with its usual setting.

use std::env;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use suimon_bench::process::{Tree, ticks_per_second};
use suimon_bench::{cpu_nanos, median};
use suimon_jobs::{Config, Count, Job, Queue, Worker};
use suimon_sql::access::{Cell, Target};
use suimon_testkit::servers::{Folder, Postgres};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};

const ROUNDS: usize = 5;
const JOBS: usize = 4_000;
/// It is slower.
const APALIS_JOBS: usize = 1_000;
const HANDLERS: usize = 10;

fn main() {
    if let Ok(what) = env::var("SUIMON_BENCH_WORKER") {
        return runtime().block_on(work(&what));
    }
    let which: Vec<String> = env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wants = |name: &str| which.is_empty() || which.iter().any(|asked| asked == name);
    let postgres = Postgres::start();
    let folder = Folder::new("bench", &[]);
    let places = [("SQLite", format!("sqlite://{}/jobs.db", folder.path().display())), ("PostgreSQL", postgres.url())];
    for (name, url) in &places {
        if wants("throughput") {
            runtime().block_on(throughput(name, url));
        }
        if wants("apalis") {
            runtime().block_on(beside_apalis(name, url));
        }
        if wants("mix") {
            runtime().block_on(mix(name, url));
        }
        if wants("idle") {
            runtime().block_on(idle(name, url));
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn queue(url: &str, prefix: &str) -> Queue {
    Queue::builder(url).prefix(prefix).timeout(Duration::from_secs(60)).open().await.unwrap()
}

/// A limit that holds nothing back, and so costs only what it costs.
const LIMITS: [(&str, Option<&str>, Count); 4] = [
    ("without limits", None, Count::Started),
    ("bucket 1000000/s", Some("bucket 1000000/s"), Count::Started),
    ("window 5000/100ms", Some("window 5000/100ms"), Count::Started),
    ("window 5000/100ms, completed", Some("window 5000/100ms"), Count::Completed),
];

/// What a round has come to.
struct Speed {
    /// Jobs a second.
    rate: f64,
    /// CPU time of a job in microseconds.
    cpu: f64,
}

fn medians(speeds: &[Speed]) -> Speed {
    let of = |what: fn(&Speed) -> f64| median(&mut speeds.iter().map(what).collect::<Vec<_>>());
    Speed { rate: of(|speed| speed.rate), cpu: of(|speed| speed.cpu) }
}

/// CPU time of this process and of the servers that it has started, in microseconds.
fn cpu_micros() -> f64 {
    cpu_nanos() as f64 / 1e3 + Tree::started().cpu_ticks() as f64 / ticks_per_second() * 1e6
}

async fn throughput(place: &str, url: &str) {
    for workers in [1, 2] {
        println!("\n{place}: {JOBS} jobs of {HANDLERS} handlers, {workers} worker(s) of 16 slots");
        let mut speeds: Vec<Vec<Speed>> = LIMITS.iter().map(|_| Vec::new()).collect();
        for round in 0..ROUNDS {
            for (nth, (_, limit, count)) in LIMITS.iter().enumerate() {
                let prefix = format!("t{workers}_{round}_{nth}");
                speeds[nth].push(ours(url, &prefix, HANDLERS, workers, *limit, *count).await);
            }
        }
        let free = medians(&speeds[0]);
        for ((name, ..), speeds) in LIMITS.iter().zip(&speeds) {
            let Speed { rate, cpu } = medians(speeds);
            let (of_rate, of_cpu) = (rate / free.rate, free.cpu / cpu);
            println!(
                "  {name:<30} {rate:>7.0} jobs/s, {of_rate:>4.2} x without;  {cpu:>5.0} us CPU a job, {of_cpu:>4.2} x"
            );
        }
    }
}

async fn beside_apalis(place: &str, url: &str) {
    for workers in [1, 2] {
        println!("\n{place}: {JOBS} jobs of one handler without limits, {workers} worker(s) of 16 slots");
        let (mut own, mut apalis, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            own.push(ours(url, &format!("o{workers}_{round}"), 1, workers, None, Count::Started).await);
            match theirs(url, &format!("a{workers}_{round}"), workers).await {
                Ok(speed) => apalis.push(speed),
                Err(why) => failed.push(why),
            }
        }
        let own = medians(&own);
        println!("  suimon-jobs {:>7.0} jobs/s, {:>5.0} us CPU a job", own.rate, own.cpu);
        if !apalis.is_empty() {
            let Speed { rate, cpu } = medians(&apalis);
            println!(
                "  apalis      {rate:>7.0} jobs/s, {cpu:>5.0} us CPU a job; suimon is {:.1} x that",
                own.rate / rate
            );
        }
        if let Some(why) = failed.first() {
            println!("  apalis gave up in {} of {ROUNDS} rounds: {why}", failed.len());
        }
    }
}

/// Runs all jobs.
async fn ours(url: &str, prefix: &str, handlers: usize, workers: usize, limit: Option<&str>, count: Count) -> Speed {
    let first = queue(url, prefix).await;
    let jobs: Vec<_> = (0..JOBS).map(|n| Job::new(format!("h{}", n % handlers), &payload(n))).collect();
    for some in jobs.chunks(500) {
        first.dispatch_all(some).await.unwrap();
    }
    let mut made = Vec::new();
    for _ in 0..workers {
        let queue = queue(url, prefix).await;
        let mut worker = Worker::builder(&queue);
        for handler in 0..handlers {
            let mut config = Config::new().count(count);
            if let Some(limit) = limit {
                config = config.limit(limit);
            }
            worker = worker.function(&format!("h{handler}"), config, |_: Payload, _| async { Ok(()) });
        }
        made.push(worker.build().await.unwrap());
    }
    let (start, cpu) = (Instant::now(), cpu_micros());
    let tasks: Vec<_> =
        made.into_iter().map(|worker| tokio::spawn(async move { worker.drain().await.unwrap().len() })).collect();
    let mut ran = 0;
    for task in tasks {
        ran += task.await.unwrap();
    }
    assert_eq!(ran, JOBS);
    Speed { rate: JOBS as f64 / start.elapsed().as_secs_f64(), cpu: (cpu_micros() - cpu) / JOBS as f64 }
}

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Payload {
    to: String,
    text: String,
}

fn payload(n: usize) -> Payload {
    Payload { to: format!("{n}@example.com"), text: "Your order is on its way.".to_owned() }
}

/// Jobs through apalis: one queue, 16 at a time for each worker, batches of 32.
async fn theirs(url: &str, queue: &str, workers: usize) -> Result<Speed, String> {
    use apalis::prelude::*;
    let left = Arc::new(AtomicUsize::new(APALIS_JOBS));
    let all = Arc::new(Notify::new());
    macro_rules! run {
        ($storage:ident, $config:ident, $pool:expr) => {{
            let pool = $pool;
            $storage::setup(&pool).await.unwrap();
            let config = $config::default().queue(queue).batch_size(32);
            let mut storage = $storage::new(&pool).with_config(config.clone());
            for some in (0..APALIS_JOBS).collect::<Vec<_>>().chunks(500) {
                storage.push_bulk(some.iter().map(|n| payload(*n)).collect()).await.unwrap();
            }
            let (start, cpu) = (Instant::now(), cpu_micros());
            let stop = watch::Sender::new(false);
            let (failed, mut failures) = mpsc::unbounded_channel();
            let mut tasks = Vec::new();
            for nth in 0..workers {
                let (left, all) = (left.clone(), all.clone());
                let storage = $storage::new(&pool).with_config(config.clone());
                let name = format!("{queue}-{nth}");
                let (runtime, stop, failed) = (Handle::current(), stop.subscribe(), failed.clone());
                // Its future cannot be sent to another thread, so it has one of its own.
                tasks.push(std::thread::spawn(move || {
                    let job = move |_: Payload| {
                        let (left, all) = (left.clone(), all.clone());
                        async move {
                            if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                                all.notify_one();
                            }
                            Ok::<_, BoxDynError>(())
                        }
                    };
                    let worker = WorkerBuilder::new(name).backend(storage).concurrency(16).build(job);
                    runtime.block_on(async move {
                        let mut stop = stop;
                        tokio::select! {
                            Err(error) = worker.run() => drop(failed.send(error.to_string())),
                            _ = stop.changed() => {}
                        }
                    });
                }));
            }
            let rate = tokio::select! {
                () = all.notified() => Ok(Speed {
                    rate: APALIS_JOBS as f64 / start.elapsed().as_secs_f64(),
                    cpu: (cpu_micros() - cpu) / APALIS_JOBS as f64,
                }),
                Some(error) = failures.recv() => Err(error),
            };
            stop.send_replace(true);
            tasks.into_iter().for_each(|task| task.join().unwrap());
            rate
        }};
    }
    if url.starts_with("sqlite") {
        use apalis_sqlite::{Config, SqlitePool, SqliteStorage};
        let url = format!("{}?mode=rwc", url.replace("jobs.db", &format!("{queue}.db")));
        run!(SqliteStorage, Config, SqlitePool::connect(&url).await.unwrap())
    } else {
        use apalis_postgres::{Config, PgPool, PostgresStorage};
        run!(PostgresStorage, Config, PgPool::connect(url).await.unwrap())
    }
}

/// A process of its own that works.
fn worker(url: &str, prefix: &str, what: &str) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.env("SUIMON_BENCH_WORKER", what).env("SUIMON_BENCH_URL", url).env("SUIMON_BENCH_PREFIX", prefix);
    command.spawn().unwrap()
}

/// What such a process does.
async fn work(what: &str) {
    let queue = queue(&env::var("SUIMON_BENCH_URL").unwrap(), &env::var("SUIMON_BENCH_PREFIX").unwrap()).await;
    let limit = match what {
        "mix" => "window 10/2s",
        _ => "window 10/h",
    };
    let none = |(): (), _| async { Ok(()) };
    let worker = Worker::builder(&queue).function("limited", Config::new().limit(limit), none);
    worker.function("free", Config::new(), none).build().await.unwrap().run().await.unwrap();
}

async fn mix(place: &str, url: &str) {
    println!("\n{place}: 100 jobs at 10 per 2 s before 100 free ones, two worker processes");
    let queue = queue(url, "mix").await;
    let jobs = |handler: &str| (0..100).map(|_| Job::new(handler, &())).collect::<Vec<_>>();
    queue.dispatch_all(&jobs("limited")).await.unwrap();
    queue.dispatch_all(&jobs("free")).await.unwrap();
    let mut workers = [worker(url, "mix", "mix"), worker(url, "mix", "mix")];
    let end = Instant::now() + Duration::from_secs(60);
    let started = |handler: &'static str| async move {
        let sql = format!(
            "SELECT started_at FROM mix_jobs WHERE handler = '{handler}' AND state = 'done' ORDER BY started_at"
        );
        numbers(url, &sql).await
    };
    let mut limited = Vec::new();
    while limited.len() < 100 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(200)).await;
        limited = started("limited").await;
    }
    workers.iter_mut().for_each(|worker| worker.kill().unwrap());
    let free = started("free").await;
    let first = limited[0].min(free[0]);
    let most =
        limited.iter().map(|at| limited.iter().filter(|other| (*at..at + 2_000_000).contains(other)).count()).max();
    println!("  the free ones: all started within {:.3} s", (free[99] - first) as f64 / 1e6);
    println!(
        "  the limited ones: within {:.3} s; at most {} in any 2 s",
        (limited[99] - first) as f64 / 1e6,
        most.unwrap()
    );
    let late: Vec<f64> = (10..100).map(|n| (limited[n] - limited[n - 10] - 2_000_000) as f64 / 1e3).collect();
    println!("  after the moment at which each could start: median {:.2} ms", median(&mut late.clone()));
}

async fn idle(place: &str, url: &str) {
    println!("\n{place}: 100,000 limited jobs wait, one worker process");
    let queue = queue(url, "idle").await;
    let jobs: Vec<_> = (0..1000).map(|_| Job::new("limited", &())).collect();
    for _ in 0..100 {
        queue.dispatch_all(&jobs).await.unwrap();
    }
    let mut worker = worker(url, "idle", "idle");
    // The ten that may run have run, and the first look is over.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let time = Duration::from_secs(20);
    let started = Tree::started();
    let before = started.cpu_ticks();
    tokio::time::sleep(time).await;
    let used = (started.cpu_ticks() - before) as f64 / ticks_per_second();
    worker.kill().unwrap();
    println!("  worker and database: {:.2} % of a core", used / time.as_secs_f64() * 100.0);
}

async fn numbers(url: &str, sql: &str) -> Vec<i64> {
    let mut connection = Target::parse(url, Duration::from_secs(60)).unwrap().connect().await.unwrap();
    let rows = connection.cells(sql.to_owned()).await.unwrap();
    rows.into_iter().filter_map(|row| if let Cell::Number(number) = row[0] { Some(number) } else { None }).collect()
}
