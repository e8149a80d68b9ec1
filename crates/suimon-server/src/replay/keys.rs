//! Keys, each stored once, and known by a small number from then on.

use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};

/// Appends a field to a key. A key of one field is that field; one of several
/// has each preceded by its length, so that no two keys can look alike.
pub(crate) fn push_field(key: &mut Vec<u8>, single: bool, field: &[u8]) {
    if !single {
        key.extend_from_slice(&(field.len() as u32).to_le_bytes());
    }
    key.extend_from_slice(field);
}

/// The fields of a key that was made of `count`.
pub(crate) fn fields(mut key: &[u8], count: usize) -> Vec<&[u8]> {
    if count == 1 {
        return vec![key];
    }
    let mut fields = Vec::with_capacity(count);
    while let Some((length, rest)) = key.split_first_chunk::<4>() {
        let (field, rest) = rest.split_at(rest.len().min(u32::from_le_bytes(*length) as usize));
        fields.push(field);
        key = rest;
    }
    fields
}

/// All keys seen. They come from a log, so whoever wrote to it chose them: the
/// hash has a secret of its own in each run.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    table: HashTable<u32>,
    hasher: RandomState,
    bytes: Vec<u8>,
    /// Where each key ends in `bytes`.
    ends: Vec<usize>,
}

impl Keys {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn get(&self, id: u32) -> &[u8] {
        slice(&self.bytes, &self.ends, id)
    }

    /// The number of a key: the next one if it is new. There are at most 2^32 - 1.
    pub(crate) fn intern(&mut self, key: &[u8]) -> u32 {
        let Keys { table, hasher, bytes, ends } = self;
        let hash = hasher.hash_one(key);
        if let Some(&id) = table.find(hash, |&id| slice(bytes, ends, id) == key) {
            return id;
        }
        let id = u32::try_from(ends.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(key);
        ends.push(bytes.len());
        table.insert_unique(hash, id, |&id| hasher.hash_one(slice(bytes, ends, id)));
        id
    }
}

fn slice<'a>(bytes: &'a [u8], ends: &[usize], id: u32) -> &'a [u8] {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] };
    &bytes[start..ends[id]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_key_has_its_own_number(keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4), 0..300)) {
            let mut table = Keys::default();
            let mut known: Vec<Vec<u8>> = Vec::new();
            for key in keys {
                let want = known.iter().position(|seen| *seen == key).unwrap_or(known.len());
                if want == known.len() {
                    known.push(key.clone());
                }
                prop_assert_eq!(table.intern(&key) as usize, want);
                prop_assert_eq!(table.get(want as u32), &key[..]);
            }
            prop_assert_eq!(table.len(), known.len());
        }

        #[test]
        fn fields_come_back_as_they_went_in(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 1..5)) {
            let mut key = Vec::new();
            for part in &parts {
                push_field(&mut key, parts.len() == 1, part);
            }
            prop_assert_eq!(fields(&key, parts.len()), parts);
        }
    }
}
