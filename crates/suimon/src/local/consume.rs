use std::cell::OnceCell;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::queue::Key;
use super::shared::Shared;
use super::turns::Place;
use crate::sync::Arc;
use crate::{Error, Request};

/// The future of [`consume_async`](super::LocalLimiter::consume_async): ready when
/// its turn has come and its cost is taken.
///
/// Dropped before that it leaves no trace, wherever it stands: in the queue, or
/// served and not yet polled.
#[must_use = "nothing is taken before the future is polled"]
pub struct Consume {
    shared: Arc<Shared>,
    step: Step,
}

enum Step {
    New(Result<Request, Error>),
    Queued(Key),
    Done,
}

impl Consume {
    pub(crate) fn new(shared: Arc<Shared>, request: Result<Request, Error>) -> Consume {
        Consume { shared, step: Step::New(request) }
    }

    fn join(&mut self, request: Request, waker: Waker) -> Poll<Result<(), Error>> {
        if self.shared.try_take(request.cost()) {
            return Poll::Ready(Ok(()));
        }
        let place = self.shared.locked(None, |turns, now, wakers| {
            let place = turns.join(now, request)?;
            if let Place::Queued(key, _) = place {
                let _ = turns.look(key, Some(waker), wakers);
            }
            Ok(place)
        });
        match place {
            Ok(Place::Granted(_)) => Poll::Ready(Ok(())),
            Ok(Place::Queued(key, _)) => {
                self.step = Step::Queued(key);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Future for Consume {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match std::mem::replace(&mut self.step, Step::Done) {
            Step::New(request) => self.join(request?, context.waker().clone()),
            Step::Queued(key) => {
                // Who was woken has been served; only an idle poll has a waker to leave.
                let outcome = self.shared.outcome(key).or_else(|| {
                    // Cloned before the lock: nothing of the caller's runs under it.
                    let waker = context.waker().clone();
                    self.shared.locked(None, |turns, _, wakers| turns.look(key, Some(waker), wakers))
                });
                match outcome {
                    Some(outcome) => Poll::Ready(outcome.map(drop)),
                    None => {
                        self.step = Step::Queued(key);
                        Poll::Pending
                    }
                }
            }
            Step::Done => panic!("`Consume` was polled after it was ready"),
        }
    }
}

impl Drop for Consume {
    fn drop(&mut self) {
        if let Step::Queued(key) = self.step {
            self.shared.locked(None, |turns, now, wakers| turns.give_up(now, key, wakers));
        }
    }
}

impl fmt::Debug for Consume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match &self.step {
            Step::New(_) => "new",
            Step::Queued(_) => "queued",
            Step::Done => "done",
        };
        f.debug_struct("Consume").field("step", &step).finish_non_exhaustive()
    }
}

/// Polls a future on this thread, which sleeps in between.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    thread_local! {
        static WAKER: OnceCell<Waker> = const { OnceCell::new() };
    }
    let new = || Waker::from(StdArc::new(Unpark(thread::current())));
    // A thread that ends may have no thread-local values any more.
    let waker = WAKER.try_with(|waker| waker.get_or_init(new).clone()).unwrap_or_else(|_| new());
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: StdArc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &StdArc<Self>) {
        self.0.unpark();
    }
}
