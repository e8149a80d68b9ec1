//! Queues on real servers of their own: PostgreSQL, MariaDB, and files of SQLite.

#![cfg(all(feature = "postgres", feature = "mysql", feature = "sqlite", unix))]

mod behaviours;
mod changes;
mod exact;
mod refused;
mod support;
mod turns;
