#![allow(unused_imports)]

use suimon::{Error, NoLimit};

#[suimon::consume("pace 60/min", limiter = NoLimit)]
fn both() -> Result<(), Error> {
    Ok(())
}

#[suimon::consume(limiter = NoLimit, "pace 60/min")]
fn text_last() -> Result<(), Error> {
    Ok(())
}

#[suimon::consume(limiter = "pace 60/min")]
fn text_as_limiter() -> Result<(), Error> {
    Ok(())
}

fn main() {
    let _ = (both(), text_last(), text_as_limiter());
}
