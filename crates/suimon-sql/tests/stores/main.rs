//! The store on real servers of its own: PostgreSQL, MariaDB, and files of SQLite.

#![cfg(all(feature = "postgres", feature = "mysql", feature = "sqlite", unix))]

mod conformance;
mod ids;
mod locks;
mod outages;
mod processes;
mod properties;
mod proxy;
mod races;
mod records;
mod remote;
mod schema;
mod support;
mod sweep;
mod trips;
mod versions;
