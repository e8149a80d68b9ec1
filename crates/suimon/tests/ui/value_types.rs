use suimon::{Error, NoLimit};

#[suimon::consume(limiter = NoLimit, within = 3)]
fn within() -> Result<(), Error> {
    Ok(())
}

#[suimon::consume(limiter = NoLimit, deadline = std::time::Duration::ZERO)]
fn deadline() -> Result<(), Error> {
    Ok(())
}

#[suimon::consume(limiter = NoLimit, wait = false, or = 0)]
fn or() -> Option<u32> {
    None
}

fn main() {
    let _ = (within(), deadline(), or());
}
