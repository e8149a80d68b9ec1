//! Any policy and any calls: no panic, and answers that keep their word.

#![no_main]

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use suimon_core::{
    Booking, Bucket, Carry, Cost, Decision, Every, Fixed, Gate, Limit, Pace, Policy, Quota, Reservation, Retry, State,
    Timestamp, Unit, Window,
};

#[derive(Arbitrary, Debug)]
enum Call {
    Allow { cost: u64, nanos: u32 },
    Reserve { cost: u64, within: Option<u64> },
    Settle { actual: u64 },
    Change { scale: bool, back: bool },
    Sleep { nanos: u64 },
    Back { nanos: u64 },
}

fn limit(u: &mut Unstructured<'_>) -> arbitrary::Result<Option<Limit>> {
    let period = Duration::from_nanos(u.arbitrary::<u64>()? >> u.int_in_range(0..=63)?);
    let tokens = u.arbitrary::<u64>()? >> u.int_in_range(0..=63)?;
    let size = cost(u.arbitrary::<u64>()? >> u.int_in_range(0..=63)?, u.arbitrary()?);
    let quota = Quota::new(tokens, period).ok();
    let unit = *u.choose(&[Unit::Day, Unit::Week, Unit::Month, Unit::Year])?;
    Ok(match u.int_in_range(0..=6)? {
        0 => quota.and_then(|quota| Pace::new(quota).with_savings(size).ok()).map(Limit::Pace),
        1 => quota.and_then(|quota| Bucket::new(quota).with_burst(size).ok()).map(Limit::Bucket),
        2 => Window::new(size, period).ok().map(Limit::Window),
        3 => Every::period(period).ok().and_then(|every| Fixed::new(size, every).ok()).map(Limit::Fixed),
        4 => Every::calendar(unit, u.arbitrary::<u16>()? % 1440, "UTC")
            .ok()
            .and_then(|every| Fixed::new(size, every).ok())
            .map(Limit::Fixed),
        5 => Some(Limit::Unlimited),
        _ => Some(Limit::Block),
    })
}

fn cost(whole: u64, nanos: u32) -> Cost {
    Cost::new(whole, nanos % 1_000_000_000).unwrap_or_default()
}

fn gate(u: &mut Unstructured<'_>) -> arbitrary::Result<Option<Gate>> {
    let mut limits = Vec::new();
    for _ in 0..u.int_in_range(1..=3)? {
        limits.push(limit(u)?.unwrap_or(Limit::Unlimited));
    }
    Ok(Policy::new(limits).ok().and_then(|policy| Gate::new(policy).ok()))
}

/// What an answer says of the future must come true.
fn check(gate: &Gate, state: &State, now: Timestamp, cost: Cost, decision: &Decision) {
    let passes = |at, cost| gate.peek(state, at, cost).is_ok_and(|decision| decision.is_allowed());
    assert_eq!(passes(now, cost), decision.is_allowed());
    if let Decision::Deny(_, Retry::After { wait, .. }) = decision {
        let at = now.saturating_add(*wait);
        // Beyond a century and a half time may stand still.
        if at < Timestamp::from_secs(4_800_000_000) {
            assert!(passes(at, cost), "refused at the promised time");
            assert!(
                *wait > Duration::ZERO && !passes(Timestamp::from_nanos(at.as_nanos() - 1), cost),
                "passes earlier"
            );
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let Ok(Some(first)) = gate(&mut u) else { return };
    let Ok(Some(second)) = gate(&mut u) else { return };
    let Ok(second) = first.changed(second.policy().clone()) else { return };
    let mut gate = first.clone();
    let mut state = gate.fresh();
    let mut now = Timestamp::from_nanos(u.arbitrary::<u32>().unwrap_or_default().into());
    let mut open: Vec<Reservation> = Vec::new();
    // An empty input would go on for ever: it reads as zeros.
    while !u.is_empty() {
        let Ok(call) = u.arbitrary::<Call>() else { return };
        match call {
            Call::Allow { cost: whole, nanos } => {
                let cost = cost(whole >> (nanos & 63), nanos);
                let before = state.clone();
                if let Ok(decision) = gate.allow(&mut state, now, cost) {
                    check(&gate, &before, now, cost, &decision);
                    assert!(decision.is_allowed() || state == before, "a refusal changed the state");
                    let status = decision.status();
                    assert!(status.remaining() <= status.limit());
                } else {
                    assert!(state == before, "an error changed the state");
                }
            }
            Call::Reserve { cost: whole, within } => {
                let before = state.clone();
                match gate.reserve(
                    &mut state,
                    now,
                    Cost::whole(whole >> (whole & 63)),
                    within.map(Duration::from_nanos),
                ) {
                    Ok(Booking::Booked(_, reservation)) => open.push(reservation),
                    _ => assert!(state == before),
                }
                open.truncate(16);
            }
            Call::Settle { actual } => {
                if let Some(reservation) = open.pop() {
                    let _ = gate.settle(&mut state, now, reservation, Cost::whole(actual >> (actual & 63)));
                }
            }
            Call::Change { scale, back } => {
                let next =
                    if back { gate.changed(first.policy().clone()) } else { gate.changed(second.policy().clone()) };
                let Ok(next) = next else { return };
                let carry = if scale { Carry::Scale } else { Carry::Keep };
                assert!(next.adopt(&mut state, &gate, now, carry).is_ok());
                gate = next;
            }
            Call::Sleep { nanos } => now = now.saturating_add(Duration::from_nanos(nanos >> (nanos & 63))),
            Call::Back { nanos } => now = Timestamp::from_nanos(now.as_nanos().saturating_sub(nanos >> (nanos & 63))),
        }
    }
});
