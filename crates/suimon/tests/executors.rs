//! No runtime is needed, and any will do: the same waits under each of them, in
//! each other's queue, moved from one to another, and with those that misbehave.

mod support;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_executor::Executor;
use futures_executor::block_on;
use suimon::clock::{Clock, MachineClock, ManualClock};
use suimon::{Consume, Cost, Error, LocalLimiter, Timestamp};
use support::{Waiter, limiter, ms, must_end, s, wait};
use tokio::runtime::{Builder, Runtime};

fn current_thread() -> Runtime {
    // Without the driver of timers, which the limiter does not need.
    Builder::new_current_thread().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

/// The machine's clock, which stands still until it is started: whoever has to wait
/// by then waits, however slow the machine is.
#[derive(Clone, Debug, Default)]
struct HeldClock(Arc<OnceLock<Timestamp>>);

impl HeldClock {
    fn start(&self) {
        let _ = self.0.set(MachineClock.now());
    }
}

impl Clock for HeldClock {
    fn now(&self) -> Timestamp {
        let passed = self.0.get().map_or(Duration::ZERO, |start| MachineClock.now().saturating_since(*start));
        Timestamp::ZERO.saturating_add(passed)
    }
}

/// A limiter whose first token has been taken, on a clock that has not been started.
fn held(policy: &str) -> (LocalLimiter, HeldClock) {
    let clock = HeldClock::default();
    let limiter = LocalLimiter::builder(policy).unwrap().clock(clock.clone()).build().unwrap();
    limiter.consume(1).unwrap();
    (limiter, clock)
}

/// As a task of smol's executor, run by this thread.
fn on_smol<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let executor = Executor::new();
    block_on(executor.run(executor.spawn(future)))
}

/// Five tokens at 100/s, one after the other; none may come early.
async fn five_in_turn() {
    let limiter = LocalLimiter::new("pace 100/s").unwrap();
    let start = MachineClock.now();
    for turn in 0..5 {
        limiter.consume_async(1).await.unwrap();
        let elapsed = MachineClock.now().saturating_since(start);
        assert!(elapsed >= ms(10 * turn), "turn {turn} after {elapsed:?}");
    }
    assert!(MachineClock.now().saturating_since(start) < Duration::from_secs(5));
}

/// smol-rs/smol#238 and its like: "there is no reactor running" where a library
/// brings the timer of another runtime.
#[test]
fn every_executor_will_do() {
    must_end(|| {
        current_thread().block_on(five_in_turn());
        Builder::new_current_thread().enable_time().build().unwrap().block_on(five_in_turn());
        multi_thread().block_on(async { tokio::spawn(five_in_turn()).await.unwrap() });
        on_smol(five_in_turn());
        block_on(five_in_turn());
    });
}

#[test]
fn threads_need_no_executor() {
    must_end(|| {
        let limiter = LocalLimiter::new("pace 1000/s").unwrap();
        let start = MachineClock.now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5).for_each(|_| limiter.consume(1).unwrap()));
            }
        });
        assert!(MachineClock.now().saturating_since(start) >= ms(19));
    });
}

/// An executor, and how it runs one task.
type Spawn<'a> = Box<dyn Fn(Consume, Sender<usize>, usize) + 'a>;

/// Threads and tasks of all executors stand in one queue, in the order in which they came.
#[test]
fn one_queue_for_threads_and_tasks() {
    must_end(|| {
        let (single, multi) = (current_thread(), multi_thread());
        let clock = ManualClock::new();
        let limiter = LocalLimiter::builder("pace 1/s").unwrap().clock(clock.clone()).build().unwrap();
        limiter.consume(1).unwrap();
        let pool = Arc::new(Mutex::new(Vec::new()));
        let spawns: [Spawn<'_>; 4] = [
            Box::new(|future, done, id| drop(multi.spawn(tell(future, done, id)))),
            Box::new(|future, done, id| {
                pool.lock().unwrap().push(std::thread::spawn(move || on_smol(tell(future, done, id))));
            }),
            Box::new(|future, done, id| {
                pool.lock().unwrap().push(std::thread::spawn(move || block_on(tell(future, done, id))));
            }),
            Box::new(|future, done, id| {
                // Polled by this runtime, which runs for as long as the future waits.
                let handle = single.handle().clone();
                pool.lock().unwrap().push(std::thread::spawn(move || handle.block_on(tell(future, done, id))));
            }),
        ];
        let (done, order) = channel();
        for id in 0..10 {
            match spawns.get(id % 5) {
                Some(spawn) => spawn(limiter.consume_async(1), done.clone(), id),
                None => {
                    let (limiter, done) = (limiter.clone(), done.clone());
                    pool.lock().unwrap().push(std::thread::spawn(move || {
                        limiter.consume(1).unwrap();
                        done.send(id).unwrap();
                    }));
                }
            }
            let waiting = Cost::whole(id as u64 + 1);
            while limiter.queued() < waiting {
                std::thread::yield_now();
            }
        }
        one_by_one(&clock, &order, 10);
        drop(spawns);
        for thread in pool.lock().unwrap().drain(..) {
            thread.join().unwrap();
        }
    });
}

async fn tell(future: Consume, done: Sender<usize>, id: usize) {
    future.await.unwrap();
    done.send(id).unwrap();
}

/// At each second exactly the next one gets through.
fn one_by_one(clock: &ManualClock, order: &Receiver<usize>, count: usize) {
    for expected in 0..count {
        clock.advance(ms(999));
        assert!(order.try_recv().is_err());
        clock.advance(ms(1));
        assert_eq!(order.recv(), Ok(expected));
    }
    assert!(order.try_recv().is_err());
}

/// Polls once with the waker of whoever runs this.
async fn polled_once(mut future: Consume) -> Consume {
    poll_fn(|context| {
        assert!(Pin::new(&mut future).poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    future
}

#[test]
fn a_future_moves_from_runtime_to_runtime() {
    must_end(|| {
        let (limiter, clock) = held("pace 50/s");
        let first = current_thread();
        let future = first.block_on(polled_once(limiter.consume_async(1)));
        drop(first);
        let future = on_smol(polled_once(future));
        clock.start();
        let second = multi_thread();
        second.block_on(second.spawn(future)).unwrap().unwrap();
        assert!(clock.now() >= s(0.02));
    });
}

/// udoprog/leaky-bucket#35: one of several waits on the same task was polled once and then left
/// alone, but drove the others, so that nothing moved any more.
#[test]
fn an_idle_future_stalls_nobody() {
    must_end(|| {
        let (limiter, clock) = held("pace 500/s");
        let runtime = current_thread();
        runtime.block_on(async {
            let idle = polled_once(limiter.consume_async(1)).await;
            clock.start();
            let never_polled = limiter.consume_async(1);
            tokio::try_join!(limiter.consume_async(1), limiter.consume_async(1), limiter.consume_async(1)).unwrap();
            drop(never_polled);
            idle.await.unwrap();
        });
    });
}

#[test]
fn whoever_waits_keeps_the_limiter_alive() {
    must_end(|| {
        let (limiter, clock) = held("pace 500/s");
        let (first, second) = (limiter.consume_async(1), limiter.clone());
        let first = on_smol(polled_once(first));
        let reservation = limiter.reserve(1).unwrap();
        drop(limiter);
        drop(second);
        clock.start();
        block_on(first).unwrap();
        let mut reservation = reservation;
        reservation.wait_until_ready().unwrap();
    });
}

/// A runtime that is shut down drops its tasks, and their places with them.
#[test]
fn a_runtime_that_ends_leaves_no_places() {
    let (limiter, clock) = limiter("pace 1/s");
    limiter.consume(1).unwrap();
    let runtime = current_thread();
    for _ in 0..3 {
        runtime.spawn(limiter.consume_async(1));
    }
    runtime.block_on(tokio::task::yield_now());
    let mut outside = wait(&limiter, 1);
    assert_eq!(limiter.queued(), Cost::whole(4));
    drop(runtime);
    assert_eq!(limiter.queued(), Cost::ONE);
    clock.go_to(s(1.0));
    assert!(outside.passes());
}

/// Calls back into the limiter when it is woken, as an executor that polls at once does.
struct Eager {
    limiter: LocalLimiter,
    other: Mutex<Option<Waiter>>,
    seen: Mutex<Vec<bool>>,
}

impl Wake for Eager {
    fn wake(self: Arc<Self>) {
        let passed = self.limiter.allow(1).unwrap().is_allowed();
        self.seen.lock().unwrap().push(passed);
        self.other.lock().unwrap().take();
    }
}

#[test]
fn a_waker_may_use_the_limiter() {
    must_end(|| {
        let (limiter, clock) = limiter("pace 1/s");
        limiter.consume(1).unwrap();
        let mut first = Box::pin(limiter.consume_async(1));
        let second = Mutex::new(None);
        let eager = Arc::new(Eager { limiter: limiter.clone(), other: second, seen: Mutex::default() });
        let waker = Waker::from(eager.clone());
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        *eager.other.lock().unwrap() = Some(wait(&limiter, 1));
        let mut third = wait(&limiter, 1);
        clock.go_to(s(1.0));
        assert_eq!(*eager.seen.lock().unwrap(), [false]);
        assert_eq!(limiter.queued(), Cost::ONE, "the second was dropped by a waker");
        clock.go_to(s(2.0));
        assert!(third.passes());
    });
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker panics");
    }
}

/// The thread that rings for the whole process survives what it wakes.
#[test]
fn a_waker_that_panics_does_not_stop_the_timer() {
    must_end(|| {
        let (limiter, clock) = held("pace 500/s");
        let mut bad = Box::pin(limiter.consume_async(1));
        let waker = Waker::from(Arc::new(Panics));
        assert!(bad.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        clock.start();
        limiter.consume(1).unwrap();
        block_on(five_in_turn());
        block_on(bad).unwrap();
    });
}

fn needs<T: Send + Sync + Unpin + 'static>() {}

#[test]
fn everything_can_be_sent_and_shared() {
    needs::<LocalLimiter>();
    needs::<Consume>();
    needs::<suimon::Reservation>();
    needs::<Error>();
}

#[cfg(feature = "tokio")]
mod tokio_clock {
    use suimon::clock::TokioClock;

    use super::*;

    fn limiter(policy: &str) -> LocalLimiter {
        LocalLimiter::builder(policy).unwrap().clock(TokioClock::current()).build().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn paused_time_passes_as_fast_as_the_tests_run() {
        let limiter = limiter("pace 1/h");
        let start = tokio::time::Instant::now();
        let tasks: Vec<_> = (0..24).map(|_| tokio::spawn(limiter.consume_async(1))).collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert_eq!(start.elapsed(), Duration::from_secs(23 * 3600));
        assert!(tokio::time::timeout(ms(1), limiter.consume_async(1)).await.is_err());
        assert_eq!(limiter.queued(), Cost::ZERO, "the timeout dropped it");
    }

    /// Its timer is gone with its runtime; whoever asks still gets an answer.
    #[test]
    fn the_runtime_of_the_clock_ends() {
        must_end(|| {
            let runtime = multi_thread();
            let limiter = runtime.block_on(async { limiter("pace 1/h") });
            assert!(limiter.allow(1).unwrap().is_allowed());
            let mut waiter = wait(&limiter, 1);
            drop(runtime);
            assert!(!limiter.allow(1).unwrap().is_allowed());
            assert!(waiter.is_pending());
            limiter.close();
            assert!(matches!(waiter.poll(), Poll::Ready(Err(error)) if error.is_closed()));
        });
    }

    #[test]
    fn a_thread_waits_for_a_running_runtime() {
        must_end(|| {
            let runtime = multi_thread();
            let limiter = runtime.block_on(async { limiter("pace 100/s") });
            (0..3).for_each(|_| limiter.consume(1).unwrap());
            runtime.block_on(async { limiter.consume_async(1).await.unwrap() });
        });
    }
}
