//! JSON lines: one object a line, of which a few fields are wanted.
//!
//! The scanner checks the whole line but builds nothing. Unlike a strict reader
//! it takes any bytes inside strings: logs hold what clients sent.

use super::{Draft, Wanted, keys, parse_cost};
use crate::replay::Cause;
use crate::replay::time::{self, ClfClock, Unit};
use memchr::memchr2;
use std::borrow::Cow;

/// How deep objects and arrays may lie in one another.
const DEPTH: u32 = 128;

/// Reads lines of JSON objects.
#[derive(Debug)]
pub(crate) struct JsonParser {
    /// The dotted paths that are looked for: the time, the cost if any, the key.
    paths: Vec<String>,
    has_cost: bool,
    unit: Unit,
    clock: ClfClock,
}

impl JsonParser {
    /// With the name of the time field, which detection has found.
    pub(crate) fn new(wanted: &Wanted, time: &str) -> JsonParser {
        let mut paths = vec![time.to_string()];
        paths.extend(wanted.cost.clone());
        paths.extend(wanted.key.iter().cloned());
        JsonParser { paths, has_cost: wanted.cost.is_some(), unit: wanted.unit, clock: ClfClock::default() }
    }

    pub(crate) fn parse(&mut self, line: &[u8], draft: &mut Draft) -> Result<(), Cause> {
        let found = scan(line, &self.paths)?;
        let mut values = self.paths.iter().zip(found).map(|(path, value)| match value {
            None => Err(Cause::from(format!("there is no field `{path}`"))),
            Some(value) => value
                .text()
                .ok_or_else(|| format!("`{path}` is an object or a list: name a field in it, as `{path}.name`").into()),
        });
        let mut next = || values.next().unwrap_or(Err("there are too few fields".into()));
        draft.time = time::parse(&next()?, self.unit, &mut self.clock)?;
        if self.has_cost {
            draft.cost = parse_cost(&next()?)?;
        }
        let first_key = 1 + usize::from(self.has_cost);
        let single = self.paths.len() == first_key + 1;
        for _ in first_key..self.paths.len() {
            keys::push_field(&mut draft.key, single, &next()?);
        }
        Ok(())
    }
}

/// A value as it stands in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// What lies between the quotes.
    Plain(&'a [u8]),
    /// The same, with escapes in it.
    Escaped(&'a [u8]),
    /// A number, `true`, `false` or `null`.
    Word(&'a [u8]),
    /// An object or a list.
    Nested,
}

impl<'a> Value<'a> {
    pub(crate) fn text(self) -> Option<Cow<'a, [u8]>> {
        match self {
            Value::Plain(text) | Value::Word(text) => Some(Cow::Borrowed(text)),
            Value::Escaped(text) => Some(Cow::Owned(unescape(text))),
            Value::Nested => None,
        }
    }
}

/// Finds the values at `paths`, in their order. Of a name that is there twice
/// the last counts, as in most readers.
pub(crate) fn scan<'a>(line: &'a [u8], paths: &[String]) -> Result<Vec<Option<Value<'a>>>, Cause> {
    let mut scanner = Scanner { text: line, at: 0, paths, found: vec![None; paths.len()] };
    scanner.space();
    if scanner.peek() != Some(b'{') {
        return Err(match scanner.peek() {
            Some(b'[') => "a list, where one object a line is expected (`jq -c '.[]'` makes such lines)".into(),
            _ => "this is no JSON object".into(),
        });
    }
    scanner.object(0, Some((0, 0)))?;
    scanner.space();
    if scanner.at < line.len() {
        return Err(scanner.bad("something behind the object"));
    }
    Ok(scanner.found)
}

/// The names at the top of an object, for an error that shows what is there.
pub(crate) fn names(line: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let mut scanner = Scanner { text: line, at: 0, paths: &[], found: Vec::new() };
    scanner.space();
    if scanner.peek() == Some(b'{') {
        scanner.at += 1;
        loop {
            scanner.space();
            let Ok(name) = scanner.string() else { break };
            names.extend(name.text().map(|name| crate::replay::show::line(&name)));
            scanner.space();
            if scanner.peek() != Some(b':') {
                break;
            }
            scanner.at += 1;
            scanner.space();
            if scanner.value(1, None).is_err() {
                break;
            }
            scanner.space();
            if scanner.peek() != Some(b',') {
                break;
            }
            scanner.at += 1;
        }
    }
    names
}

struct Scanner<'a, 'p> {
    text: &'a [u8],
    at: usize,
    paths: &'p [String],
    found: Vec<Option<Value<'a>>>,
}

impl<'a> Scanner<'a, '_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn bad(&self, what: &str) -> Cause {
        format!("{what} at byte {} of the line", self.at + 1).into()
    }

    fn expect(&mut self, byte: u8) -> Result<(), Cause> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        let found = if self.at >= self.text.len() { "the line ends" } else { "something else stands" };
        Err(self.bad(&format!("`{}` is expected, but {found}", char::from(byte))))
    }

    /// An object. `under` is a wanted path, by its index, and how much of it led
    /// here; `None`: nothing in this object is wanted.
    fn object(&mut self, depth: u32, under: Option<(usize, usize)>) -> Result<(), Cause> {
        self.expect(b'{')?;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            let name = self.string()?;
            self.space();
            self.expect(b':')?;
            self.space();
            self.member(depth, under, name)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                _ => return self.expect(b'}'),
            }
        }
    }

    fn member(&mut self, depth: u32, under: Option<(usize, usize)>, name: Value<'a>) -> Result<(), Cause> {
        let Some((path, led)) = under.filter(|_| !self.paths.is_empty()) else {
            return self.value(depth + 1, None).map(|_| ());
        };
        let prefix = &self.paths[path].as_bytes()[..led];
        let name = name.text().unwrap_or_default();
        let (mut inside, mut here) = (None, false);
        for (index, path) in self.paths.iter().enumerate() {
            let Some(rest) = path.as_bytes().strip_prefix(prefix) else { continue };
            match rest.strip_prefix(&*name) {
                Some([]) => here = true,
                Some([b'.', ..]) => inside = Some((index, led + name.len() + 1)),
                _ => {}
            }
        }
        let value = self.value(depth + 1, inside)?;
        if here {
            for (path, found) in self.paths.iter().zip(&mut self.found) {
                if path.as_bytes().strip_prefix(prefix) == Some(&*name) {
                    *found = Some(value);
                }
            }
        }
        Ok(())
    }

    fn value(&mut self, depth: u32, under: Option<(usize, usize)>) -> Result<Value<'a>, Cause> {
        if depth > DEPTH {
            return Err(self.bad("objects lie too deep in one another"));
        }
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'{') => self.object(depth, under).map(|()| Value::Nested),
            Some(b'[') => self.list(depth).map(|()| Value::Nested),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word(),
        }
    }

    fn list(&mut self, depth: u32) -> Result<(), Cause> {
        self.expect(b'[')?;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            self.value(depth + 1, None)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                _ => return self.expect(b']'),
            }
        }
    }

    fn string(&mut self) -> Result<Value<'a>, Cause> {
        self.expect(b'"')?;
        let start = self.at;
        let mut escaped = false;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(length) = memchr2(b'"', b'\\', rest) else {
                self.at = start;
                return Err(self.bad("a string is not closed: it begins"));
            };
            self.at += length;
            if rest[length] == b'"' {
                let inner = &self.text[start..self.at];
                self.at += 1;
                return Ok(if escaped { Value::Escaped(inner) } else { Value::Plain(inner) });
            }
            escaped = true;
            let valid = match rest.get(length + 1) {
                Some(b'u') => rest.get(length + 2..length + 6).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)),
                Some(other) => b"\"\\/bfnrt".contains(other),
                None => false,
            };
            if !valid {
                return Err(self.bad("there is no such escape"));
            }
            self.at += 2;
        }
    }

    fn number(&mut self) -> Result<Value<'a>, Cause> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let whole = self.digits();
        let mut valid = whole == 1 || (whole > 1 && self.text[self.at - whole] != b'0');
        if self.peek() == Some(b'.') {
            self.at += 1;
            valid &= self.digits() > 0;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            valid &= self.digits() > 0;
        }
        if valid { Ok(Value::Word(&self.text[start..self.at])) } else { Err(self.bad("this is no number")) }
    }

    fn digits(&mut self) -> usize {
        let count = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        count
    }

    fn word(&mut self) -> Result<Value<'a>, Cause> {
        for word in ["true", "false", "null"] {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                let start = self.at;
                self.at += word.len();
                return Ok(Value::Word(&self.text[start..self.at]));
            }
        }
        let what =
            if self.at >= self.text.len() { "the line ends where a value is expected" } else { "there is no value" };
        Err(self.bad(what))
    }
}

fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'b') => out.push(8),
            Some(b'f') => out.push(12),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b't') => out.push(b'\t'),
            Some(b'u') => {
                let unit = hex4(&mut bytes);
                let mut ahead = bytes.clone();
                let paired =
                    (0xd800..0xdc00).contains(&unit) && ahead.next() == Some(b'\\') && ahead.next() == Some(b'u');
                let low = if paired { hex4(&mut ahead) } else { 0 };
                let char = if paired && (0xdc00..0xe000).contains(&low) {
                    bytes = ahead;
                    char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00))
                } else {
                    char::from_u32(unit)
                };
                let mut buffer = [0; 4];
                out.extend_from_slice(char.unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut buffer).as_bytes());
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

fn hex4(bytes: &mut impl Iterator<Item = u8>) -> u32 {
    bytes.take(4).fold(0, |sum, digit| sum * 16 + char::from(digit).to_digit(16).unwrap_or(0))
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
