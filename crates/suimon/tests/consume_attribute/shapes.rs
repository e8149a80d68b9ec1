//! Functions of all shapes, which stay what they were.

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use suimon::{Error, Limiter, LocalLimiter, NoLimit};

use crate::manual;

/// A service whose methods take `self` in every way.
struct Service<L = LocalLimiter> {
    limiter: L,
    calls: u32,
}

impl<L: Limiter> Service<L> {
    #[suimon::consume(limiter = limiter)]
    fn new(limiter: L) -> Result<Self, Error> {
        Ok(Service { limiter, calls: 0 })
    }

    #[suimon::consume(limiter = self.limiter)]
    fn by_reference(&self) -> Result<&u32, Error> {
        Ok(&self.calls)
    }

    #[suimon::consume(limiter = self.limiter)]
    fn by_mutable_reference(&mut self) -> Result<&mut u32, Error> {
        self.calls += 1;
        Ok(&mut self.calls)
    }

    #[suimon::consume(limiter = self.limiter, cost = self.calls)]
    fn by_value(mut self) -> Result<Self, Error> {
        self.calls += 1;
        Ok(self)
    }

    #[suimon::consume(limiter = self.limiter)]
    #[expect(clippy::boxed_local)]
    fn by_box(self: Box<Self>) -> Result<u32, Error> {
        Ok(self.calls)
    }

    #[suimon::consume(limiter = self.limiter)]
    fn by_arc(self: Arc<Self>) -> Result<Arc<Self>, Error> {
        Ok(self)
    }

    #[suimon::consume(limiter = self.limiter)]
    async fn by_arc_async(self: Arc<Self>) -> Result<u32, Error> {
        Ok(self.calls)
    }

    #[suimon::consume(limiter = self.limiter)]
    fn by_pin(self: Pin<&mut Self>) -> Result<u32, Error> {
        Ok(self.calls)
    }

    #[suimon::consume(limiter = self.limiter)]
    async fn by_reference_async(&mut self, more: u32) -> Result<&mut u32, Error> {
        self.calls += more;
        Ok(&mut self.calls)
    }
}

#[test]
fn every_kind_of_self() {
    let (limiter, _clock) = manual("bucket 10/s");
    let mut service = Service::new(limiter.clone()).unwrap();
    assert_eq!(*service.by_reference().unwrap(), 0);
    *service.by_mutable_reference().unwrap() += 1;
    let mut service = service.by_value().unwrap();
    assert_eq!(futures_executor::block_on(service.by_reference_async(4)).map(|calls| *calls).unwrap(), 7);
    assert_eq!(Pin::new(&mut service).by_pin().unwrap(), 7);
    let service = Arc::new(service).by_arc().unwrap();
    assert_eq!(futures_executor::block_on(service.clone().by_arc_async()).unwrap(), 7);
    let service = Arc::into_inner(service).unwrap();
    assert_eq!(Box::new(service).by_box().unwrap(), 7);
    assert_eq!(limiter.status().remaining(), 0, "each of them took its cost: eight times 1, and 2");
}

/// With a method that has a limit already where the trait is declared.
trait Fetch {
    const NAME: &'static str;

    #[suimon::consume(limiter = self.gate(), cost = Self::NAME.len())]
    fn describe(&self) -> Result<String, Error> {
        Ok(Self::NAME.to_owned())
    }

    fn gate(&self) -> &LocalLimiter;
    fn fetch(&self, id: u32) -> impl Future<Output = Result<u32, Error>> + Send;
}

impl Fetch for Service {
    const NAME: &'static str = "service";

    fn gate(&self) -> &LocalLimiter {
        &self.limiter
    }

    #[suimon::consume(limiter = self.limiter, cost = id)]
    async fn fetch(&self, id: u32) -> Result<u32, Error> {
        Ok(id)
    }
}

#[test]
fn methods_of_traits() {
    let (limiter, _clock) = manual("bucket 10/s");
    let service = Service { limiter, calls: 0 };
    assert_eq!(service.describe().unwrap(), "service");
    assert_eq!(futures_executor::block_on(service.fetch(3)).unwrap(), 3);
    assert_eq!(service.limiter.status().remaining(), 0);
}

#[suimon::consume(limiter = limiter, cost = N)]
fn generic<'a, T, const N: usize>(limiter: &impl Limiter, items: &'a [T; N]) -> Result<&'a T, Error>
where
    T: Display + 'a,
    [T; N]: Sized,
{
    Ok(&items[0])
}

#[suimon::consume(limiter = NoLimit, cost = text.len())]
fn elided(text: &str) -> &str {
    text.trim()
}

#[suimon::consume(limiter = NoLimit)]
fn opaque(numbers: &[u32]) -> impl Iterator<Item = u32> + '_ {
    numbers.iter().map(|number| number * 2)
}

#[suimon::consume(limiter = NoLimit)]
fn unit(calls: &mut u32) {
    *calls += 1;
}

#[suimon::consume(limiter = NoLimit, cost = first + rest.len())]
fn patterns((first, _): (usize, u8), [_, rest @ ..]: &[u8; 3], mut sum: usize) -> usize {
    sum += first + rest.len();
    sum
}

#[suimon::consume(limiter = NoLimit)]
fn early(stop: bool) -> Option<u8> {
    if stop {
        return None;
    }
    Some(u8::from(Some(true)?))
}

/// # Safety
/// `number` points to a number.
#[suimon::consume(limiter = NoLimit)]
unsafe fn raw(number: *const u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { *number }
}

#[suimon::consume(limiter = NoLimit, cost = number)]
extern "C" fn exported(number: u32) -> u32 {
    number + 1
}

#[test]
fn any_signature_and_any_return() {
    let (limiter, _clock) = manual("bucket 3/s");
    assert_eq!(*generic(&limiter, &["a", "b", "c"]).unwrap(), "a");
    assert_eq!(limiter.status().remaining(), 0, "the cost was the length");
    assert_eq!(elided(" text "), "text");
    assert_eq!(opaque(&[1, 2]).collect::<Vec<_>>(), [2, 4]);
    let mut calls = 0;
    unit(&mut calls);
    assert_eq!(calls, 1);
    assert_eq!(patterns((1, 0), &[1, 2, 3], 10), 13);
    assert_eq!((early(true), early(false)), (None, Some(1)));
    let function: extern "C" fn(u32) -> u32 = exported;
    assert_eq!(function(1), 2);
    // SAFETY: a reference points to a number.
    assert_eq!(unsafe { raw(&7) }, 7);
}

/// Attributes that would be an error or a warning if they had been lost.
mod attributes {
    #![deny(warnings)]

    use suimon::NoLimit;

    #[suimon::consume(limiter = NoLimit)]
    #[must_use = "the number"]
    #[inline(always)]
    /// Documented.
    pub(super) fn important() -> u8 {
        #![allow(unused_variables)]
        let unused = 1;
        2
    }

    #[deprecated(note = "use `important`")]
    #[suimon::consume(limiter = NoLimit)]
    pub(super) fn old() -> u8 {
        1
    }

    #[cfg(any())]
    #[suimon::consume(limiter = NoLimit)]
    fn not_compiled() -> Nothing {}

    #[suimon::consume(limiter = NoLimit)]
    #[cfg(any())]
    fn not_compiled_either() -> Nothing {}

    #[suimon::consume(limiter = NoLimit)]
    #[expect(clippy::too_many_arguments)]
    pub(super) fn crowded(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8) -> u8 {
        a + b + c + d + e + f + g + h
    }

    #[suimon::consume(limiter = NoLimit)]
    #[test]
    fn a_test_may_be_limited_itself() {}
}

#[test]
fn attributes_are_kept() {
    #[expect(unused_must_use)]
    {
        attributes::important();
    }
    #[expect(deprecated)]
    let old = attributes::old();
    assert_eq!(old, 1);
    assert_eq!(attributes::crowded(1, 1, 1, 1, 1, 1, 1, 1), 8);
}
