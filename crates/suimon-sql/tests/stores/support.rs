//! Databases to test on, and calls in short.

use std::fmt::Debug;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use suimon::store::{Call, Limits, Outcome, Part, Reply, RequestId, Settling, Store, Ticket, Verb};
use suimon::{Carry, Cost, Error, Timestamp, Utc};
use suimon_sql::{SqlBuilder, SqlStore};
use suimon_testkit::servers::{Folder, MariaDb, Postgres};
use tokio::runtime::Runtime;

/// A kind of database, of which there is one for all tests that leave it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    MariaDb,
    Sqlite,
}

/// Makes tests, on each kind of database, of functions that take one.
macro_rules! on_all {
    ($($test:ident),+ $(,)?) => { $crate::support::on_all!(@ [Postgres MariaDb Sqlite] $($test),+); };
    (servers: $($test:ident),+ $(,)?) => {
        mod servers {
            use super::*;
            $crate::support::on_all!(@ [Postgres MariaDb] $($test),+);
        }
    };
    (@ [$($kind:ident)+] $($test:ident),+) => { $crate::support::on_all!(@@ [$($kind)+] ($($test),+)); };
    (@@ [$($kind:ident)+] $tests:tt) => { $( $crate::support::on_all!(@@@ $kind $tests); )+ };
    (@@@ $kind:ident ($($test:ident),+)) => {
        #[allow(non_snake_case)]
        mod $kind {
            $(
                #[test]
                fn $test() {
                    super::$test($crate::support::Kind::$kind);
                }
            )+
        }
    };
}
pub(crate) use on_all;

/// The runtime of all tests.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(future)
}

/// Runs futures side by side, each a task of its own.
pub(crate) async fn together<T, F>(futures: impl IntoIterator<Item = F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<_> = futures.into_iter().map(|future| runtime().spawn(future)).collect();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.unwrap());
    }
    all
}

impl Kind {
    /// The URL of the one for all.
    pub(crate) fn url(self) -> String {
        static POSTGRES: OnceLock<Postgres> = OnceLock::new();
        static MARIADB: OnceLock<MariaDb> = OnceLock::new();
        static SQLITE: OnceLock<Folder> = OnceLock::new();
        match self {
            Kind::Postgres => POSTGRES.get_or_init(Postgres::start).url(),
            Kind::MariaDb => MARIADB.get_or_init(MariaDb::start).url(),
            Kind::Sqlite => {
                let folder = SQLITE.get_or_init(|| Folder::new("sqlite", &[]));
                format!("sqlite://{}", folder.path().join(format!("{}.db", number())).display())
            }
        }
    }

    /// A database in which nobody else has tables of this name.
    pub(crate) fn place(self) -> Place {
        Place { kind: self, url: self.url(), prefix: format!("t{}", number()) }
    }

    pub(crate) fn store(self) -> SqlStore {
        self.place().store()
    }
}

/// Where a store is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) url: String,
    pub(crate) prefix: String,
}

impl Place {
    /// A patient one: what it does is to be seen, not how fast a busy machine is.
    pub(crate) fn builder(&self) -> SqlBuilder {
        SqlStore::builder(&self.url).prefix(&self.prefix).timeout(Duration::from_secs(30))
    }

    /// One more store in this place, with connections of its own.
    pub(crate) fn store(&self) -> SqlStore {
        block_on(self.builder().open()).unwrap()
    }

    /// A connection of the test's own.
    pub(crate) async fn connect(&self) -> Connection {
        use sqlx::Connection as _;
        match self.kind {
            Kind::Postgres => Connection::Postgres(sqlx::PgConnection::connect(&self.url).await.unwrap()),
            Kind::MariaDb => Connection::MariaDb(sqlx::MySqlConnection::connect(&self.url).await.unwrap()),
            Kind::Sqlite => Connection::Sqlite(sqlx::SqliteConnection::connect(&self.url).await.unwrap()),
        }
    }

    /// Runs a statement, in which `{p}` stands for the prefix of the tables.
    pub(crate) async fn run(&self, sql: &str) {
        self.connect().await.run(&sql.replace("{p}", &self.prefix)).await;
    }

    /// How many rows a table has.
    pub(crate) async fn count(&self, table: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {}_{table}", self.prefix);
        let sql = sqlx::AssertSqlSafe(sql);
        match self.connect().await {
            Connection::Postgres(mut one) => sqlx::query_scalar(sql).fetch_one(&mut one).await,
            Connection::MariaDb(mut one) => sqlx::query_scalar(sql).fetch_one(&mut one).await,
            Connection::Sqlite(mut one) => sqlx::query_scalar(sql).fetch_one(&mut one).await,
        }
        .unwrap()
    }
}

#[derive(Debug)]
pub(crate) enum Connection {
    Postgres(sqlx::PgConnection),
    MariaDb(sqlx::MySqlConnection),
    Sqlite(sqlx::SqliteConnection),
}

impl Connection {
    pub(crate) async fn run(&mut self, sql: &str) {
        self.try_run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    pub(crate) async fn try_run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()));
        match self {
            Connection::Postgres(one) => sql.execute(one).await.map(drop),
            Connection::MariaDb(one) => sql.execute(one).await.map(drop),
            Connection::Sqlite(one) => sql.execute(one).await.map(drop),
        }
    }
}

fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn limits(policy: &str) -> Arc<Limits> {
    version(policy, 0)
}

pub(crate) fn version(policy: &str, version: u64) -> Arc<Limits> {
    carried(policy, version, Carry::Keep)
}

pub(crate) fn carried(policy: &str, version: u64, carry: Carry) -> Arc<Limits> {
    Arc::new(Limits::new(policy.parse().unwrap(), &Utc, version, carry).unwrap())
}

pub(crate) fn part(key: &str, limits: &Arc<Limits>, cost: u64) -> Part {
    Part { key: key.into(), limits: limits.clone(), cost: Cost::whole(cost) }
}

pub(crate) fn call(verb: Verb, parts: Vec<Part>) -> Call {
    Call { parts, verb, id: None, at: None }
}

pub(crate) fn at(secs: u64, call: Call) -> Call {
    Call { at: Some(Timestamp::from_secs(secs)), ..call }
}

/// With an id that is good for a minute.
pub(crate) fn with_id(id: &str, call: Call) -> Call {
    Call { id: Some(RequestId::new(id, Duration::from_secs(60)).unwrap()), ..call }
}

/// The settlement of a booking of one part.
pub(crate) fn settling(ticket: &Ticket, limits: &Arc<Limits>, actual: u64) -> Settling {
    let (limits, actual) = (vec![limits.clone()], vec![Cost::whole(actual)]);
    Settling { ticket: ticket.clone(), limits, actual, id: None, at: None }
}

/// Books a place of a key.
pub(crate) fn book(store: &SqlStore, key: &str, limits: &Arc<Limits>, cost: u64) -> Ticket {
    let reply = ok(block_on(store.decide(&call(Verb::Reserve { max_wait: None }, vec![part(key, limits, cost)]))));
    let Outcome::Booked(_, ticket) = reply.outcome else { panic!("{reply:?}") };
    ticket
}

pub(crate) fn passes(reply: &Reply) -> bool {
    matches!(reply.outcome, Outcome::Allowed(_) | Outcome::Booked(..))
}

/// One token of a key: does it pass?
pub(crate) async fn allow(store: &SqlStore, key: &str, limits: &Arc<Limits>) -> Result<bool, Error> {
    let call = call(Verb::Allow, vec![part(key, limits, 1)]);
    store.decide(&call).await.map(|reply| passes(&reply))
}

/// What is left of a key.
pub(crate) async fn remaining(store: &SqlStore, key: &str, limits: &Arc<Limits>) -> u64 {
    let reply = ok(store.decide(&call(Verb::Peek, vec![part(key, limits, 0)])).await);
    reply.outcome.decision().status().remaining()
}

#[track_caller]
pub(crate) fn ok<T>(result: Result<T, impl Debug>) -> T {
    result.unwrap_or_else(|error| panic!("{error:?}"))
}
