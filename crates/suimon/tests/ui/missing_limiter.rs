use suimon::Error;

#[suimon::consume]
fn nothing() -> Result<(), Error> {
    Ok(())
}

#[suimon::consume(cost = 3)]
fn only_a_cost() -> Result<(), Error> {
    Ok(())
}

#[suimon::consume(limiter)]
fn no_value() -> Result<(), Error> {
    Ok(())
}

fn main() {
    let _ = (nothing(), only_a_cost(), no_value());
}
