//! Which format a file is in, told by its first lines.

use super::combined::{CombinedParser, Field};
use super::json::{self, JsonParser};
use super::{CsvParser, Draft, Format, Parser, Wanted, csv};
use crate::replay::show;
use memchr::memchr;

/// What the time is usually called, where nobody says.
const TIMES: [&str; 11] = [
    "time",
    "timestamp",
    "@timestamp",
    "ts",
    "datetime",
    "date",
    "time_iso8601",
    "time_local",
    "msec",
    "start_time",
    "t",
];

/// A file's format, and the parser for it.
#[derive(Debug)]
pub(crate) struct Detected {
    pub(crate) format: Format,
    pub(crate) parser: Parser,
}

/// Looks at the beginning of a file: whole lines, and perhaps a part of one
/// more. The error is a sentence for the user.
pub(crate) fn detect(head: &[u8], asked: Format, wanted: &Wanted) -> Result<Detected, String> {
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        return Err("it is written in UTF-16; `iconv -f UTF-16 -t UTF-8 FILE | suimon replay ... -` reads it".into());
    }
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let lines: Vec<&[u8]> =
        head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).take(50).collect();
    let first = *lines.first().unwrap_or(&&b""[..]);
    match asked {
        Format::Combined => combined(wanted),
        Format::Json => json(&lines, wanted),
        Format::Csv => csv(head, wanted),
        Format::Auto if lines.is_empty() => combined(wanted).or_else(|_| json(&lines, wanted)),
        Format::Auto if lines.iter().any(|line| is_combined(line)) => combined(wanted),
        Format::Auto if lines.iter().any(|line| json::scan(line, &[]).is_ok()) => json(&lines, wanted),
        Format::Auto if first.starts_with(b"[") => {
            Err("it is a JSON list, where one object a line is expected; `jq -c '.[]' FILE | suimon replay ... -` makes such lines".into())
        }
        Format::Auto if is_table(head) => csv(head, wanted),
        Format::Auto => Err(format!(
            "its format cannot be told from its first line, `{}`: it is neither an access log (combined or common), nor JSON lines, nor CSV with names in its first line; say which with --format",
            show::short(first)
        )),
    }
}

fn is_combined(line: &[u8]) -> bool {
    let Ok(mut parser) = CombinedParser::new(&Wanted::default()) else { return false };
    parser.parse(line, &mut Draft::default()).is_ok()
}

/// A first line of several names, none of which looks like a value.
fn is_table(head: &[u8]) -> bool {
    let first = &head[..memchr(b'\n', head).unwrap_or(head.len())];
    let names = csv::header(first.trim_ascii_end(), csv::delimiter(first)).unwrap_or_default();
    names.len() > 1
        && names.iter().all(|name| !name.is_empty() && !name.starts_with(|char: char| char.is_ascii_digit()))
}

fn combined(wanted: &Wanted) -> Result<Detected, String> {
    match CombinedParser::new(wanted) {
        Ok(parser) => Ok(Detected { format: Format::Combined, parser: Parser::Combined(parser) }),
        Err(name) => Err(unknown(&name, &Field::names().map(String::from).collect::<Vec<_>>(), "An access log")),
    }
}

fn json(lines: &[&[u8]], wanted: &Wanted) -> Result<Detected, String> {
    let first = lines.iter().find(|line| json::scan(line, &[]).is_ok());
    let time = match (&wanted.time, first) {
        (Some(time), _) => time.clone(),
        (None, None) => TIMES[0].to_string(),
        (None, Some(line)) => {
            let paths = TIMES.map(String::from);
            let found = json::scan(line, &paths).unwrap_or_default();
            let time = paths.iter().zip(found).find(|(_, value)| value.is_some_and(|value| value.text().is_some()));
            time.map(|(name, _)| name.clone()).ok_or_else(|| no_time(&json::names(line)))?
        }
    };
    Ok(Detected { format: Format::Json, parser: Parser::Json(JsonParser::new(wanted, &time)) })
}

fn csv(head: &[u8], wanted: &Wanted) -> Result<Detected, String> {
    let guess = csv::delimiter(&head[..memchr(b'\n', head).unwrap_or(head.len())]);
    let first = &head[..csv::record_end(head, guess, true).unwrap_or(head.len())];
    let first = first.strip_suffix(b"\r").unwrap_or(first);
    let names = csv::header(first, guess).map_err(|cause| format!("its first line cannot be read: {cause}"))?;
    let time = match &wanted.time {
        Some(time) => time.clone(),
        None => {
            TIMES.iter().find(|time| names.iter().any(|name| name == *time)).ok_or_else(|| no_time(&names))?.to_string()
        }
    };
    match CsvParser::new(wanted, guess, &names, &time) {
        Ok(parser) => Ok(Detected { format: Format::Csv, parser: Parser::Csv(parser) }),
        Err(name) => Err(unknown(&name, &names, "Its first line")),
    }
}

fn no_time(names: &[String]) -> String {
    format!(
        "no field has a usual name for the time ({}); say which it is with --time. The fields are: {}",
        TIMES[..5].join(", "),
        list(names)
    )
}

fn unknown(name: &str, names: &[String], who: &str) -> String {
    let near = nearest(name, names).map_or(String::new(), |near| format!(" Did you mean `{near}`?"));
    format!("there is no field `{name}`.{near} {who} has: {}", list(names))
}

fn list(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(30).map(|name| show::short(name.as_bytes())).collect();
    shown.join(", ") + if names.len() > 30 { ", ..." } else { "" }
}

/// The name that is fewest changes away, if they are few.
fn nearest<'a>(name: &str, names: &'a [String]) -> Option<&'a String> {
    let name: Vec<char> = name.to_lowercase().chars().take(40).collect();
    let far = |other: &str| {
        let other: Vec<char> = other.to_lowercase().chars().take(40).collect();
        let mut row: Vec<usize> = (0..=other.len()).collect();
        for (i, left) in name.iter().enumerate() {
            let mut corner = std::mem::replace(&mut row[0], i + 1);
            for (j, right) in other.iter().enumerate() {
                let change = corner + usize::from(left != right);
                corner = row[j + 1];
                row[j + 1] = change.min(row[j] + 1).min(corner + 1);
            }
        }
        row[other.len()]
    };
    names
        .iter()
        .map(|other| (far(other), other))
        .min_by_key(|(far, _)| *far)
        .filter(|(far, _)| *far <= 2)
        .map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(head: &str, key: &str) -> Result<Format, String> {
        let wanted = Wanted { key: vec![key.to_string()], ..Wanted::default() };
        detect(head.as_bytes(), Format::Auto, &wanted).map(|detected| detected.format)
    }

    #[test]
    fn formats_are_told_apart() {
        let combined = "10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"x\"\n";
        assert_eq!(told(combined, "client"), Ok(Format::Combined));
        assert_eq!(told(&format!("he end of a line\n{combined}"), "client"), Ok(Format::Combined));
        assert_eq!(told("{\"ts\": 1, \"user\": 2}\n", "user"), Ok(Format::Json));
        assert_eq!(told("\u{feff}time,user\r\n1,2\r\n", "user"), Ok(Format::Csv));
        assert_eq!(told("time\tuser\n1\t2\n", "user"), Ok(Format::Csv));
    }

    #[test]
    fn what_cannot_be_told_is_asked_for() {
        let said = |head: &str, key: &str| told(head, key).expect_err("an error");
        assert!(said("hello\n", "client").contains("`hello`"));
        assert!(said("[{\"time\":1}]\n", "client").contains("jq"));
        assert!(said("\u{1b}[31m\n", "client").contains("\\u{1b}[31m"));
        assert!(said("{\"when\": 1, \"user\": 2}\n", "user").contains("--time. The fields are: when, user"));
        assert!(said("time,user,path\n", "usr").contains("Did you mean `user`?"));
        let combined = "10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5\n";
        assert!(said(combined, "cleint").contains("Did you mean `client`?"));
        let utf16 = detect(b"\xff\xfea\0", Format::Auto, &Wanted::default()).expect_err("UTF-16");
        assert!(utf16.contains("iconv"));
    }
}
