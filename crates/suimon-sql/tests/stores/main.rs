//! The store on real servers of its own: PostgreSQL, MariaDB, and files of SQLite.

#![cfg(all(feature = "postgres", feature = "mysql", feature = "sqlite", unix))]

mod conformance;
mod ids;
mod races;
mod records;
mod support;
mod versions;
