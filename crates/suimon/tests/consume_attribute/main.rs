//! `#[suimon::consume]` as its users see it.
#![cfg(feature = "macros")]

mod futures;
mod hygiene;
mod limiters;
mod shapes;
mod waiting;
mod ways_out;

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use suimon::clock::ManualClock;
use suimon::{Limiter, LocalLimiter, NoLimit, Recorder};

/// A limiter whose time passes when a test says so.
fn manual(policy: &str) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(policy).unwrap().clock(clock.clone()).build().unwrap();
    (limiter, clock)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Polls once, with nobody to wake.
fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// What the code that is not ours says about wrong uses.
#[test]
fn wrong_uses_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

/// A seam of an application: generic over the limiter, and tested with a double.
struct Mailer<L> {
    limiter: L,
    sent: Vec<String>,
}

impl<L: Limiter> Mailer<L> {
    #[suimon::consume(limiter = self.limiter, cost = to.len())]
    fn send(&mut self, to: &[&str]) -> Result<usize, suimon::Error> {
        self.sent.extend(to.iter().map(|&to| to.to_owned()));
        Ok(self.sent.len())
    }
}

#[test]
fn a_seam_with_doubles() {
    let mut unlimited = Mailer { limiter: NoLimit, sent: Vec::new() };
    assert_eq!(unlimited.send(&["a", "b"]).unwrap(), 2);

    let mut recorded = Mailer { limiter: Recorder::default(), sent: Vec::new() };
    recorded.send(&["a", "b", "c"]).unwrap();
    recorded.send(&[]).unwrap();
    let costs = recorded.limiter.seen().into_iter().map(|seen| match seen {
        suimon::Seen::Consume(request) => request.cost().to_string(),
        other => panic!("{other:?}"),
    });
    assert_eq!(costs.collect::<Vec<_>>(), ["3", "0"]);
}
