//! Time, and those who hold locks for long.

use std::time::{Duration, Instant};

use suimon::store::{Store, Verb};
use suimon_sql::SqlStore;

use crate::support::{Connection, Kind, Place, allow, block_on, call, limits, ok, on_all, part, runtime, with_id};

on_all!(servers: the_time_is_read_when_the_lock_is_held, a_session_that_is_serializable_by_default_is_as_good, waiting_for_locks_is_counted);
on_all!(a_key_that_is_held_costs_one_deadline);

/// Somebody who holds the row of a key.
async fn hold(place: &Place, key: &str) -> Connection {
    let mut holder = place.connect().await;
    let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
    let limits = format!("{}_limits", place.prefix);
    holder
        .run(&match place.kind {
            Kind::Postgres => format!("BEGIN; SELECT 1 FROM {limits} WHERE limit_key = '\\x{hex}' FOR UPDATE"),
            Kind::MariaDb => format!("BEGIN; SELECT 1 FROM {limits} WHERE limit_key = x'{hex}' FOR UPDATE"),
            Kind::Sqlite => "BEGIN IMMEDIATE".to_owned(),
        })
        .await;
    holder
}

/// Otherwise one who waited would be dated back to before those who were served meanwhile.
fn the_time_is_read_when_the_lock_is_held(kind: Kind) {
    let place = kind.place();
    let (store, limits) = (place.store(), limits("bucket 1/day burst 10"));
    let allow_one = call(Verb::Allow, vec![part("key", &limits, 1)]);
    let peek = call(Verb::Peek, vec![part("other", &limits, 1)]);
    ok(block_on(store.decide(&allow_one)));
    block_on(async {
        let mut holder = hold(&place, "key").await;
        let waits = runtime().spawn({
            let (store, call) = (store.clone(), allow_one.clone());
            async move { ok(store.decide(&call).await).now }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        let released = ok(store.decide(&peek).await).now;
        holder.run("ROLLBACK").await;
        let decided = waits.await.unwrap();
        assert!(decided >= released, "decided at {decided:?}, and the lock was held until {released:?}");
    });
}

fn a_session_that_is_serializable_by_default_is_as_good(kind: Kind) {
    let place = kind.place();
    let url = match kind {
        Kind::Postgres => format!("{}?options=-c%20default_transaction_isolation=serializable", place.url),
        _ => {
            block_on(place.run("SET GLOBAL tx_isolation = 'SERIALIZABLE'"));
            place.url.clone()
        }
    };
    let store = ok(block_on(SqlStore::builder(&url).prefix(&place.prefix).timeout(Duration::from_secs(30)).open()));
    let limits = limits("bucket 1/day burst 10");
    assert!(ok(block_on(allow(&store, "key", &limits))));
    let calls = (0..16).map(|_| {
        let (store, limits) = (store.clone(), limits.clone());
        async move { ok(allow(&store, "key", &limits).await) }
    });
    let passed = block_on(crate::support::together(calls)).into_iter().filter(|passed| *passed).count();
    assert_eq!((passed, store.stats().conflicts), (9, 0));
}

fn a_key_that_is_held_costs_one_deadline(kind: Kind) {
    let place = kind.place();
    let (patient, limits) = (place.store(), limits("bucket 1/day burst 10"));
    assert!(ok(block_on(allow(&patient, "key", &limits))));
    assert!(ok(block_on(allow(&patient, "other", &limits))));
    let deadline = Duration::from_millis(400);
    let store = ok(block_on(place.builder().connections(2).timeout(deadline).open()));
    block_on(async {
        let mut holder = hold(&place, "key").await;
        let start = Instant::now();
        let error = allow(&store, "key", &limits).await.unwrap_err();
        let took = start.elapsed();
        assert!(error.is_unavailable(), "{error}");
        assert!(took >= deadline / 2 && took < deadline * 12, "{took:?}");
        // Keys that nobody holds are not concerned, where it is keys that are locked.
        if kind != Kind::Sqlite {
            assert!(ok(allow(&patient, "other", &limits).await));
        }
        holder.run("ROLLBACK").await;
        assert!(ok(allow(&store, "key", &limits).await));
    });
}

fn waiting_for_locks_is_counted(kind: Kind) {
    let place = kind.place();
    let (store, limits) = (place.store(), limits("bucket 1/day burst 10"));
    let allow_one = with_id("1", call(Verb::Allow, vec![part("key", &limits, 1)]));
    ok(block_on(store.decide(&allow_one)));
    let before = store.stats();
    assert_eq!((before.locks, before.failed), (1, 0));
    let held = ok(block_on(store.held()));
    assert_eq!((held.records, held.requests), (1, 1));
    block_on(async {
        let mut holder = hold(&place, "key").await;
        let waits = runtime().spawn({
            let (store, call) = (store.clone(), call(Verb::Allow, vec![part("key", &limits, 1)]));
            async move { ok(store.decide(&call).await) }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        holder.run("ROLLBACK").await;
        waits.await.unwrap();
    });
    let after = store.stats();
    assert!(after.locking - before.locking >= Duration::from_millis(50), "{after:?}");
    #[cfg(feature = "metrics")]
    {
        after.publish("limits");
        held.publish("limits");
    }
}
