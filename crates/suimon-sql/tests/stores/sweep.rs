//! Rows that say nothing any more go.

use std::time::{Duration, Instant};

use suimon::Timestamp;
use suimon::store::{Call, Outcome, Settling, Store, Verb};

use crate::support::{Kind, allow, at, block_on, call, limits, ok, on_all, part, passes, remaining, settling, with_id};

on_all!(
    clean_up_removes_what_is_old,
    old_rows_go_in_passing,
    rows_of_a_made_up_time_are_kept_as_long_as_others,
    rows_in_use_are_passed_over,
);

fn clean_up_removes_what_is_old(kind: Kind) {
    let place = kind.place();
    let (store, limits) = (place.store(), limits("bucket 1/day burst 10"));
    block_on(async {
        for key in 0..300 {
            let call = with_id("1", call(Verb::Allow, vec![part(&format!("{key:04}"), &limits, 1)]));
            // By a time of its own, so that nothing is swept in passing meanwhile.
            let at = Some(Timestamp::from_nanos(now().cast_unsigned()));
            assert!(passes(&ok(store.decide(&Call { at, ..call }).await)));
        }
        assert_eq!(ok(store.clean_up().await), 0);
        // Half of both would be due; only just, one of them.
        let key = |key: &str| {
            let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
            if kind == Kind::Postgres { format!("'\\x{hex}'") } else { format!("x'{hex}'") }
        };
        place.run(&format!("UPDATE {{p}}_limits SET fresh_at = 0 WHERE limit_key < {}", key("0150"))).await;
        let just = now() - 1_000_000_000;
        place.run(&format!("UPDATE {{p}}_limits SET fresh_at = {just} WHERE limit_key = {}", key("0299"))).await;
        place.run("UPDATE {p}_requests SET expires_at = 0").await;
        assert_eq!(ok(store.clean_up().await), 450);
        assert_eq!((place.count("limits").await, place.count("requests").await), (150, 0));
        assert_eq!(store.stats().removed, 450);
        assert_eq!(remaining(&store, "0000", &limits).await, 10);
        assert_eq!(remaining(&store, "0150", &limits).await, 9);
    });
}

fn old_rows_go_in_passing(kind: Kind) {
    let place = kind.place();
    let (store, limits) = (place.store(), limits("bucket 1/day burst 10"));
    block_on(async {
        for key in 0..200 {
            assert!(ok(allow(&store, &format!("old {key}"), &limits).await));
        }
        place.run("UPDATE {p}_limits SET fresh_at = 0").await;
        // Four are looked at for each that is added: twice the 350 that there are in the end.
        for key in 0..150 {
            assert!(ok(allow(&store, &format!("new {key}"), &limits).await));
        }
        let end = Instant::now() + Duration::from_secs(20);
        while store.stats().removed < 200 {
            assert!(Instant::now() < end, "{:?}", store.stats());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(place.count("limits").await, 150);
    });
}

/// A time of a test's own is long past, or far ahead: that says nothing about the server's.
fn rows_of_a_made_up_time_are_kept_as_long_as_others(kind: Kind) {
    let place = kind.place();
    let (store, limits) = (place.store(), limits("bucket 1/h burst 10"));
    for secs in [100, 4_000_000_000] {
        let key = format!("at {secs}");
        let used = at(secs, call(Verb::Reserve { max_wait: None }, vec![part(&key, &limits, 10)]));
        let Outcome::Booked(_, ticket) = ok(block_on(store.decide(&used))).outcome else { panic!() };
        let settling = Settling { at: Some(Timestamp::from_secs(secs)), ..settling(&ticket, &limits, 8) };
        ok(block_on(store.settle(&settling)));
        assert_eq!(ok(block_on(store.clean_up())), 0);
    }
    // As good as new eight hours from now.
    let bounds = [7 * 3600, 8 * 3600].map(|secs: i64| now() + secs * 1_000_000_000);
    block_on(place.run(&format!("DELETE FROM {{p}}_limits WHERE fresh_at BETWEEN {} AND {}", bounds[0], bounds[1])));
    assert_eq!(block_on(place.count("limits")), 0);
}

fn rows_in_use_are_passed_over(kind: Kind) {
    if kind == Kind::Sqlite {
        // There the whole file is in use, and waited for.
        return;
    }
    let place = kind.place();
    let (store, limits) = (place.store(), limits("bucket 1/day burst 10"));
    block_on(async {
        for key in ["a", "b", "c"] {
            assert!(ok(allow(&store, key, &limits).await));
        }
        place.run("UPDATE {p}_limits SET fresh_at = 0").await;
        let mut holder = place.connect().await;
        holder.run(&format!("BEGIN; SELECT 1 FROM {}_limits WHERE limit_key = 'b' FOR UPDATE", place.prefix)).await;
        assert_eq!(ok(store.clean_up().await), 2);
        holder.run("ROLLBACK").await;
        assert_eq!(ok(store.clean_up().await), 1);
    });
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_nanos()).unwrap()
}
