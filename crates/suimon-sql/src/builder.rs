use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use suimon::Calendar;
use suimon::store::default_calendar;

use crate::dialect::{Tables, is_prefix};
use crate::session::{Pool, Target};
use crate::store::{Shared, SqlStore};
use crate::sweep::Sweeper;

/// How a store is opened; see [`SqlStore::builder`].
///
/// ```no_run
/// # async fn open() -> Result<(), suimon_sql::OpenError> {
/// use std::time::Duration;
/// use suimon_sql::SqlStore;
///
/// let store = SqlStore::builder("postgres://app@db/app")
///     .connections(16)
///     .timeout(Duration::from_millis(200))
///     .prefix("limits_of_the_shop")
///     .open()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqlBuilder {
    url: String,
    connections: Option<usize>,
    timeout: Duration,
    prefix: String,
    calendar: Arc<dyn Calendar + Send + Sync>,
    migrates: bool,
}

impl SqlBuilder {
    pub(crate) fn new(url: &str) -> SqlBuilder {
        SqlBuilder {
            url: url.to_owned(),
            connections: None,
            timeout: Duration::from_millis(500),
            prefix: "suimon".to_owned(),
            calendar: default_calendar(),
            migrates: true,
        }
    }

    /// The most connections at a time: 8, for SQLite 1, since only one can write.
    ///
    /// Calls wait for one in turn. One that waits for a key that is locked occupies a
    /// connection.
    #[must_use]
    pub fn connections(mut self, most: usize) -> SqlBuilder {
        self.connections = Some(most.clamp(1, 10_000));
        self
    }

    /// The longest a call may take, with everything: half a second, at least a
    /// millisecond.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> SqlBuilder {
        self.timeout = timeout.clamp(Duration::from_millis(1), Duration::from_secs(86_400));
        self
    }

    /// What the names of the tables begin with: `suimon`, for `suimon_limits` and so on.
    /// Stores with different prefixes share nothing.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> SqlBuilder {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// The rules of time zones: those of the system where they are known.
    #[must_use]
    pub fn calendar(mut self, calendar: impl Calendar + Send + Sync + 'static) -> SqlBuilder {
        self.calendar = Arc::new(calendar);
        self
    }

    /// Opens it without looking at the tables, and so without the database: for
    /// processes that must start while it is away, or may not change tables. Somebody else
    /// calls [`migrate`](SqlStore::migrate).
    #[must_use]
    pub fn without_migration(mut self) -> SqlBuilder {
        self.migrates = false;
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    /// When the URL or the prefix is wrong, the kind of database is not built in, or the
    /// tables cannot be brought up to date.
    pub async fn open(self) -> Result<SqlStore, OpenError> {
        if !is_prefix(&self.prefix) {
            return Err(OpenError::Prefix(self.prefix));
        }
        let target = Target::parse(&self.url, self.timeout).map_err(OpenError::Url)?;
        let dialect = target.dialect();
        let connections = self.connections.unwrap_or(dialect.connections());
        let store = SqlStore::new(Shared {
            pool: Pool::new(target, connections),
            tables: Tables { dialect, prefix: self.prefix },
            timeout: self.timeout,
            calendar: self.calendar,
            counters: Default::default(),
            sweeper: Sweeper::default(),
        });
        if self.migrates {
            store.migrate().await?;
        }
        Ok(store)
    }
}

impl fmt::Debug for SqlBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the URL, which may have a password in it.
        f.debug_struct("SqlBuilder")
            .field("connections", &self.connections)
            .field("timeout", &self.timeout)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Why a store could not be opened, or its tables not be brought up to date.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is none, or of a kind that is not built in.
    Url(String),
    /// The prefix cannot be the beginning of a name of a table.
    Prefix(String),
    /// The tables are of a version that this one cannot work with: the version of the
    /// tables, and the oldest version that can.
    TooOld {
        /// The version of the tables that this crate knows.
        known: i64,
        /// The oldest that the tables can be used with.
        needed: i64,
    },
    /// The database failed.
    Database(Box<dyn StdError + Send + Sync>),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Url(why) => f.write_str(why),
            OpenError::Prefix(prefix) => write!(
                f,
                "`{prefix}` cannot begin the names of tables: up to 40 of a-z, 0-9 and _ can, not beginning with a digit"
            ),
            OpenError::TooOld { known, needed } => write!(
                f,
                "the tables can be used from version {needed} of them on, and this program knows version {known}: \
                 a newer version of it has changed them"
            ),
            OpenError::Database(why) => write!(f, "the tables could not be brought up to date: {why}"),
        }
    }
}

impl StdError for OpenError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            OpenError::Database(why) => Some(&**why),
            _ => None,
        }
    }
}
