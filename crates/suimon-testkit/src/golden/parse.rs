//! Reads scenario files; every error carries file, line and what was expected.

use std::fmt;
use std::time::Duration;

use super::scenario::{Action, Clock, Expect, Expected, Fields, Scenario, Step};
use super::subject::{ErrorKind, Retry};
use super::time::{parse_duration, parse_instant};
use crate::model::Carry;

/// Why a scenario file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

/// Reads all scenarios of a text; `file` is its name in messages.
///
/// # Errors
/// At the first line that cannot be read, or a scenario that is not complete.
pub fn parse(file: &str, text: &str) -> Result<Vec<Scenario>, ParseError> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        let at_line = |message: String| ParseError { file: file.to_owned(), line: line_number, message };
        let words = without_comment(line).trim();
        let (head, rest) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
        match head {
            "" => {}
            "scenario" => {
                if let Some(previous) = scenarios.last() {
                    check_complete(previous)?;
                }
                let name = rest.trim();
                if name.is_empty() || name.contains(char::is_whitespace) {
                    return Err(at_line("write `scenario NAME` with a name of one word".to_owned()));
                }
                if let Some(twin) = scenarios.iter().find(|other| other.name == name) {
                    return Err(at_line(format!("the name `{name}` is taken by the scenario at line {}", twin.line)));
                }
                scenarios.push(empty(file, line_number, name));
            }
            _ => {
                let scenario = scenarios.last_mut().ok_or_else(|| {
                    at_line(format!("`{head}` stands before the first scenario: write `scenario NAME`"))
                })?;
                read_line(scenario, line_number, head, rest.trim()).map_err(at_line)?;
            }
        }
    }
    if let Some(last) = scenarios.last() {
        check_complete(last)?;
    }
    Ok(scenarios)
}

/// A `#` begins a comment where a word could begin, so that `repo#12` is none.
fn without_comment(line: &str) -> &str {
    let mut before = ' ';
    for (at, character) in line.char_indices() {
        if character == '#' && before.is_whitespace() {
            return &line[..at];
        }
        before = character;
    }
    line
}

fn empty(file: &str, line: usize, name: &str) -> Scenario {
    Scenario {
        file: file.to_owned(),
        line,
        name: name.to_owned(),
        why: String::new(),
        source: None,
        policy: String::new(),
        clock: Clock::HighWater,
        start: 0,
        balance: None,
        tolerance: Duration::ZERO,
        refused: None,
        steps: Vec::new(),
    }
}

fn check_complete(scenario: &Scenario) -> Result<(), ParseError> {
    let wrong = |message: &str| {
        Err(ParseError {
            file: scenario.file.clone(),
            line: scenario.line,
            message: format!("scenario `{}` {message}", scenario.name),
        })
    };
    if scenario.why.is_empty() {
        return wrong("does not say why: add a line `why TEXT`");
    }
    if scenario.policy.is_empty() {
        return wrong("has no policy: add a line `policy TEXT`");
    }
    match (scenario.steps.is_empty(), scenario.refused) {
        (true, None) => wrong("does nothing: add a line `at ...`, or `refused KIND` for a policy that is an error"),
        (false, Some(_)) => wrong("has steps on a policy that is to be refused"),
        _ => Ok(()),
    }
}

fn read_line(scenario: &mut Scenario, line: usize, head: &str, rest: &str) -> Result<(), String> {
    let is_step = matches!(head, "at" | "from");
    if !is_step && !scenario.steps.is_empty() {
        return Err(format!("`{head}` stands after the first step: a step begins with `at` or `from`"));
    }
    if rest.is_empty() {
        return Err(format!("`{head}` stands alone: write what it is"));
    }
    match head {
        "why" => scenario.why = rest.to_owned(),
        "source" => scenario.source = (rest != "none").then(|| rest.to_owned()),
        "policy" => scenario.policy = rest.to_owned(),
        "clock" => {
            scenario.clock = match rest {
                "highwater" => Clock::HighWater,
                "raw" => Clock::Raw,
                _ => return Err(format!("`{rest}` is no clock: write `highwater` or `raw`")),
            }
        }
        "start" => scenario.start = parse_instant(rest)?,
        "balance" => scenario.balance = Some(rest.to_owned()),
        "tolerance" => scenario.tolerance = parse_duration(rest)?,
        "refused" => scenario.refused = Some(error_kind(rest)?),
        "at" | "from" => scenario.steps.push(read_step(line, head, rest)?),
        _ => {
            return Err(format!(
                "`{head}` is no word of a scenario: expected why, source, policy, clock, start, balance, \
                 tolerance, refused, at or from"
            ));
        }
    }
    Ok(())
}

/// `at TIME [xN] CALL -> ANSWER` or `from TIME every TIME xN CALL -> ANSWER`.
fn read_step(line: usize, head: &str, rest: &str) -> Result<Step, String> {
    let (call, answer) =
        rest.split_once(" -> ").ok_or("a step has an arrow before its answer: `at 0s allow 1 -> allow`")?;
    let mut words = Words(call.trim());
    let at = parse_instant(words.next("an instant")?)?;
    let mut every = Duration::ZERO;
    let mut times = 1;
    if head == "from" {
        words.expect("every")?;
        every = parse_duration(words.next("a duration")?)?;
    }
    match words.repeat()? {
        Some(count) => times = count,
        None if head == "from" => return Err("`from` needs a count: `from 0s every 1s x10 allow 1`".to_owned()),
        None => {}
    }
    let action = read_action(&mut words)?;
    words.end()?;
    let last = u128::from(at) + every.as_nanos() * u128::from(times - 1);
    if last > u128::from(u64::MAX) {
        return Err("the last call of the step lies beyond 64 bits of nanoseconds".to_owned());
    }
    let expected = read_expected(answer.trim())?;
    check_answer(&action, &expected)?;
    Ok(Step { line, at, every, times, action, expected })
}

fn read_action(words: &mut Words<'_>) -> Result<Action, String> {
    Ok(match words.next("a verb")? {
        "allow" => Action::Allow { cost: words.next("a cost")?.to_owned() },
        "peek" => Action::Peek { cost: words.next("a cost")?.to_owned() },
        "reserve" => {
            let cost = words.next("a cost")?.to_owned();
            let within = words.after("within")?.map(parse_duration).transpose()?;
            let name = words.after("as")?.map(str::to_owned);
            Action::Reserve { cost, within, name }
        }
        "settle" => Action::Settle {
            name: words.next("the name of a booking")?.to_owned(),
            cost: words.next("a cost")?.to_owned(),
        },
        "change" => {
            let carry = match words.next("keep, balance, scale or reset")? {
                "keep" => Carry::Keep,
                "balance" => Carry::Balance,
                "scale" => Carry::Scale,
                "reset" => Carry::Reset,
                other => return Err(format!("`{other}` is no way to change: write keep, balance, scale or reset")),
            };
            words.expect("to")?;
            Action::Change { carry, policy: words.all("a policy")?.to_owned() }
        }
        other => return Err(format!("`{other}` is no verb: write allow, peek, reserve, settle or change")),
    })
}

fn read_expected(answer: &str) -> Result<Expected, String> {
    let mut words = Words(answer);
    let verdict = match words.next("an answer")? {
        "allow" => Expect::Allow,
        "deny" => Expect::Deny,
        "wait" => Expect::Wait(parse_duration(words.next("a duration")?)?),
        "done" => Expect::Done,
        "error" => Expect::Error(error_kind(words.next("a kind of error")?)?),
        "allowed" => Expect::Count(number(words.next("a count")?)?),
        other => return Err(format!("`{other}` is no answer: write allow, deny, wait, done, allowed or error")),
    };
    let mut fields = Fields::default();
    while let Some(field) = words.maybe() {
        let value = words.next("a value")?;
        match field {
            "retry" if value == "never" => fields.retry = Some(Retry::Never),
            "retry" => fields.retry = Some(Retry::After(parse_duration(value)?)),
            "by" => fields.by = Some(number(value)?),
            "limit" => fields.limit = Some(number(value)?),
            "remaining" => fields.remaining = Some(number(value)?),
            "burst_left" => fields.burst_left = Some(number(value)?),
            "reset" => fields.reset = Some(parse_duration(value)?),
            other => {
                return Err(format!("`{other}` is no field: write retry, by, limit, remaining, burst_left or reset"));
            }
        }
    }
    Ok(Expected { verdict, fields })
}

/// Refuses answers that the verb can never give, so that no line is dead.
fn check_answer(action: &Action, expected: &Expected) -> Result<(), String> {
    let fits = match (action, expected.verdict) {
        (_, Expect::Error(_)) => expected.fields == Fields::default(),
        (Action::Allow { .. } | Action::Peek { .. }, Expect::Allow | Expect::Deny) => true,
        (Action::Allow { .. }, Expect::Count(_)) => expected.fields == Fields::default(),
        (Action::Reserve { .. }, Expect::Wait(_) | Expect::Deny) => true,
        (Action::Settle { .. } | Action::Change { .. }, Expect::Done) => true,
        _ => false,
    };
    let is_denial = expected.verdict == Expect::Deny;
    if !fits || (!is_denial && (expected.fields.retry.is_some() || expected.fields.by.is_some())) {
        return Err("the verb never gives this answer: allow and peek answer allow or deny, reserve answers wait \
                    or deny, settle and change answer done, all may answer error (without fields); only a deny has \
                    retry and by; `allowed N` counts calls of allow and has no fields"
            .to_owned());
    }
    Ok(())
}

fn error_kind(word: &str) -> Result<ErrorKind, String> {
    ErrorKind::NAMES.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind).ok_or_else(|| {
        let names: Vec<&str> = ErrorKind::NAMES.iter().map(|(name, _)| *name).collect();
        format!("`{word}` is no kind of error: write {}", names.join(", "))
    })
}

fn number<N: std::str::FromStr>(word: &str) -> Result<N, String> {
    word.parse().map_err(|_| format!("`{word}` is not a whole number in range"))
}

/// The words of a line that are still to be read.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn maybe(&mut self) -> Option<&'a str> {
        if self.0.is_empty() {
            return None;
        }
        let (word, rest) = self.0.split_once(char::is_whitespace).unwrap_or((self.0, ""));
        self.0 = rest.trim_start();
        Some(word)
    }

    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        self.maybe().ok_or_else(|| format!("the line ends where {what} was expected"))
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        match self.maybe() {
            Some(found) if found == word => Ok(()),
            found => Err(format!("expected `{word}`, found `{}`", found.unwrap_or("the end of the line"))),
        }
    }

    /// The word after `keyword`, if that is what comes next.
    fn after(&mut self, keyword: &str) -> Result<Option<&'a str>, String> {
        let mut ahead = Words(self.0);
        if ahead.maybe() != Some(keyword) {
            return Ok(None);
        }
        self.0 = ahead.0;
        self.next(keyword).map(Some)
    }

    /// A count such as `x5`, if that is what comes next.
    fn repeat(&mut self) -> Result<Option<u32>, String> {
        let mut ahead = Words(self.0);
        let Some(count) = ahead.maybe().and_then(|word| word.strip_prefix('x')) else {
            return Ok(None);
        };
        self.0 = ahead.0;
        match count.parse() {
            Ok(count) if count > 0 => Ok(Some(count)),
            _ => Err(format!("`x{count}` is no count: write it like `x5`, at least x1")),
        }
    }

    fn all(&mut self, what: &str) -> Result<&'a str, String> {
        let rest = std::mem::take(&mut self.0).trim_end();
        if rest.is_empty() { Err(format!("the line ends where {what} was expected")) } else { Ok(rest) }
    }

    fn end(&mut self) -> Result<(), String> {
        self.maybe().map_or(Ok(()), |word| Err(format!("`{word}` is left over before the arrow")))
    }
}
