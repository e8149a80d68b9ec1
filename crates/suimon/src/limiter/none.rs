use suimon_core::{Cost, Decision, Status};

use super::Limiter;
use crate::{Error, Request};

/// Lets everything pass at once: for tests, and where a limit is switched off.
///
/// ```
/// use suimon::{Cost, Limiter, NoLimit};
///
/// assert!(NoLimit.allow(Cost::MAX)?.is_allowed());
/// # Ok::<(), suimon::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoLimit;

impl Limiter for NoLimit {
    fn allow(&self, _: Cost) -> Result<Decision, Error> {
        Ok(Decision::Allow(Status::UNLIMITED))
    }

    fn consume(&self, _: Request) -> Result<(), Error> {
        Ok(())
    }

    async fn consume_async(&self, _: Request) -> Result<(), Error> {
        Ok(())
    }
}
