//! What the tests share: a server of their own, and short ways to call a store.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

pub mod proxy;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use proptest::prelude::ProptestConfig;
use suimon::store::{Call, Limits, Outcome, Part, Reply, RequestId, Store, Verb};
use suimon::{Carry, Cost, Error, Timestamp, Utc};
use suimon_redis::RedisStore;
use suimon_testkit::servers::{Redis, Valkey};
use tokio::runtime::{Builder, Runtime};

/// So many cases, unless `PROPTEST_CASES` says otherwise.
pub fn cases(number: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(number);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 4000, ..ProptestConfig::default() }
}

/// The runtime of all tests of a program.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

/// The server of all tests of a program.
pub fn server() -> &'static Redis {
    static SERVER: OnceLock<Redis> = OnceLock::new();
    SERVER.get_or_init(Redis::start)
}

/// A Valkey server, or a Redis server where there is none.
pub fn valkey_url() -> String {
    static SERVER: OnceLock<Option<Valkey>> = OnceLock::new();
    SERVER.get_or_init(Valkey::start).as_ref().map_or_else(|| server().url(), Valkey::url)
}

/// A store on a server, patient enough for a busy machine.
pub fn store_at(url: &str) -> RedisStore {
    RedisStore::open(url).unwrap().timeout(Duration::from_secs(10)).build().unwrap()
}

pub fn store() -> RedisStore {
    store_at(&server().url())
}

/// A key that no other test has.
pub fn fresh_key(name: &str) -> Arc<str> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{name}:{}:{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

pub fn limits(policy: &str) -> Arc<Limits> {
    limits_in(policy, 0, Carry::Keep)
}

pub fn limits_in(policy: &str, version: u64, carry: Carry) -> Arc<Limits> {
    Arc::new(Limits::new(policy.parse().unwrap(), &Utc, version, carry).unwrap())
}

pub fn part(key: &Arc<str>, limits: &Arc<Limits>, cost: u64) -> Part {
    Part { key: key.clone(), limits: limits.clone(), cost: Cost::whole(cost) }
}

pub fn call(parts: Vec<Part>, verb: Verb) -> Call {
    Call { parts, verb, id: None, at: None }
}

/// One call of one part, at the server's time.
pub async fn allow(store: &RedisStore, key: &Arc<str>, limits: &Arc<Limits>, cost: u64) -> Result<Reply, Error> {
    store.decide(&call(vec![part(key, limits, cost)], Verb::Allow)).await
}

/// The same with an id.
pub async fn allow_with_id(
    store: &RedisStore,
    key: &Arc<str>,
    limits: &Arc<Limits>,
    cost: u64,
    id: &str,
) -> Result<Reply, Error> {
    let id = Some(RequestId::new(id, Duration::from_secs(60)).unwrap());
    store.decide(&Call { id, ..call(vec![part(key, limits, cost)], Verb::Allow) }).await
}

/// The same at an instant of the test's choice.
pub async fn allow_at(store: &RedisStore, key: &Arc<str>, limits: &Arc<Limits>, cost: u64, at: Timestamp) -> Reply {
    let call = Call { at: Some(at), ..call(vec![part(key, limits, cost)], Verb::Allow) };
    store.decide(&call).await.unwrap()
}

pub fn passes(reply: &Reply) -> bool {
    !matches!(reply.outcome, Outcome::Denied(..))
}

pub fn remaining(reply: &Reply) -> u64 {
    reply.outcome.decision().status().remaining()
}
