#![allow(unused_imports)]

use std::time::{Duration, Instant};

use suimon::{Error, NoLimit};

#[suimon::consume(limiter = NoLimit, wait = false, within = Duration::ZERO)]
fn within() -> Result<(), Error> {
    Ok(())
}

#[suimon::consume(limiter = NoLimit, deadline = Instant::now(), wait = false)]
fn deadline() -> Result<(), Error> {
    Ok(())
}

#[suimon::consume(limiter = NoLimit, wait = sometimes())]
fn not_written_out() -> Result<(), Error> {
    Ok(())
}

fn main() {
    let _ = (within(), deadline(), not_written_out());
}
