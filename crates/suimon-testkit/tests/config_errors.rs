//! Configurations that have to be refused, by the core and by the model, with
//! words that help.

use std::time::Duration;

use suimon_core::{Bucket, Cost, Gate, Pace, Policy, Quota, Timestamp, Window};
use suimon_testkit::model::{Fault, Model, Spec, whole};

/// The core's error and the model's, for a text that has to be refused.
fn refused(text: &str) -> (suimon_core::Error, Fault) {
    (text.parse::<Policy>().unwrap_err(), Spec::parse(text).unwrap_err())
}

#[test]
fn a_rate_of_zero() {
    let (error, fault) = refused("pace 0/s");
    assert!(error.is_out_of_range(), "{error}");
    assert!(matches!(fault, Fault::OutOfRange(_)), "{fault}");
    assert!(error.to_string().contains("block"), "{error}");
    assert!(Quota::per_second(0).is_err());
}

#[test]
fn a_negative_rate() {
    let (error, fault) = refused("pace -100/s");
    assert!(error.is_invalid_cost() && error.is_syntax(), "{error}");
    assert_eq!(fault, Fault::InvalidCost);
    assert_eq!(error.at(), Some(5), "the number is pointed at");
}

#[test]
fn a_period_of_zero() {
    for text in ["bucket 1/0s burst 1", "window 1/0s", "fixed 1/0ns", "pace 1/0h"] {
        let (error, fault) = refused(text);
        assert!(error.is_out_of_range(), "{text}: {error}");
        assert!(matches!(fault, Fault::OutOfRange(_)), "{text}: {fault}");
    }
    assert!(Quota::new(1, Duration::ZERO).is_err());
    assert!(Window::new(Cost::ONE, Duration::ZERO).is_err());
}

#[test]
fn a_burst_of_zero() {
    let (error, fault) = refused("bucket 1/s burst 0");
    assert!(error.is_out_of_range(), "{error}");
    assert!(matches!(fault, Fault::OutOfRange(_)), "{fault}");
    assert!(Bucket::new(Quota::per_second(1).unwrap()).with_burst(Cost::ZERO).is_err());
}

#[test]
fn a_negative_burst() {
    let (error, fault) = refused("bucket 1/s burst -1");
    assert!(error.is_invalid_cost(), "{error}");
    assert_eq!(fault, Fault::InvalidCost);
}

#[test]
fn a_balance_above_the_burst() {
    let text = "bucket 1/s burst 5";
    let gate = Gate::new(text.parse::<Policy>().unwrap()).unwrap();
    let error = gate.with_balance(Timestamp::ZERO, Cost::whole(6)).unwrap_err();
    assert!(error.is_out_of_range(), "{error}");
    assert!(error.to_string().contains('6') && error.to_string().contains('5'), "asked and allowed: {error}");
    let mut model = Model::new(Spec::parse(text).unwrap(), 0);
    assert!(matches!(model.start_with(0, &whole(6)), Err(Fault::OutOfRange(_))));
    assert!(gate.with_balance(Timestamp::ZERO, Cost::whole(5)).is_ok());
    assert!(model.start_with(0, &whole(5)).is_ok());
}

#[test]
fn negative_savings() {
    let (error, fault) = refused("pace 1/s savings -1");
    assert!(error.is_invalid_cost(), "{error}");
    assert_eq!(fault, Fault::InvalidCost);
}

/// Half a token a second would have a largest cost of no token at all.
#[test]
fn half_a_token_a_second() {
    let (error, fault) = refused("pace 0.5/s");
    assert!(error.is_syntax(), "{error}");
    assert_eq!(error.suggestion(), Some("`1/2s`"));
    assert!(matches!(fault, Fault::Syntax(_)), "{fault}");
    assert!("pace 1/2s".parse::<Policy>().is_ok());
}

#[test]
fn a_largest_cost_of_zero() {
    let (error, fault) = refused("pace 1/s max_cost 0");
    assert!(error.is_out_of_range(), "{error}");
    assert!(matches!(fault, Fault::OutOfRange(_)), "{fault}");
    assert!(Pace::new(Quota::per_second(1).unwrap()).with_max_cost(Cost::ZERO).is_err());
}

/// Periods and sizes at the end of what can be counted are taken, those beyond
/// are refused; nothing panics or wraps (kube-rs/kube#1488, golang/go#47221).
#[test]
fn both_sides_of_the_range() {
    let century = Duration::from_secs(3_155_760_000);
    let nanosecond = Duration::from_nanos(1);
    assert!(Quota::new(1, century).is_ok());
    for period in [
        century + nanosecond,
        Duration::from_secs(292 * 31_557_600),
        Duration::from_secs(293 * 31_557_600),
        Duration::MAX,
    ] {
        assert!(Quota::new(1, period).is_err(), "{period:?}");
        assert!(Window::new(Cost::ONE, period).is_err(), "{period:?}");
    }
    for (tokens, period) in [(2, nanosecond), (2_000_000_000, Duration::from_secs(1))] {
        assert!(Quota::new(tokens, period).is_ok(), "{tokens}");
        assert!(Quota::new(tokens + 1, period).is_err(), "{tokens}");
    }
    assert!(Quota::new(u64::MAX, Duration::from_secs(1)).is_err());
    let yearly = Bucket::new(Quota::per_year(1).unwrap());
    assert!(yearly.with_burst(Cost::whole(100)).is_ok());
    for burst in [101, u64::from(u32::MAX), u64::MAX] {
        assert!(yearly.with_burst(Cost::whole(burst)).is_err(), "{burst}");
    }
}

/// The model and the core take the same texts.
#[test]
fn both_take_and_refuse_the_same() {
    for text in [
        "pace 60/min",
        "pace 1/36525day",
        "pace 1/36526day",
        "bucket 2000000000/s",
        "bucket 2000000001/s",
        "bucket 1/year burst 100",
        "bucket 1/year burst 100.000000001",
        "pace 1/year savings 99 max_cost 1",
        "pace 1/year savings 99.5 max_cost 1",
        "window 0.000000001/1ns",
        "window 0/1ns",
        "fixed 5/2week",
        "fixed 5/month at 23:59",
        "fixed 5/month at 24:00",
        "fixed 5/h at 01:00",
        "60/min",
        "bucket",
        "",
        "unlimited and block",
        "unlimited and",
        "pace 1/s burst 2",
        "bucket 1/s savings 2",
        "window 5/month",
    ] {
        let (core, model) = (text.parse::<Policy>(), Spec::parse(text));
        assert_eq!(core.is_ok(), model.is_ok(), "`{text}`: core {core:?}, model {model:?}");
    }
}
