//! The slow, obvious model: every kind of limit in exact fractions.
//!
//! It exists to be compared with. It is written from the definition, not from
//! any implementation: a balance is a fraction, a window is a list that is added
//! up anew for each question, nothing is rounded before the last step, and
//! nothing is fast. With `T` the time that one token takes and `Z` the instant at
//! which the balance is exactly zero,
//!
//! ```text
//! balance(now) = (now - Zc) / T     where Zc = max(Z, now - S*T)
//! ```
//!
//! and `S` is the most that idling saves up: the burst of a bucket, the savings
//! of a pace. A pace lets a call go while the balance is not negative, a bucket
//! while it holds the whole cost; either then moves `Z` on by `cost * T`.
//!
//! A [`Model`] can be told to read its clock in grains ([`Grain`]), as an
//! implementation does that counts in ticks; then the two must agree exactly for
//! every rate, and what the grain changes can be measured against the same model
//! without it.
//!
//! ```
//! use suimon_testkit::model::{Model, Spec, whole};
//!
//! let mut model = Model::new(Spec::parse("bucket 3/s burst 3")?, 0);
//! assert!(model.allow(0, &whole(3))?.is_allowed());
//! // A third of a second is no whole number of nanoseconds: the wait is rounded up.
//! let denial = model.allow(0, &whole(1))?;
//! assert_eq!(denial.retry_after(), Some(333_333_334));
//! # Ok::<(), suimon_testkit::model::Fault>(())
//! ```

mod answer;
mod carry;
mod fixed;
mod gcra;
mod number;
mod policy;
mod spec;
mod text;
mod window;

pub use answer::{Booking, Decision, Fault, Retry, Status};
pub use carry::Carry;
pub use number::{Q, decimal, fraction, whole};
pub use policy::{Model, Ticket};
pub use spec::{Grain, Rate, Spec, Windows};
