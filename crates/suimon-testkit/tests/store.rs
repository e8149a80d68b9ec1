//! The deciding of stores that lock records, over the store in memory.

use std::sync::{Arc, OnceLock};

use suimon::store::MemoryStore;
use suimon_testkit::subjects::StoreSubject;
use tokio::runtime::{Builder, Runtime};

fn subject() -> StoreSubject {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| Builder::new_current_thread().build().unwrap());
    StoreSubject::new("records in memory", Arc::new(MemoryStore::new()), runtime.handle().clone(), true)
}

suimon_testkit::conformance!(records_in_memory, subject(), lacks: [Balance, RawClock]);
