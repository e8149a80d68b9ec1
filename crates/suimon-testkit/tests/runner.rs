//! The runner notices whatever is wrong, and the parser says where.

use std::time::Duration;

use suimon_testkit::golden::{
    self, Action, Clock, ErrorKind, Feature, Opening, Outcome, Refusal, Result as Judged, Retry, Subject, Verdict,
    conformance, parse, run,
};
use suimon_testkit::subjects::CoreSubject;

/// What is wrong with an answer.
type Change = fn(&mut Outcome);

/// The core, with one thing wrong.
struct Wrong {
    core: CoreSubject,
    change: Change,
    in_ticks: bool,
}

impl Subject for Wrong {
    fn name(&self) -> String {
        "a wrong one".to_owned()
    }

    fn counts_in_ticks(&self) -> bool {
        self.in_ticks
    }

    fn open(&mut self, opening: &Opening<'_>) -> Result<(), Refusal> {
        self.core.open(opening)
    }

    fn act(&mut self, now: u64, action: &Action) -> Result<Outcome, Refusal> {
        let mut outcome = self.core.act(now, action)?;
        (self.change)(&mut outcome);
        Ok(outcome)
    }
}

fn wrong(change: Change) -> Wrong {
    Wrong { core: CoreSubject::new(), change, in_ticks: true }
}

/// Each field, one off, makes scenarios fail.
#[test]
fn every_wrong_field_is_noticed() {
    let changes: [(&str, Change); 8] = [
        ("a late retry", |outcome| {
            if let Some(Retry::After(wait)) = &mut outcome.retry {
                *wait += Duration::from_nanos(1);
            }
        }),
        ("an early retry", |outcome| {
            if let Some(Retry::After(wait)) = &mut outcome.retry {
                *wait = wait.saturating_sub(Duration::from_nanos(1));
            }
        }),
        ("never", |outcome| outcome.retry = outcome.retry.map(|_| Retry::Never)),
        ("remaining", |outcome| outcome.remaining = outcome.remaining.map(|remaining| remaining.wrapping_add(1))),
        ("burst_left", |outcome| outcome.burst_left = outcome.burst_left.map(|left| left ^ 1)),
        ("reset", |outcome| outcome.reset = outcome.reset.map(|reset| reset + Duration::from_nanos(1))),
        ("by", |outcome| outcome.by = outcome.by.map(|by| by + 1)),
        ("a late booking", |outcome| {
            if let Verdict::Booked { wait } = &mut outcome.verdict {
                *wait += Duration::from_nanos(1);
            }
        }),
    ];
    for (what, change) in changes {
        let report = conformance(&mut wrong(change));
        assert!(report.failures().count() > 3, "{what}: {report}");
        assert!(report.to_string().contains(".txt:"), "{report}");
    }
}

/// A subject that lets everything pass fails wherever something is refused.
#[test]
fn who_lets_everything_pass_is_noticed() {
    let report = conformance(&mut wrong(|outcome| {
        if outcome.verdict == Verdict::Denied {
            outcome.verdict = Verdict::Allowed;
        }
    }));
    assert!(report.failures().count() > 100, "{report}");
}

/// What cannot be told is counted, and is no failure.
#[test]
fn what_is_not_told_is_counted() {
    let report = conformance(&mut wrong(|outcome| *outcome = Outcome::bare(outcome.verdict)));
    report.assert_passed(&[]);
    assert_eq!(report.fields_compared(), 0);
    assert!(report.fields_untold() > 1_800, "{report}");
}

/// A tolerance is granted to who counts in ticks, for early answers alone.
#[test]
fn tolerance_is_for_ticks_and_for_early() {
    let text = "scenario s\nwhy it is early\npolicy bucket 1/s\ntolerance 1ns\n\
                at 0s allow 1 -> allow reset 1s\nat 0s allow 1 -> deny retry 1s";
    let scenarios = parse("s.txt", text).unwrap();
    let earlier = |outcome: &mut Outcome| outcome.reset = outcome.reset.map(|reset| reset - Duration::from_nanos(1));
    let early = Wrong { core: CoreSubject::new(), change: earlier, in_ticks: true };
    let strict = Wrong { core: CoreSubject::new(), change: earlier, in_ticks: false };
    let much_earlier =
        |outcome: &mut Outcome| outcome.reset = outcome.reset.map(|reset| reset - Duration::from_nanos(2));
    let too_early = Wrong { core: CoreSubject::new(), change: much_earlier, in_ticks: true };
    let later = |outcome: &mut Outcome| outcome.reset = outcome.reset.map(|reset| reset + Duration::from_nanos(1));
    let late = Wrong { core: CoreSubject::new(), change: later, in_ticks: true };
    for (mut subject, passes) in [(early, true), (strict, false), (too_early, false), (late, false)] {
        assert_eq!(run(&mut subject, &scenarios).passed() == 1, passes);
    }
}

/// A front that has no bookings and takes no other policy.
struct Lacking(CoreSubject);

impl Subject for Lacking {
    fn name(&self) -> String {
        "a small front".to_owned()
    }

    fn counts_in_ticks(&self) -> bool {
        true
    }

    fn open(&mut self, opening: &Opening<'_>) -> Result<(), Refusal> {
        if opening.clock == Clock::Raw {
            return Err(Refusal::Unsupported(Feature::RawClock));
        }
        self.0.open(opening)
    }

    fn act(&mut self, now: u64, action: &Action) -> Result<Outcome, Refusal> {
        match action {
            Action::Reserve { .. } => Err(Refusal::Unsupported(Feature::Reserve)),
            Action::Change { .. } => Err(Refusal::Unsupported(Feature::Change)),
            action => self.0.act(now, action),
        }
    }
}

suimon_testkit::conformance!(lacking, Lacking(CoreSubject::new()), lacks: [RawClock, Reserve, Change]);

#[test]
fn what_is_lacking_is_counted_and_has_to_be_declared() {
    let report = conformance(&mut Lacking(CoreSubject::new()));
    let lacks = report.unsupported();
    assert!(lacks[&Feature::Reserve] > 20 && lacks[&Feature::Change] > 20 && lacks[&Feature::RawClock] > 3, "{report}");
    assert_eq!(report.passed() + lacks.values().sum::<usize>(), report.scenarios().len());
    assert!(report.to_string().contains("not judged"), "{report}");
    let undeclared = std::panic::catch_unwind(|| report.assert_passed(&[Feature::RawClock, Feature::Reserve]));
    assert!(undeclared.is_err(), "a lack that is not declared fails");
}

/// An outage is neither a denial nor an argument error.
#[test]
fn an_outage_fails() {
    struct Broken;
    impl Subject for Broken {
        fn name(&self) -> String {
            "broken".to_owned()
        }
        fn open(&mut self, _: &Opening<'_>) -> Result<(), Refusal> {
            Ok(())
        }
        fn act(&mut self, _: u64, _: &Action) -> Result<Outcome, Refusal> {
            Err(Refusal::Broken("no connection".to_owned()))
        }
    }
    let text = "scenario s\nwhy an error is expected\npolicy bucket 1/s\nat 0s allow 2 -> error any";
    let report = run(&mut Broken, &parse("s.txt", text).unwrap());
    let Judged::Failed { line, message } = &report.scenarios()[0].result else { panic!("{report}") };
    assert_eq!(*line, 4);
    assert!(message.contains("no connection"), "{message}");
}

/// An error of another kind than expected fails, one of an unknown kind does not.
#[test]
fn kinds_of_errors_are_compared() {
    assert!(ErrorKind::Any.matches(ErrorKind::InvalidCost) && ErrorKind::Syntax.matches(ErrorKind::Any));
    assert!(!ErrorKind::Syntax.matches(ErrorKind::OutOfRange));
    for (kind, passes) in [("cost-too-large", true), ("invalid-cost", false), ("any", true)] {
        let text = format!("scenario s\nwhy w\npolicy bucket 1/s\nat 0s allow 2 -> error {kind}");
        assert_eq!(run(&mut CoreSubject::new(), &parse("s.txt", &text).unwrap()).passed() == 1, passes, "{kind}");
    }
    for (kind, passes) in [("out-of-range", true), ("syntax", false)] {
        let text = format!("scenario s\nwhy w\npolicy bucket 0/s\nrefused {kind}");
        assert_eq!(run(&mut CoreSubject::new(), &parse("s.txt", &text).unwrap()).passed() == 1, passes, "{kind}");
    }
}

/// Wrong files, each with the line and a part of the message.
#[test]
fn errors_in_files_have_a_line_and_say_what_was_expected() {
    let head = "scenario s\nwhy w\npolicy bucket 1/s\n";
    let step = |step: &str| format!("{head}{step}");
    for (text, line, message) in [
        ("at 0s allow 1 -> allow".to_owned(), 1, "before the first scenario"),
        ("scenario".to_owned(), 1, "a name of one word"),
        ("scenario two words".to_owned(), 1, "a name of one word"),
        (format!("{head}at 0s allow 1 -> allow\n{head}"), 5, "is taken by the scenario at line 1"),
        ("scenario s\npolicy bucket 1/s\nat 0s allow 1 -> allow".to_owned(), 1, "does not say why"),
        ("scenario s\nwhy w\nat 0s allow 1 -> allow".to_owned(), 1, "has no policy"),
        (head.to_owned(), 1, "does nothing"),
        (step("refused syntax\nat 0s allow 1 -> allow"), 1, "has steps"),
        (step("\n# note\npolicies x"), 6, "no word of a scenario"),
        (step("why"), 4, "stands alone"),
        (step("clock wall"), 4, "`highwater` or `raw`"),
        (step("start 5"), 4, "has no unit"),
        (step("tolerance 0.5ns"), 4, "whole number of nanoseconds"),
        (step("at 0s allow 1 -> allow\nstart 1s"), 5, "after the first step"),
        (step("at 0s allow 1"), 4, "an arrow"),
        (step("at 0s take 1 -> allow"), 4, "`take` is no verb"),
        (step("at 0s allow -> allow"), 4, "a cost was expected"),
        (step("at 0s allow 1 2 -> allow"), 4, "`2` is left over"),
        (step("at 0m allow 1 -> allow"), 4, "`m` in `0m` is no unit"),
        (step("at 0s x0 allow 1 -> allow"), 4, "at least x1"),
        (step("from 0s every 1s allow 1 -> allow"), 4, "needs a count"),
        (step("from 0s x3 allow 1 -> allow"), 4, "expected `every`"),
        (step("from 584year every 1year x2 allow 1 -> allow"), 4, "beyond 64 bits"),
        (step("at 0s allow 1 -> maybe"), 4, "`maybe` is no answer"),
        (step("at 0s allow 1 -> allow left 3"), 4, "`left` is no field"),
        (step("at 0s allow 1 -> allow remaining"), 4, "a value was expected"),
        (step("at 0s allow 1 -> allow remaining -1"), 4, "not a whole number"),
        (step("at 0s allow 1 -> allow retry 1s"), 4, "only a deny has"),
        (step("at 0s allow 1 -> wait 1s"), 4, "never gives this answer"),
        (step("at 0s peek 1 -> allowed 1"), 4, "never gives this answer"),
        (step("at 0s reserve 1 within x -> wait 1s"), 4, "no unit"),
        (step("at 0s reserve 1 as -> wait 1s"), 4, "was expected"),
        (step("at 0s change keep bucket 1/s -> done"), 4, "expected `to`"),
        (step("at 0s change double to bucket 1/s -> done"), 4, "no way to change"),
        (step("at 0s allow 1 -> error odd"), 4, "no kind of error"),
        (step("at 0s allow 1 -> error any remaining 1"), 4, "without fields"),
    ] {
        let error = parse("f.txt", &text).unwrap_err();
        assert_eq!(error.line, line, "{text}\n{error}");
        assert!(error.message.contains(message), "{text}\n{error}");
        assert!(error.to_string().starts_with(&format!("f.txt:{line}: ")), "{error}");
    }
}

#[test]
fn a_file_with_everything_is_read() {
    let text = "
# A comment.
scenario all   # another
why it shows all words
source someone/something#12
policy bucket 3/s burst 3
clock raw
start 1970-01-01T00:00:01Z
balance 2.5
tolerance 1ns
at 1s x2 allow 1 -> allow limit 3 remaining 0 burst_left 0 reset 833333334ns
at 1s reserve 2 within 5s as job -> wait 500ms
at 1s settle job 1 -> done
from 1s every 100ms x3 allow 1 -> allowed 0
at 1s change scale to bucket 6/s burst 6 -> done
at 1s peek 7 -> error cost-too-large
at 1s peek 6 -> deny by 0
";
    let [scenario] = &parse("all.txt", text).unwrap()[..] else { panic!("one scenario") };
    assert_eq!((scenario.line, scenario.steps.len()), (3, 7));
    assert_eq!(scenario.source.as_deref(), Some("someone/something#12"));
    assert_eq!((scenario.start, scenario.clock), (1_000_000_000, Clock::Raw));
    assert_eq!(scenario.balance.as_deref(), Some("2.5"));
    let policy = "bucket 6/s burst 6".to_owned();
    assert_eq!(scenario.steps[4].action, Action::Change { carry: golden::Carry::Scale, policy });
    let report = run(&mut CoreSubject::new(), std::slice::from_ref(scenario));
    report.assert_passed(&[]);
    assert_eq!(report.calls(), 10);
}
