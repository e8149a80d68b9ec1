//! Queues on real servers of their own: PostgreSQL, MariaDB, and files of SQLite.

#![cfg(all(feature = "postgres", feature = "mysql", feature = "sqlite", unix))]

mod behaviours;
mod changes;
mod endings;
mod exact;
mod outages;
mod plain;
mod processes;
mod properties;
mod refused;
mod support;
mod turns;
mod wake;
