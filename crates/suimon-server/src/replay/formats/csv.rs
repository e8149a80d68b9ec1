//! Fields with a separator between them, the first line naming them (RFC 4180
//! with any separator). A quoted field may hold separators, doubled quotes and
//! line ends.

use super::{Draft, Wanted, keys, parse_cost};
use crate::replay::Cause;
use crate::replay::time::{self, ClfClock, Unit};
use memchr::{memchr, memchr2};
use std::borrow::Cow;

/// The longest record that may run over several lines. A quote that is opened
/// and not closed within it is a damaged line, not a field.
const LONGEST: usize = 64 * 1024;

/// Where the record at the start of `text` ends: `None` if that cannot be told
/// before there is more of it.
pub(crate) fn record_end(text: &[u8], delimiter: u8, is_all: bool) -> Option<usize> {
    let first = memchr(b'\n', text);
    let line = &text[..first.unwrap_or(text.len())];
    if memchr(b'"', line).is_none() {
        return first;
    }
    let mut at = 0;
    loop {
        // At the start of a field.
        if text.get(at) == Some(&b'"') {
            at += 1;
            loop {
                let Some(quote) = memchr(b'"', text.get(at..).unwrap_or_default()) else {
                    // Still open: that line is damaged if the rest will not help.
                    return if is_all || text.len() >= LONGEST { first } else { None };
                };
                at += quote + 1;
                if text.get(at) != Some(&b'"') {
                    break;
                }
                at += 1;
            }
        }
        let rest = text.get(at..).unwrap_or_default();
        let end = memchr2(delimiter, b'\n', rest)?;
        if rest[end] == b'\n' {
            return Some(if at + end < LONGEST { at + end } else { first? });
        }
        at += end + 1;
    }
}

/// Takes one field off the front of a record.
fn field<'a>(rest: &mut Option<&'a [u8]>, delimiter: u8) -> Result<Option<Cow<'a, [u8]>>, Cause> {
    let Some(text) = *rest else { return Ok(None) };
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let end = memchr(delimiter, text);
        *rest = end.map(|end| &text[end + 1..]);
        return Ok(Some(Cow::Borrowed(&text[..end.unwrap_or(text.len())])));
    };
    let (mut at, mut doubled) = (0, false);
    loop {
        let quote = memchr(b'"', &quoted[at..]).ok_or("a quote is opened and not closed")?;
        at += quote + 1;
        if quoted.get(at) != Some(&b'"') {
            break;
        }
        doubled = true;
        at += 1;
    }
    *rest = match quoted.get(at) {
        None => None,
        Some(byte) if *byte == delimiter => Some(&quoted[at + 1..]),
        Some(_) => return Err("something stands behind the quote that closes a field".into()),
    };
    let inner = &quoted[..at - 1];
    if !doubled {
        return Ok(Some(Cow::Borrowed(inner)));
    }
    let mut plain = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(byte);
        if byte == b'"' {
            bytes.next();
        }
    }
    Ok(Some(Cow::Owned(plain)))
}

/// All fields of a record, for the first line.
pub(crate) fn header(line: &[u8], delimiter: u8) -> Result<Vec<String>, Cause> {
    let mut names = Vec::new();
    let mut rest = Some(line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line));
    while let Some(name) = field(&mut rest, delimiter)? {
        names.push(String::from_utf8_lossy(name.trim_ascii()).into_owned());
    }
    Ok(names)
}

/// The separator that a first line seems to use.
pub(crate) fn delimiter(header: &[u8]) -> u8 {
    let count = |delimiter: u8| header.iter().filter(|byte| **byte == delimiter).count();
    // Of several that are as frequent, the last of these.
    *b"|;\t,".iter().max_by_key(|delimiter| count(**delimiter)).unwrap_or(&b',')
}

/// Reads records.
#[derive(Debug)]
pub(crate) struct CsvParser {
    delimiter: u8,
    columns: usize,
    time: usize,
    cost: Option<usize>,
    key: Vec<usize>,
    unit: Unit,
    clock: ClfClock,
}

impl CsvParser {
    /// For the names of the first line; fails with a name that is not there.
    pub(crate) fn new(wanted: &Wanted, delimiter: u8, names: &[String], time: &str) -> Result<CsvParser, String> {
        let column = |name: &str| names.iter().position(|known| known == name).ok_or_else(|| name.to_string());
        Ok(CsvParser {
            delimiter,
            columns: names.len(),
            time: column(time)?,
            cost: wanted.cost.as_deref().map(column).transpose()?,
            key: wanted.key.iter().map(|name| column(name)).collect::<Result<_, _>>()?,
            unit: wanted.unit,
            clock: ClfClock::default(),
        })
    }

    /// The separator, which tells where records end.
    pub(crate) fn delimiter(&self) -> u8 {
        self.delimiter
    }

    pub(crate) fn parse(&mut self, line: &[u8], draft: &mut Draft) -> Result<(), Cause> {
        let mut fields: Vec<Cow<'_, [u8]>> = Vec::with_capacity(self.columns);
        let mut rest = Some(line);
        while let Some(field) = field(&mut rest, self.delimiter)? {
            fields.push(field);
        }
        if fields.len() != self.columns {
            return Err(format!("it has {} fields, where the first line names {}", fields.len(), self.columns).into());
        }
        draft.time = time::parse(&fields[self.time], self.unit, &mut self.clock)?;
        if let Some(cost) = self.cost {
            draft.cost = parse_cost(&fields[cost])?;
        }
        for &column in &self.key {
            keys::push_field(&mut draft.key, self.key.len() == 1, &fields[column]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(line: &str, delimiter: u8) -> Result<Vec<String>, String> {
        header(line.as_bytes(), delimiter).map_err(|cause| cause.to_string())
    }

    #[test]
    fn fields_of_a_record() {
        for (line, fields) in [
            ("a,b,c", vec!["a", "b", "c"]),
            ("", vec![""]),
            ("a,,", vec!["a", "", ""]),
            (r#""a,b","say ""hi""",c"#, vec!["a,b", r#"say "hi""#, "c"]),
            ("\"two\nlines\",x", vec!["two\nlines", "x"]),
            (r#"in"side,x"#, vec![r#"in"side"#, "x"]),
        ] {
            assert_eq!(split(line, b','), Ok(fields.iter().map(ToString::to_string).collect()), "{line}");
        }
        assert!(split(r#""open,x"#, b',').unwrap_err().contains("not closed"));
        assert!(split(r#""a"b,x"#, b',').unwrap_err().contains("behind the quote"));
    }

    #[test]
    fn the_separator_is_the_most_frequent() {
        assert_eq!(delimiter(b"time,client;ip,path"), b',');
        assert_eq!(delimiter(b"time\tclient\tpath"), b'\t');
        assert_eq!(delimiter(b"time;client;path"), b';');
        assert_eq!(delimiter(b"time"), b',');
    }

    #[test]
    fn a_quote_that_is_never_closed_costs_one_line() {
        let text = "\"open,x\nb,c\n";
        assert_eq!(record_end(text.as_bytes(), b',', false), None);
        assert_eq!(record_end(text.as_bytes(), b',', true), Some(7));
        let long = format!("\"open,x\n{}", "b,c\n".repeat(LONGEST));
        assert_eq!(record_end(long.as_bytes(), b',', false), Some(7));
    }

    proptest! {
        /// What was written by the rules is read as it was.
        #[test]
        fn written_and_read(rows in prop::collection::vec(prop::collection::vec("[a,;\"\n\r ]{0,6}", 3), 1..6)) {
            let quoted = |cell: &String| format!("\"{}\"", cell.replace('"', "\"\""));
            let text: String = rows.iter().map(|row| row.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n").collect();
            let mut rest = text.as_bytes();
            for row in &rows {
                let end = record_end(rest, b',', true).unwrap();
                prop_assert_eq!(&header(&rest[..end], b',').unwrap(), &row.iter().map(|cell| cell.trim_ascii().to_string()).collect::<Vec<_>>());
                rest = &rest[end + 1..];
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn no_bytes_make_it_panic(text in "[a,\"\n]{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            for text in [text.as_bytes(), &bytes] {
                for is_all in [false, true] {
                    if let Some(end) = record_end(text, b',', is_all) {
                        prop_assert_eq!(text[end], b'\n');
                    }
                }
                let _ = header(text, b',');
            }
        }
    }
}
