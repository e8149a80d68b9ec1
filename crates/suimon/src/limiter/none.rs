use suimon_core::{Cost, Decision, Gate, Limit, Timestamp};

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
    fn allow(&self, cost: Cost) -> Result<Decision, Error> {
        let gate = Gate::new(Limit::Unlimited)?;
        Ok(gate.allow(&mut gate.fresh(), Timestamp::ZERO, cost)?)
    }

    fn consume(&self, _: Request) -> Result<(), Error> {
        Ok(())
    }

    async fn consume_async(&self, _: Request) -> Result<(), Error> {
        Ok(())
    }
}
