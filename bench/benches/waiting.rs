//! Many who wait on one limiter: is the rate kept, in order, on time, and at
//! what cost?
//!
//! 10,000 tasks at 100,000/s for 3 s, then 200 threads at 20,000/s. The n-th grant is due
//! n intervals after the first; how much later it came is its lateness.
//!
//! Beside them the floor: the same tasks and threads, woken from a bare list by a
//! thread that sleeps a millisecond, without any limit. What it costs is the
//! runtime's and the kernel's.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use suimon::LocalLimiter;
use suimon_bench::cpu_nanos;
use tower::{Service, ServiceExt};

const SPAN: Duration = Duration::from_secs(3);

/// What was granted when, and to whom.
struct Run {
    grants: Vec<(Instant, usize)>,
    cpu: u64,
    waiters: usize,
    rate: f64,
}

impl Run {
    fn print(mut self, name: &str) {
        self.grants.sort();
        let first = self.grants[0].0;
        let span = self.grants.last().unwrap().0.duration_since(first).as_secs_f64();
        let kept = (self.grants.len() - 1) as f64 / span / self.rate * 100.0;
        let mut late: Vec<f64> = self
            .grants
            .iter()
            .enumerate()
            .map(|(n, (at, _))| (at.duration_since(first).as_secs_f64() - n as f64 / self.rate) * 1000.0)
            .collect();
        late.sort_by(f64::total_cmp);
        let p99 = late[late.len() * 99 / 100];
        let mut each = vec![0_u32; self.waiters];
        self.grants.iter().for_each(|(_, waiter)| each[*waiter] += 1);
        println!(
            "  {name:<28} {kept:>7.2} % of the rate   {:>6.2} us CPU a grant   late: p50 {:>7.2} ms, p99 {p99:>7.2} ms   grants a waiter {}..{}",
            self.cpu as f64 / self.grants.len() as f64 / 1000.0,
            late[late.len() / 2],
            each.iter().min().unwrap(),
            each.iter().max().unwrap(),
        );
    }
}

fn tasks<F, G>(rate: f64, waiters: usize, wait: F) -> Run
where
    F: Fn() -> G + Send + Sync + Clone + 'static,
    G: Future<Output = ()> + Send,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let cpu = cpu_nanos();
    let until = Instant::now() + SPAN;
    let grants = runtime.block_on(async {
        let handles: Vec<_> = (0..waiters)
            .map(|waiter| {
                let wait = wait.clone();
                tokio::spawn(async move {
                    let mut grants = Vec::new();
                    loop {
                        wait().await;
                        let now = Instant::now();
                        if now >= until {
                            return grants;
                        }
                        grants.push((now, waiter));
                    }
                })
            })
            .collect();
        let mut grants = Vec::new();
        for handle in handles {
            grants.extend(handle.await.unwrap());
        }
        grants
    });
    Run { grants, cpu: cpu_nanos() - cpu, waiters, rate }
}

fn threads(rate: f64, waiters: usize, wait: impl Fn() + Sync) -> Run {
    let grants = Mutex::new(Vec::new());
    let cpu = cpu_nanos();
    let until = Instant::now() + SPAN;
    thread::scope(|scope| {
        for waiter in 0..waiters {
            let (grants, wait) = (&grants, &wait);
            scope.spawn(move || {
                let mut mine = Vec::new();
                loop {
                    wait();
                    let now = Instant::now();
                    if now >= until {
                        break;
                    }
                    mine.push((now, waiter));
                }
                grants.lock().unwrap().extend(mine);
            });
        }
    });
    Run { grants: grants.into_inner().unwrap(), cpu: cpu_nanos() - cpu, waiters, rate }
}

/// A list of those who wait, and a thread that wakes the first of them each
/// millisecond.
#[derive(Default)]
struct Bare(Mutex<VecDeque<Arc<Place>>>);

#[derive(Default)]
struct Place {
    woken: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bare {
    fn start(a_millisecond: usize) -> Arc<Bare> {
        let bare = Arc::new(Bare::default());
        let weak: Weak<Bare> = Arc::downgrade(&bare);
        thread::spawn(move || {
            let mut next = Instant::now();
            while let Some(bare) = weak.upgrade() {
                let due: Vec<_> = {
                    let mut list = bare.0.lock().unwrap();
                    let n = list.len().min(a_millisecond);
                    list.drain(..n).collect()
                };
                drop(bare);
                for place in due {
                    place.woken.store(true, Ordering::Release);
                    if let Some(waker) = place.waker.lock().unwrap().take() {
                        waker.wake();
                    }
                }
                next += Duration::from_millis(1);
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        bare
    }

    fn wait(&self) -> Turn {
        let place = Arc::new(Place::default());
        self.0.lock().unwrap().push_back(place.clone());
        Turn(place)
    }
}

struct Turn(Arc<Place>);

impl Future for Turn {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        *self.0.waker.lock().unwrap() = Some(context.waker().clone());
        if self.0.woken.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

type TowerService = tower::buffer::Buffer<(), std::future::Ready<Result<(), tower::BoxError>>>;

fn tower_service() -> TowerService {
    tower::ServiceBuilder::new()
        .buffer(20_000)
        .rate_limit(100, Duration::from_millis(1))
        .service_fn(|()| std::future::ready(Ok::<(), tower::BoxError>(())))
}

fn main() {
    for round in 1..=3 {
        println!("10,000 tasks at 100,000/s, round {round}");
        let limiter = LocalLimiter::new("pace 100000/s").unwrap();
        tasks(100_000.0, 10_000, move || {
            let limiter = limiter.clone();
            async move { limiter.consume_async(1).await.unwrap() }
        })
        .print("suimon");

        let quota = governor::Quota::per_second(100_000.try_into().unwrap()).allow_burst(1.try_into().unwrap());
        let governor = Arc::new(governor::RateLimiter::direct(quota));
        tasks(100_000.0, 10_000, move || {
            let governor = governor.clone();
            async move { governor.until_ready().await }
        })
        .print("governor until_ready");

        let bucket = Arc::new(
            leaky_bucket::RateLimiter::builder()
                .initial(1)
                .max(100)
                .refill(100)
                .interval(Duration::from_millis(1))
                .build(),
        );
        tasks(100_000.0, 10_000, move || {
            let bucket = bucket.clone();
            async move { bucket.acquire_one().await }
        })
        .print("leaky-bucket, fair, 1 ms");

        let service = Arc::new(OnceLock::new());
        tasks(100_000.0, 10_000, move || {
            // Made by the first task: the buffer spawns its worker on the runtime.
            let mut service = service.get_or_init(tower_service).clone();
            async move {
                let call = service.ready().await.unwrap().call(());
                call.await.unwrap();
            }
        })
        .print("tower: buffer, 100 a ms");

        let bare = Bare::start(100);
        tasks(100_000.0, 10_000, move || {
            let bare = bare.clone();
            async move { bare.wait().await }
        })
        .print("floor: a bare list");

        println!("200 threads at 20,000/s, round {round}");
        let limiter = LocalLimiter::new("pace 20000/s").unwrap();
        threads(20_000.0, 200, || limiter.consume(1).unwrap()).print("suimon");
        let bare = Bare::start(20);
        threads(20_000.0, 200, || {
            let place = bare.wait();
            *place.0.waker.lock().unwrap() = Some(suimon_bench::unpark_me());
            while !place.0.woken.load(Ordering::Acquire) {
                thread::park_timeout(Duration::from_millis(100));
            }
        })
        .print("floor: a bare list");
    }
}
