//! What a decision costs the server: its processor time for each call, beside GET, INCR,
//! and a straightforward script of the same algorithm.
//!
//! All of them through the same client, one at a time and sixteen at once (which share
//! round trips), on one key and on ten thousand. Medians of several rounds, taken in turns.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Script, Value};
use suimon::store::{Call, Limits, Part, Store, Verb, default_calendar};
use suimon::{Carry, Cost};
use suimon_redis::RedisStore;
use suimon_testkit::servers::Redis;

const ROUNDS: usize = 5;
const CALLS: u64 = 30_000;

/// As many write it: one key, one instant, seconds as floating point, an expiry.
const PLAIN: &str = r#"
local interval = tonumber(ARGV[2]) / tonumber(ARGV[1])
local burst = tonumber(ARGV[3])
local cost = tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local new_tat = tat + interval * cost
local allow_at = new_tat - interval * burst
if now < allow_at then
  return {0, 0, tostring(allow_at - now), tostring(tat - now)}
end
redis.call('SET', KEYS[1], tostring(new_tat), 'EX', math.ceil(new_tat - now))
return {1, math.floor((now - allow_at) / interval), '0', tostring(new_tat - now)}
"#;

#[derive(Clone)]
struct Setup {
    connection: MultiplexedConnection,
    store: RedisStore,
    plain: Arc<Script>,
    /// A million a second, and one an hour.
    fast: Arc<Limits>,
    slow: Arc<Limits>,
    /// A bucket and a window.
    several: Arc<Limits>,
}

#[derive(Clone, Copy)]
enum Work {
    Get,
    Incr,
    PlainAllows,
    PlainDenies,
    Allows,
    Denies,
    Several,
}

const WORK: [(&str, Work); 7] = [
    ("GET", Work::Get),
    ("INCR", Work::Incr),
    ("plain script, passes", Work::PlainAllows),
    ("plain script, refuses", Work::PlainDenies),
    ("suimon, passes", Work::Allows),
    ("suimon, refuses", Work::Denies),
    ("suimon, bucket and window", Work::Several),
];

impl Setup {
    async fn new(server: &Redis) -> Setup {
        let client = redis::Client::open(server.url()).unwrap();
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
        let limits = |policy: &str| {
            Arc::new(Limits::new(policy.parse().unwrap(), &*default_calendar(), 0, Carry::Keep).unwrap())
        };
        Setup {
            connection: client.get_multiplexed_async_connection_with_config(&config).await.unwrap(),
            store: RedisStore::open(&server.url()).unwrap().timeout(Duration::from_secs(30)).build().unwrap(),
            plain: Arc::new(Script::new(PLAIN)),
            fast: limits("bucket 1000000/s burst 1000000"),
            slow: limits("bucket 1/h burst 1"),
            several: limits("bucket 1000000/s burst 1000000 and window 20/10ms"),
        }
    }

    async fn run(&mut self, work: Work, number: u64) {
        let (connection, name) = (&mut self.connection, format!("{}:{number}", work as u8));
        match work {
            Work::Get => {
                let _: Value = redis::cmd("GET").arg(name).query_async(connection).await.unwrap();
            }
            Work::Incr => {
                let _: Value = redis::cmd("INCR").arg(name).query_async(connection).await.unwrap();
            }
            Work::PlainAllows => {
                let mut call = self.plain.prepare_invoke();
                let call = call.key(name).arg(1_000_000).arg(1).arg(1_000_000).arg(1);
                let _: Value = call.invoke_async(connection).await.unwrap();
            }
            Work::PlainDenies => {
                let mut call = self.plain.prepare_invoke();
                let call = call.key(name).arg(1).arg(3600).arg(1).arg(1);
                let _: Value = call.invoke_async(connection).await.unwrap();
            }
            Work::Allows => self.decide(&name, &self.fast).await,
            Work::Denies => self.decide(&name, &self.slow).await,
            Work::Several => self.decide(&name, &self.several).await,
        }
    }

    async fn decide(&self, key: &str, limits: &Arc<Limits>) {
        let part = Part { key: key.into(), limits: limits.clone(), cost: Cost::ONE };
        self.store.decide(&Call { parts: vec![part], verb: Verb::Allow, id: None, at: None }).await.unwrap();
    }
}

/// The server's processor time for one call, in microseconds.
async fn measure<F: Future<Output = ()> + Send>(
    server: &Redis,
    setup: &Setup,
    at_once: u64,
    run: impl Fn(Setup, u64) -> F + Clone + Send + 'static,
) -> f64
where
    F: 'static,
{
    let before = server.cpu_time();
    let tasks: Vec<_> = (0..at_once)
        .map(|task| {
            let (setup, run) = (setup.clone(), run.clone());
            tokio::spawn(async move {
                for call in 0..CALLS / at_once {
                    run(setup.clone(), task + call * at_once).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    (server.cpu_time() - before).as_secs_f64() * 1e6 / CALLS as f64
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Redis::start();
    runtime.block_on(async {
        // No log: it would cost all that write the same.
        let mut setup = Setup::new(&server).await;
        let off = redis::cmd("CONFIG").arg(&["SET", "appendonly", "no"]).exec_async(&mut setup.connection).await;
        off.unwrap();
        println!("server time for a call, in microseconds (medians of {ROUNDS} rounds of {CALLS} calls)\n");
        println!("{:28}{:>12}{:>12}{:>12}{:>12}", "", "1 a time", "16 at once", "1 a time", "16 at once");
        println!("{:28}{:>12}{:>12}{:>12}{:>12}", "", "one key", "one key", "10,000 keys", "10,000 keys");
        let columns = [(1, 1), (16, 1), (1, 10_000), (16, 10_000)];
        let mut table = vec![vec![Vec::new(); columns.len()]; WORK.len()];
        for _ in 0..ROUNDS {
            for (column, (at_once, keys)) in columns.into_iter().enumerate() {
                for (row, (_, work)) in WORK.into_iter().enumerate() {
                    let run = move |mut setup: Setup, call: u64| async move { setup.run(work, call % keys).await };
                    table[row][column].push(measure(&server, &setup, at_once, run).await);
                }
            }
        }
        for ((name, _), row) in WORK.into_iter().zip(table) {
            print!("{name:28}");
            for mut rounds in row {
                rounds.sort_by(f64::total_cmp);
                print!("{:12.2}", rounds[ROUNDS / 2]);
            }
            println!();
        }
    });
}
