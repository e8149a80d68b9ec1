//! Connections, and what comes back on them.

use std::mem;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, ColumnIndex, Decode, ValueRef as _};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
use sqlx::{ConnectOptions, Connection as _};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::dialect::Dialect;

/// A connection that has rested so long may have been cut by somebody in between
/// without a word.
const RESTED: Duration = Duration::from_secs(60);

/// The longest that it may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// How to connect.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "for suimon's own crates")]
pub enum Target {
    #[cfg(feature = "postgres")]
    Postgres(sqlx::postgres::PgConnectOptions),
    /// And what is said to the server first.
    #[cfg(feature = "mysql")]
    MySql(sqlx::mysql::MySqlConnectOptions, String),
    #[cfg(feature = "sqlite")]
    Sqlite(sqlx::sqlite::SqliteConnectOptions),
}

/// A connection to one of the databases.
#[derive(Debug)]
#[allow(missing_docs, reason = "for suimon's own crates")]
pub enum Connection {
    #[cfg(feature = "postgres")]
    Postgres(sqlx::PgConnection),
    #[cfg(feature = "mysql")]
    MySql(sqlx::MySqlConnection),
    #[cfg(feature = "sqlite")]
    Sqlite(sqlx::SqliteConnection),
}

/// A row of an answer: what it is, three numbers and two strings of bytes.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) tag: i64,
    pub(crate) numbers: [Option<i64>; 3],
    pub(crate) bytes: [Option<Vec<u8>>; 2],
}

/// A value of an answer whose columns are not known beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// There is none.
    Null,
    /// A whole number.
    Number(i64),
    /// Text in UTF-8.
    Text(String),
    /// Anything else.
    Bytes(Vec<u8>),
}

impl Target {
    /// The target of a URL, for calls that take so long at most.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(url: &str, timeout: Duration) -> Result<Target, String> {
        let scheme = url.split(':').next().unwrap_or_default();
        match scheme {
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                let options: sqlx::postgres::PgConnectOptions = url.parse().map_err(told)?;
                Ok(Target::Postgres(options.statement_cache_capacity(0).disable_statement_logging()))
            }
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => {
                let options: sqlx::mysql::MySqlConnectOptions = url.parse().map_err(told)?;
                // What follows `M!` is for MariaDB alone.
                let secs = timeout.as_secs_f64();
                let whole = secs.ceil().max(1.0);
                let hello = format!(
                    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                     SET SESSION innodb_lock_wait_timeout = {whole} \
                     /*M! , max_statement_time = {secs:.3} , idle_transaction_timeout = {whole} */"
                );
                Ok(Target::MySql(options.disable_statement_logging(), hello))
            }
            #[cfg(feature = "sqlite")]
            "sqlite" => {
                use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
                if url.contains(":memory:") || url.contains("mode=memory") {
                    return Err("a database in memory is shared with nobody: name a file".to_owned());
                }
                let options: SqliteConnectOptions = url.parse().map_err(told)?;
                // Waiting for the file is done in `work`, so as not to hold a thread for long.
                let options = options.create_if_missing(true).busy_timeout(Duration::from_millis(5).min(timeout));
                let options = options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Normal);
                Ok(Target::Sqlite(options.disable_statement_logging()))
            }
            _ if ["postgres", "postgresql", "mysql", "mariadb", "sqlite"].contains(&scheme) => {
                Err(format!("`{scheme}` is not built in; the crate's features are `postgres`, `mysql` and `sqlite`"))
            }
            _ => Err("the URL of a database begins with `postgres:`, `mysql:`, `mariadb:` or `sqlite:`".to_owned()),
        }
    }

    /// The kind of the database.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        match *self {
            #[cfg(feature = "postgres")]
            Target::Postgres(_) => Dialect::Postgres,
            #[cfg(feature = "mysql")]
            Target::MySql(..) => Dialect::MySql,
            #[cfg(feature = "sqlite")]
            Target::Sqlite(_) => Dialect::Sqlite,
        }
    }

    /// A connection of one's own.
    ///
    /// # Errors
    /// When there is none to be had.
    pub async fn connect(&self) -> Result<Connection, sqlx::Error> {
        match *self {
            #[cfg(feature = "postgres")]
            Target::Postgres(ref options) => Ok(Connection::Postgres(options.connect().await?)),
            #[cfg(feature = "mysql")]
            Target::MySql(ref options, ref hello) => {
                let mut connection = Connection::MySql(options.connect().await?);
                connection.run(hello.clone()).await?;
                Ok(connection)
            }
            #[cfg(feature = "sqlite")]
            Target::Sqlite(ref options) => Ok(Connection::Sqlite(options.connect().await?)),
        }
    }
}

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
#[expect(clippy::needless_pass_by_value, reason = "mapped over results")]
fn told(error: sqlx::Error) -> String {
    error.to_string()
}

/// Sends statements and reads the rows of all their answers by a function: one round trip.
macro_rules! read_all {
    ($connection:expr, $sql:expr, $read:path) => {{
        let sql = sqlx::raw_sql(AssertSqlSafe($sql));
        match *$connection {
            #[cfg(feature = "postgres")]
            Connection::Postgres(ref mut connection) => sql.fetch_all(connection).await?.iter().map($read).collect(),
            #[cfg(feature = "mysql")]
            Connection::MySql(ref mut connection) => sql.fetch_all(connection).await?.iter().map($read).collect(),
            #[cfg(feature = "sqlite")]
            Connection::Sqlite(ref mut connection) => sql.fetch_all(connection).await?.iter().map($read).collect(),
        }
    }};
}

impl Connection {
    pub(crate) async fn run(&mut self, sql: String) -> Result<Vec<Row>, sqlx::Error> {
        read_all!(self, sql, Row::read)
    }

    /// Sends statements and reads the rows of all their answers, whatever their columns.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn cells(&mut self, sql: String) -> Result<Vec<Vec<Cell>>, sqlx::Error> {
        read_all!(self, sql, Cell::read_row)
    }

    /// Takes leave of the server.
    async fn close(self) {
        let closed = match self {
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => connection.close().await,
            #[cfg(feature = "mysql")]
            Connection::MySql(connection) => connection.close().await,
            #[cfg(feature = "sqlite")]
            Connection::Sqlite(connection) => connection.close().await,
        };
        // What cannot be told any more is gone anyway.
        drop::<Result<(), sqlx::Error>>(closed);
    }
}

impl Cell {
    fn read_row<'r, R: sqlx::Row>(row: &'r R) -> Result<Vec<Cell>, sqlx::Error>
    where
        usize: ColumnIndex<R>,
        i64: Decode<'r, R::Database>,
        String: Decode<'r, R::Database>,
        Vec<u8>: Decode<'r, R::Database>,
    {
        let cell = |column: usize| {
            let value = row.try_get_raw(column)?;
            if value.is_null() {
                return Ok(Cell::Null);
            }
            let kind = value.type_info().to_string();
            drop(value);
            if kind.contains("INT") || kind == "BOOLEAN" {
                row.try_get_unchecked(column).map(Cell::Number)
            } else if kind.contains("TEXT") || kind.contains("CHAR") || kind == "unknown" {
                row.try_get_unchecked(column).map(Cell::Text)
            } else {
                row.try_get_unchecked(column).map(Cell::Bytes)
            }
        };
        (0..row.columns().len()).map(cell).collect()
    }
}

impl Row {
    /// Columns that are not there are as good as empty.
    fn read<'r, R: sqlx::Row>(row: &'r R) -> Result<Row, sqlx::Error>
    where
        usize: ColumnIndex<R>,
        Option<i64>: Decode<'r, R::Database>,
        Option<Vec<u8>>: Decode<'r, R::Database>,
    {
        if row.columns().len() < 6 {
            return Ok(Row::default());
        }
        let number = |column: usize| row.try_get_unchecked::<Option<i64>, _>(column);
        let bytes = |column: usize| row.try_get_unchecked::<Option<Vec<u8>>, _>(column);
        Ok(Row {
            tag: number(0)?.unwrap_or_default(),
            numbers: [number(1)?, number(2)?, number(3)?],
            bytes: [bytes(4)?, bytes(5)?],
        })
    }
}

/// The connections of a store.
///
/// Not the driver's own pool: that asks the server whether a connection still works when
/// it is given back, one more round trip for each call, and does not tell why it cannot
/// connect.
#[derive(Debug)]
pub struct Pool {
    target: Target,
    /// As many as there may be connections; who waits for one is served in turn.
    permits: Semaphore,
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl Pool {
    /// Connections to a target, so many at most at a time.
    #[must_use]
    pub fn new(target: Target, size: usize) -> Pool {
        Pool { target, permits: Semaphore::new(size), idle: Mutex::default() }
    }

    /// What they lead to.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// A connection that has nothing open.
    ///
    /// # Errors
    /// When there is none to be had.
    pub async fn session(&self) -> Result<Session<'_>, sqlx::Error> {
        let permit = self.permits.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
        let connection = self.rested();
        let connection = match connection {
            Some(connection) => connection,
            None => self.target.connect().await?,
        };
        Ok(Session { pool: self, connection: Some(connection), is_clean: true, _permit: permit })
    }

    fn rested(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that have rested longest come first.
        let old = idle.iter().take_while(|(_, since)| since.elapsed() > RESTED).count();
        for (connection, _) in idle.drain(..old) {
            // In good order, since servers note those that are just gone; nobody waits for it.
            tokio::spawn(timeout(GOODBYE, connection.close()));
        }
        idle.pop().map(|(connection, _)| connection)
    }

    /// Closes the connections that rest, in good order.
    pub async fn close(&self) {
        let idle = mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        for (connection, _) in idle {
            let _ = timeout(GOODBYE, connection.close()).await;
        }
    }

    /// Closes the connections that rest: the server has gone, and what is left of them fails
    /// one by one.
    pub fn forget(&self) {
        let idle = mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        drop(idle);
    }
}

/// A connection in use. One that is dropped with something open is closed, upon which the
/// server undoes what was open.
#[derive(Debug)]
pub struct Session<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
    is_clean: bool,
    _permit: SemaphorePermit<'a>,
}

impl Session<'_> {
    /// Sends statements; afterwards a transaction may be open.
    pub(crate) async fn run(&mut self, sql: String) -> Result<Vec<Row>, sqlx::Error> {
        self.is_clean = false;
        match &mut self.connection {
            Some(connection) => connection.run(sql).await,
            None => Err(sqlx::Error::PoolClosed),
        }
    }

    /// The same, when no transaction is open afterwards.
    pub(crate) async fn finish(&mut self, sql: String) -> Result<Vec<Row>, sqlx::Error> {
        let rows = self.run(sql).await?;
        self.is_clean = true;
        Ok(rows)
    }

    /// Sends statements and reads rows of any columns; afterwards a transaction may be open.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn cells(&mut self, sql: String) -> Result<Vec<Vec<Cell>>, sqlx::Error> {
        self.is_clean = false;
        match &mut self.connection {
            Some(connection) => connection.cells(sql).await,
            None => Err(sqlx::Error::PoolClosed),
        }
    }

    /// The same, when no transaction is open afterwards.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn finish_cells(&mut self, sql: String) -> Result<Vec<Vec<Cell>>, sqlx::Error> {
        let rows = self.cells(sql).await?;
        self.is_clean = true;
        Ok(rows)
    }

    /// Undoes what may be open.
    pub async fn undo(&mut self) {
        if self.is_clean {
            return;
        }
        match self.finish("ROLLBACK".to_owned()).await {
            Ok(_) => {}
            // There was nothing open.
            #[cfg(feature = "sqlite")]
            Err(sqlx::Error::Database(_)) if self.pool.target.dialect() == Dialect::Sqlite => self.is_clean = true,
            // It is closed when it is dropped, which undoes it too.
            Err(_) => {}
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take_if(|_| self.is_clean) {
            let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push((connection, Instant::now()));
        }
    }
}
