//! Keys and ids as they are stored.

use sha2::{Digest, Sha256};

/// The longest key that is stored as it is, in bytes.
const LONGEST: usize = 200;

/// How long a key can be in the database: longer ones are cut and end in their hash. That
/// makes them longer than any that is stored as it is, so the two cannot meet.
pub(crate) const STORED: usize = LONGEST + 32;

/// A key as it is stored.
pub(crate) fn stored(key: &str) -> Vec<u8> {
    match key.as_bytes().split_at_checked(LONGEST) {
        Some((start, rest)) if !rest.is_empty() => [start, &Sha256::digest(key)].concat(),
        _ => key.into(),
    }
}

/// What the ids of requests are of.
pub(crate) const CALL: &[u8] = b"call";
pub(crate) const SETTLEMENT: &[u8] = b"settlement";

/// The id of a request as it is stored, which is the own of the first key of the
/// request, and of calls or of settlements: others may have the same.
pub(crate) fn request(of: &[u8], first_key: &str, id: &str) -> Vec<u8> {
    let mut hash = Sha256::new();
    hash.update(of);
    hash.update(u64::try_from(first_key.len()).unwrap_or(u64::MAX).to_le_bytes());
    hash.update(first_key);
    hash.update(id);
    hash.finalize().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_any_length_stay_apart() {
        let long = "k".repeat(LONGEST + 1);
        assert_eq!(stored(&long[..LONGEST]), long.as_bytes()[..LONGEST]);
        assert_eq!(stored(&long).len(), STORED);
        assert_ne!(stored(&long), stored(&format!("{}l", &long[..LONGEST])));
        assert_ne!(stored(&long), stored(&format!("{long}k")));
        // Cut in the middle of a character.
        assert_eq!(stored(&"\u{1F980}".repeat(99)).len(), STORED);
        assert_eq!(stored("\0'\\"), b"\0'\\");
        assert_eq!(stored(""), b"");
    }

    #[test]
    fn ids_belong_to_a_key() {
        assert_eq!(request(CALL, "a", "1"), request(CALL, "a", "1"));
        assert_ne!(request(CALL, "a", "1"), request(CALL, "b", "1"));
        assert_ne!(request(CALL, "a", "b1"), request(CALL, "ab", "1"));
        assert_ne!(request(CALL, "a", "1"), request(SETTLEMENT, "a", "1"));
    }
}
