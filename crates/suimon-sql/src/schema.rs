//! The tables, and how they are brought up to date.
//!
//! Not the driver's own migrations: those stop for good where MariaDB, which cannot
//! undo the making of a table, was interrupted in the middle; and refuse tables that a
//! newer program has extended, while old and new run side by side.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::builder::OpenError;
use crate::dialect::{Dialect, Tables};
use crate::failure::Failure;
use crate::session::{Connection, Row, Target};
use crate::store::SqlStore;

/// The longest that it may take, with waiting for others who are at it.
const LONGEST: Duration = Duration::from_secs(30);

/// A version of the tables.
#[derive(Debug)]
pub struct Version {
    /// Its number, from 1.
    pub number: i64,
    /// The oldest version whose programs can use these tables too.
    pub oldest: i64,
    /// The statements that lead to it. Each can be done again: where one was
    /// interrupted, all are.
    pub statements: fn(&Tables) -> Vec<String>,
}

const VERSIONS: &[Version] = &[Version { number: 1, oldest: 1, statements: first }];

impl SqlStore {
    /// Brings the tables up to date, in one go whoever else is at it.
    ///
    /// Where they are up to date already, it only looks, and needs no right to make any.
    ///
    /// # Errors
    /// When the database fails, or the tables are too new.
    pub async fn migrate(&self) -> Result<(), OpenError> {
        let (tables, target) = (&self.shared().tables, self.shared().pool.target());
        migrate(target, tables, "schema", VERSIONS).await
    }
}

/// Brings tables up to date whose versions are noted in a table with this ending.
///
/// # Errors
/// When the database fails, or the tables are too new.
pub async fn migrate(target: &Target, tables: &Tables, noted: &str, versions: &[Version]) -> Result<(), OpenError> {
    let attempts = async {
        loop {
            // A connection of its own, closed at the end: with it end its locks, and the
            // runtime may be another than that of the calls.
            let migrated = match target.connect().await {
                Ok(mut connection) => tables.migrate(&mut connection, noted, versions).await,
                Err(error) => Err(error),
            };
            match migrated {
                Ok(oldest) => return Ok(oldest),
                Err(error) if Failure::of(&error) != Failure::Conflict => return Err(error),
                Err(_) => sleep(Duration::from_millis(2)).await,
            }
        }
    };
    let known = versions.iter().map(|version| version.number).max().unwrap_or_default();
    match timeout(LONGEST, attempts).await {
        Ok(Ok(needed)) if needed > known => Err(OpenError::TooOld { known, needed }),
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(OpenError::Database(error.into())),
        Err(_) => Err(OpenError::Database(format!("nothing came of it within {LONGEST:?}").into())),
    }
}

impl Tables {
    /// Does what is to be done; the oldest version that can use the tables.
    async fn migrate(
        &self,
        connection: &mut Connection,
        noted: &str,
        versions: &[Version],
    ) -> Result<i64, sqlx::Error> {
        let schema = format!("{}_{noted}", self.prefix);
        let newest_of = format!("SELECT 0, max(version), max(oldest), NULL, NULL, NULL FROM {schema}");
        // Fails where there is no table yet, and then there is something to do anyway.
        if let Ok(rows) = connection.run(newest_of.clone()).await
            && let (version, oldest) = newest(&rows)
            && versions.iter().all(|known| known.number <= version)
        {
            return Ok(oldest);
        }
        for statement in self.alone() {
            connection.run(statement).await?;
        }
        let table = format!("CREATE TABLE IF NOT EXISTS {schema} (version BIGINT PRIMARY KEY, oldest BIGINT NOT NULL)");
        connection.run(table).await?;
        let (version, mut oldest) = newest(&connection.run(newest_of).await?);
        for next in versions.iter().filter(|next| next.number > version) {
            for statement in (next.statements)(self) {
                connection.run(statement).await?;
            }
            let Version { number, oldest: allowed, .. } = next;
            connection.run(format!("INSERT INTO {schema} (version, oldest) VALUES ({number}, {allowed})")).await?;
            oldest = oldest.max(*allowed);
        }
        connection.run("COMMIT".to_owned()).await?;
        Ok(oldest)
    }

    /// What makes this the only one to change the tables, until the connection ends.
    fn alone(&self) -> Vec<String> {
        match self.dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => {
                // Of the database as a whole; it does not last long.
                vec!["BEGIN".to_owned(), "SELECT pg_advisory_xact_lock(7597119022417632621)".to_owned()]
            }
            #[cfg(feature = "mysql")]
            Dialect::MySql => {
                // Not cut off as a call would be. The lock is the server's, so it has the name of the database in it.
                let wait = LONGEST.as_secs();
                vec![
                    "SET SESSION innodb_lock_wait_timeout = 30 /*M! , max_statement_time = 0 */".to_owned(),
                    format!("DO GET_LOCK(CONCAT('suimon ', MD5(DATABASE())), {wait})"),
                    "START TRANSACTION".to_owned(),
                ]
            }
            #[cfg(feature = "sqlite")]
            Dialect::Sqlite => vec!["BEGIN IMMEDIATE".to_owned()],
        }
    }
}

fn newest(rows: &[Row]) -> (i64, i64) {
    let numbers = rows.first().map(|row| row.numbers).unwrap_or_default();
    (numbers[0].unwrap_or_default(), numbers[1].unwrap_or_default())
}

fn first(tables: &Tables) -> Vec<String> {
    let (limits, requests) = (tables.limits(), tables.requests());
    let limits_with = |key: &str, text: &str, bytes: &str, options: &str| {
        format!(
            "CREATE TABLE IF NOT EXISTS {limits} (limit_key {key} NOT NULL PRIMARY KEY, version BIGINT NOT NULL, \
             policy {text} NOT NULL, state {bytes} NOT NULL, seen BIGINT NOT NULL, fresh_at BIGINT NOT NULL){options}"
        )
    };
    let requests_with = |key: &str, bytes: &str, rest: &str, options: &str| {
        format!(
            "CREATE TABLE IF NOT EXISTS {requests} (request_id {key} NOT NULL PRIMARY KEY, expires_at BIGINT NOT NULL, \
             reply {bytes} NOT NULL{rest}){options}"
        )
    };
    let index = format!("CREATE INDEX IF NOT EXISTS {requests}_expires_at ON {requests} (expires_at)");
    match tables.dialect {
        // Room in each page for new versions of a row beside the old ones: a busy row stays in
        // its page, and no index has to know.
        #[cfg(feature = "postgres")]
        Dialect::Postgres => vec![
            limits_with("bytea", "text", "bytea", " WITH (fillfactor = 50)"),
            requests_with("bytea", "bytea", "", ""),
            index,
        ],
        #[cfg(feature = "mysql")]
        Dialect::MySql => {
            let options = " ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 ROW_FORMAT = DYNAMIC";
            let index = format!(", INDEX {requests}_expires_at (expires_at)");
            vec![
                limits_with(&format!("VARBINARY({})", crate::key::STORED), "TEXT", "MEDIUMBLOB", options),
                requests_with("VARBINARY(32)", "MEDIUMBLOB", &index, options),
            ]
        }
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => vec![
            limits_with("BLOB", "TEXT", "BLOB", " WITHOUT ROWID"),
            requests_with("BLOB", "BLOB", "", " WITHOUT ROWID"),
            index,
        ],
    }
}
