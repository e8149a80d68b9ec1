use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

/// Wakers to be called, and others to be dropped, when the lock has been given back.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    pub(super) to_wake: Vec<Waker>,
    pub(super) to_drop: Vec<Waker>,
}

impl Wakers {
    /// Wakes all. A waker that panics takes nobody with it: the panic goes on
    /// when the others have been woken.
    pub(super) fn wake(self) {
        let mut panic = None;
        for waker in self.to_wake {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                panic.get_or_insert(payload);
            }
        }
        // Last: one that is dropped may drop a whole task, and that may panic.
        drop(self.to_drop);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }
}
