//! One thread of the process that talks to stores.
//!
//! Callers may be threads, or tasks of any runtime, or of one that ends while they
//! wait: the conversation with the store goes on here, so that an answer to which nobody
//! listens any more can still be given back.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;

use crate::Error;

/// The runtime of that thread, started when it is first needed.
///
/// # Panics
/// When the thread cannot be started.
pub(super) fn handle() -> &'static Handle {
    static IO: OnceLock<Handle> = OnceLock::new();
    IO.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_all().thread_name("suimon-stores").build();
        let runtime =
            runtime.unwrap_or_else(|error| panic!("the thread that talks to stores cannot be started: {error}"));
        let handle = runtime.handle().clone();
        let run = move || runtime.block_on(std::future::pending::<()>());
        let spawned = thread::Builder::new().name("suimon-stores".into()).spawn(run);
        assert!(spawned.is_ok(), "the thread that talks to stores cannot be started: {spawned:?}");
        handle
    })
}

/// Runs a future there; it goes on when the caller is gone.
pub(super) async fn run<T: Send + 'static>(
    future: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    handle().spawn(future).await.unwrap_or_else(|ended| Err(Error::unavailable(ended)))
}

/// Sleeps; without a trace when it is dropped.
pub(super) async fn sleep(time: Duration) {
    if !time.is_zero() {
        let _ = Sleep(handle().spawn(async move { tokio::time::sleep(time).await })).await;
    }
}

struct Sleep(JoinHandle<()>);

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context).map(drop)
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.0.abort();
    }
}
