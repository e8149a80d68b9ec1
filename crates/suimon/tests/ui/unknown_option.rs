#![allow(unused_imports)]

use suimon::{Error, NoLimit};

#[suimon::consume(limiter = NoLimit, costs = 3)]
fn near() -> Result<(), Error> {
    Ok(())
}

#[suimon::consume(limiter = NoLimit, key = "user")]
fn far() -> Result<(), Error> {
    Ok(())
}

#[suimon::consume(NoLimit)]
fn no_name() -> Result<(), Error> {
    Ok(())
}

fn main() {
    let _ = (near(), far(), no_name());
}
