//! Golden scenarios: readable files that say what a limiter answers, to the
//! nanosecond, and a runner for anything that limits.
//!
//! # The format
//!
//! A file holds scenarios; a line is a word and what belongs to it. `#` begins a
//! comment where a word could begin.
//!
//! ```text
//! scenario thirds_of_a_second
//! why the wait is rounded up, so that who sleeps it passes
//! source example/project#12      # or none, or left out
//! policy bucket 3/s burst 3
//! at 0s x3 allow 1 -> allow remaining 0
//! at 0s allow 1 -> deny retry 333333334ns by 0 burst_left 0 reset 1s
//! at 0.333333334s allow 1 -> allow
//! at 1s reserve 2 within 5s as job -> wait 0s
//! at 1s settle job 1.5 -> done
//! at 1s allow 4 -> error cost-too-large
//! from 10s every 100ms x600 allow 1 -> allowed 182
//! ```
//!
//! Before the first step, in any order:
//!
//! | line | meaning |
//! |---|---|
//! | `why TEXT` | what the scenario shows; needed |
//! | `policy TEXT` | the policy in its text form; needed |
//! | `source TEXT` | the public report that it comes from |
//! | `clock highwater` | the latest instant seen counts (the default); `raw`: each instant as it is |
//! | `start INSTANT` | when the limiter is made; 0 if left out |
//! | `balance TOKENS` | the balance it starts with; full if left out |
//! | `tolerance DURATION` | how early a subject may be that [counts in ticks](Subject::counts_in_ticks) |
//! | `refused KIND` | the policy itself is an error, and there are no steps |
//!
//! A step is `at INSTANT [xN] CALL -> ANSWER [FIELD VALUE]...`, or
//! `from INSTANT every DURATION xN CALL -> ...` for calls at a steady distance.
//! Of several calls every one has to get the answer and the last one the fields.
//!
//! | call | answers |
//! |---|---|
//! | `allow COST` | `allow`, `deny`, and `allowed N` for how many of the calls pass |
//! | `peek COST` | `allow`, `deny` |
//! | `reserve COST [within DURATION] [as NAME]` | `wait DURATION`, `deny` |
//! | `settle NAME COST` | `done` |
//! | `change keep\|balance\|scale\|reset to POLICY` | `done` |
//!
//! Every call may answer `error KIND`; the kinds are `cost-too-large`,
//! `invalid-cost`, `out-of-range`, `syntax` and `any`. The fields are `limit`,
//! `remaining`, `burst_left`, `reset`, and of a denial `retry` (a duration or
//! `never`) and `by` (the index of the refusing limit, from 0). A field that is
//! left out is not compared. Durations are `250ms`, `0.333333333s`, `1h`;
//! instants are durations since the clock's origin or dates such as
//! `2026-10-25T23:30:00Z`.
//!
//! # A subject
//!
//! Whatever limits implements [`Subject`]; here a store that can only allow, and
//! only tells whether.
//!
//! ```
//! use suimon_testkit::golden::{self, Action, Clock, Feature, Opening, Outcome, Refusal, Subject, Verdict};
//!
//! #[derive(Default)]
//! struct MyStore { /* a connection */ }
//!
//! impl MyStore {
//!     fn configure(&mut self, policy: &str) -> Result<(), String> { Err(format!("no such policy: {policy}")) }
//!     fn allow(&mut self, now: u64, cost: &str) -> Result<bool, String> { Ok(now > 0 && cost == "1") }
//! }
//!
//! impl Subject for MyStore {
//!     fn name(&self) -> String {
//!         "my store".to_owned()
//!     }
//!
//!     fn open(&mut self, opening: &Opening<'_>) -> Result<(), Refusal> {
//!         if opening.clock == Clock::Raw {
//!             return Err(Refusal::Unsupported(Feature::RawClock));
//!         }
//!         if opening.balance.is_some() {
//!             return Err(Refusal::Unsupported(Feature::Balance));
//!         }
//!         // A new key, so that what other scenarios did is not seen.
//!         self.configure(opening.policy).map_err(|why| Refusal::error(golden::ErrorKind::Any, why))
//!     }
//!
//!     fn act(&mut self, now: u64, action: &Action) -> Result<Outcome, Refusal> {
//!         match action {
//!             Action::Allow { cost } => {
//!                 let allowed = self.allow(now, cost).map_err(Refusal::Broken)?;
//!                 Ok(Outcome::bare(if allowed { Verdict::Allowed } else { Verdict::Denied }))
//!             }
//!             Action::Peek { .. } => Err(Refusal::Unsupported(Feature::Peek)),
//!             Action::Reserve { .. } => Err(Refusal::Unsupported(Feature::Reserve)),
//!             Action::Settle { .. } => Err(Refusal::Unsupported(Feature::Settle)),
//!             Action::Change { .. } => Err(Refusal::Unsupported(Feature::Change)),
//!         }
//!     }
//! }
//!
//! let report = golden::conformance(&mut MyStore::default());
//! assert!(report.failures().count() > 0, "this store refuses every policy");
//! println!("{report}");
//! ```
//!
//! In a store's own tests one line mounts the whole suite, a test for each file:
//!
//! ```
//! # use suimon_testkit::subjects::ModelSubject;
//! suimon_testkit::conformance!(the_model, ModelSubject::exact(), lacks: [RawClock, Settle]);
//! ```
//!
//! What is not supported is never passed over in silence: a scenario ends where
//! it needs what the subject lacks, the report counts it, and a test fails
//! unless the lack was declared.

mod files;
mod parse;
mod report;
mod runner;
mod scenario;
mod subject;
mod time;

pub use files::{FILES, File, conformance, conformance_of};
pub use parse::{ParseError, parse};
pub use report::{Report, Result, ScenarioReport};
pub use runner::run;
pub use scenario::{Action, Clock, Expect, Expected, Fields, Scenario, Step};
pub use subject::{ErrorKind, Feature, Opening, Outcome, Refusal, Retry, Subject, Verdict};
pub use time::{format_duration, parse_duration, parse_instant};

pub use crate::model::Carry;
