use suimon::Error;

#[suimon::consume("60/min")]
fn no_kind() -> Result<(), Error> {
    Ok(())
}

#[suimon::consume("bucket 10/s and bukket 3/s")]
fn misspelt() -> Result<(), Error> {
    Ok(())
}

#[suimon::consume("pace 0/s")]
fn out_of_range() -> Result<(), Error> {
    Ok(())
}

#[suimon::consume("fixed 1000/day in Europe/Paris")]
fn time_zone() -> Result<(), Error> {
    Ok(())
}

fn main() {
    let _ = (no_kind(), misspelt(), out_of_range(), time_zone());
}
