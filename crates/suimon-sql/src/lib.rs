//! Limits that are shared through a database: the store of suimon on PostgreSQL, MariaDB
//! and SQLite.

#![forbid(unsafe_code)]

mod builder;
mod dialect;
mod failure;
mod key;
mod schema;
mod session;
mod store;
mod sweep;

pub use builder::{OpenError, SqlBuilder};
pub use store::{SqlStats, SqlStore};
