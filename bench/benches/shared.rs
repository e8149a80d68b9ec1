//! Limits that are shared: PostgreSQL beside pgbench's simplest update, Redis with eight connections,
//! leases.
//!
//! `cargo bench --bench shared [-- postgres|redis|leases]`. Medians of rounds taken in turns. Commits of
//! PostgreSQL reach the operating system, not the disk.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use suimon::store::{Acting, Call, Limits, Part, Reply, Settling, Store, Verb, default_calendar};
use suimon::{Carry, Cost, Remote, Settlement};
use suimon_bench::median;
use suimon_redis::RedisStore;
use suimon_sql::SqlStore;
use suimon_testkit::servers::{Folder, Postgres, Redis};

const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(3);
const CONNECTIONS: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(30);

fn main() {
    let which: Vec<String> = env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wants = |name: &str| which.is_empty() || which.iter().any(|asked| asked == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if wants("postgres") {
        runtime.block_on(postgres());
    }
    if wants("redis") {
        runtime.block_on(redis());
    }
    if wants("leases") {
        runtime.block_on(leases());
    }
}

fn limits(policy: &str) -> Arc<Limits> {
    Arc::new(Limits::new(policy.parse().unwrap(), &*default_calendar(), 0, Carry::Keep).unwrap())
}

/// Decisions a second of some tasks on as many keys, each task on a store of its own or all on one.
async fn decisions<S: Store>(stores: &[Arc<S>], tasks: usize, keys: u64) -> f64 {
    let limits = limits("bucket 1000000/s");
    let calls = Arc::new(AtomicU64::new(0));
    let end = Instant::now() + TIME;
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let (store, limits, calls) = (stores[task % stores.len()].clone(), limits.clone(), calls.clone());
            tokio::spawn(async move {
                let mut key = task as u64;
                while Instant::now() < end {
                    // All keys, in an order that does not follow them.
                    key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let part = Part {
                        key: format!("k{}", (key >> 33) % keys).into(),
                        limits: limits.clone(),
                        cost: Cost::ONE,
                    };
                    let call = Call { parts: vec![part], verb: Verb::Allow, id: None, at: None };
                    store.decide(&call).await.unwrap();
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    calls.load(Ordering::Relaxed) as f64 / TIME.as_secs_f64()
}

async fn postgres() {
    let server = Postgres::start();
    let store = SqlStore::builder(&server.url()).connections(CONNECTIONS).timeout(TIMEOUT).open().await.unwrap();
    let store = [Arc::new(store)];
    let folder = Folder::new("pgbench", &[]);
    println!("\nPostgreSQL, {CONNECTIONS} connections, a second");
    println!("  {:<44} {:>10} {:>10}", "", "one row", "10,000");
    let mut table: [[Vec<f64>; 2]; 2] = Default::default();
    for _ in 0..ROUNDS {
        for (column, keys) in [1, 10_000].into_iter().enumerate() {
            table[0][column].push(pgbench(&server, &folder, keys));
            table[1][column].push(decisions(&store, CONNECTIONS, keys).await);
        }
    }
    for (name, row) in ["pgbench, UPDATE ... SET n = n + 1", "suimon, allow"].into_iter().zip(&mut table) {
        println!("  {name:<44} {:>10.0} {:>10.0}", median(&mut row[0]), median(&mut row[1]));
    }
}

/// Transactions a second of one update each.
fn pgbench(server: &Postgres, folder: &Folder, rows: u64) -> f64 {
    let script = folder.path().join("update.sql");
    let table = format!("pgbench_{rows}");
    std::fs::write(&script, format!("\\set n random(1, {rows})\nUPDATE {table} SET n = n + 1 WHERE id = :n;\n"))
        .unwrap();
    let tool = |name: &str| {
        let versions = std::fs::read_dir("/usr/lib/postgresql").unwrap();
        let paths = versions.map(|version| version.unwrap().path().join("bin").join(name));
        paths.filter(|path| path.exists()).max().unwrap_or_else(|| PathBuf::from(name))
    };
    let make = format!(
        "CREATE TABLE IF NOT EXISTS {table} (id INT PRIMARY KEY, n BIGINT) WITH (fillfactor = 50); \
         INSERT INTO {table} SELECT g, 0 FROM generate_series(1, {rows}) g ON CONFLICT DO NOTHING"
    );
    let made = Command::new(tool("psql")).args(["-q", &server.url(), "-c", &make]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let (clients, time) = (CONNECTIONS.to_string(), TIME.as_secs().to_string());
    let mut command = Command::new(tool("pgbench"));
    command.args(["-n", "-c", &clients, "-j", "2", "-T", &time, "-f"]).arg(&script).arg(server.url());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("tps = ")).unwrap_or_else(|| panic!("{output:?}"));
    line.split_whitespace().next().unwrap().parse().unwrap()
}

async fn redis() {
    let server = Redis::start();
    let store = || Arc::new(RedisStore::open(&server.url()).unwrap().timeout(TIMEOUT).build().unwrap());
    let stores: Vec<_> = (0..CONNECTIONS).map(|_| store()).collect();
    println!("\nRedis, {CONNECTIONS} connections with 16 calls under way on each");
    for keys in [1, 10_000] {
        let (mut rates, mut shares) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let before = server.cpu_time();
            rates.push(decisions(&stores, CONNECTIONS * 16, keys).await);
            shares.push((server.cpu_time() - before).as_secs_f64() / TIME.as_secs_f64());
        }
        let (rate, share) = (median(&mut rates), median(&mut shares));
        println!("  {keys:>6} keys: {rate:>8.0} decisions a second, server {:.0} % of a core", share * 100.0);
    }
}

/// Counts the questions to a store.
#[derive(Clone, Debug)]
struct Counted<S>(Arc<S>, Arc<AtomicU64>);

impl<S: Store> Store for Counted<S> {
    fn decide<'a>(&'a self, call: &'a Call) -> Acting<'a, Reply> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.decide(call)
    }

    fn settle<'a>(&'a self, settling: &'a Settling) -> Acting<'a, Settlement> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.settle(settling)
    }
}

/// As many as there are in the bucket, which hardly refills.
const TOKENS: u64 = 5_000_000;

async fn leases() {
    println!("\nLeases of 10,000 tokens, two threads, until {TOKENS} tokens are spent");
    let server = Postgres::start();
    let store = SqlStore::builder(&server.url()).timeout(TIMEOUT).open().await.unwrap();
    leases_of("PostgreSQL", Arc::new(store)).await;
    let server = Redis::start();
    let store = RedisStore::open(&server.url()).unwrap().timeout(TIMEOUT).build().unwrap();
    leases_of("Redis", Arc::new(store)).await;
}

async fn leases_of<S: Store>(name: &str, store: Arc<S>) {
    let (mut rates, mut asked, mut sums) = (Vec::new(), 0, Vec::new());
    for round in 0..ROUNDS {
        let questions = Arc::new(AtomicU64::new(0));
        let start = Instant::now();
        let tasks: Vec<_> = (0..2)
            .map(|_| {
                let store = Counted(store.clone(), questions.clone());
                tokio::spawn(async move {
                    // As two processes: each with a lease of its own.
                    let policy = format!("bucket 1/min burst {TOKENS}");
                    let remote = Remote::builder(store, &format!("lent{round}"), &*policy).unwrap().build().unwrap();
                    let leased = remote.leased(10_000, Duration::from_secs(60)).unwrap();
                    let mut allowed = 0_u64;
                    while leased.allow_async(1).await.unwrap().is_allowed() {
                        allowed += 1;
                    }
                    allowed
                })
            })
            .collect();
        let mut sum = 0;
        for task in tasks {
            sum += task.await.unwrap();
        }
        rates.push(sum as f64 / start.elapsed().as_secs_f64());
        asked = asked.max(questions.load(Ordering::Relaxed));
        sums.push(sum);
    }
    let rate = median(&mut rates);
    println!(
        "  {name:<12} {rate:>10.0} decisions a second, {:.3} % of the questions, in sum {:?}",
        asked as f64 / TOKENS as f64 * 100.0,
        sums
    );
}
