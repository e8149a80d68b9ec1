//! The suite of all stores, on Redis and on Valkey.

mod support;

use std::sync::Arc;

use suimon_testkit::port::World;
use suimon_testkit::subjects::StoreSubject;
use support::{runtime, server, store_at, valkey_url};

fn subject(name: &str, url: &str) -> StoreSubject {
    StoreSubject::new(name, Arc::new(store_at(url)), runtime().handle().clone(), false)
}

fn world(url: &str) -> World {
    World::new(Arc::new(store_at(url)), runtime().handle().clone())
}

suimon_testkit::conformance!(redis, subject("Redis", &server().url()), lacks: [Balance, RawClock]);
suimon_testkit::conformance!(valkey, subject("Valkey", &valkey_url()), lacks: [Balance, RawClock]);
suimon_testkit::promises!(promises_of_redis, world(&server().url()));
suimon_testkit::promises!(promises_of_valkey, world(&valkey_url()));
