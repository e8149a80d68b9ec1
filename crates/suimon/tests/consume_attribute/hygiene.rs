//! Nothing of the expansion is seen by the function, and nothing around the
//! function changes what the attribute means.

#![deny(warnings)]

/// Every name that the expansion could use, taken by something else.
mod shadowed {
    #![no_implicit_prelude]
    #![allow(non_camel_case_types, dead_code)]

    pub(super) struct Ok;
    pub(super) struct Err;
    pub(super) struct Result;
    pub(super) struct Request;
    pub(super) struct Limiter;
    pub(super) struct From;
    pub(super) mod core {}
    pub(super) mod std {}
    pub(super) mod suimon {}

    #[::suimon::consume("unlimited", cost = limiter + request + error, within = longest, or = outcome)]
    pub(super) fn call(
        limiter: u32,
        request: u32,
        error: u32,
        outcome: u32,
        longest: ::core::time::Duration,
        deadline: u32,
    ) -> u32 {
        limiter + request + error + deadline
    }

    // The constant outside, which just passes; not the one of the body.
    #[::suimon::consume("bucket 2/s", cost = LIMITER, deadline = ::std::time::Instant::now())]
    pub(super) fn items() -> ::core::result::Result<u32, ::suimon::Error> {
        const LIMITER: u32 = 3;
        ::core::result::Result::Ok(LIMITER)
    }

    const LIMITER: u32 = 2;
}

#[test]
fn names_do_not_meet() {
    assert_eq!(shadowed::call(1, 2, 3, 4, std::time::Duration::ZERO, 5), 11);
    assert_eq!(shadowed::items().unwrap(), 3);
}

/// Arguments with the names of the expansion's own variables, where those are in scope.
mod variables {
    use std::time::{Duration, Instant};

    use suimon::{Error, Recorder};

    #[suimon::consume(limiter = request, cost = limiter, within = deadline, deadline = longest)]
    pub(super) fn swapped(
        request: &Recorder,
        limiter: u32,
        deadline: Duration,
        longest: Instant,
    ) -> Result<u32, Error> {
        Ok(limiter)
    }
}

#[test]
fn variables_do_not_meet() {
    let recorder = suimon::Recorder::default();
    let now = std::time::Instant::now();
    assert_eq!(variables::swapped(&recorder, 3, std::time::Duration::MAX, now).unwrap(), 3);
    let expected = suimon::Request::new(suimon::Cost::whole(3)).within(std::time::Duration::ZERO);
    assert_eq!(recorder.seen(), [suimon::Seen::Consume(expected)]);
}

/// The trait that the expansion imports is not imported for the function.
mod no_import {
    use suimon::{Error, NoLimit};

    pub(super) trait Consume {
        fn consume(&self, number: u32) -> u32;
    }

    impl Consume for NoLimit {
        fn consume(&self, number: u32) -> u32 {
            number
        }
    }

    // With `Limiter` in scope, `consume` would be ambiguous.
    #[suimon::consume("unlimited", cost = limiter.consume(7))]
    pub(super) fn call(limiter: NoLimit) -> Result<u32, Error> {
        Ok(limiter.consume(8))
    }
}

#[test]
fn methods_do_not_meet() {
    assert_eq!(no_import::call(suimon::NoLimit).unwrap(), 8);
}

macro_rules! declared {
    ($($name:ident($argument:ident: $ty:ty) -> $output:ty, $limit:literal, $cost:expr;)*) => {$(
        #[suimon::consume($limit, cost = $cost)]
        fn $name($argument: $ty) -> $output {
            Ok($argument)
        }
    )*};
}

declared! {
    first(limiter: u32) -> Result<u32, suimon::Error>, "bucket 10/s", limiter * 2;
    second(text: &str) -> std::result::Result<&str, Box<dyn std::error::Error>>, "pace 60/min", text.len() + 1;
}

#[test]
fn declared_by_a_macro() {
    assert_eq!(first(5).unwrap(), 5);
    assert!(first(6).unwrap_err().is_cost_too_large());
    assert_eq!(second("text").unwrap(), "text");
}
