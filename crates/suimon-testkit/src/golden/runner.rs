//! Drives a subject through scenarios and compares what it answers.

use std::time::Duration;

use super::report::{Report, Result as Judged, ScenarioReport};
use super::scenario::{Action, Expect, Fields, Scenario, Step};
use super::subject::{Opening, Outcome, Refusal, Retry, Subject, Verdict};
use super::time::format_duration;

/// Runs the scenarios in order, each on a limiter of its own.
pub fn run(subject: &mut dyn Subject, scenarios: &[Scenario]) -> Report {
    let mut report = Report::of(subject.name());
    for scenario in scenarios {
        let mut tally = Tally::default();
        let result = judge(subject, scenario, &mut tally);
        report.add(
            ScenarioReport { file: scenario.file.clone(), line: scenario.line, name: scenario.name.clone(), result },
            tally,
        );
    }
    report
}

/// What was looked at in one scenario.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) calls: u64,
    pub(super) compared: u64,
    pub(super) untold: u64,
}

fn judge(subject: &mut dyn Subject, scenario: &Scenario, tally: &mut Tally) -> Judged {
    let opening = Opening {
        policy: &scenario.policy,
        clock: scenario.clock,
        start: scenario.start,
        balance: scenario.balance.as_deref(),
    };
    let opened = subject.open(&opening);
    let fail = |message: String| Judged::Failed { line: scenario.line, message };
    match (opened, scenario.refused) {
        (Err(Refusal::Unsupported(feature)), _) => return Judged::Unsupported { line: scenario.line, feature },
        (Err(Refusal::Broken(message)), _) => return fail(format!("opening it broke: {message}")),
        (Err(Refusal::Error { kind, .. }), Some(expected)) if kind.matches(expected) => return Judged::Passed,
        (Err(Refusal::Error { kind, message }), _) => {
            return fail(format!("the policy `{}` was refused as {kind:?}: {message}", scenario.policy));
        }
        (Ok(()), Some(expected)) => {
            return fail(format!("the policy `{}` was taken, expected {expected:?}", scenario.policy));
        }
        (Ok(()), None) => {}
    }
    let tolerance = if subject.counts_in_ticks() { scenario.tolerance } else { Duration::ZERO };
    for step in &scenario.steps {
        match run_step(subject, step, tolerance, tally) {
            Ok(()) => {}
            Err(Stop::Unsupported(feature)) => return Judged::Unsupported { line: step.line, feature },
            Err(Stop::Wrong(message)) => return Judged::Failed { line: step.line, message },
        }
    }
    Judged::Passed
}

/// Why a scenario ends before its last step.
enum Stop {
    Unsupported(super::subject::Feature),
    Wrong(String),
}

fn run_step(subject: &mut dyn Subject, step: &Step, tolerance: Duration, tally: &mut Tally) -> Result<(), Stop> {
    let every = u64::try_from(step.every.as_nanos()).unwrap_or(u64::MAX);
    let mut allowed = 0;
    for call in 0..step.times {
        // Cannot overflow: the parser has checked the last call.
        let now = step.at.saturating_add(every.saturating_mul(u64::from(call)));
        let place = || match step.times {
            1 => describe(&step.action),
            times => format!("{} (call {} of {times})", describe(&step.action), call + 1),
        };
        tally.calls += 1;
        match (subject.act(now, &step.action), step.expected.verdict) {
            (Err(Refusal::Unsupported(feature)), _) => return Err(Stop::Unsupported(feature)),
            (Err(Refusal::Broken(message)), _) => return Err(Stop::Wrong(format!("{} broke: {message}", place()))),
            (Err(Refusal::Error { kind, .. }), Expect::Error(expected)) if kind.matches(expected) => {}
            (Err(Refusal::Error { kind, message }), expected) => {
                return Err(Stop::Wrong(format!("{}: expected {expected:?}, got error {kind:?}: {message}", place())));
            }
            (Ok(outcome), Expect::Count(_)) => match outcome.verdict {
                Verdict::Allowed => allowed += 1,
                Verdict::Denied => {}
                other => return Err(Stop::Wrong(format!("{}: got {other:?}", place()))),
            },
            (Ok(outcome), expected) => {
                compare_verdict(expected, outcome.verdict, tolerance)
                    .map_err(|difference| Stop::Wrong(format!("{}: {difference}", place())))?;
                if call + 1 == step.times {
                    compare_fields(&step.expected.fields, &outcome, tolerance, tally)
                        .map_err(|difference| Stop::Wrong(format!("{}: {difference}", place())))?;
                }
            }
        }
    }
    match step.expected.verdict {
        Expect::Count(expected) if expected != allowed => Err(Stop::Wrong(format!(
            "{} x{}: expected {expected} allowed, got {allowed}",
            describe(&step.action),
            step.times
        ))),
        _ => Ok(()),
    }
}

fn compare_verdict(expected: Expect, got: Verdict, tolerance: Duration) -> Result<(), String> {
    match (expected, got) {
        (Expect::Allow, Verdict::Allowed) | (Expect::Deny, Verdict::Denied) | (Expect::Done, Verdict::Done) => Ok(()),
        (Expect::Wait(expected), Verdict::Booked { wait }) => compare_times("wait", expected, wait, tolerance),
        _ => Err(format!("expected {expected:?}, got {got:?}")),
    }
}

fn compare_fields(expected: &Fields, got: &Outcome, tolerance: Duration, tally: &mut Tally) -> Result<(), String> {
    // A field that the subject cannot tell is counted, not compared.
    let mut told = |expected: bool, got: bool| {
        tally.compared += u64::from(expected && got);
        tally.untold += u64::from(expected && !got);
        expected && got
    };
    let numbers = [
        ("limit", expected.limit, got.limit),
        ("remaining", expected.remaining, got.remaining),
        ("burst_left", expected.burst_left, got.burst_left),
        ("by", expected.by.map(|by| by as u64), got.by.map(|by| by as u64)),
    ];
    for (name, expected, got) in numbers {
        if told(expected.is_some(), got.is_some()) && expected != got {
            return Err(format!("{name}: expected {}, got {}", expected.unwrap_or(0), got.unwrap_or(0)));
        }
    }
    if told(expected.reset.is_some(), got.reset.is_some()) {
        let (expected, got) = (expected.reset.unwrap_or_default(), got.reset.unwrap_or_default());
        compare_times("reset", expected, got, tolerance)?;
    }
    if told(expected.retry.is_some(), got.retry.is_some()) {
        match (expected.retry, got.retry) {
            (Some(Retry::After(expected)), Some(Retry::After(got))) => {
                compare_times("retry", expected, got, tolerance)?;
            }
            (expected, got) if expected == got => {}
            (expected, got) => return Err(format!("retry: expected {expected:?}, got {got:?}")),
        }
    }
    Ok(())
}

/// Times are equal, or early by no more than the tolerance; late is never right.
fn compare_times(name: &str, expected: Duration, got: Duration, tolerance: Duration) -> Result<(), String> {
    if got <= expected && expected - got <= tolerance {
        return Ok(());
    }
    Err(format!("{name}: expected {}, got {}", format_duration(expected), format_duration(got)))
}

fn describe(action: &Action) -> String {
    match action {
        Action::Allow { cost } => format!("allow {cost}"),
        Action::Peek { cost } => format!("peek {cost}"),
        Action::Reserve { cost, .. } => format!("reserve {cost}"),
        Action::Settle { name, cost } => format!("settle {name} {cost}"),
        Action::Change { policy, .. } => format!("change to {policy}"),
    }
}
