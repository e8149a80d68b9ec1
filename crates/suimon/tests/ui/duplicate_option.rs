#![allow(unused_imports)]

use suimon::{Error, NoLimit};

#[suimon::consume(limiter = NoLimit, cost = 1, cost = 2)]
fn option() -> Result<(), Error> {
    Ok(())
}

#[suimon::consume("pace 60/min", "fixed 1000/day")]
fn text() -> Result<(), Error> {
    Ok(())
}

fn main() {
    let _ = (option(), text());
}
