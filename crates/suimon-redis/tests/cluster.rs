//! On a cluster of three, and behind a sentinel.
#![cfg(all(feature = "cluster", feature = "sentinel"))]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use suimon::store::{Call, Store, Verb};
use suimon_redis::RedisStore;
use suimon_testkit::port::World;
use suimon_testkit::servers::{Redis, RedisCluster, Sentinel};
use suimon_testkit::subjects::StoreSubject;
use support::{allow, allow_with_id, call, fresh_key, limits, part, passes, remaining, runtime};

fn cluster() -> &'static RedisCluster {
    static CLUSTER: std::sync::OnceLock<RedisCluster> = std::sync::OnceLock::new();
    CLUSTER.get_or_init(RedisCluster::start)
}

fn store_on(cluster: &RedisCluster) -> RedisStore {
    RedisStore::cluster(cluster.urls()).unwrap().timeout(Duration::from_secs(10)).build().unwrap()
}

fn subject() -> StoreSubject {
    StoreSubject::new("a cluster", Arc::new(store_on(cluster())), runtime().handle().clone(), false)
}

suimon_testkit::conformance!(a_cluster, subject(), lacks: [Balance, RawClock]);
suimon_testkit::promises!(promises_of_a_cluster, World::new(Arc::new(store_on(cluster())), runtime().handle().clone()));

/// spring-cloud/spring-cloud-gateway#248: keys of one call lay in two slots, and the error
/// was taken for an answer: everybody passed.
#[test]
fn keys_of_two_slots_are_refused_before_anything_is_sent() {
    let (store, limits) = (store_on(cluster()), limits("bucket 1/year burst 100"));
    let (alice, acme) = (fresh_key("alice"), fresh_key("acme"));
    runtime().block_on(async {
        let apart = call(vec![part(&alice, &limits, 1), part(&acme, &limits, 1)], Verb::Allow);
        let error = store.decide(&apart).await.unwrap_err();
        assert!(error.is_unsupported() && error.to_string().contains("{acme}:alice"), "{error}");
        assert_eq!(remaining(&allow(&store, &alice, &limits, 1).await.unwrap()), 99);

        let together: Vec<Arc<str>> = vec![format!("{{{acme}}}:alice").into(), format!("{{{acme}}}:total").into()];
        let parts = together.iter().map(|key| part(key, &limits, 40)).collect();
        let call = call(parts, Verb::Allow);
        assert!(passes(&store.decide(&call).await.unwrap()));
        assert!(passes(&store.decide(&call).await.unwrap()));
        assert!(!passes(&store.decide(&call).await.unwrap()));
        for key in &together {
            assert_eq!(remaining(&allow(&store, key, &limits, 1).await.unwrap()), 19);
        }
    });
}

#[test]
fn whatever_a_key_looks_like_it_is_answered() {
    let (store, limits) = (store_on(cluster()), limits("bucket 1/year burst 100"));
    runtime().block_on(async {
        for user in ["a{b}c", "{}", "a}b", "}{", "{", "{}{x}", "ü", "", "a b\nc", "user:1"] {
            let key: Arc<str> = format!("{user}{}", fresh_key("braces")).into();
            let first = allow_with_id(&store, &key, &limits, 1, "once").await.unwrap();
            let again = allow_with_id(&store, &key, &limits, 1, "once").await.unwrap();
            assert_eq!((remaining(&first), remaining(&again), again.replayed), (99, 99, true), "{user}");
        }
        for _ in 0..300 {
            assert_eq!(remaining(&allow(&store, &fresh_key("many"), &limits, 1).await.unwrap()), 99);
        }
    });
}

/// While a slot moves from one node to another, its keys answer as before.
#[test]
fn a_slot_that_moves_is_followed() {
    let own = RedisCluster::start();
    let (store, limits) = (store_on(&own), limits("bucket 1/year burst 100"));
    let key: Arc<str> = "{moving}:key".into();
    let ask = |node: usize, words: &[&str]| -> redis::Value {
        let mut connection = redis::Client::open(own.urls()[node].as_str()).unwrap().get_connection().unwrap();
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).unwrap()
    };
    let text = |value: redis::Value| redis::from_redis_value::<String>(value).unwrap();
    let slot =
        redis::from_redis_value::<u16>(ask(0, &["CLUSTER", "KEYSLOT", "suimon:{moving}:key"])).unwrap().to_string();
    let ids: Vec<_> = (0..3).map(|node| text(ask(node, &["CLUSTER", "MYID"]))).collect();
    let owns = |node: &usize| {
        let count: redis::RedisResult<Vec<String>> =
            redis::from_redis_value(ask(*node, &["CLUSTER", "GETKEYSINSLOT", &slot, "9"])).map_err(Into::into);
        count.is_ok_and(|keys| !keys.is_empty())
    };
    let allow = || remaining(&runtime().block_on(allow(&store, &key, &limits, 1)).unwrap());
    assert_eq!(allow(), 99);
    let from = (0..3).find(owns).unwrap();
    let to = (from + 1) % 3;
    ask(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[from]]);
    ask(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[to]]);
    assert_eq!(allow(), 98);
    let port = own.urls()[to].trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    ask(from, &["MIGRATE", "127.0.0.1", &port, "suimon:{moving}:key", "0", "5000"]);
    // The old node knows that it has gone, and where to.
    assert_eq!(allow(), 97);
    assert_eq!(allow(), 96);
    for node in [to, from, 3 - to - from] {
        ask(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &ids[to]]);
    }
    assert_eq!(allow(), 95);
    assert_eq!(allow(), 94);
}

#[test]
fn a_node_that_is_killed_is_an_outage_of_its_keys_until_it_is_back() {
    let mut own = RedisCluster::start();
    let store = RedisStore::cluster(own.urls()).unwrap().timeout(Duration::from_secs(1)).build().unwrap();
    let limits = limits("bucket 1/year burst 100");
    let keys: Vec<_> = (0..30).map(|_| fresh_key("nodes")).collect();
    let allow = |key| runtime().block_on(allow(&store, key, &limits, 1));
    for key in &keys {
        assert_eq!(remaining(&allow(key).unwrap()), 99);
    }
    own.kill(1);
    let mut left = 0;
    for key in &keys {
        let asked = Instant::now();
        match allow(key) {
            Ok(reply) => left += u64::from(remaining(&reply) == 98),
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
        assert!(asked.elapsed() < Duration::from_millis(1500));
    }
    assert!(left > 0 && left < 30, "{left}");
    own.restart(1);
    let end = Instant::now() + Duration::from_secs(30);
    while keys.iter().any(|key| allow(key).is_err()) {
        assert!(Instant::now() < end);
    }
    // A lost answer may have been charged, and nobody was charged twice.
    for key in &keys {
        assert!(remaining(&allow(key).unwrap()) >= 90);
    }
}

/// A failover in the style of sentinel: the replica takes over, and calls find it.
#[test]
fn behind_a_sentinel_the_replica_that_takes_over_is_found() {
    let (mut master, replica) = (Redis::start(), Redis::start());
    let ask = |server: &Redis, words: &[&str]| -> redis::Value {
        let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).unwrap()
    };
    ask(&replica, &["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let sentinel = Sentinel::start(master.port());
    let store = RedisStore::sentinel([sentinel.url()], "suimon").unwrap();
    let store = store.timeout(Duration::from_millis(500)).build().unwrap();
    let (key, limits) = (fresh_key("sentinel"), limits("bucket 1/year burst 100"));
    let allow = || {
        runtime().block_on(async {
            let part = part(&key, &limits, 1);
            store.decide(&Call { parts: vec![part], verb: Verb::Allow, id: None, at: None }).await
        })
    };
    let end = Instant::now() + Duration::from_secs(40);
    // Until the replica has it, and the sentinel knows the replica.
    assert_eq!(remaining(&allow().unwrap()), 99);
    let knows = || {
        let told: redis::Value = redis::cmd("SENTINEL")
            .arg("REPLICAS")
            .arg("suimon")
            .query(&mut redis::Client::open(sentinel.url()).unwrap().get_connection().unwrap())
            .unwrap();
        let has = redis::from_redis_value::<i64>(ask(&replica, &["EXISTS", &format!("suimon:{key}")])).unwrap();
        has == 1 && format!("{told:?}").contains(&replica.port().to_string())
    };
    while !knows() {
        assert!(Instant::now() < end, "the replica is not known");
        std::thread::sleep(Duration::from_millis(50));
    }
    master.kill();
    let mut failed = 0;
    let left = loop {
        match allow() {
            Ok(reply) => break remaining(&reply),
            Err(error) => {
                assert!(error.is_unavailable(), "{error}");
                assert!(Instant::now() < end, "{error}");
                failed += 1;
            }
        }
    };
    assert!(failed > 0);
    assert_eq!(left, 98);
}
