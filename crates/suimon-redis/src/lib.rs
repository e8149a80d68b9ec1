#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod answer;
mod asking;
mod booked;
mod builder;
mod calls;
mod carry;
mod check;
#[cfg(feature = "cluster")]
mod cluster;
mod error;
mod failure;
mod keys;
mod leases;
mod link;
mod plan;
mod record;
mod scripts;
mod stats;
mod store;
mod units;

pub use builder::RedisStoreBuilder;
pub use stats::RedisStats;
pub use store::RedisStore;
