//! A limiter over a store: the verbs, ids, outages. The store is that in memory, behind
//! a switch by which it fails, hangs, and loses answers.
#![cfg(feature = "remote")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures_executor::block_on;
use suimon::clock::ManualClock;
use suimon::store::{Acting, Call, MemoryStore, Reply, RequestId, Settling, Store};
use suimon::{Carry, Cost, Error, Outage, Remote, RemoteBuilder, Request, Settlement};

const WORKS: u8 = 0;
const FAILS: u8 = 1;
const HANGS: u8 = 2;
/// It acts, and its answer does not arrive.
const LOSES: u8 = 3;

#[derive(Clone, Debug)]
struct Switched {
    store: MemoryStore,
    mode: Arc<AtomicU8>,
    asked: Arc<AtomicUsize>,
}

impl Switched {
    fn set(&self, mode: u8) {
        self.mode.store(mode, Ordering::SeqCst);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    async fn pass<T>(&self, answer: Acting<'_, T>) -> Result<T, Error> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match self.mode.load(Ordering::SeqCst) {
            FAILS => Err(Error::unavailable("switched off")),
            HANGS => std::future::pending().await,
            LOSES => {
                answer.await?;
                std::future::pending().await
            }
            _ => answer.await,
        }
    }
}

impl Store for Switched {
    fn decide<'a>(&'a self, call: &'a Call) -> Acting<'a, Reply> {
        Box::pin(self.pass(self.store.decide(call)))
    }

    fn settle<'a>(&'a self, settling: &'a Settling) -> Acting<'a, Settlement> {
        Box::pin(self.pass(self.store.settle(settling)))
    }
}

fn store() -> (Switched, ManualClock) {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    (Switched { store, mode: Arc::default(), asked: Arc::default() }, clock)
}

fn remote(store: &Switched, policy: &str) -> RemoteBuilder {
    Remote::builder(store.clone(), "key", policy).unwrap().timeout(Duration::from_millis(50))
}

/// What happens in the background, soon.
fn eventually(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(10), "it does not happen");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn processes_share_the_limit_of_a_key() {
    let (store, clock) = store();
    let one = remote(&store, "bucket 1/s burst 2").build().unwrap();
    let other = remote(&store, "bucket 1/s burst 2").build().unwrap();
    assert!(one.allow(1).unwrap().is_allowed() && other.allow(1).unwrap().is_allowed());
    let refused = one.allow(1).unwrap();
    assert_eq!(refused.decision().retry().unwrap().after(), Some(Duration::from_secs(1)));
    assert!(!refused.is_degraded() && !refused.is_replayed());
    assert!(one.key("another").allow(2).unwrap().is_allowed());
    assert!(!other.peek(1).unwrap().is_allowed());
    clock.advance(Duration::from_secs(1));
    assert!(other.peek(1).unwrap().is_allowed() && block_on(other.allow_async(1)).unwrap().is_allowed());
    assert!(one.allow(3).unwrap_err().is_cost_too_large() && one.allow(-1).unwrap_err().is_invalid_cost());
    let stats = one.stats();
    assert_eq!((stats.allowed(), stats.denied(), stats.failures()), (2, 1, 0));
}

#[test]
fn waiting_is_first_come_first_served_over_processes() {
    let store = MemoryStore::new();
    let new = || Remote::builder(store.clone(), "key", "pace 20/s").unwrap().build().unwrap();
    let start = Instant::now();
    let order = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for n in 0..4 {
            let (limiter, order) = (new(), &order);
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(10) * n);
                limiter.consume(1).unwrap();
                order.lock().unwrap().push((n, start.elapsed()));
            });
        }
    });
    for (place, (n, at)) in order.into_inner().unwrap().into_iter().enumerate() {
        assert_eq!(n, u32::try_from(place).unwrap());
        assert!(at >= Duration::from_millis(50) * n, "{n} at {at:?}");
    }
}

#[test]
fn a_wait_that_is_too_long_fails_at_once_and_one_that_is_dropped_is_given_back() {
    let (store, clock) = store();
    let limiter = remote(&store, "bucket 1/s burst 1").build().unwrap();
    limiter.consume(1).unwrap();
    let short = Request::default().within(Duration::from_millis(500));
    let error = limiter.consume(short).unwrap_err();
    assert!(error.is_rate_limited() && error.retry_after() == Some(Duration::from_millis(500)), "{error}");
    {
        let mut waiting = Box::pin(limiter.consume_async(1));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        eventually(|| store.asked() == 3);
    }
    eventually(|| {
        limiter.peek(1).unwrap().decision().retry().and_then(suimon::Retry::after) == Some(Duration::from_secs(1))
    });
    clock.advance(Duration::from_secs(1));
    assert!(limiter.allow(1).unwrap().is_allowed());
}

#[test]
fn a_reservation_is_settled_or_stays_charged() {
    let (store, _) = store();
    let limiter = remote(&store, "bucket 10/h").build().unwrap();
    let remaining = || limiter.peek(0).unwrap().decision().status().remaining();
    let place = limiter.reserve(8).unwrap();
    place.wait_until_ready();
    assert_eq!(remaining(), 2);
    assert!(matches!(place.settle(3).unwrap(), Settlement::Refunded(_)));
    assert_eq!(remaining(), 7);
    drop(limiter.reserve(2).unwrap());
    limiter.reserve(5).unwrap().cancel();
    eventually(|| remaining() == 5);
    store.set(FAILS);
    assert!(limiter.reserve(1).unwrap_err().is_unavailable());
}

#[test]
fn a_request_with_an_id_is_charged_once() {
    let (store, clock) = store();
    let limiter = remote(&store, "bucket 10/h").build().unwrap();
    let id = |id: &str| RequestId::new(id, Duration::from_secs(60)).unwrap();
    // The answer is lost on its way: whether it was charged is not known.
    store.set(LOSES);
    assert!(block_on(limiter.allow_once(id("a"), 4)).unwrap_err().is_unavailable());
    store.set(WORKS);
    eventually(|| limiter.peek(0).is_ok());
    let again = block_on(limiter.allow_once(id("a"), 4)).unwrap();
    assert!(again.is_allowed() && again.is_replayed());
    assert_eq!(again.decision().status().remaining(), 6);
    assert!(!block_on(limiter.allow_once(id("b"), 4)).unwrap().is_replayed());
    assert_eq!(limiter.peek(0).unwrap().decision().status().remaining(), 2);
    // Another key, another request; and an id that has expired is new.
    assert!(!block_on(limiter.key("other").allow_once(id("a"), 4)).unwrap().is_replayed());
    clock.advance(Duration::from_secs(61));
    let late = block_on(limiter.allow_once(id("a"), 4)).unwrap();
    assert!(!late.is_replayed() && !late.is_allowed());
}

#[test]
fn a_settlement_with_an_id_can_be_tried_again() {
    let (store, _) = store();
    let limiter = remote(&store, "bucket 10/h").build().unwrap();
    let remaining = || limiter.peek(0).unwrap().decision().status().remaining();
    let place = limiter.reserve(8).unwrap();
    let id = || RequestId::new("a", Duration::from_secs(60)).unwrap();
    // Whether it was settled is not known.
    store.set(LOSES);
    assert!(block_on(place.settle_once(id(), 9)).unwrap_err().is_unavailable());
    store.set(WORKS);
    eventually(|| limiter.peek(0).is_ok());
    for _ in 0..2 {
        assert_eq!(block_on(place.settle_once(id(), 9)).unwrap(), Settlement::Charged(Cost::ONE));
        assert_eq!(remaining(), 1);
    }
    drop(place);
    assert_eq!(remaining(), 1);
}

#[test]
fn an_outage_costs_one_deadline_and_is_over_within_a_second() {
    let (store, _) = store();
    let limiter = remote(&store, "bucket 1000/h").build().unwrap();
    store.set(HANGS);
    let start = Instant::now();
    let error = limiter.allow(1).unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("50ms"), "{error}");
    assert!(start.elapsed() >= Duration::from_millis(50));
    let (start, asked) = (Instant::now(), store.asked());
    for _ in 0..1000 {
        assert!(limiter.allow(1).unwrap_err().is_unavailable());
    }
    // All of that took less than a deadline for each of the few that tried again.
    assert!(store.asked() - asked <= 1 + start.elapsed().as_millis() as usize / 50, "{}", store.asked() - asked);
    assert!(limiter.stats().is_out() && limiter.stats().not_asked() >= 900);
    store.set(WORKS);
    let start = Instant::now();
    eventually(|| limiter.allow(1).is_ok());
    assert!(start.elapsed() < Duration::from_secs(1));
    assert!(!limiter.stats().is_out());
}

#[test]
fn the_policy_for_outages_decides_and_says_so() {
    let (store, _) = store();
    store.set(FAILS);
    let closed = remote(&store, "bucket 5/h").build().unwrap();
    assert!(closed.allow(1).unwrap_err().is_unavailable() && closed.consume(1).unwrap_err().is_unavailable());

    let local = remote(&store, "bucket 5/h").outage(Outage::local("bucket 2/h").unwrap()).build().unwrap();
    let answers: Vec<_> = (0..3).map(|_| local.allow(1).unwrap()).collect();
    assert!(answers.iter().all(suimon::Answer::is_degraded));
    assert_eq!(answers.iter().filter(|answer| answer.is_allowed()).count(), 2);
    assert!(local.key("other").allow(2).unwrap().is_allowed(), "each key has a budget");
    let soon = Request::default().within(Duration::from_millis(1));
    assert!(local.consume(soon).unwrap_err().is_rate_limited());
    assert!(local.allow(6).unwrap_err().is_cost_too_large());

    let open = remote(&store, "bucket 5/h").outage(Outage::Allow).build().unwrap();
    assert!((0..50).all(|_| open.allow(1).is_ok_and(|answer| answer.is_allowed() && answer.is_degraded())));
    open.consume(1).unwrap();
    assert_eq!(open.stats().degraded(), 51);

    // Nothing of it was charged to the store.
    store.set(WORKS);
    eventually(|| open.allow(5).is_ok_and(|answer| answer.is_allowed() && !answer.is_degraded()));
}

#[test]
fn a_refused_key_is_not_asked_for_again_before_its_time() {
    let (store, _) = store();
    let limiter = remote(&store, "bucket 10/h").deny_cache().build().unwrap();
    assert!(limiter.allow(9).unwrap().is_allowed());
    let asked = store.asked();
    for _ in 0..100 {
        assert!(!limiter.allow(2).unwrap().is_allowed());
    }
    assert_eq!((store.asked() - asked, limiter.stats().cached()), (1, 99));
    // Less may pass, and another key may.
    assert!(limiter.allow(1).unwrap().is_allowed() && limiter.key("other").allow(2).unwrap().is_allowed());
}

#[test]
fn changed_limits_go_side_by_side_with_old_ones() {
    let (store, _) = store();
    let old = remote(&store, "bucket 10/h").build().unwrap();
    let new = remote(&store, "bucket 100/h").version(1).build().unwrap();
    assert!(old.allow(10).unwrap().is_allowed() && !old.allow(1).unwrap().is_allowed());
    assert!(new.allow(60).unwrap().is_allowed());
    // The newer limits govern the key for everybody: 30 of 100 are left, however often they alternate.
    for _ in 0..10 {
        assert!(old.allow(1).unwrap().is_allowed() && new.allow(1).unwrap().is_allowed());
    }
    assert_eq!(old.peek(0).unwrap().decision().status().remaining(), 10);
    old.change("bucket 100/h", Carry::Keep).unwrap();
    assert!(old.allow(10).unwrap().is_allowed() && !new.allow(1).unwrap().is_allowed());
}
