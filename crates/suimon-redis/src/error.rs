//! Errors, in the words of the library.

pub(crate) use suimon::Error;
use suimon::{CENTURY, Cost, Gate, Limit, Pace, Quota, Timestamp};

/// The store cannot do that, now or ever: a rate that it cannot count, keys that do not
/// lie together.
pub(crate) fn unsupported(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::unsupported(what)
}

/// A reservation would start after the last instant that can be written down: the error
/// of the core, which has no other way to be made.
pub(crate) fn too_far_ahead() -> Error {
    let quota = Quota::new(1, CENTURY).map(|quota| Gate::new(Limit::Pace(Pace::new(quota))));
    let Ok(Ok(gate)) = quota else { return Error::unavailable("too far ahead") };
    match gate.reserve(&mut gate.fresh(), Timestamp::MAX, Cost::ONE, None) {
        Err(error) => error.into(),
        Ok(_) => Error::unavailable("too far ahead"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn too_far_ahead_is_what_it_says() {
        assert!(super::too_far_ahead().core().unwrap().is_too_far_ahead());
    }
}
