#![allow(unused_imports)]

use std::time::{Duration, Instant};

use suimon::NoLimit;

#[suimon::consume(limiter = NoLimit, wait = false)]
fn at_once() {}

#[suimon::consume(limiter = NoLimit, within = Duration::ZERO)]
fn within() -> Option<u8> {
    None
}

#[suimon::consume(limiter = NoLimit, deadline = Instant::now())]
async fn deadline() -> Vec<Result<u8, suimon::Error>> {
    Vec::new()
}

fn main() {
    at_once();
    let _ = (within(), deadline());
}
