use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use suimon_core::{Settlement, Timestamp};

use super::{
    Acting, Call, Record, Reply, RequestId, Settling, Store, decide, default_calendar, settle, settlement_from_bytes,
    settlement_to_bytes,
};
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
    settlements: HashMap<Asked, Answered>,
    /// How many may be stored before those that have expired are removed.
    next_clean_up: usize,
}

/// The id of a request, and the first key of it.
type Asked = (Arc<str>, Arc<str>);

/// A recorded answer.
#[derive(Debug)]
struct Answered {
    /// When it expires by the time of its call, and when it may go by the clock.
    expires: Timestamp,
    removable: Timestamp,
    bytes: Vec<u8>,
}

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

    /// Writes what has changed, and removes what has expired once in a while. A time that a
    /// test has made up is as far from the end of a record as the clock is.
    fn write<'a>(
        &mut self,
        keys: impl Iterator<Item = &'a Arc<str>>,
        records: Vec<Option<Record>>,
        made_up: Option<Timestamp>,
        now: Timestamp,
    ) {
        for (key, record) in keys.zip(records) {
            if let Some(mut record) = record {
                if let Some(at) = made_up {
                    record.fresh_at = now.saturating_add(record.fresh_at.saturating_since(at));
                }
                self.records.insert(key.clone(), record);
            }
        }
        let len = |stored: &Stored| stored.records.len() + stored.answers.len() + stored.settlements.len();
        if len(self) > self.next_clean_up {
            self.records.retain(|_, record| record.fresh_at > now);
            self.answers.retain(|_, answered| answered.removable > now);
            self.settlements.retain(|_, answered| answered.removable > now);
            self.next_clean_up = 2 * len(self) + 64;
        }
    }
}

impl Answered {
    fn new(id: &RequestId, now: Timestamp, clock: Timestamp, bytes: Vec<u8>) -> Answered {
        let [expires, removable] = [now, clock].map(|time| time.saturating_add(id.lifetime()));
        Answered { expires, removable, bytes }
    }
}

/// The recorded answer, if it has not expired.
fn recorded<'a>(answers: &'a HashMap<Asked, Answered>, asked: Option<&Asked>, now: Timestamp) -> Option<&'a [u8]> {
    let answered = answers.get(asked?)?;
    (answered.expires > now).then_some(&answered.bytes)
}

fn asked(id: Option<&RequestId>, key: Option<&Arc<str>>) -> Option<Asked> {
    id.zip(key).map(|(id, key)| (Arc::from(id.as_str()), key.clone()))
}

impl Store for MemoryStore {
    fn decide<'a>(&'a self, call: &'a Call) -> Acting<'a, Reply> {
        Box::pin(async move {
            let clock = self.clock.now();
            let now = call.at.unwrap_or(clock);
            let keys = || call.parts.iter().map(|part| &part.key);
            let stored = &mut *lock_std(&self.stored);
            let id = asked(call.id.as_ref(), keys().next());
            if let Some(answer) = recorded(&stored.answers, id.as_ref(), now) {
                return Reply::from_bytes(answer);
            }
            let decided = decide(call, &stored.records(keys()), now, &*default_calendar())?;
            if let (Some(id), Some(request)) = (id, &call.id) {
                stored.answers.insert(id, Answered::new(request, now, clock, decided.reply.to_bytes()));
            }
            stored.write(keys(), decided.records, call.at, clock);
            Ok(decided.reply)
        })
    }

    fn settle<'a>(&'a self, settling: &'a Settling) -> Acting<'a, Settlement> {
        Box::pin(async move {
            let clock = self.clock.now();
            let now = settling.at.unwrap_or(clock);
            let keys = || settling.ticket.parts.iter().map(|(key, _)| key);
            let stored = &mut *lock_std(&self.stored);
            let id = asked(settling.id.as_ref(), keys().next());
            if let Some(answer) = recorded(&stored.settlements, id.as_ref(), now) {
                return settlement_from_bytes(answer);
            }
            let (settlement, records) = settle(settling, &stored.records(keys()), now, &*default_calendar())?;
            if let (Some(id), Some(request)) = (id, &settling.id) {
                stored.settlements.insert(id, Answered::new(request, now, clock, settlement_to_bytes(settlement)));
            }
            stored.write(keys(), records, settling.at, clock);
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
