use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use suimon_core::{Settlement, Timestamp};

use super::{Acting, Call, Record, Reply, Settling, Store, decide, default_calendar, settle};
use crate::Error;
use crate::clock::{Clock, MachineClock};
use crate::local::Source;
use crate::sync::lock_std;

/// A store in the memory of this process: for tests of what will run over a shared one,
/// and the shortest example of a store.
///
/// Copies share what is stored. Records that are as good as new are removed in
/// passing.
///
/// ```
/// use suimon::store::MemoryStore;
///
/// let store = MemoryStore::new();
/// assert_eq!(store.len(), 0);
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    clock: Source,
    stored: Arc<Mutex<Stored>>,
}

#[derive(Debug, Default)]
struct Stored {
    records: HashMap<Arc<str>, Record>,
    answers: HashMap<Asked, Answered>,
    /// How many may be stored before those that have expired are removed.
    next_clean_up: usize,
}

/// The id of a request, and the first key of it.
type Asked = (Arc<str>, Arc<str>);
/// When the record of an answer expires, and the answer.
type Answered = (Timestamp, Vec<u8>);

impl MemoryStore {
    /// An empty store on the machine's clock.
    #[must_use]
    pub fn new() -> MemoryStore {
        MemoryStore::with_clock(MachineClock)
    }

    /// An empty store on a clock of yours.
    #[must_use]
    pub fn with_clock(clock: impl Clock) -> MemoryStore {
        MemoryStore { clock: Source::new(clock), stored: Arc::default() }
    }

    /// How many keys have a record.
    #[must_use]
    pub fn len(&self) -> usize {
        lock_std(&self.stored).records.len()
    }

    /// Has no key a record?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Stored {
    fn records<'a>(&self, keys: impl Iterator<Item = &'a Arc<str>>) -> Vec<Option<Record>> {
        keys.map(|key| self.records.get(key).cloned()).collect()
    }

    fn write<'a>(&mut self, keys: impl Iterator<Item = &'a Arc<str>>, records: Vec<Option<Record>>, now: Timestamp) {
        for (key, record) in keys.zip(records) {
            if let Some(record) = record {
                self.records.insert(key.clone(), record);
            }
        }
        if self.records.len() + self.answers.len() > self.next_clean_up {
            self.records.retain(|_, record| record.fresh_at > now);
            self.answers.retain(|_, (expires, _)| *expires > now);
            self.next_clean_up = 2 * (self.records.len() + self.answers.len()) + 64;
        }
    }
}

impl Store for MemoryStore {
    fn decide<'a>(&'a self, call: &'a Call) -> Acting<'a, Reply> {
        Box::pin(async move {
            let now = call.at.unwrap_or_else(|| self.clock.now());
            let keys = || call.parts.iter().map(|part| &part.key);
            let stored = &mut *lock_std(&self.stored);
            let id = call.id.as_ref().zip(keys().next()).map(|(id, key)| (Arc::from(id.as_str()), key.clone()));
            if let Some((expires, answer)) = id.as_ref().and_then(|id| stored.answers.get(id))
                && *expires > now
            {
                return Reply::from_bytes(answer);
            }
            let decided = decide(call, &stored.records(keys()), now, &*default_calendar())?;
            stored.write(keys(), decided.records, now);
            if let (Some(id), Some(request)) = (id, &call.id) {
                let expires = now.saturating_add(request.lifetime());
                stored.answers.insert(id, (expires, decided.reply.to_bytes()));
            }
            Ok(decided.reply)
        })
    }

    fn settle<'a>(&'a self, settling: &'a Settling) -> Acting<'a, Settlement> {
        Box::pin(async move {
            let now = settling.at.unwrap_or_else(|| self.clock.now());
            let keys = || settling.ticket.parts.iter().map(|(key, _)| key);
            let stored = &mut *lock_std(&self.stored);
            let (settlement, records) = settle(settling, &stored.records(keys()), now, &*default_calendar())?;
            stored.write(keys(), records, now);
            Ok::<_, Error>(settlement)
        })
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("keys", &self.len()).finish_non_exhaustive()
    }
}
