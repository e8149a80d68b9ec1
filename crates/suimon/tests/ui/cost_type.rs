use suimon::{Error, NoLimit};

#[suimon::consume(limiter = NoLimit, cost = text)]
fn text(text: &str) -> Result<usize, Error> {
    Ok(text.len())
}

fn main() {
    let _ = text("text");
}
