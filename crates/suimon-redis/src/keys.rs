//! Names of keys, and where they lie in a cluster.

use std::sync::Arc;

use suimon::store::{Call, Part, RequestId};

use crate::error::{self, Error};

/// Keys in a cluster are spread over so many slots.
const SLOTS: u16 = 16_384;

/// The names of the keys of one store.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: Box<str>,
}

impl Names {
    /// A prefix of letters, digits and `_`, `.`, `/`: nothing that could end it, or make a hash
    /// tag.
    pub(crate) fn new(prefix: &str) -> Result<Names, Error> {
        let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/');
        if prefix.is_empty() || !prefix.chars().all(inside) {
            return Err(error::unsupported(format!(
                "`{prefix}` cannot be the prefix of keys: take one or more letters, digits, `_`, `.` and `/`"
            )));
        }
        Ok(Names { prefix: prefix.into() })
    }

    /// The name of the value of a key.
    pub(crate) fn value(&self, key: &str) -> String {
        format!("{}:{key}", self.prefix)
    }

    /// The name of the answer to a call, in the slot of a value.
    pub(crate) fn answer(&self, id: &RequestId, value: &str) -> String {
        self.recorded("id", id, value)
    }

    /// The name of the settlement under an id, in the slot of a value.
    pub(crate) fn settlement(&self, id: &RequestId, value: &str) -> String {
        self.recorded("settled", id, value)
    }

    fn recorded(&self, kind: &str, id: &RequestId, value: &str) -> String {
        let prefix = &self.prefix;
        let id = id.as_str();
        let tag = match hash_tag(value.as_bytes()) {
            Some(tag) => String::from_utf8_lossy(tag).into_owned(),
            // Without a tag the whole name counts, and is made one.
            None if !value.contains('}') => return format!("{prefix}-{kind}:{{{value}}}:{id}"),
            None => tag_of_slot(slot(value.as_bytes())),
        };
        // The key as well, which others with that tag have not; and its length, to tell where the id begins.
        format!("{prefix}-{kind}:{{{tag}}}{}:{value}:{id}", value.len())
    }
}

/// Do all parts of a call lie together?
pub(crate) fn check_slots(names: &[String]) -> Result<(), Error> {
    let Some((first, rest)) = names.split_first() else { return Ok(()) };
    match rest.iter().find(|name| slot(name.as_bytes()) != slot(first.as_bytes())) {
        None => Ok(()),
        Some(other) => Err(error::unsupported(format!(
            "a cluster decides in one step only about keys of one slot, and `{first}` and `{other}` lie in two: \
             give all keys of a call the same part in braces, such as `{{acme}}:alice` and `{{acme}}:total`"
        ))),
    }
}

/// Is there a part or more, and no key twice?
pub(crate) fn check_parts(call: &Call) -> Result<(), Error> {
    if call.parts.is_empty() {
        return Err(error::unsupported("a call has at least one part"));
    }
    let key = |part: &Part| Arc::clone(&part.key);
    for (index, part) in call.parts.iter().enumerate() {
        if call.parts.iter().take(index).any(|earlier| earlier.key == part.key) {
            return Err(error::unsupported(format!(
                "`{}` is the key of two parts of a call: give it one part with both limits, or with the sum of the costs",
                key(part)
            )));
        }
    }
    Ok(())
}

/// What lies in the first braces, if it is not empty: it alone decides about the slot.
fn hash_tag(name: &[u8]) -> Option<&[u8]> {
    let open = name.iter().position(|&byte| byte == b'{')?;
    let inside = &name[open + 1..];
    let close = inside.iter().position(|&byte| byte == b'}')?;
    (close > 0).then(|| &inside[..close])
}

pub(crate) fn slot(name: &[u8]) -> u16 {
    crc16(hash_tag(name).unwrap_or(name)) % SLOTS
}

/// The shortest number that lies in a slot.
fn tag_of_slot(wanted: u16) -> String {
    let numbers = (0_u32..).map(|number| number.to_string());
    // Every slot is met within a quarter of a million numbers, see the test.
    numbers.into_iter().find(|number| slot(number.as_bytes()) == wanted).unwrap_or_default()
}

/// CRC16/XMODEM, bit by bit: short names, and only for calls of several parts.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
    }

    #[test]
    fn an_answer_lies_in_the_slot_of_its_value_whatever_the_key() {
        let names = Names::new("suimon").unwrap();
        let id = RequestId::new("7f3a", Duration::from_secs(1)).unwrap();
        for key in ["user:1", "{acme}:alice", "a{b}c", "{}", "a}b", "}{", "{}{x}", "{", "", "a{}b}c", "ü{é}"] {
            let value = names.value(key);
            let answer = names.answer(&id, &value);
            assert_eq!(slot(answer.as_bytes()), slot(value.as_bytes()), "{key}");
            assert_ne!(answer, value);
            let settlement = names.settlement(&id, &value);
            assert_eq!(slot(settlement.as_bytes()), slot(value.as_bytes()), "{key}");
            assert_ne!(settlement, answer);
        }
        assert!(Names::new("").is_err() && Names::new("a{b").is_err() && Names::new("a:b").is_err());
    }

    #[test]
    fn an_id_belongs_to_a_key() {
        let names = Names::new("suimon").unwrap();
        let keys = ["{acme}:alice", "{acme}:bob", "{acme}", "acme", "{suimon:acme}", "a}b", "a}bc", "{}{x}", "c"];
        let ids = ["1", "c:1", ":1", "suimon:{suimon:acme}:1"];
        let mut all = HashSet::new();
        for (key, id) in keys.iter().flat_map(|key| ids.iter().map(move |id| (key, id))) {
            let id = RequestId::new(*id, Duration::from_secs(1)).unwrap();
            assert!(all.insert(names.answer(&id, &names.value(key))), "{key} {id:?}");
            assert!(all.insert(names.settlement(&id, &names.value(key))), "{key} {id:?}");
        }
    }

    #[test]
    fn every_slot_has_a_short_number() {
        let met: HashSet<u16> = (0..250_000_u32).map(|number| slot(number.to_string().as_bytes())).collect();
        assert_eq!(met.len(), usize::from(SLOTS));
    }

    #[test]
    fn no_value_has_the_name_of_an_answer() {
        // A value's name goes on with a colon, an answer's with a dash.
        let names = Names::new("suimon").unwrap();
        let id = RequestId::new("x", Duration::from_secs(1)).unwrap();
        assert!(names.value("-id:{a}:x").starts_with("suimon:"));
        assert!(names.answer(&id, "suimon:a").starts_with("suimon-id:"));
    }
}
