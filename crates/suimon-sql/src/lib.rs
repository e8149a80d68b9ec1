//! Limits that are shared through a database: the store of suimon on PostgreSQL, MariaDB
//! and SQLite.
//!
//! ```no_run
//! # #[cfg(feature = "postgres")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use suimon::Remote;
//! use suimon_sql::SqlStore;
//!
//! // Makes the tables where there are none.
//! let store = SqlStore::open("postgres://app@db/app").await?;
//! let limit = Remote::builder(store, "mail", "bucket 10/s burst 20")?.build()?;
//! if limit.allow_async(1).await?.is_allowed() {
//!     // Ten a second, of all processes together.
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The kinds of databases are features, none of which is on by default: `postgres`,
//! `mysql` (MariaDB; MySQL 8 speaks the same, and is not tested), `sqlite`; and `tls` for encrypted connections.
//! The kind is told by the URL, whose form is that of the driver, `sqlx`.
//!
//! # How it works
//!
//! A record for each key: its limits, its state, the latest time that it has seen. A call is
//! one short transaction: it locks the records of its keys in their order, reads them and
//! **then** the server's clock; the core of suimon decides; the changes are written and
//! committed. All parts pass, or none does.
//!
//! | | round trips |
//! |---|---|
//! | a call that passes, a booking, its settlement, with a request id or without | 2 |
//! | a call that is refused | 2, nothing is written |
//! | a peek | 1, without a lock |
//! | the first call of a key, when others are first at the same time | 2 more for those who come late |
//!
//! Keys that are locked at the same time are decided one after the other, each for the length of a
//! round trip and a commit: so many calls a second one key can take. Those of other keys go
//! on beside it. Where that is not enough, leases (`Remote::leased`) take tokens in chunks.
//!
//! Nothing is prepared on the server, and all settings of a session end with the transaction on
//! PostgreSQL: it works through a pooler that shares connections between transactions. The
//! isolation is `READ COMMITTED`, whatever the default of the database.
//!
//! Deadlocks, failures to serialize, two who are first with a key, a locked file, a
//! connection that has been cut before anything was written: all are tried again within the
//! deadline (half a second), and [counted](SqlStore::stats). The log of a server may tell of a
//! duplicate key for those who were second with one.
//!
//! # What each of them promises
//!
//! | | PostgreSQL | MariaDB | SQLite |
//! |---|---|---|---|
//! | what is locked | the rows | the rows | the file |
//! | whose time | the server's, in microseconds | the server's, in microseconds | the machine's |
//! | shared by | whoever reaches the server | whoever reaches the server | the processes of one machine; a file on a network is no database |
//! | somebody holds a key without a word | let go after the caller's deadline | after the deadline, in whole seconds | for as long as that process is stopped |
//! | a process is killed in a call | undone at once | undone at once | undone at once |
//! | the database is killed | nothing that was answered is lost | the same | the same |
//! | the machine loses power | the same; with `synchronous_commit = off` the last half second | the same; with `innodb_flush_log_at_trx_commit = 2` the last second | what was written since the last checkpoint |
//!
//! # What an outage can cost
//!
//! A call that gets no answer within its deadline fails with an error that
//! [`is_unavailable`](suimon::Error::is_unavailable): once for each call, not for longer. Whether it was charged
//! depends on when it was cut:
//!
//! - before the commit was sent: nothing is charged, and it is tried again within the deadline;
//! - after it: charged or not, nobody knows. With a request id the store asks again by
//!   itself and gets the recorded answer; without one the call fails, and at most its own
//!   cost is charged in vain. The same goes for the settlement of a booking. So an outage costs each caller that is in the middle
//!   of a call up to the cost of that call, and never lets more pass than the limit.
//!
//! More passes only where a database forgets what it has acknowledged. After a power cut or
//! a failover to a copy that lags (both have an interval above, or a lag of your setting)
//! up to what was admitted in that interval is admitted again, at most the whole limit of a
//! key. Two primaries at a time each admit the limit.
//!
//! A clock that steps back mints nothing: a record knows the latest time that it has
//! seen, and stays for a minute after it is as good as new. One that steps forward
//! refills at once, as time does.
//!
//! # Tables
//!
//! `suimon_limits`, `suimon_requests` and `suimon_schema`, or with a
//! [prefix](SqlBuilder::prefix) of yours. [`migrate`](SqlStore::migrate) brings them up to date, in all processes at
//! once if need be. Programs with an older version of the tables go on beside newer ones, as long
//! as the newer tables allow it; otherwise they are told when they open them.
//!
//! Records that are as good as new and requests that have expired are removed in passing,
//! four looked at for each that is added, or by [`clean_up`](SqlStore::clean_up). The answers of requests with
//! ids are kept for the lifetime of the id: their number is bounded by that time and the
//! rate of requests.
//!
//! MariaDB has to be 10.6 or newer. With its binary log on, `binlog_format` has to be `MIXED`
//! (the default) or `ROW`. A record has to fit into `max_allowed_packet` twice over: one of an exact
//! window of ten thousand has about 200 kB, and twice as much on its way.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(feature = "postgres", feature = "mysql", feature = "sqlite")),
    allow(
        dead_code,
        unreachable_code,
        unused_imports,
        unused_variables,
        reason = "not every kind of database needs everything"
    )
)]

mod builder;
mod dialect;
mod failure;
mod key;
#[cfg(feature = "postgres")]
mod listen;
mod schema;
mod session;
mod store;
mod sweep;
mod work;

/// How the databases are spoken to, for suimon's own crates: without promises.
#[doc(hidden)]
pub mod access {
    pub use sqlx::Error as SqlError;

    pub use crate::dialect::{Dialect, Tables, Words, is_prefix};
    pub use crate::failure::{Failure, Stop};
    #[cfg(feature = "postgres")]
    pub use crate::listen::Listener;
    pub use crate::schema::{Version, migrate};
    pub use crate::session::{Cell, Connection, Pool, Session, Target};
}

pub use builder::{OpenError, SqlBuilder};
pub use store::{Held, SqlStats, SqlStore};
