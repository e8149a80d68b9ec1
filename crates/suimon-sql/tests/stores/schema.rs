//! The tables, made by whoever comes first.

use suimon_sql::{OpenError, SqlStore};

use crate::support::{Kind, allow, block_on, limits, ok, on_all, together};

on_all!(
    many_make_the_tables_at_once,
    what_was_interrupted_is_finished,
    tables_of_a_newer_program,
    without_tables_a_call_is_an_outage,
);

fn many_make_the_tables_at_once(kind: Kind) {
    for _ in 0..3 {
        let place = kind.place();
        let opened = block_on(together((0..8).map(|_| place.builder().open())));
        for store in opened {
            assert!(ok(block_on(allow(&ok(store), "key", &limits("bucket 1/day burst 8")))));
        }
    }
}

/// A database that cannot undo the making of a table may be left with the first of them.
fn what_was_interrupted_is_finished(kind: Kind) {
    let place = kind.place();
    drop(place.store());
    block_on(async {
        place.run("DROP TABLE {p}_requests").await;
        place.run("DELETE FROM {p}_schema").await;
    });
    let store = place.store();
    assert!(ok(block_on(allow(&store, "key", &limits("bucket 1/day burst 8")))));
    assert_eq!((block_on(place.count("requests")), block_on(place.count("schema"))), (0, 1));
}

fn tables_of_a_newer_program(kind: Kind) {
    let place = kind.place();
    drop(place.store());
    // One that has added something that this one need not know.
    block_on(place.run("INSERT INTO {p}_schema (version, oldest) VALUES (7, 1)"));
    assert!(ok(block_on(allow(&place.store(), "key", &limits("bucket 1/day burst 8")))));
    block_on(place.run("INSERT INTO {p}_schema (version, oldest) VALUES (8, 5)"));
    let error = block_on(place.builder().open()).unwrap_err();
    assert!(matches!(error, OpenError::TooOld { known: 1, needed: 5 }), "{error}");
}

fn without_tables_a_call_is_an_outage(kind: Kind) {
    let place = kind.place();
    let store = ok(block_on(place.builder().without_migration().open()));
    let limits = limits("bucket 1/day burst 8");
    assert!(block_on(allow(&store, "key", &limits)).unwrap_err().is_unavailable());
    ok(block_on(store.migrate()));
    assert!(ok(block_on(allow(&store, "key", &limits))));
}

/// Who may not make tables can work with those that there are.
#[test]
fn rights_to_make_tables_are_needed_once() {
    let place = Kind::Postgres.place();
    let role = format!("poor_{}", place.prefix);
    drop(place.store());
    block_on(async {
        place.run(&format!("CREATE ROLE {role} LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON {{p}}_limits, {{p}}_requests TO {role}; GRANT SELECT ON {{p}}_schema TO {role}")).await;
    });
    let url = place.url.replace("suimon@", &format!("{role}@"));
    let store = ok(block_on(SqlStore::builder(&url).prefix(&place.prefix).open()));
    assert!(ok(block_on(allow(&store, "key", &limits("bucket 1/day burst 8")))));
    let error = block_on(SqlStore::builder(&url).prefix("others").open()).unwrap_err();
    assert!(matches!(error, OpenError::Database(_)), "{error}");
}

#[test]
fn what_is_wrong_is_told() {
    let error = |builder: suimon_sql::SqlBuilder| block_on(builder.open()).unwrap_err().to_string();
    assert!(error(SqlStore::builder("oracle://db")).contains("postgres:"));
    assert!(error(SqlStore::builder("sqlite::memory:")).contains("name a file"));
    assert!(error(SqlStore::builder("postgres://db:port/app")).contains("port"));
    for prefix in ["", "Limits", "9", "a;b", "a b", &"x".repeat(41)] {
        assert!(error(SqlStore::builder("sqlite:x").prefix(prefix)).contains("40"), "{prefix}");
    }
    let secret = format!("{:?}", SqlStore::builder("postgres://app:secret@db/app"));
    assert!(!secret.contains("secret"), "{secret}");
}
