use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use suimon::Calendar;
use suimon::store::default_calendar;
use suimon_sql::access::{Pool, Tables, Target, is_prefix, migrate};

use crate::Error;
use crate::db::Db;
use crate::queue::Queue;
use crate::schema::{NOTED, VERSIONS};

/// How a queue is opened; see [`Queue::builder`].
#[derive(Clone)]
pub struct QueueBuilder {
    url: String,
    connections: Option<usize>,
    timeout: Duration,
    prefix: String,
    calendar: Arc<dyn Calendar + Send + Sync>,
    migrates: bool,
}

impl QueueBuilder {
    pub(crate) fn new(url: &str) -> QueueBuilder {
        QueueBuilder {
            url: url.to_owned(),
            connections: None,
            timeout: Duration::from_secs(5),
            prefix: "suimon".to_owned(),
            calendar: default_calendar(),
            migrates: true,
        }
    }

    /// The most connections at a time: 8, for SQLite 1.
    #[must_use]
    pub fn connections(mut self, most: usize) -> QueueBuilder {
        self.connections = Some(most.clamp(1, 10_000));
        self
    }

    /// The longest that a step may take, with trying it again: 5 seconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> QueueBuilder {
        self.timeout = timeout.clamp(Duration::from_millis(1), Duration::from_secs(86_400));
        self
    }

    /// What the names of the tables begin with: `suimon`, for `suimon_jobs` and so on. Queues
    /// with different prefixes share nothing.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> QueueBuilder {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// The rules of time zones: those of the system where they are known.
    #[must_use]
    pub fn calendar(mut self, calendar: impl Calendar + Send + Sync + 'static) -> QueueBuilder {
        self.calendar = Arc::new(calendar);
        self
    }

    /// Opens it without looking at the tables, and so without the database.
    #[must_use]
    pub fn without_migration(mut self) -> QueueBuilder {
        self.migrates = false;
        self
    }

    /// Opens the queue.
    ///
    /// # Errors
    /// When the URL or the prefix is wrong, the kind of database is not built in, or the
    /// tables cannot be brought up to date.
    pub async fn open(self) -> Result<Queue, Error> {
        if !is_prefix(&self.prefix) {
            let allowed = "up to 40 of a-z, 0-9 and _, not beginning with a digit";
            return Err(Error::Range { what: "prefix of tables", asked: format!("`{}`", self.prefix), allowed });
        }
        let target = Target::parse(&self.url, self.timeout).map_err(|why| Error::Database(why.into()))?;
        let tables = Tables { dialect: target.dialect(), prefix: self.prefix };
        if self.migrates {
            migrate(&target, &tables, NOTED, VERSIONS).await.map_err(|why| Error::Database(why.into()))?;
        }
        let connections = self.connections.unwrap_or(tables.dialect.connections());
        let pool = Pool::new(target, connections);
        let db = Db { pool, tables, timeout: self.timeout, retries: AtomicU64::new(0) };
        Ok(Queue::new(db, self.calendar))
    }
}

impl fmt::Debug for QueueBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the URL, which may have a password in it.
        f.debug_struct("QueueBuilder")
            .field("connections", &self.connections)
            .field("timeout", &self.timeout)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
