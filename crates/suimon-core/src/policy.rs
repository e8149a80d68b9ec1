use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::error::Error;
use crate::limit::Limit;

/// One or more limits that hold together: all or nothing.
///
/// What one of them refuses is not charged to any. The text form joins limits
/// with `and`.
///
/// ```
/// use suimon_core::Policy;
///
/// let policy: Policy = "bucket 10/s burst 20 and fixed 1000/day".parse()?;
/// assert_eq!(policy.limits().len(), 2);
/// assert_eq!(policy.to_string(), "bucket 10/s burst 20 and fixed 1000/day");
/// # Ok::<(), suimon_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    limits: Box<[Limit]>,
}

/// No policy needs more, and a text with thousands is a mistake or an attack.
pub(crate) const MOST_LIMITS: usize = 64;

impl Policy {
    /// All of these limits together.
    ///
    /// # Errors
    /// When there is none, or more than 64.
    pub fn new(limits: impl IntoIterator<Item = Limit>) -> Result<Policy, Error> {
        let limits: Vec<Limit> = limits.into_iter().take(MOST_LIMITS.saturating_add(1)).collect();
        if limits.is_empty() {
            return Err(Error::policy("a policy needs at least one limit; say `unlimited` if everything may pass"));
        }
        if limits.len() > MOST_LIMITS {
            return Err(Error::policy("a policy has at most 64 limits"));
        }
        Ok(Policy { limits: limits.into_boxed_slice() })
    }

    /// The limits, in the order in which they were given. An index that an
    /// answer names is one into this slice.
    #[must_use]
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }
}

impl From<Limit> for Policy {
    fn from(limit: Limit) -> Policy {
        Policy { limits: Box::new([limit]) }
    }
}
