//! The deciding of stores that lock records, over the store in memory.

use std::sync::{Arc, OnceLock};

use suimon::store::MemoryStore;
use suimon_testkit::port::World;
use suimon_testkit::subjects::StoreSubject;
use tokio::runtime::{Builder, Handle, Runtime};

fn handle() -> Handle {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_current_thread().build().unwrap()).handle().clone()
}

fn subject() -> StoreSubject {
    StoreSubject::new("records in memory", Arc::new(MemoryStore::new()), handle(), true)
}

suimon_testkit::conformance!(records_in_memory, subject(), lacks: [Balance, RawClock]);

suimon_testkit::promises!(promises_in_memory, World::new(Arc::new(MemoryStore::new()), handle()));
