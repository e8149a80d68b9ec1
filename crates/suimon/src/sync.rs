//! The primitives of the standard library, or those of the model checker shuttle,
//! which runs the tests of `tests/models.rs` under chosen schedules.

use std::sync::PoisonError;

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard, Weak, atomic::AtomicU64, atomic::Ordering};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, Weak, atomic::AtomicU64, atomic::Ordering};

/// Locks; a panic of another holder does not matter, since every change under
/// our locks is complete before anything that could panic is called.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same for what no model explores.
pub(crate) fn lock_std<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
