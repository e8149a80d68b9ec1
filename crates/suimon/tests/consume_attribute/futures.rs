//! Functions that are `async`, in one way or another.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use suimon::clock::Clock;
use suimon::{Cost, Error, Limiter, LocalLimiter};

use crate::{manual, poll_once, secs};

#[suimon::consume(limiter = limiter, cost = cost)]
async fn call(limiter: &LocalLimiter, cost: u32) -> Result<u32, Error> {
    Ok(cost)
}

#[test]
fn nothing_happens_before_the_first_poll() {
    let (limiter, _clock) = manual("pace 60/min");
    drop(call(&limiter, 5));
    assert!(matches!(poll_once(call(&limiter, 1)), Poll::Ready(Ok(1))));
}

#[test]
fn waits_in_turn_and_can_be_given_up() {
    let (limiter, clock) = manual("pace 60/min");
    assert_eq!(futures_executor::block_on(call(&limiter, 3)).unwrap(), 3);

    let mut second = Box::pin(call(&limiter, 10));
    let mut third = pin!(call(&limiter, 1));
    assert!(poll_once(second.as_mut()).is_pending() && poll_once(third.as_mut()).is_pending());
    assert_eq!(limiter.queued(), Cost::whole(11));
    drop(second);
    assert_eq!(limiter.queued(), Cost::ONE, "a future that is dropped leaves no trace");

    clock.advance(secs(2));
    assert!(poll_once(third.as_mut()).is_pending());
    clock.advance(secs(1));
    assert!(matches!(poll_once(third.as_mut()), Poll::Ready(Ok(1))));
}

#[tokio::test]
async fn tasks_of_tokio_go_one_after_the_other() {
    let (limiter, clock) = manual("pace 60/min");
    let log = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..5)
        .map(|task| {
            let (limiter, clock, log) = (limiter.clone(), clock.clone(), log.clone());
            tokio::spawn(async move {
                call(&limiter, 2).await.unwrap();
                log.lock().unwrap().push((task, clock.now().as_nanos() / 1_000_000_000));
            })
        })
        .collect();
    for done in 1..=5 {
        while log.lock().unwrap().len() < done {
            tokio::task::yield_now().await;
        }
        if let Some(next) = clock.next_alarm() {
            clock.advance_to(next);
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*log.lock().unwrap(), [(0, 0), (1, 2), (2, 4), (3, 6), (4, 8)]);
}

/// The future of a limited function goes wherever the function's own could go.
#[test]
fn futures_are_send_where_they_were() {
    fn assert_send<T: Send>(future: T) -> T {
        future
    }

    #[suimon::consume(limiter = limiter, cost = texts.lock().unwrap().len(), within = secs(1))]
    async fn temporaries<L: Limiter>(limiter: L, texts: &Mutex<Vec<String>>) -> Result<usize, Error> {
        std::future::ready(()).await;
        Ok(texts.lock().unwrap().len())
    }

    #[suimon::consume("pace 60/min", or = std::future::ready(0).await, wait = false)]
    async fn inline() -> usize {
        1
    }

    let (limiter, _clock) = manual("pace 60/min");
    let texts = Mutex::new(vec![String::new()]);
    drop(assert_send(call(&limiter, 1)));
    drop(assert_send(boxed(&limiter, "text")));
    drop(assert_send(opaque(limiter.clone(), Some(1))));
    drop(assert_send(inline()));
    assert_eq!(futures_executor::block_on(assert_send(temporaries(&limiter, &texts))).unwrap(), 1);
}

/// A lock that the cost looks into is open again while the call waits.
#[test]
fn the_wait_holds_none_of_the_callers_locks() {
    #[suimon::consume(limiter = limiter.lock().unwrap().clone(), cost = cost.lock().unwrap().to_owned())]
    async fn locked(limiter: &Mutex<LocalLimiter>, cost: &Mutex<u32>) -> Result<(), Error> {
        Ok(())
    }

    let (limiter, clock) = manual("pace 60/min");
    let (limiter, cost) = (Mutex::new(limiter), Mutex::new(5));
    assert!(poll_once(locked(&limiter, &cost)).is_ready());
    let mut waiting = pin!(locked(&limiter, &cost));
    assert!(poll_once(waiting.as_mut()).is_pending());
    assert!(limiter.try_lock().is_ok() && cost.try_lock().is_ok());
    clock.advance(secs(5));
    assert!(poll_once(waiting.as_mut()).is_ready());
}

#[suimon::consume(limiter = limiter, cost = text.len())]
fn boxed<'a>(
    limiter: &'a LocalLimiter,
    text: &'a str,
) -> Pin<Box<dyn Future<Output = Result<&'a str, Error>> + Send + 'a>> {
    let text = text.trim();
    Box::pin(async move { Ok(text) })
}

#[suimon::consume(limiter = limiter, cost = 60, within = secs(0), or = None)]
fn opaque(limiter: LocalLimiter, number: Option<u32>) -> impl Future<Output = Option<u32>> + Send {
    let number = number.filter(|number| *number > 0);
    async move { number }
}

/// A function that writes its future out waits in the future, not on the thread.
#[test]
fn futures_that_are_written_out() {
    let (limiter, clock) = manual("pace 60/min");
    assert_eq!(futures_executor::block_on(boxed(&limiter, "text")).unwrap(), "text");
    let mut second = boxed(&limiter, " next ");
    assert!(poll_once(second.as_mut()).is_pending());
    clock.advance(secs(4));
    assert!(matches!(poll_once(second.as_mut()), Poll::Ready(Ok("next"))));
    assert!(poll_once(boxed(&limiter, &"x".repeat(61))).ready_and(|out| out.unwrap_err().is_cost_too_large()));

    assert_eq!(futures_executor::block_on(opaque(limiter.clone(), Some(1))), None);
    clock.advance(secs(6));
    assert_eq!(futures_executor::block_on(opaque(limiter.clone(), Some(1))), Some(1));
}

trait ReadyAnd<T> {
    fn ready_and(self, test: impl FnOnce(T) -> bool) -> bool;
}

impl<T> ReadyAnd<T> for Poll<T> {
    fn ready_and(self, test: impl FnOnce(T) -> bool) -> bool {
        match self {
            Poll::Ready(output) => test(output),
            Poll::Pending => false,
        }
    }
}

#[async_trait::async_trait]
trait Model {
    async fn complete(&self, prompt: &str) -> Result<String, Error>;
    async fn ping(&mut self);
}

struct Limited(LocalLimiter, u32);

#[async_trait::async_trait]
impl Model for Limited {
    #[suimon::consume(limiter = self.0, cost = prompt.len())]
    async fn complete(&self, prompt: &str) -> Result<String, Error> {
        Ok(format!("{prompt}{}", self.1))
    }

    #[suimon::consume(limiter = self.0, wait = false, or = ())]
    async fn ping(&mut self) {
        self.1 += 1;
    }
}

/// `async_trait` rewrites the method before the attribute sees it.
#[test]
fn methods_of_async_trait_wait_as_tasks() {
    let (limiter, clock) = manual("pace 60/min");
    let mut model: Box<dyn Model> = Box::new(Limited(limiter, 0));
    futures_executor::block_on(model.ping());
    futures_executor::block_on(model.ping());
    let mut answer = model.complete("ping");
    assert!(poll_once(answer.as_mut()).is_pending());
    clock.advance(secs(1));
    assert!(poll_once(answer.as_mut()).ready_and(|answer| answer.unwrap() == "ping1"));
}
