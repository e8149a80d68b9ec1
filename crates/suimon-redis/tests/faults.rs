//! What can go wrong between a call and its answer.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use suimon::store::{Outcome, RequestId, Settling, Store, Verb};
use suimon::{Cost, Settlement};
use suimon_redis::RedisStore;
use suimon_testkit::servers::Redis;
use support::proxy::Proxy;
use support::{allow, allow_with_id, fresh_key, limits, passes, remaining, runtime, server, store};

const POLICY: &str = "bucket 1/year burst 100";

fn admin(server: &Redis) -> redis::Connection {
    redis::Client::open(server.url()).unwrap().get_connection().unwrap()
}

fn ask<T: redis::FromRedisValue>(server: &Redis, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query(&mut admin(server)).unwrap()
}

/// Keys of the store that would stay for ever.
fn without_expiry(server: &Redis) -> Vec<String> {
    let keys: Vec<String> = ask(server, &["KEYS", "suimon*"]);
    keys.into_iter().filter(|key| ask::<i64>(server, &["TTL", key]) == -1).collect()
}

/// vutran1710/PyrateLimiter#182: after a failover no call passed, since the scripts were
/// not known there.
#[test]
fn a_script_that_is_forgotten_is_sent_again_and_counted_once() {
    let own = Redis::start();
    let (store, key, limits) = (support::store_at(&own.url()), fresh_key("noscript"), limits("bucket 5/15min burst 5"));
    let allow = || runtime().block_on(allow(&store, &key, &limits, 1)).unwrap();
    assert_eq!(remaining(&allow()), 4);
    ask::<()>(&own, &["SCRIPT", "FLUSH"]);
    assert_eq!(remaining(&allow()), 3);
    ask::<()>(&own, &["SCRIPT", "FLUSH"]);
    let with_id = || runtime().block_on(allow_with_id(&store, &key, &limits, 1, "retried")).unwrap();
    assert_eq!((remaining(&with_id()), with_id().replayed), (2, true));
}

#[test]
fn scripts_are_forgotten_under_load() {
    let own = Redis::start();
    let (key, limits) = (fresh_key("flush"), limits(POLICY));
    let (passed, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut admin = admin(&own);
            while !is_over.load(Ordering::Relaxed) {
                redis::cmd("SCRIPT").arg("FLUSH").exec(&mut admin).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        });
        let callers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let store = support::store_at(&own.url());
                    for _ in 0..500 {
                        let reply = runtime().block_on(allow(&store, &key, &limits, 1)).unwrap();
                        passed.fetch_add(u64::from(passes(&reply)), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(passed.into_inner(), 100);
}

#[test]
fn a_server_that_is_killed_under_load_lets_no_more_pass() {
    let mut own = Redis::start();
    let (key, limits, url) = (fresh_key("killed"), limits("bucket 100/year burst 3000"), own.url());
    let (passed, failed, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = support::store_at(&url);
                while !is_over.load(Ordering::Relaxed) {
                    match runtime().block_on(allow(&store, &key, &limits, 1)) {
                        Ok(reply) => passed.fetch_add(u64::from(passes(&reply)), Ordering::Relaxed),
                        Err(error) => {
                            assert!(error.is_unavailable(), "{error}");
                            failed.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                }
            });
        }
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(100));
            own.kill();
            thread::sleep(Duration::from_millis(50));
            own.restart();
        }
        // They find it again by themselves.
        let before = passed.load(Ordering::Relaxed);
        let end = Instant::now() + Duration::from_secs(20);
        while passed.load(Ordering::Relaxed) < (before + 10).min(2900) {
            assert!(Instant::now() < end, "nobody has come back");
            thread::sleep(Duration::from_millis(10));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let store = support::store_at(&url);
    let mut rest = 0;
    while passes(&runtime().block_on(allow(&store, &key, &limits, 1)).unwrap()) {
        rest += 1;
    }
    let (passed, failed) = (passed.into_inner(), failed.into_inner());
    assert!(failed > 0 && passed + rest <= 3000 && passed + rest + failed >= 3000, "{passed} {rest} {failed}");
}

#[test]
fn a_server_that_stands_still_costs_one_deadline() {
    let own = Redis::start();
    let (key, limits) = (fresh_key("paused"), limits(POLICY));
    let store = RedisStore::open(&own.url()).unwrap().timeout(Duration::from_millis(200)).build().unwrap();
    let allow = || runtime().block_on(allow(&store, &key, &limits, 1));
    allow().unwrap();
    own.pause();
    for _ in 0..4 {
        let asked = Instant::now();
        let error = allow().unwrap_err();
        assert!(error.is_unavailable() && error.to_string().contains("200ms"), "{error}");
        let took = asked.elapsed();
        assert!(took >= Duration::from_millis(199) && took < Duration::from_millis(400), "{took:?}");
    }
    own.resume();
    let end = Instant::now() + Duration::from_secs(10);
    while allow().is_err() {
        assert!(Instant::now() < end);
    }
    // Those that got no answer may have been charged: that is what an id is for.
    assert!(remaining(&allow().unwrap()) >= 92);
}

#[test]
fn an_answer_that_is_lost_is_told_again_to_the_same_id() {
    let proxy = Proxy::to(server().port());
    let (store, key, limits) = (support::store_at(&proxy.url()), fresh_key("lost"), limits(POLICY));
    runtime().block_on(async {
        for round in 0..5 {
            let id = format!("{key}:{round}");
            proxy.swallow(1);
            let error = allow_with_id(&store, &key, &limits, 1, &id).await.unwrap_err();
            assert!(error.is_unavailable(), "{error}");
            let reply = allow_with_id(&store, &key, &limits, 1, &id).await.unwrap();
            assert!(reply.replayed && passes(&reply));
            assert_eq!(remaining(&reply), 99 - round);
        }
    });
    assert_eq!(without_expiry(server()), Vec::<String>::new());
}

/// Without an id it has been settled, or not, and nobody knows.
#[test]
fn a_settlement_whose_answer_is_lost_is_done_once_with_an_id() {
    let proxy = Proxy::to(server().port());
    let (store, key, limits) = (support::store_at(&proxy.url()), fresh_key("settled"), limits(POLICY));
    let left = || remaining(&runtime().block_on(allow(&store, &key, &limits, 0)).unwrap());
    for (round, actual, expected) in [(1, 6, 94), (2, 3, 91)] {
        let reserve = support::call(vec![support::part(&key, &limits, 5)], Verb::Reserve { max_wait: None });
        let Outcome::Booked(_, ticket) = runtime().block_on(store.decide(&reserve)).unwrap().outcome else { panic!() };
        let id = RequestId::new(format!("{key}:{round}"), Duration::from_secs(60)).unwrap();
        let (limits, actual) = (vec![limits.clone()], vec![Cost::whole(actual)]);
        let settling = Settling { ticket, limits, actual, id: Some(id), at: None };
        proxy.swallow(1);
        assert!(runtime().block_on(store.settle(&settling)).unwrap_err().is_unavailable());
        let settled = runtime().block_on(store.settle(&settling)).unwrap();
        let unused = Settlement::Refunded(Cost::whole(2));
        assert_eq!(settled, if round == 1 { Settlement::Charged(Cost::ONE) } else { unused });
        assert_eq!(left(), expected);
        let other = Settling { actual: vec![Cost::whole(9)], ..settling };
        assert_eq!(runtime().block_on(store.settle(&other)).unwrap(), settled);
        assert_eq!(left(), expected);
    }
    assert_eq!(without_expiry(server()), Vec::<String>::new());
}

/// StackExchange/StackExchange.Redis#2074: a limiter kept to a node that was no master any
/// more, until it was restarted.
#[test]
fn a_demoted_node_is_left_and_found_again() {
    let (own, master) = (Redis::start(), Redis::start());
    let (key, limits) = (fresh_key("demoted"), limits(POLICY));
    let store = RedisStore::open(&own.url()).unwrap().timeout(Duration::from_millis(300)).build().unwrap();
    let allow = || runtime().block_on(allow(&store, &key, &limits, 1));
    assert_eq!(remaining(&allow().unwrap()), 99);
    ask::<()>(&own, &["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let asked = Instant::now();
        let error = allow().unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        assert!(asked.elapsed() < Duration::from_millis(500));
        if error.to_string().contains("read only") {
            break;
        }
        assert!(Instant::now() < end, "{error}");
    }
    ask::<()>(&own, &["REPLICAOF", "NO", "ONE"]);
    allow().unwrap();
}

#[test]
fn a_server_that_loads_is_waited_for_within_the_deadline() {
    let proxy = Proxy::to(server().port());
    let (store, key, limits) = (support::store_at(&proxy.url()), fresh_key("loading"), limits(POLICY));
    proxy.say(Some("LOADING Redis is loading the dataset in memory"));
    let call = runtime().spawn({
        let (store, key, limits) = (store.clone(), key.clone(), limits.clone());
        async move { allow(&store, &key, &limits, 1).await }
    });
    thread::sleep(Duration::from_millis(100));
    proxy.say(None);
    assert_eq!(remaining(&runtime().block_on(call).unwrap().unwrap()), 99);

    // An error is never taken as an answer, whatever it is.
    for error in ["ERR unknown command", "BUSY Redis is busy running a script", "NOAUTH Authentication required."] {
        proxy.say(Some(error));
        let told = runtime().block_on(allow(&store, &key, &limits, 1)).unwrap_err();
        assert!(told.is_unavailable(), "{told}");
    }
}

#[test]
fn a_key_of_something_else_is_an_outage_of_that_key_and_stays_as_it_is() {
    let (store, limits) = (store(), limits(POLICY));
    let allow = |key: &std::sync::Arc<str>| runtime().block_on(allow(&store, key, &limits, 1)).unwrap_err();
    let (list, text) = (fresh_key("list"), fresh_key("text"));
    ask::<()>(server(), &["LPUSH", &format!("suimon:{list}"), "x"]);
    ask::<()>(server(), &["SET", &format!("suimon:{text}"), "1795996800000000001"]);
    let (of_list, of_text) = (allow(&list), allow(&text));
    assert!(of_list.is_unavailable() && of_list.to_string().contains("choose another prefix"), "{of_list}");
    assert!(of_text.is_unavailable() && of_text.to_string().contains("did not write"), "{of_text}");
    assert_eq!(ask::<String>(server(), &["GET", &format!("suimon:{text}")]), "1795996800000000001");
    // The same where the general script decides.
    let several = support::limits("bucket 1/year burst 100 and window 5/1h");
    for key in [&list, &text] {
        let error = runtime().block_on(support::allow(&store, key, &several, 1)).unwrap_err();
        assert!(error.is_unavailable(), "{error}");
    }
    ask::<()>(server(), &["DEL", &format!("suimon:{text}"), &format!("suimon:{list}")]);
}

/// getsentry/sentry#122038: the memory of the server was full, and limits were given back
/// without a word, or the error was taken as an answer.
#[test]
fn a_server_without_memory_says_so() {
    let own = Redis::start();
    let (store, key, limits) = (support::store_at(&own.url()), fresh_key("oom"), limits(POLICY));
    let allow = || runtime().block_on(allow(&store, &key, &limits, 1));
    assert_eq!(runtime().block_on(store.check()).unwrap(), Vec::<String>::new());
    assert_eq!(remaining(&allow().unwrap()), 99);
    ask::<()>(&own, &["CONFIG", "SET", "maxmemory", "1mb"]);
    let other = fresh_key("oom");
    let error = runtime().block_on(support::allow(&store, &other, &limits, 1)).unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("maxmemory"), "{error}");
    ask::<()>(&own, &["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(remaining(&allow().unwrap()), 98);

    ask::<()>(&own, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let warnings = runtime().block_on(store.check()).unwrap();
    assert!(matches!(&*warnings, [warning] if warning.contains("allkeys-lru")), "{warnings:?}");
}

#[test]
fn a_user_without_rights_is_told_which_are_missing() {
    let own = Redis::start();
    ask::<()>(
        &own,
        &["ACL", "SETUSER", "poor", "on", ">x", "~suimon:*", "+evalsha", "+eval", "+time", "+get", "+hello", "+client"],
    );
    let url = own.url().replace("redis://", "redis://poor:x@");
    let (store, key, limits) = (support::store_at(&url), fresh_key("rights"), limits(POLICY));
    let error = runtime().block_on(allow(&store, &key, &limits, 1)).unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(error.to_string().contains("the user needs"), "{error}");
    assert_eq!(ask::<i64>(&own, &["EXISTS", &format!("suimon:{key}")]), 0);
}

/// linagora/cozy-stack#2250: a key without an expiry counted for ever.
#[test]
fn an_expiry_that_was_taken_away_comes_back() {
    let store = store();
    for (policy, cost) in
        [("bucket 1/year burst 100", 1), ("bucket 1/year burst 1", 1), ("window 1/1h and bucket 1/year burst 9", 1)]
    {
        let (key, limits) = (fresh_key("persisted"), limits(policy));
        let name = format!("suimon:{key}");
        runtime().block_on(async {
            allow(&store, &key, &limits, cost).await.unwrap();
            assert_eq!(ask::<i64>(server(), &["PERSIST", &name]), 1);
            // Passing or refused: the short script looks at one call in 64.
            for _ in 0..2000 {
                allow(&store, &key, &limits, cost).await.unwrap();
            }
        });
        assert!(ask::<i64>(server(), &["PTTL", &name]) > 0, "{policy}");
    }
}

#[test]
fn what_a_store_has_been_through_is_counted() {
    let mut own = Redis::start();
    let (store, key, limits) = (support::store_at(&own.url()), fresh_key("stats"), limits(POLICY));
    let allow = || runtime().block_on(allow(&store, &key, &limits, 1));
    assert_eq!(store.stats(), suimon_redis::RedisStats::default());
    allow().unwrap();
    allow().unwrap();
    let stats = store.stats();
    assert_eq!((stats.connections, stats.scripts, stats.retries, stats.late, stats.failed), (1, 1, 0, 0, 0));
    assert_eq!(runtime().block_on(store.keys_held()).unwrap(), 1);
    own.kill();
    allow().unwrap_err();
    allow().unwrap_err();
    let stats = store.stats();
    assert!(stats.failed + stats.late >= 2, "{stats:?}");
    own.restart();
    let end = Instant::now() + Duration::from_secs(30);
    while allow().is_err() {
        assert!(Instant::now() < end, "it does not come back");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(store.stats().connections, 2);
    #[cfg(feature = "metrics")]
    store.stats().publish("limits");
}
