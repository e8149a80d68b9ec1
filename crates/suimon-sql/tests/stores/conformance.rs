//! The scenarios that every store has to pass.

use std::sync::Arc;

use suimon_testkit::subjects::StoreSubject;

use crate::support::{Kind, runtime};

fn subject(kind: Kind) -> StoreSubject {
    StoreSubject::new(format!("{kind:?}"), Arc::new(kind.store()), runtime().handle().clone(), true)
}

suimon_testkit::conformance!(postgres, subject(Kind::Postgres), lacks: [Balance, RawClock]);
suimon_testkit::conformance!(mariadb, subject(Kind::MariaDb), lacks: [Balance, RawClock]);
suimon_testkit::conformance!(sqlite, subject(Kind::Sqlite), lacks: [Balance, RawClock]);
