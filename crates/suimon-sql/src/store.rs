use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use suimon::store::{Acting, Call, Decided, Record, Reply, Settling, Store, Verb, decide, settle};
use suimon::{Calendar, Error, Settlement, Timestamp};
use tokio::time::{sleep, timeout_at};

use crate::builder::{OpenError, SqlBuilder};
use crate::dialect::{CLOCK, Change, Recording, Tables};
use crate::failure::{Failure, Late};
use crate::key;
use crate::session::{Pool, Row, Session};
use crate::sweep::{Sweeper, Sweeping};

/// A store in a database that processes and machines share.
///
/// Copies share the connections. A store is for a tokio runtime with time and I/O; its
/// connections outlive the runtime that made them, and are made again in another.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = suimon_testkit::servers::Folder::new("example", &[]);
/// # let url = format!("sqlite://{}/limits.db", folder.path().display());
/// use suimon_sql::SqlStore;
///
/// let store = SqlStore::open(&url).await?;
/// assert_eq!(store.clean_up().await?, 0);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct SqlStore(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) tables: Tables,
    pub(crate) timeout: Duration,
    pub(crate) calendar: Arc<dyn Calendar + Send + Sync>,
    pub(crate) counters: Counters,
    pub(crate) sweeper: Sweeper,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) conflicts: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) removed: AtomicU64,
}

/// What a store has been through since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SqlStats {
    /// Transactions that were tried again: deadlocks, failures to serialize, two who were
    /// first with a key, a file that was locked, a lock that did not come in time.
    pub conflicts: u64,
    /// Connections that turned out to be lost.
    pub lost: u64,
    /// Calls that had no answer within the deadline.
    pub late: u64,
    /// Rows that were removed because they were as good as new, or expired.
    pub removed: u64,
}

impl SqlStore {
    /// Opens the store in the database of a URL, and brings its tables up to date.
    ///
    /// # Errors
    /// When the URL is wrong, its kind of database is not built in, or the tables
    /// cannot be made.
    pub async fn open(url: &str) -> Result<SqlStore, OpenError> {
        SqlStore::builder(url).open().await
    }

    /// To open a store otherwise than by the defaults.
    #[must_use]
    pub fn builder(url: &str) -> SqlBuilder {
        SqlBuilder::new(url)
    }

    pub(crate) fn new(shared: Shared) -> SqlStore {
        SqlStore(Arc::new(shared))
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    /// What it has been through.
    #[must_use]
    pub fn stats(&self) -> SqlStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { conflicts, lost, late, removed } = &self.0.counters;
        SqlStats { conflicts: read(conflicts), lost: read(lost), late: read(late), removed: read(removed) }
    }

    /// Removes all records of keys that are as good as new, and of requests that have
    /// expired, a minute after they are; and says how many.
    ///
    /// A store does so by itself, a few in passing whenever some have been added: this
    /// is for one that nobody adds to any more.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn clean_up(&self) -> Result<u64, Error> {
        self.0.clean_up().await
    }

    async fn decide_call(&self, call: &Call) -> Result<Reply, Error> {
        let shared = &*self.0;
        let keys = keys(call.parts.iter().map(|part| &part.key))?;
        if call.verb == Verb::Peek && call.id.is_none() {
            return shared.in_time(Peek { call, keys: &keys }).await;
        }
        let id = call.id.as_ref().zip(call.parts.first());
        let id = id.map(|(id, part)| (key::request(&part.key, id.as_str()), id.lifetime()));
        let reply = shared.in_time(Decide { call, keys: &keys, id: id.as_ref() }).await?;
        if let Some(sweeping) = Sweeping::if_due(self) {
            tokio::spawn(sweeping.run());
        }
        Ok(reply)
    }
}

/// Something to be done in one transaction, or as if in one.
trait Work {
    type Answer;

    /// May it be done again when it is unknown whether it was done?
    fn is_repeatable(&self) -> bool;

    fn attempt(
        &self,
        shared: &Shared,
        session: &mut Session<'_>,
        left: Duration,
    ) -> impl Future<Output = Result<Self::Answer, Stop>> + Send;
}

/// Why an attempt ended without an answer.
enum Stop {
    /// Nothing was decided, and nothing will be.
    Refused(Error),
    /// The database failed before anything was written.
    Before(sqlx::Error),
    /// It failed while things were written.
    Amid(sqlx::Error),
}

struct Peek<'a> {
    call: &'a Call,
    keys: &'a [(usize, Vec<u8>)],
}

struct Decide<'a> {
    call: &'a Call,
    keys: &'a [(usize, Vec<u8>)],
    id: Option<&'a (Vec<u8>, Duration)>,
}

struct Settle<'a> {
    settling: &'a Settling,
    keys: &'a [(usize, Vec<u8>)],
}

impl Work for Peek<'_> {
    type Answer = Reply;

    fn is_repeatable(&self) -> bool {
        true
    }

    async fn attempt(&self, shared: &Shared, session: &mut Session<'_>, _: Duration) -> Result<Reply, Stop> {
        let rows = session.finish(shared.tables.peek(self.keys)).await.map_err(Stop::Before)?;
        let read = Read::from(rows, self.call.parts.len(), self.call.at)?;
        let decided = decide(self.call, &read.records, read.now, &*shared.calendar);
        decided.map(|decided| decided.reply).map_err(Stop::Refused)
    }
}

impl Work for Decide<'_> {
    type Answer = Reply;

    fn is_repeatable(&self) -> bool {
        self.id.is_some()
    }

    async fn attempt(&self, shared: &Shared, session: &mut Session<'_>, left: Duration) -> Result<Reply, Stop> {
        let id = self.id.map(|(id, _)| &id[..]);
        let rows = session.run(shared.tables.lock(self.keys, id, left)).await.map_err(Stop::Before)?;
        let read = Read::from(rows, self.call.parts.len(), self.call.at)?;
        if let Some(answer) = read.answer {
            session.undo().await;
            return Reply::from_bytes(&answer).map_err(Stop::Refused);
        }
        let Decided { reply, records } =
            decide(self.call, &read.records, read.now, &*shared.calendar).map_err(Stop::Refused)?;
        let recording = self.id.map(|(id, lifetime)| Recording {
            id,
            reply: reply.to_bytes(),
            now: read.now,
            expires_at: read.now.saturating_add(*lifetime),
        });
        let added = shared.write(session, self.keys, &read.records, &records, recording.as_ref()).await?;
        // By a time that a test has made up, rows would look old.
        if self.call.at.is_none() {
            shared.sweeper.added(added);
        }
        Ok(reply)
    }
}

impl Work for Settle<'_> {
    type Answer = Settlement;

    /// What was settled twice would be charged or given back twice.
    fn is_repeatable(&self) -> bool {
        false
    }

    async fn attempt(&self, shared: &Shared, session: &mut Session<'_>, left: Duration) -> Result<Settlement, Stop> {
        let rows = session.run(shared.tables.lock(self.keys, None, left)).await.map_err(Stop::Before)?;
        let read = Read::from(rows, self.settling.ticket.parts.len(), self.settling.at)?;
        let settled = settle(self.settling, &read.records, read.now, &*shared.calendar);
        let (settlement, records) = settled.map_err(Stop::Refused)?;
        shared.write(session, self.keys, &read.records, &records, None).await?;
        Ok(settlement)
    }
}

impl Shared {
    /// Attempts something until it is done, refused or too late.
    async fn in_time<W: Work + Sync>(&self, work: W) -> Result<W::Answer, Error> {
        let deadline = Instant::now() + self.timeout;
        let mut last = None;
        if let Ok(answer) = timeout_at(deadline.into(), self.attempts(&work, deadline, &mut last)).await {
            return answer;
        }
        self.counters.late.fetch_add(1, Ordering::Relaxed);
        Err(Error::unavailable(Late { timeout: self.timeout, last }))
    }

    async fn attempts<W: Work + Sync>(
        &self,
        work: &W,
        deadline: Instant,
        last: &mut Option<sqlx::Error>,
    ) -> Result<W::Answer, Error> {
        loop {
            let (error, is_repeatable) = match self.attempt(work, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(Stop::Refused(error)) => return Err(error),
                Err(Stop::Before(error)) => (error, true),
                Err(Stop::Amid(error)) => (error, work.is_repeatable()),
            };
            let failure = Failure::of(&error);
            match failure {
                Failure::Conflict => self.counters.conflicts.fetch_add(1, Ordering::Relaxed),
                Failure::Cut if is_repeatable => self.counters.conflicts.fetch_add(1, Ordering::Relaxed),
                Failure::Lost if is_repeatable => self.counters.lost.fetch_add(1, Ordering::Relaxed),
                Failure::Cut | Failure::Lost | Failure::Other => return Err(Error::unavailable(error)),
            };
            if failure == Failure::Lost {
                self.pool.forget();
            }
            *last = Some(error);
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn attempt<W: Work + Sync>(&self, work: &W, deadline: Instant) -> Result<W::Answer, Stop> {
        let mut session = self.pool.session().await.map_err(Stop::Before)?;
        let left = deadline.saturating_duration_since(Instant::now());
        let done = work.attempt(self, &mut session, left).await;
        let is_open = match &done {
            Ok(_) => false,
            Err(Stop::Refused(_)) => true,
            Err(Stop::Before(error) | Stop::Amid(error)) => Failure::of(error) != Failure::Lost,
        };
        if is_open {
            session.undo().await;
        }
        done
    }

    /// Writes what has changed and ends the transaction; says how many rows were added.
    async fn write(
        &self,
        session: &mut Session<'_>,
        keys: &[(usize, Vec<u8>)],
        before: &[Option<Record>],
        after: &[Option<Record>],
        recording: Option<&Recording<'_>>,
    ) -> Result<usize, Stop> {
        let changes = keys.iter().filter_map(|(index, key)| {
            let change = match (before.get(*index)?, after.get(*index)?.as_ref()?) {
                (None, record) => Change::Insert(record),
                (Some(_), record) => Change::Update(record),
            };
            Some((&key[..], change))
        });
        let changes: Vec<_> = changes.collect();
        if changes.is_empty() && recording.is_none() {
            session.undo().await;
            return Ok(0);
        }
        let inserts = changes.iter().filter(|(_, change)| matches!(change, Change::Insert(_))).count();
        session.finish(self.tables.write(changes.into_iter(), recording)).await.map_err(Stop::Amid)?;
        Ok(inserts + usize::from(recording.is_some()))
    }
}

/// What was read in a transaction.
struct Read {
    records: Vec<Option<Record>>,
    now: Timestamp,
    /// The recorded answer of the request, if it has not expired.
    answer: Option<Vec<u8>>,
}

impl Read {
    fn from(rows: Vec<Row>, parts: usize, at: Option<Timestamp>) -> Result<Read, Stop> {
        let mut read = Read { records: vec![None; parts], now: at.unwrap_or_else(now), answer: None };
        for row in rows {
            let [first, second, third] = row.numbers;
            let [text, bytes] = row.bytes;
            if row.tag == CLOCK {
                if let (None, Some(micros)) = (at, first) {
                    read.now = Timestamp::from_nanos(micros.cast_unsigned().saturating_mul(1000));
                }
                let expires_at = second.map(|nanos| Timestamp::from_nanos(nanos.cast_unsigned()));
                read.answer = text.filter(|_| expires_at > Some(read.now));
            } else if let Some(record) = usize::try_from(row.tag).ok().and_then(|tag| read.records.get_mut(tag))
                && let (Some(version), Some(seen), Some(fresh_at)) = (first, second, third)
            {
                let policy = String::from_utf8(text.unwrap_or_default());
                let policy = policy.map_err(|error| Stop::Refused(Error::unavailable(error)))?;
                *record = Some(Record {
                    version: version.cast_unsigned(),
                    policy,
                    state: bytes.unwrap_or_default(),
                    seen: Timestamp::from_nanos(seen.cast_unsigned()),
                    fresh_at: Timestamp::from_nanos(fresh_at.cast_unsigned()),
                });
            }
        }
        Ok(read)
    }
}

/// The machine's time, for a database without a clock of its own.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::ZERO.saturating_add(since)
}

/// The keys as they are stored, in the order in which they are locked, each with its place
/// in the call.
fn keys<'a>(keys: impl Iterator<Item = &'a Arc<str>>) -> Result<Vec<(usize, Vec<u8>)>, Error> {
    let mut keys: Vec<_> = keys.map(|key| key::stored(key)).enumerate().collect();
    keys.sort_by(|(_, one), (_, other)| one.cmp(other));
    match keys.windows(2).find(|pair| pair[0].1 == pair[1].1) {
        None => Ok(keys),
        Some(pair) => Err(Error::unavailable(format!(
            "the parts {} and {} of a call have the same key: one part with the sum of their costs says what is meant",
            pair[0].0, pair[1].0
        ))),
    }
}

impl Store for SqlStore {
    fn decide<'a>(&'a self, call: &'a Call) -> Acting<'a, Reply> {
        Box::pin(self.decide_call(call))
    }

    fn settle<'a>(&'a self, settling: &'a Settling) -> Acting<'a, Settlement> {
        Box::pin(async move {
            let keys = keys(settling.ticket.parts.iter().map(|(key, _)| key))?;
            self.0.in_time(Settle { settling, keys: &keys }).await
        })
    }
}

impl fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { tables, timeout, .. } = &*self.0;
        let mut debug = f.debug_struct("SqlStore");
        debug.field("database", &tables.dialect).field("prefix", &tables.prefix).field("timeout", timeout);
        debug.finish_non_exhaustive()
    }
}
