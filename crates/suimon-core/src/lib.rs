#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::unreachable,
    clippy::panic_in_result_fn,
    clippy::string_slice,
    clippy::integer_division_remainder_used,
    missing_docs
)]
#![cfg_attr(
    test,
    allow(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::integer_division_remainder_used,
    )
)]

extern crate alloc;

mod bytes;
mod calendar;
mod carry;
mod cost;
mod decision;
mod error;
mod gate;
pub mod gcra;
mod int;
mod limit;
mod policy;
mod quota;
mod reserve;
mod rule;
#[cfg(feature = "serde")]
mod serde_impls;
mod state;
mod text;
mod ticks;
mod time;

mod fixed;
mod window;

pub use calendar::{Boundaries, Calendar, Every, Span, Unit, Utc};
pub use carry::Carry;
pub use cost::Cost;
pub use decision::{Decision, Retry, Status};
pub use error::{Error, OutOfRange};
pub use gate::Gate;
pub use limit::{Bucket, Fixed, Limit, Pace, Window};
pub use policy::Policy;
pub use quota::Quota;
pub use reserve::{Booking, Reservation, Settlement};
pub use state::State;
pub use ticks::Ticks;
pub use time::{HighWater, Timestamp};

/// A century of 365.25-day years: the longest time that one token, a full
/// saving or a largest cost may take, and the least time a limiter can run.
pub const CENTURY: core::time::Duration = core::time::Duration::from_secs(3_155_760_000);
