//! How a refusal or an error reaches the caller.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use suimon::{Error, Limiter, LocalLimiter};

use crate::{manual, secs};

/// The error of an application, which suimon's becomes.
#[derive(Debug)]
enum AppError {
    Limit(Error),
    Body,
}

impl From<Error> for AppError {
    fn from(error: Error) -> AppError {
        AppError::Limit(error)
    }
}

#[suimon::consume(limiter = limiter, wait = false)]
fn fallible(limiter: &LocalLimiter) -> Result<u8, AppError> {
    Err(AppError::Body)
}

#[suimon::consume(limiter = limiter, wait = false)]
fn boxed(limiter: &LocalLimiter) -> std::result::Result<u8, Box<dyn std::error::Error + Send + Sync>> {
    Ok(8)
}

type Result<T, E = AppError> = std::result::Result<T, E>;

#[suimon::consume(limiter = limiter, wait = false)]
fn alias_of_the_same_name(limiter: &LocalLimiter) -> self::Result<u8> {
    Ok(8)
}

#[test]
fn results_convert_the_error() {
    let (limiter, clock) = manual("pace 60/min");
    assert!(matches!(fallible(&limiter), Err(AppError::Body)), "passed, and the body's own error");
    assert!(matches!(fallible(&limiter), Err(AppError::Limit(error)) if error.retry_after() == Some(secs(1))));
    assert!(boxed(&limiter).unwrap_err().to_string().contains("retry after 1s"));
    assert!(matches!(alias_of_the_same_name(&limiter), Err(AppError::Limit(_))));
    clock.advance(secs(1));
    assert_eq!(alias_of_the_same_name(&limiter).unwrap(), 8);
}

static EVALUATED: AtomicU32 = AtomicU32::new(0);

#[suimon::consume(limiter = limiter, wait = false, or = { EVALUATED.fetch_add(1, Ordering::Relaxed); fallback })]
fn with_fallback(limiter: &LocalLimiter, fallback: String) -> String {
    format!("body, not {fallback}")
}

#[suimon::consume(limiter = limiter, within = secs(0), or = None)]
fn optional<'a>(limiter: &LocalLimiter, text: &'a str) -> Option<&'a str> {
    Some(text)
}

#[suimon::consume(limiter = limiter, wait = false, or = ())]
fn unit(limiter: &LocalLimiter, runs: &mut u32) {
    *runs += 1;
}

#[suimon::consume(limiter = limiter, wait = false, or = Err("later"))]
fn over_a_result(limiter: &LocalLimiter) -> std::result::Result<u8, &'static str> {
    Ok(1)
}

#[suimon::consume(limiter = limiter, wait = false, or = panic!("limited"))]
fn diverging_fallback(limiter: &LocalLimiter) -> u8 {
    1
}

#[test]
fn or_is_returned_instead_of_the_body_and_only_then_evaluated() {
    let (limiter, clock) = manual("pace 60/min");
    assert_eq!(with_fallback(&limiter, "x".into()), "body, not x");
    assert_eq!(EVALUATED.load(Ordering::Relaxed), 0);
    assert_eq!(with_fallback(&limiter, "x".into()), "x");
    assert_eq!(EVALUATED.load(Ordering::Relaxed), 1);

    assert_eq!(optional(&limiter, "text"), None);
    let mut runs = 0;
    unit(&limiter, &mut runs);
    assert_eq!(runs, 0);
    assert_eq!(over_a_result(&limiter), Err("later"));
    assert!(catch_unwind(AssertUnwindSafe(|| diverging_fallback(&limiter))).is_err());

    clock.advance(secs(1));
    assert_eq!(optional(&limiter, "text"), Some("text"));
    clock.advance(secs(1));
    unit(&limiter, &mut runs);
    assert_eq!(runs, 1);
    clock.advance(secs(1));
    assert_eq!(diverging_fallback(&limiter), 1);

    limiter.close();
    assert_eq!(optional(&limiter, "text"), None, "an error too");
}

#[suimon::consume(limiter = limiter, cost = cost)]
fn infallible(limiter: &LocalLimiter, cost: i32) -> i32 {
    cost
}

#[suimon::consume(limiter = limiter)]
fn forever(limiter: &LocalLimiter) -> ! {
    std::panic::panic_any(7_u8)
}

#[test]
fn without_a_result_an_error_is_a_panic_that_names_the_function() {
    let (limiter, _clock) = manual("unlimited and bucket 5/s");
    assert_eq!(infallible(&limiter, 3), 3);
    for (cost, part) in [(6, "a cost of 6 can never pass: the limit lets at most 5"), (-1, "invalid cost")] {
        let text = panic_of(|| infallible(&limiter, cost));
        assert!(text.contains(concat!("on `", module_path!(), "::infallible`")), "{text}");
        assert!(text.contains(part), "{text}");
    }
    assert!(catch_unwind(AssertUnwindSafe(|| forever(&limiter))).unwrap_err().is::<u8>(), "the body ran");
    limiter.close();
    assert!(panic_of(|| forever(&limiter)).contains("the limiter is closed"));
}

fn panic_of<R>(call: impl FnOnce() -> R) -> String {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(_) => panic!("it should have panicked"),
        Err(payload) => *payload.downcast::<String>().expect("a message"),
    }
}

#[suimon::consume(limiter = limiter)]
#[track_caller]
fn location(limiter: &impl Limiter) -> &'static Location<'static> {
    Location::caller()
}

#[test]
fn the_caller_is_still_known() {
    assert_eq!(location(&suimon::NoLimit).line(), line!());
}
