//! What is done in a transaction, and how often it is tried.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use suimon::store::{
    Call, Decided, Record, Reply, Settling, decide, settle, settlement_from_bytes, settlement_to_bytes,
};
use suimon::{Error, Settlement, Timestamp};
use tokio::time::{sleep, timeout_at};

use crate::dialect::{CLOCK, Change, Recording};
use crate::failure::{Failure, Late};
use crate::key;
use crate::session::{Row, Session};
use crate::store::{Held, Shared};

/// Something to be done in one transaction, or as if in one.
pub(crate) trait Work {
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
type Stop = crate::failure::Stop<Error>;

/// A look at keys, without a lock.
pub(crate) struct Peek<'a> {
    pub(crate) call: &'a Call,
    pub(crate) keys: &'a [(usize, Vec<u8>)],
}

/// A decision.
pub(crate) struct Decide<'a> {
    pub(crate) call: &'a Call,
    pub(crate) keys: &'a [(usize, Vec<u8>)],
    /// The id as it is stored, and its lifetime.
    pub(crate) id: Option<&'a (Vec<u8>, Duration)>,
}

/// The settlement of a booking.
pub(crate) struct Settle<'a> {
    pub(crate) settling: &'a Settling,
    pub(crate) keys: &'a [(usize, Vec<u8>)],
    /// The id as it is stored, and its lifetime.
    pub(crate) id: Option<&'a (Vec<u8>, Duration)>,
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
        let rows = shared.lock(session, self.keys, id, left).await.map_err(Stop::Before)?;
        let read = Read::from(rows, self.call.parts.len(), self.call.at)?;
        if let Some(answer) = read.answer {
            session.undo().await;
            return Reply::from_bytes(&answer).map_err(Stop::Refused);
        }
        let Decided { reply, mut records } =
            decide(self.call, &read.records, read.now, &*shared.calendar).map_err(Stop::Refused)?;
        read.keep_by_the_clock(&mut records);
        let recording = self.id.map(|id| read.recording(id, reply.to_bytes()));
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
        self.id.is_some()
    }

    async fn attempt(&self, shared: &Shared, session: &mut Session<'_>, left: Duration) -> Result<Settlement, Stop> {
        let id = self.id.map(|(id, _)| &id[..]);
        let rows = shared.lock(session, self.keys, id, left).await.map_err(Stop::Before)?;
        let read = Read::from(rows, self.settling.ticket.parts.len(), self.settling.at)?;
        if let Some(answer) = read.answer {
            session.undo().await;
            return settlement_from_bytes(&answer).map_err(Stop::Refused);
        }
        let settled = settle(self.settling, &read.records, read.now, &*shared.calendar);
        let (settlement, mut records) = settled.map_err(Stop::Refused)?;
        read.keep_by_the_clock(&mut records);
        let recording = self.id.map(|id| read.recording(id, settlement_to_bytes(settlement)));
        let added = shared.write(session, self.keys, &read.records, &records, recording.as_ref()).await?;
        if self.settling.at.is_none() {
            shared.sweeper.added(added);
        }
        Ok(settlement)
    }
}

/// A count of the rows.
pub(crate) struct Count;

impl Work for Count {
    type Answer = Held;

    fn is_repeatable(&self) -> bool {
        true
    }

    async fn attempt(&self, shared: &Shared, session: &mut Session<'_>, _: Duration) -> Result<Held, Stop> {
        let rows = session.finish(shared.tables.count()).await.map_err(Stop::Before)?;
        let [records, requests, _] = rows.first().map(|row| row.numbers).unwrap_or_default();
        let count = |rows: Option<i64>| rows.unwrap_or_default().try_into().unwrap_or_default();
        Ok(Held { records: count(records), requests: count(requests) })
    }
}

impl Shared {
    /// Attempts something until it is done, refused or too late.
    pub(crate) async fn in_time<W: Work + Sync>(&self, work: W) -> Result<W::Answer, Error> {
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
                Err(stop) => stop.failed(work.is_repeatable())?,
            };
            let failure = Failure::of(&error);
            match failure {
                Failure::Conflict => self.counters.conflicts.fetch_add(1, Ordering::Relaxed),
                Failure::Cut if is_repeatable => self.counters.conflicts.fetch_add(1, Ordering::Relaxed),
                Failure::Lost if is_repeatable => self.counters.lost.fetch_add(1, Ordering::Relaxed),
                Failure::Cut | Failure::Lost | Failure::Other => {
                    self.counters.failed.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(%error, "the database failed");
                    return Err(Error::unavailable(error));
                }
            };
            tracing::debug!(%error, "the database is asked again");
            let mut pause = Duration::from_millis(1);
            if failure == Failure::Lost {
                self.pool.forget();
                // A new connection at once; then it is the server that is away.
                if last.as_ref().is_some_and(|last| Failure::of(last) == Failure::Lost) {
                    pause = Duration::from_millis(20);
                }
            }
            *last = Some(error);
            sleep(pause).await;
        }
    }

    async fn attempt<W: Work + Sync>(&self, work: &W, deadline: Instant) -> Result<W::Answer, Stop> {
        let mut session = self.pool.session().await.map_err(Stop::Before)?;
        let left = deadline.saturating_duration_since(Instant::now());
        let done = work.attempt(self, &mut session, left).await;
        if done.as_ref().is_err_and(Stop::leaves_open) {
            session.undo().await;
        }
        done
    }

    /// Begins a transaction and locks some records, and notes how long that took.
    async fn lock(
        &self,
        session: &mut Session<'_>,
        keys: &[(usize, Vec<u8>)],
        id: Option<&[u8]>,
        left: Duration,
    ) -> Result<Vec<Row>, sqlx::Error> {
        let start = Instant::now();
        let rows = session.run(self.tables.lock(keys, id, left)).await;
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counters.locking.fetch_add(nanos, Ordering::Relaxed);
        self.counters.locks.fetch_add(1, Ordering::Relaxed);
        rows
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
    /// The server's time, and that of the call.
    clock: Timestamp,
    now: Timestamp,
    /// The recorded answer of the request, if it has not expired.
    answer: Option<Vec<u8>>,
}

impl Read {
    fn from(rows: Vec<Row>, parts: usize, at: Option<Timestamp>) -> Result<Read, Stop> {
        let clock = now();
        let mut read = Read { records: vec![None; parts], clock, now: at.unwrap_or(clock), answer: None };
        for row in rows {
            let [first, second, third] = row.numbers;
            let [text, bytes] = row.bytes;
            if row.tag == CLOCK {
                if let Some(micros) = first {
                    read.clock = Timestamp::from_nanos(micros.cast_unsigned().saturating_mul(1000));
                    read.now = at.unwrap_or(read.clock);
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

    /// Of a time that a test has made up, a record is as far from its end as of the server's,
    /// by which it is removed.
    fn keep_by_the_clock(&self, records: &mut [Option<Record>]) {
        if self.now != self.clock {
            for record in records.iter_mut().flatten() {
                record.fresh_at = self.clock.saturating_add(record.fresh_at.saturating_since(self.now));
            }
        }
    }

    fn recording<'a>(&self, (id, lifetime): &'a (Vec<u8>, Duration), reply: Vec<u8>) -> Recording<'a> {
        Recording { id, reply, now: self.now, expires_at: self.now.saturating_add(*lifetime) }
    }
}

/// The machine's time, for a database without a clock of its own.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::ZERO.saturating_add(since)
}

/// The keys as they are stored, in the order in which they are locked, each with its place
/// in the call.
pub(crate) fn keys<'a>(keys: impl Iterator<Item = &'a Arc<str>>) -> Result<Vec<(usize, Vec<u8>)>, Error> {
    let mut keys: Vec<_> = keys.map(|key| key::stored(key)).enumerate().collect();
    keys.sort_by(|(_, one), (_, other)| one.cmp(other));
    match keys.windows(2).find(|pair| pair[0].1 == pair[1].1) {
        None => Ok(keys),
        Some(pair) => Err(Error::unsupported(format!(
            "the parts {} and {} of a call have the same key: one part with the sum of their costs says what is meant",
            pair[0].0, pair[1].0
        ))),
    }
}
