//! The deciding of stores that lock records, over a store in memory: one map under
//! one lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use suimon::Error;
use suimon::store::{Acting, Call, Record, Reply, Settling, Store, decide, settle};
use suimon_core::{Settlement, Timestamp, Utc};
use suimon_testkit::subjects::StoreSubject;

#[derive(Debug, Default)]
struct InMemory(Mutex<HashMap<Arc<str>, Record>>);

impl Store for InMemory {
    fn decide<'a>(&'a self, call: &'a Call) -> Acting<'a, Reply> {
        Box::pin(async move {
            let mut map = self.0.lock().unwrap();
            let records: Vec<_> = call.parts.iter().map(|part| map.get(&part.key).cloned()).collect();
            let decided = decide(call, &records, call.at.unwrap_or(Timestamp::ZERO), &Utc)?;
            for (part, record) in call.parts.iter().zip(decided.records) {
                if let Some(record) = record {
                    map.insert(part.key.clone(), record);
                }
            }
            Ok(decided.reply)
        })
    }

    fn settle<'a>(&'a self, settling: &'a Settling) -> Acting<'a, Settlement> {
        Box::pin(async move {
            let mut map = self.0.lock().unwrap();
            let keys = || settling.ticket.parts.iter().map(|(key, _)| key.clone());
            let records: Vec<_> = keys().map(|key| map.get(&key).cloned()).collect();
            let (settlement, written) = settle(settling, &records, settling.at.unwrap_or(Timestamp::ZERO), &Utc)?;
            for (key, record) in keys().zip(written) {
                if let Some(record) = record {
                    map.insert(key, record);
                }
            }
            Ok::<_, Error>(settlement)
        })
    }
}

fn subject() -> StoreSubject {
    static RUNTIME: std::sync::OnceLock<tokio::runtime::Runtime> = std::sync::OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| tokio::runtime::Builder::new_current_thread().build().unwrap());
    StoreSubject::new("records in memory", Arc::<InMemory>::default(), runtime.handle().clone(), true)
}

suimon_testkit::conformance!(records_in_memory, subject(), lacks: [Balance, RawClock]);
