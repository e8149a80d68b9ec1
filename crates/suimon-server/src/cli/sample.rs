//! `suimon sample`: the log that is built in.

use super::{Ending, Failure};
use crate::replay::{Format, Input, Wanted};
use flate2::read::GzDecoder;
use std::io;

/// 5,000 requests of a real web site: see `sample/NOTICE`.
const LOG: &[u8] = include_bytes!("../../sample/access.log.gz");

/// Print the log that is built in, to try things on.
///
/// It holds 5,000 requests of a real web site in Apache's combined format, from
/// the public Elastic examples (Apache-2.0), with the addresses replaced one to one.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(_: &Args) -> Result<Ending, Failure> {
    io::copy(&mut GzDecoder::new(LOG), &mut io::stdout().lock())?;
    Ok(Ending::Done)
}

/// The same as an input of the replay.
pub(super) fn input() -> Input {
    Input::Memory { name: "the built-in sample", bytes: LOG }
}

/// Its format and its clients.
pub(super) fn wanted() -> (Format, Wanted) {
    (Format::Combined, Wanted { key: vec!["client".to_string()], ..Wanted::default() })
}
