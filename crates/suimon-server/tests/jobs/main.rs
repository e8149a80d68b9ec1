//! `suimon jobs` from outside: the real binary on files of SQLite, and on servers of its own.

#![cfg(all(unix, feature = "jobs"))]

#[path = "../common/mod.rs"]
mod common;
mod control;
mod dispatch;
mod ending;
mod readme;
mod sql;
mod support;
mod work;
