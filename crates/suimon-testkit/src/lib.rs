//! Proof for rate limiters.
//!
//! Four things, for the authors of limiters, stores and fronts:
//!
//! - [`golden`]: scenarios in readable text, each a limiter and what it answers
//!   step by step, exact to the nanosecond; and a runner for anything that limits.
//! - [`model`]: every kind of limit in exact fractions, slow and obvious, to be
//!   compared with on any sequence of calls.
//! - [`subjects`]: the model and the core of suimon, as subjects of the scenarios.
//! - [`port`]: what every shared store promises beside the scenarios, mounted by [`promises!`].
//!
//! A store is shown to be right by implementing [`golden::Subject`], which is a
//! page of code, and one line, [`conformance!`].

#![forbid(unsafe_code)]

pub mod golden;
pub mod model;
pub mod port;
#[cfg(all(feature = "servers", unix))]
pub mod servers;
pub mod subjects;
mod utc;
