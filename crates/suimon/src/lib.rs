#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

#[cfg(feature = "macros")]
#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
pub mod clock;
mod error;
mod keyed;
mod limiter;
mod local;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "remote")]
mod remote;
mod request;
mod spot;
pub mod store;
mod sync;
mod top;
#[cfg(feature = "zones")]
pub mod zones;

pub use error::Error;
pub use keyed::{KeyLimiter, Keyed, KeyedBuilder, KeyedConsume, KeyedMap, KeyedStats, Overflow};
pub use limiter::{DynLimiter, Limiter, NoLimit, Recorder, Seen};
pub use local::{Builder, Consume, LocalLimiter, PolicyArg, Reservation, reserve_all};
#[cfg(feature = "remote")]
pub use remote::{Answer, Leased, Outage, Remote, RemoteBuilder, RemoteReservation, RemoteStats};
pub use request::{IntoRequest, Request};
pub use spot::Spot;
pub use suimon_core::{
    Boundaries, Bucket, CENTURY, Calendar, Carry, Cost, Decision, Error as PolicyError, Every, Fixed, Gate, HighWater,
    Limit, OutOfRange, Pace, Policy, Quota, Retry, Settlement, Span, State, Status, Timestamp, Unit, Utc, Window, gcra,
};
#[cfg(feature = "macros")]
pub use suimon_macros::consume;
pub use top::{TopKey, TopKeys};
