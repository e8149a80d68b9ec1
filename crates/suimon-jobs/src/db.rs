//! The database: short transactions that are tried again, rows of answers, what differs
//! between the kinds.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use suimon::Timestamp;
use suimon_sql::access::{Cell, Dialect, Failure, Pool, Session, SqlError, Tables};
use tokio::time::{sleep, timeout_at};

use crate::Error;

/// Later than any time.
pub(crate) const NEVER: i64 = i64::MAX;

/// A connection to the tables of a queue.
#[derive(Debug)]
pub(crate) struct Db {
    pub(crate) pool: Pool,
    pub(crate) tables: Tables,
    /// The longest that a call may take.
    pub(crate) timeout: Duration,
    /// Transactions that were tried again.
    pub(crate) retries: AtomicU64,
}

/// Something to be done in one transaction.
pub(crate) trait Work: Sync {
    type Answer: Send;

    /// What it is called where its time is told.
    const STEP: &'static str;

    /// May it be done again when it is unknown whether it was done?
    const IS_REPEATABLE: bool;

    fn attempt(
        &self,
        db: &Db,
        session: &mut Session<'_>,
        left: Duration,
    ) -> impl Future<Output = Result<Self::Answer, Stop>> + Send;
}

/// Why an attempt ended without an answer.
pub(crate) type Stop = suimon_sql::access::Stop<Error>;

impl Db {
    /// Attempts something until it is done, refused or too late.
    pub(crate) async fn run<W: Work>(&self, work: &W) -> Result<W::Answer, Error> {
        let start = Instant::now();
        let deadline = start + self.timeout;
        let mut last = None;
        let answer = timeout_at(deadline.into(), self.attempts(work, deadline, &mut last)).await;
        crate::metrics::step(W::STEP, start.elapsed());
        match answer {
            Ok(answer) => answer,
            Err(_) => {
                let why = last.map(|last: SqlError| format!(": {last}")).unwrap_or_default();
                Err(Error::Database(format!("no answer within {:?}{why}", self.timeout).into()))
            }
        }
    }

    async fn attempts<W: Work>(
        &self,
        work: &W,
        deadline: Instant,
        last: &mut Option<SqlError>,
    ) -> Result<W::Answer, Error> {
        let mut pause = Duration::from_millis(1);
        loop {
            let (error, is_repeatable) = match self.attempt(work, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(stop) => stop.failed(W::IS_REPEATABLE)?,
            };
            match Failure::of(&error) {
                Failure::Conflict => {}
                Failure::Cut if is_repeatable => {}
                Failure::Lost if is_repeatable => {
                    self.pool.forget();
                    pause = (pause * 2).min(Duration::from_millis(50));
                }
                Failure::Cut | Failure::Lost | Failure::Other => return Err(Error::Database(error.into())),
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
            crate::metrics::retried();
            *last = Some(error);
            sleep(pause).await;
        }
    }

    async fn attempt<W: Work>(&self, work: &W, deadline: Instant) -> Result<W::Answer, Stop> {
        let mut session = self.pool.session().await.map_err(Stop::Before)?;
        let left = deadline.saturating_duration_since(Instant::now());
        let done = work.attempt(self, &mut session, left).await;
        if done.as_ref().is_err_and(Stop::leaves_open) {
            session.undo().await;
        }
        done
    }

    pub(crate) fn jobs(&self) -> String {
        format!("{}_jobs", self.tables.prefix)
    }

    pub(crate) fn limits(&self) -> String {
        format!("{}_job_limits", self.tables.prefix)
    }

    pub(crate) fn lanes(&self) -> String {
        format!("{}_job_lanes", self.tables.prefix)
    }

    /// Text as an expression by which an index can be searched.
    pub(crate) fn text(&self, text: &str) -> String {
        match self.tables.dialect {
            // What converts bytes is no constant for its planner. A text with escapes means the same whatever the
            // settings of the server.
            #[cfg(feature = "postgres")]
            Dialect::Postgres => format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''")),
            #[allow(unreachable_patterns, reason = "depends on the kinds that are built in")]
            _ => self.tables.text(text.as_bytes()),
        }
    }

    pub(crate) fn optional_text(&self, text: Option<&str>) -> String {
        text.map_or_else(|| "NULL".to_owned(), |text| self.text(text))
    }

    pub(crate) fn texts<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> String {
        texts.into_iter().map(|text| self.text(text)).collect::<Vec<_>>().join(", ")
    }

    /// The microseconds since 1970 as an expression.
    pub(crate) fn clock(&self) -> String {
        match self.tables.dialect.words().clock {
            "NULL" => machine_micros().to_string(),
            clock => clock.to_owned(),
        }
    }

    /// A row with the time: to be read after locks.
    pub(crate) fn select_clock(&self) -> String {
        format!("SELECT {CLOCK}, {}", self.tables.dialect.words().clock)
    }

    /// The greatest of some expressions, none of which is null.
    pub(crate) fn greatest(&self, of: &str) -> String {
        self.by_dialect(format!("greatest({of})"), format!("max({of})"))
    }

    /// The least of some expressions, none of which is null.
    pub(crate) fn least(&self, of: &str) -> String {
        self.by_dialect(format!("least({of})"), format!("min({of})"))
    }

    /// Keeps the rows that are read as they are, until the end of the transaction.
    pub(crate) fn lock_shared(&self) -> &'static str {
        match self.tables.dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => " FOR SHARE",
            #[cfg(feature = "mysql")]
            Dialect::MySql => " LOCK IN SHARE MODE",
            // The file as a whole is locked.
            #[cfg(feature = "sqlite")]
            Dialect::Sqlite => "",
        }
    }

    fn by_dialect(&self, servers: String, file: String) -> String {
        match self.tables.dialect {
            #[cfg(feature = "sqlite")]
            Dialect::Sqlite => file,
            #[allow(unreachable_patterns, reason = "depends on the kinds that are built in")]
            _ => {
                let _ = file;
                servers
            }
        }
    }

    /// Rows of limits in the order in which all transactions lock them: byte by byte.
    pub(crate) fn in_order(&self) -> &'static str {
        match self.tables.dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => " ORDER BY handler COLLATE \"C\", job_key COLLATE \"C\"",
            #[allow(unreachable_patterns, reason = "depends on the kinds that are built in")]
            _ => " ORDER BY handler, job_key",
        }
    }

    pub(crate) fn is_mysql(&self) -> bool {
        is_mysql(self.tables.dialect)
    }

    /// What wakes the workers of other processes when the transaction has ended; nothing where they
    /// cannot be told.
    pub(crate) fn notify(&self) -> String {
        match self.tables.dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => format!("SELECT {NOTIFIED}, pg_notify('{}', '')::text; ", self.jobs()),
            #[allow(unreachable_patterns, reason = "depends on the kinds that are built in")]
            _ => String::new(),
        }
    }
}

pub(crate) fn is_mysql(dialect: Dialect) -> bool {
    match dialect {
        #[cfg(feature = "mysql")]
        Dialect::MySql => true,
        #[allow(unreachable_patterns, reason = "depends on the kinds that are built in")]
        _ => false,
    }
}

/// The tags of rows, which are their first column.
pub(crate) const CLOCK: i64 = -1;
#[cfg(feature = "postgres")]
pub(crate) const NOTIFIED: i64 = -2;

/// A row of an answer.
#[derive(Debug)]
pub(crate) struct Row(pub(crate) Vec<Cell>);

impl Row {
    pub(crate) fn tag(&self) -> i64 {
        self.number(0)
    }

    /// A number; zero where there is none.
    pub(crate) fn number(&self, column: usize) -> i64 {
        self.optional_number(column).unwrap_or_default()
    }

    pub(crate) fn optional_number(&self, column: usize) -> Option<i64> {
        match self.0.get(column) {
            Some(Cell::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// Text; empty where there is none.
    pub(crate) fn text(&self, column: usize) -> String {
        self.optional_text(column).unwrap_or_default()
    }

    pub(crate) fn optional_text(&self, column: usize) -> Option<String> {
        match self.0.get(column) {
            Some(Cell::Text(text)) => Some(text.clone()),
            // What somebody has written into the column by hand.
            Some(Cell::Bytes(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
            Some(Cell::Number(number)) => Some(number.to_string()),
            _ => None,
        }
    }

    pub(crate) fn bytes(&self, column: usize) -> Option<Vec<u8>> {
        match self.0.get(column) {
            Some(Cell::Bytes(bytes)) => Some(bytes.clone()),
            Some(Cell::Text(text)) => Some(text.clone().into_bytes()),
            _ => None,
        }
    }
}

/// The rows of an answer and the time in it.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<Row>,
    /// Microseconds since 1970: the database's, or the machine's where it has none.
    pub(crate) now: i64,
}

impl Rows {
    pub(crate) fn read(cells: Vec<Vec<Cell>>) -> Rows {
        let mut now = None;
        let mut rows: Vec<_> = cells.into_iter().map(Row).collect();
        rows.retain(|row| {
            if row.tag() == CLOCK {
                now = row.optional_number(1);
            }
            row.tag() >= 0
        });
        Rows { rows, now: now.unwrap_or_else(machine_micros) }
    }

    pub(crate) fn tagged(&self, tag: i64) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.tag() == tag)
    }
}

fn machine_micros() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    micros(since)
}

/// A duration in microseconds, rounded up.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// The duration from one time to another, zero if that has passed.
pub(crate) fn until(at: i64, now: i64) -> Duration {
    Duration::from_micros(at.saturating_sub(now).try_into().unwrap_or_default())
}

pub(crate) fn timestamp(micros: i64) -> Timestamp {
    Timestamp::from_nanos(u64::try_from(micros).unwrap_or_default().saturating_mul(1000))
}
