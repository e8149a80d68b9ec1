//! The scenarios that every store has to pass.

use std::sync::Arc;

use suimon_testkit::port::World;
use suimon_testkit::subjects::StoreSubject;

use crate::support::{Kind, runtime};

fn subject(kind: Kind) -> StoreSubject {
    StoreSubject::new(format!("{kind:?}"), Arc::new(kind.store()), runtime().handle().clone(), true)
}

fn world(kind: Kind) -> World {
    World::new(Arc::new(kind.store()), runtime().handle().clone())
}

suimon_testkit::conformance!(postgres, subject(Kind::Postgres), lacks: [Balance, RawClock]);
suimon_testkit::conformance!(mariadb, subject(Kind::MariaDb), lacks: [Balance, RawClock]);
suimon_testkit::conformance!(sqlite, subject(Kind::Sqlite), lacks: [Balance, RawClock]);
suimon_testkit::promises!(promises_of_postgres, world(Kind::Postgres));
suimon_testkit::promises!(promises_of_mariadb, world(Kind::MariaDb));
suimon_testkit::promises!(promises_of_sqlite, world(Kind::Sqlite));
