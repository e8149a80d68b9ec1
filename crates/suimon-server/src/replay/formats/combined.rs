//! The access logs of Apache, nginx and those that write like them.
//!
//! ```text
//! client ident user [17/May/2015:10:05:03 +0000] "GET /path HTTP/1.1" 200 512 "referer" "agent"
//! ```
//!
//! The last two make it *combined*; without them it is *common*. More fields
//! behind them are passed over, and a `host:port` in front (Apache's
//! `vhost_combined`) is taken as `vhost`. Values stay as they are written:
//! servers escape odd bytes, and a key is only compared.

use super::{Draft, Wanted, keys, parse_cost};
use crate::replay::Cause;
use crate::replay::time::{self, CLF_LEN, ClfClock, Unit};
use memchr::{memchr, memchr_iter, memchr2, memrchr};

/// A field of such a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Vhost,
    Client,
    Ident,
    User,
    Time,
    Request,
    Method,
    Url,
    Path,
    Protocol,
    Status,
    Bytes,
    Referer,
    Agent,
}

/// The names that fields go by: ours first, then those of the servers.
const NAMES: [(Field, &[&str]); 14] = [
    (Field::Client, &["client", "ip", "host", "addr", "remote_addr", "remote_host", "clientip"]),
    (Field::User, &["user", "remote_user", "auth"]),
    (Field::Ident, &["ident"]),
    (Field::Time, &["time", "time_local", "timestamp"]),
    (Field::Method, &["method", "verb", "request_method"]),
    (Field::Path, &["path"]),
    (Field::Url, &["url", "uri", "target", "request_uri"]),
    (Field::Protocol, &["protocol"]),
    (Field::Request, &["request"]),
    (Field::Status, &["status", "response"]),
    (Field::Bytes, &["bytes", "size", "body_bytes_sent"]),
    (Field::Referer, &["referer", "referrer", "http_referer"]),
    (Field::Agent, &["agent", "user_agent", "http_user_agent"]),
    (Field::Vhost, &["vhost", "server_name", "server"]),
];

impl Field {
    pub(crate) fn named(name: &str) -> Option<Field> {
        NAMES.iter().find(|(_, names)| names.contains(&name)).map(|(field, _)| *field)
    }

    fn name(self) -> &'static str {
        NAMES.iter().find(|(field, _)| *field == self).map_or("", |(_, names)| names[0])
    }

    /// The first name of each.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(_, names)| names[0])
    }
}

/// One line, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts<'a> {
    vhost: Option<&'a [u8]>,
    client: &'a [u8],
    ident: &'a [u8],
    user: &'a [u8],
    time: &'a [u8],
    request: &'a [u8],
    status: &'a [u8],
    bytes: &'a [u8],
    referer: Option<&'a [u8]>,
    agent: Option<&'a [u8]>,
}

/// Reads lines of an access log.
#[derive(Debug)]
pub(crate) struct CombinedParser {
    key: Vec<Field>,
    cost: Option<Field>,
    time: Field,
    unit: Unit,
    clock: ClfClock,
}

impl CombinedParser {
    /// Fails with the name that no field goes by.
    pub(crate) fn new(wanted: &Wanted) -> Result<CombinedParser, String> {
        let field = |name: &String| Field::named(name).ok_or_else(|| name.clone());
        Ok(CombinedParser {
            key: wanted.key.iter().map(field).collect::<Result<_, _>>()?,
            cost: wanted.cost.as_ref().map(field).transpose()?,
            time: wanted.time.as_ref().map_or(Ok(Field::Time), field)?,
            unit: wanted.unit,
            clock: ClfClock::default(),
        })
    }

    pub(crate) fn parse(&mut self, line: &[u8], draft: &mut Draft) -> Result<(), Cause> {
        let parts = split(line)?;
        draft.time = match self.time {
            Field::Time => self.clock.parse(parts.time)?,
            other => time::parse(parts.field(other)?, self.unit, &mut self.clock)?,
        };
        if let Some(cost) = self.cost {
            draft.cost = parse_cost(parts.field(cost)?)?;
        }
        let single = self.key.len() == 1;
        for &field in &self.key {
            keys::push_field(&mut draft.key, single, parts.field(field)?);
        }
        Ok(())
    }
}

impl<'a> Parts<'a> {
    fn field(&self, field: Field) -> Result<&'a [u8], Cause> {
        let found = match field {
            Field::Client => Some(self.client),
            Field::Ident => Some(self.ident),
            Field::User => Some(self.user),
            Field::Time => Some(self.time),
            Field::Request => Some(self.request),
            Field::Status => Some(self.status),
            Field::Bytes => Some(self.bytes),
            Field::Vhost => self.vhost,
            Field::Referer => self.referer,
            Field::Agent => self.agent,
            Field::Method | Field::Url | Field::Path | Field::Protocol => self.of_request(field),
        };
        found.ok_or_else(|| match field {
            Field::Referer | Field::Agent => {
                Cause::from(format!("there is no {}: the line is in the common format", field.name()))
            }
            Field::Vhost => "there is no vhost: the line does not begin with host:port".into(),
            _ => format!("there is no {} in the request `{}`", field.name(), crate::replay::show::short(self.request))
                .into(),
        })
    }

    /// A request is `METHOD URL PROTOCOL`; the URL itself may hold spaces.
    fn of_request(&self, field: Field) -> Option<&'a [u8]> {
        let first = memchr(b' ', self.request)?;
        let last = memrchr(b' ', self.request)?;
        let has_protocol = last > first && self.request[last + 1..].starts_with(b"HTTP");
        let url = &self.request[first + 1..if has_protocol { last } else { self.request.len() }];
        match field {
            Field::Method => Some(&self.request[..first]),
            Field::Protocol => has_protocol.then(|| &self.request[last + 1..]),
            Field::Path => Some(&url[..memchr2(b'?', b'#', url).unwrap_or(url.len())]),
            _ => Some(url),
        }
    }
}

fn split(line: &[u8]) -> Result<Parts<'_>, Cause> {
    let open = date(line)?;
    let mut parts = Parts { time: &line[open + 1..open + 1 + CLF_LEN], ..Parts::default() };
    who(&line[..open], &mut parts)?;

    let rest = &line[open + CLF_LEN + 2..];
    let rest = rest.strip_prefix(b" \"").ok_or("there is no quoted request behind the time")?;
    let end = request_end(rest).ok_or("the request is not closed by a quote")?;
    parts.request = &rest[..end];

    let rest = rest[end + 1..].strip_prefix(b" ").ok_or("there is no status behind the request")?;
    let (status, rest) = token(rest);
    if !is_number(status) {
        return Err("there is no status behind the request".into());
    }
    parts.status = status;
    let (bytes, mut rest) = token(rest.strip_prefix(b" ").ok_or("there is no size behind the status")?);
    if !is_number(bytes) {
        return Err("there is no size behind the status".into());
    }
    parts.bytes = bytes;

    let mut nth = 0;
    while let Some(more) = rest.strip_prefix(b" ") {
        let value = if let Some(quoted) = more.strip_prefix(b"\"") {
            let end = quote_end(quoted).ok_or(match nth {
                0 => "the referer is not closed by a quote",
                1 => "the user agent is not closed by a quote",
                _ => "a field at the end is not closed by a quote",
            })?;
            rest = &quoted[end + 1..];
            Some(&quoted[..end])
        } else {
            let (_, behind) = token(more);
            rest = behind;
            None
        };
        match nth {
            0 => parts.referer = value,
            1 => parts.agent = value,
            _ => {}
        }
        nth += 1;
    }
    if !rest.is_empty() {
        return Err("there is something behind the size that is not a field".into());
    }
    Ok(parts)
}

/// Where the bracket of the date opens: the first one that is closed where a
/// date ends, so that brackets in a name or an IPv6 address do no harm.
fn date(line: &[u8]) -> Result<usize, Cause> {
    for open in memchr_iter(b'[', line) {
        if line.get(open + 1 + CLF_LEN) == Some(&b']') && open > 0 && line[open - 1] == b' ' {
            return Ok(open);
        }
    }
    Err("there is no time in brackets, like [17/May/2015:10:05:03 +0000]".into())
}

/// `client ident user `; the user may hold spaces, and before them all a
/// `host:port` may stand.
fn who<'a>(text: &'a [u8], parts: &mut Parts<'a>) -> Result<(), Cause> {
    let bad = "before the time there is not client, ident and user";
    let text = text.strip_suffix(b" ").ok_or(bad)?;
    let (first, rest) = token(text);
    let (second, behind) = token(rest.strip_prefix(b" ").ok_or(bad)?);
    let third = behind.strip_prefix(b" ").ok_or(bad)?;
    (parts.client, parts.ident, parts.user) = (first, second, third);
    if second != b"-" && has_port(first) {
        let (ident, user) = token(third);
        if let Some(user) = user.strip_prefix(b" ") {
            parts.vhost = Some(first);
            (parts.client, parts.ident, parts.user) = (second, ident, user);
        }
    }
    if parts.client.is_empty() { Err(bad.into()) } else { Ok(()) }
}

fn has_port(host: &[u8]) -> bool {
    memrchr(b':', host).is_some_and(|colon| colon + 1 < host.len() && host[colon + 1..].iter().all(u8::is_ascii_digit))
}

/// Up to the next space, and what is left from that space on.
fn token(text: &[u8]) -> (&[u8], &[u8]) {
    // Tokens are short, and for those a plain loop beats a vector search.
    text.split_at(text.iter().position(|&byte| byte == b' ').unwrap_or(text.len()))
}

fn is_number(text: &[u8]) -> bool {
    text == b"-" || (!text.is_empty() && text.iter().all(u8::is_ascii_digit))
}

/// The quote that ends the request: the first that is not escaped and has a
/// status behind it. Old servers and some proxies do not escape quotes.
fn request_end(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    let mut first = None;
    while let Some(end) = next_quote(text, from) {
        first = first.or(Some(end));
        if let [b' ', b'0'..=b'9' | b'-', ..] = text[end + 1..] {
            return Some(end);
        }
        from = end + 1;
    }
    first
}

/// The quote that ends a field: not escaped, and followed by a space or nothing.
fn quote_end(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(end) = next_quote(text, from) {
        if matches!(text.get(end + 1), None | Some(b' ')) {
            return Some(end);
        }
        from = end + 1;
    }
    None
}

fn next_quote(text: &[u8], mut from: usize) -> Option<usize> {
    loop {
        let at = from + memchr2(b'"', b'\\', text.get(from..)?)?;
        if text[at] == b'"' {
            return Some(at);
        }
        from = at + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = r#"198.18.5.134 - - [17/May/2015:10:05:03 +0000] "GET /a/b.png?c=1 HTTP/1.1" 200 203023 "http://e/" "Mozilla/5.0 (X11)""#;

    fn read(line: &str, key: &str) -> Result<String, String> {
        let wanted = Wanted { key: vec![key.to_string()], ..Wanted::default() };
        let mut draft = Draft::default();
        CombinedParser::new(&wanted).unwrap().parse(line.as_bytes(), &mut draft).map_err(|cause| cause.to_string())?;
        Ok(String::from_utf8(draft.key).unwrap())
    }

    #[test]
    fn every_field_by_its_name() {
        for (name, value) in [
            ("client", "198.18.5.134"),
            ("remote_addr", "198.18.5.134"),
            ("ident", "-"),
            ("user", "-"),
            ("time", "17/May/2015:10:05:03 +0000"),
            ("request", "GET /a/b.png?c=1 HTTP/1.1"),
            ("method", "GET"),
            ("path", "/a/b.png"),
            ("url", "/a/b.png?c=1"),
            ("protocol", "HTTP/1.1"),
            ("status", "200"),
            ("bytes", "203023"),
            ("referer", "http://e/"),
            ("agent", "Mozilla/5.0 (X11)"),
        ] {
            assert_eq!(read(LINE, name).as_deref(), Ok(value), "{name}");
        }
        assert!(CombinedParser::new(&Wanted { key: vec!["cleint".into()], ..Wanted::default() }).is_err());
    }

    #[test]
    fn odd_lines_of_real_servers() {
        let date = "[17/May/2015:10:05:03 +0000]";
        for (line, field, value) in [
            // Common; a user with spaces; Apache's vhost_combined; IPv6.
            (format!(r#"::1 - John Doe {date} "GET / HTTP/1.0" 200 -"#), "user", "John Doe"),
            (format!(r#"example.org:443 10.0.0.1 - - {date} "GET / HTTP/1.0" 200 5 "-" "x""#), "client", "10.0.0.1"),
            (
                format!(r#"example.org:443 10.0.0.1 - - {date} "GET / HTTP/1.0" 200 5 "-" "x""#),
                "vhost",
                "example.org:443",
            ),
            (format!(r#"2001:db8::1 - - {date} "GET / HTTP/1.0" 200 5 "-" "x""#), "client", "2001:db8::1"),
            (format!(r#"[::1]:80 10.0.0.1 - a[b] {date} "GET / HTTP/1.0" 200 5"#), "user", "a[b]"),
            // TLS at a plain port, an empty request, no protocol, spaces in the URL.
            (format!(r#"a - - {date} "\x16\x03\x01" 400 226 "-" "-""#), "request", r"\x16\x03\x01"),
            (format!(r#"a - - {date} "-" 408 0 "-" "-""#), "request", "-"),
            (format!(r#"a - - {date} "GET /x" 200 0 "-" "-""#), "url", "/x"),
            (format!(r#"a - - {date} "GET /a b c HTTP/1.1" 200 0 "-" "-""#), "path", "/a b c"),
            // Quotes: escaped, not escaped; more fields at the end.
            (format!(r#"a - - {date} "GET /\"x\" HTTP/1.1" 200 0 "-" "say \"hi\"""#), "agent", r#"say \"hi\""#),
            (format!(r#"a - - {date} "GET /"x" HTTP/1.1" 200 0 "-" "say "hi"""#), "path", r#"/"x""#),
            (format!(r#"a - - {date} "GET /"x" HTTP/1.1" 200 0 "-" "say"hi"" 0.004 "z""#), "agent", r#"say"hi""#),
        ] {
            assert_eq!(read(&line, field).as_deref(), Ok(value), "{line}");
        }
    }

    #[test]
    fn the_cause_names_what_is_missing() {
        let cut = |at: usize| read(&LINE[..at], "client").expect_err("a cut line");
        assert!(cut(10).contains("no time in brackets"));
        assert!(cut(46).contains("no quoted request"));
        assert!(cut(60).contains("request is not closed"));
        assert!(cut(73).contains("no status"));
        assert!(cut(78).contains("no size"));
        assert!(cut(90).contains("referer is not closed"));
        assert!(cut(LINE.len() - 1).contains("user agent is not closed"));
        assert!(read(&LINE.replace("May", "Mai"), "client").unwrap_err().contains("time is not like"));
        let common = r#"a - - [17/May/2015:10:05:03 +0000] "-" 200 0"#;
        assert!(read(common, "agent").unwrap_err().contains("common format"));
        assert!(read(common, "path").unwrap_err().contains("no path in the request `-`"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = split(&line);
        }

        #[test]
        fn no_damage_makes_it_panic(at in 0..LINE.len(), byte: u8, cut in 0..LINE.len()) {
            let mut line = LINE.as_bytes().to_vec();
            line[at] = byte;
            line.truncate(cut);
            if let Ok(parts) = split(&line) {
                for name in Field::names() {
                    let _ = parts.field(Field::named(name).unwrap());
                }
            }
        }
    }
}
