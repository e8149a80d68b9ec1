//! The front of suimon that runs: the command-line tool.
//!
//! [`replay`] is the work behind `suimon replay`, usable as a library; [`cli`] is
//! what stands around it. `suimon pace`, which lets lines or commands pass at a
//! limit, and `suimon jobs`, a queue on the crate `suimon-jobs`, are of use on the command line alone.
//!
//! ```
//! use std::time::Duration;
//! use suimon_server::replay::{Format, Input, Options, Wanted, run};
//!
//! let log = b"{\"time\":1,\"user\":\"ann\"}\n{\"time\":1,\"user\":\"ann\"}\n{\"time\":1,\"user\":\"bob\"}\n";
//! let outcome = run(
//!     &Options {
//!         inputs: vec![Input::Memory { name: "three requests", bytes: log }],
//!         format: Format::Auto,
//!         wanted: Wanted { key: vec!["user".into()], ..Wanted::default() },
//!         reorder: Duration::from_secs(60),
//!         policies: vec!["bucket 1/s burst 1".parse()?],
//!         top: 10,
//!         show_unreadable: 5,
//!         search: false,
//!     },
//!     &mut |_| (),
//! )?;
//! assert_eq!((outcome.requests, outcome.keys), (3, 2));
//! assert_eq!((outcome.policies[0].allowed, outcome.policies[0].denied), (2, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod cli;
#[cfg(feature = "jobs")]
mod jobs;
mod pace;
pub mod replay;
mod terminal;
