use suimon::Error;

#[suimon::consume(limiter = text)]
fn waits(text: &str) -> Result<usize, Error> {
    Ok(text.len())
}

#[suimon::consume(limiter = text, wait = false)]
fn refuses(text: &str) -> Result<usize, Error> {
    Ok(text.len())
}

fn main() {
    let _ = (waits(""), refuses(""));
}
