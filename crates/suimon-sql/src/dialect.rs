//! What is said to each of the databases.
//!
//! Whole transactions go out as one text of several statements, which takes one round
//! trip and no prepared statements, so that it works through poolers that share
//! connections between transactions. Values are numbers and hexadecimal digits, so nothing
//! in them can be taken for SQL.
//!
//! All answers have the same six columns, so that the answers of several statements can be
//! told apart by the first, see [`Row`](crate::session::Row).

use std::fmt::Write;
use std::time::Duration;

use suimon::Timestamp;
use suimon::store::Record;

/// The tag of the row with the time, and with the recorded answer of a request.
pub(crate) const CLOCK: i64 = -1;
/// The tag of the row of a request in a clean-up.
pub(crate) const REQUEST: i64 = -2;

/// The kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "for suimon's own crates")]
pub enum Dialect {
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "mysql")]
    MySql,
    #[cfg(feature = "sqlite")]
    Sqlite,
}

/// What differs between the databases in what is said to them.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// Begins a transaction that is going to write.
    begin: &'static str,
    /// Locks the rows that are read, until the end of the transaction.
    pub lock: &'static str,
    /// The same, passing over those that somebody has locked.
    pub lock_free: &'static str,
    /// The microseconds since 1970 by the server's clock, when the expression is reached.
    /// `NULL` where there is no server.
    pub clock: &'static str,
    /// Before and after the digits of bytes.
    bytes: (&'static str, &'static str),
    /// Before and after bytes that are to be text.
    text: (&'static str, &'static str),
    /// The column `policy` as bytes.
    policy: &'static str,
}

/// The columns of a record as they are read.
const RECORD: &str = "version, seen, fresh_at";

impl Dialect {
    /// How many connections are of use at a time.
    #[must_use]
    pub const fn connections(self) -> usize {
        match self {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => 8,
            #[cfg(feature = "mysql")]
            Dialect::MySql => 8,
            #[cfg(feature = "sqlite")]
            Dialect::Sqlite => 1,
        }
    }

    /// What differs in what is said to it.
    #[must_use]
    pub const fn words(self) -> Words {
        match self {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => Words {
                begin: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
                lock: " FOR UPDATE",
                lock_free: " FOR UPDATE SKIP LOCKED",
                clock: "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
                bytes: ("decode('", "', 'hex')"),
                text: ("convert_from(", ", 'UTF8')"),
                policy: "convert_to(policy, 'UTF8')",
            },
            // The isolation is that of the session, see `session`. The time of the statement is the
            // right one: it is one of its own, after those that lock.
            #[cfg(feature = "mysql")]
            Dialect::MySql => Words {
                begin: "START TRANSACTION READ WRITE",
                lock: " FOR UPDATE",
                lock_free: " FOR UPDATE SKIP LOCKED",
                clock: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
                bytes: ("x'", "'"),
                text: ("CONVERT(", " USING utf8mb4)"),
                policy: "CONVERT(policy, BINARY)",
            },
            // The file as a whole is locked, and the time is the machine's, see `work`.
            #[cfg(feature = "sqlite")]
            Dialect::Sqlite => Words {
                begin: "BEGIN IMMEDIATE",
                lock: "",
                lock_free: "",
                clock: "NULL",
                bytes: ("x'", "'"),
                text: ("CAST(", " AS TEXT)"),
                policy: "CAST(policy AS BLOB)",
            },
        }
    }
}

/// Can the names of tables begin so? Up to 40 of a-z, 0-9 and _, not beginning with a digit.
#[must_use]
pub fn is_prefix(prefix: &str) -> bool {
    let ok = prefix.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    ok && (1..=40).contains(&prefix.len()) && !prefix.starts_with(|first: char| first.is_ascii_digit())
}

/// The tables of a store.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The kind of the database.
    pub dialect: Dialect,
    /// What their names begin with.
    pub prefix: String,
}

/// What a request with an id leaves behind.
#[derive(Debug)]
pub(crate) struct Recording<'a> {
    pub(crate) id: &'a [u8],
    pub(crate) reply: Vec<u8>,
    pub(crate) now: Timestamp,
    pub(crate) expires_at: Timestamp,
}

impl Tables {
    /// Begins a transaction, locks the records of some keys in their order and reads them; then
    /// the time, and the recorded answer of a request. The rows are tagged with the
    /// index of the key.
    ///
    /// Each key has a statement of its own, so that the order of the locks does not
    /// depend on how the database goes about it; and so does the time, so that it is
    /// read when all locks are held.
    pub(crate) fn lock(&self, keys: &[(usize, Vec<u8>)], id: Option<&[u8]>, left: Duration) -> String {
        let Words { lock, policy, .. } = self.dialect.words();
        let mut sql = self.begin(left);
        for (index, key) in keys {
            let (key, limits) = (self.bytes(key), self.limits());
            let _ =
                write!(sql, "; SELECT {index}, {RECORD}, {policy}, state FROM {limits} WHERE limit_key = {key}{lock}");
        }
        sql + "; " + &self.clock(id)
    }

    /// Reads the records of some keys and the time, as they are at one moment.
    pub(crate) fn peek(&self, keys: &[(usize, Vec<u8>)]) -> String {
        let policy = self.dialect.words().policy;
        let mut sql = String::new();
        for (index, key) in keys {
            let (key, limits) = (self.bytes(key), self.limits());
            let _ = write!(
                sql,
                "SELECT {index}, {RECORD}, {policy}, state FROM {limits} WHERE limit_key = {key} UNION ALL "
            );
        }
        sql + &self.clock(None)
    }

    /// The time, and what is recorded of a request: when it expires, its answer.
    fn clock(&self, id: Option<&[u8]>) -> String {
        let clock = self.dialect.words().clock;
        match id {
            None => format!("SELECT {CLOCK}, {clock}, NULL, NULL, NULL, NULL"),
            Some(id) => format!(
                "SELECT {CLOCK}, {clock}, expires_at, NULL, reply, NULL FROM (SELECT 1 AS one) AS now \
                 LEFT JOIN {} ON request_id = {}",
                self.requests(),
                self.bytes(id)
            ),
        }
    }

    /// Writes what has come of the records and ends the transaction. A record that is new fails
    /// when somebody else was first with it.
    pub(crate) fn write<'a>(
        &self,
        changes: impl Iterator<Item = (&'a [u8], Change<'a>)>,
        recording: Option<&Recording<'_>>,
    ) -> String {
        let (limits, requests) = (self.limits(), self.requests());
        let mut sql = String::new();
        for (key, change) in changes {
            let (Change::Insert(record) | Change::Update(record)) = change;
            let key = self.bytes(key);
            let (version, seen) = (record.version.cast_signed(), record.seen.as_nanos().cast_signed());
            let fresh_at = nanos(record.fresh_at);
            let (policy, state) = (self.text(record.policy.as_bytes()), self.bytes(&record.state));
            let _ = match change {
                Change::Insert(_) => write!(
                    sql,
                    "INSERT INTO {limits} (limit_key, version, policy, state, seen, fresh_at) \
                     VALUES ({key}, {version}, {policy}, {state}, {seen}, {fresh_at}); "
                ),
                Change::Update(_) => write!(
                    sql,
                    "UPDATE {limits} SET version = {version}, policy = {policy}, state = {state}, seen = {seen}, \
                     fresh_at = {fresh_at} WHERE limit_key = {key}; "
                ),
            };
        }
        if let Some(Recording { id, reply, now, expires_at }) = recording {
            let (id, reply, now, expires_at) = (self.bytes(id), self.bytes(reply), nanos(*now), nanos(*expires_at));
            // One that has expired makes room; anything else is an earlier answer.
            let _ = write!(
                sql,
                "DELETE FROM {requests} WHERE request_id = {id} AND expires_at <= {now}; \
                 INSERT INTO {requests} (request_id, expires_at, reply) VALUES ({id}, {expires_at}, {reply}); "
            );
        }
        sql + "COMMIT"
    }

    /// How many records and requests there are.
    pub(crate) fn count(&self) -> String {
        let (limits, requests) = (self.limits(), self.requests());
        format!("SELECT 0, (SELECT count(*) FROM {limits}), (SELECT count(*) FROM {requests}), NULL, NULL, NULL")
    }

    /// The next keys after one, in their order and whatever their state, when they are as
    /// good as new, and the time.
    pub(crate) fn next_keys(&self, after: Option<&[u8]>, most: usize) -> String {
        let from = after.map_or_else(String::new, |key| format!(" WHERE limit_key > {}", self.bytes(key)));
        format!(
            "SELECT 0, fresh_at, NULL, NULL, limit_key, NULL FROM {}{from} ORDER BY limit_key LIMIT {most}; {}",
            self.limits(),
            self.clock(None)
        )
    }

    /// The requests that expired before a time.
    pub(crate) fn expired_requests(&self, before: Timestamp, most: usize) -> String {
        format!(
            "SELECT {REQUEST}, expires_at, NULL, NULL, request_id, NULL FROM {} WHERE expires_at <= {} \
             ORDER BY expires_at LIMIT {most}",
            self.requests(),
            nanos(before)
        )
    }

    /// Locks those of some keys and requests that may go, as far as nobody holds them.
    pub(crate) fn lock_old(&self, keys: &[Vec<u8>], requests: &[Vec<u8>], before: Timestamp, left: Duration) -> String {
        let Words { lock_free, .. } = self.dialect.words();
        let (mut sql, before) = (self.begin(left), nanos(before));
        if !keys.is_empty() {
            let _ = write!(
                sql,
                "; SELECT 0, NULL, NULL, NULL, limit_key, NULL FROM {} WHERE limit_key IN ({}) AND fresh_at <= \
                 {before}{lock_free}",
                self.limits(),
                self.list(keys)
            );
        }
        if !requests.is_empty() {
            let _ = write!(
                sql,
                "; SELECT {REQUEST}, NULL, NULL, NULL, request_id, NULL FROM {} WHERE request_id IN ({}) AND \
                 expires_at <= {before}{lock_free}",
                self.requests(),
                self.list(requests)
            );
        }
        sql
    }

    /// Removes what has been locked, and ends the transaction.
    pub(crate) fn remove(&self, keys: &[Vec<u8>], requests: &[Vec<u8>]) -> String {
        let mut sql = String::new();
        for (table, column, list) in [(self.limits(), "limit_key", keys), (self.requests(), "request_id", requests)] {
            if !list.is_empty() {
                let _ = write!(sql, "DELETE FROM {table} WHERE {column} IN ({}); ", self.list(list));
            }
        }
        sql + "COMMIT"
    }

    /// A transaction in which the server itself ends what outlasts the caller: waiting
    /// for a lock, and holding one without a word.
    #[must_use]
    pub fn begin(&self, left: Duration) -> String {
        let begin = self.dialect.words().begin;
        match self.dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => {
                let left = left.as_millis().max(1);
                format!(
                    "{begin}; SET LOCAL lock_timeout = {left}; SET LOCAL statement_timeout = {left}; \
                     SET LOCAL idle_in_transaction_session_timeout = {left}"
                )
            }
            // The same by the session's settings, which count in seconds.
            #[cfg(feature = "mysql")]
            Dialect::MySql => begin.to_owned(),
            // Whoever ends lets go of the file.
            #[cfg(feature = "sqlite")]
            Dialect::Sqlite => begin.to_owned(),
        }
    }

    pub(crate) fn limits(&self) -> String {
        format!("{}_limits", self.prefix)
    }

    pub(crate) fn requests(&self) -> String {
        format!("{}_requests", self.prefix)
    }

    fn list(&self, all: &[Vec<u8>]) -> String {
        all.iter().map(|bytes| self.bytes(bytes)).collect::<Vec<_>>().join(", ")
    }

    /// Text as an expression.
    #[must_use]
    pub fn text(&self, bytes: &[u8]) -> String {
        let (before, after) = self.dialect.words().text;
        format!("{before}{}{after}", self.bytes(bytes))
    }

    /// Bytes as an expression.
    #[must_use]
    pub fn bytes(&self, bytes: &[u8]) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let (before, after) = self.dialect.words().bytes;
        let mut text = String::with_capacity(before.len() + 2 * bytes.len() + after.len());
        text.push_str(before);
        for byte in bytes {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from(DIGITS[usize::from(digit)]));
            }
        }
        text.push_str(after);
        text
    }
}

/// What is to be done with a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    Insert(&'a Record),
    Update(&'a Record),
}

/// A time that is only compared, as a number that all databases have.
fn nanos(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
