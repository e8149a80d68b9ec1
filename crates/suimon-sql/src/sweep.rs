//! Removing rows that say nothing any more.
//!
//! A few rows are looked at, in the order of the keys and round and round, whenever
//! some have been added: four for each. So the table holds a quarter more than is
//! needed, and nobody ever works through all of it. No index on the time from which a
//! row is as good as new: it would have to follow every single call.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use suimon::{Error, Timestamp};
use tokio::time::{sleep, timeout_at};

use crate::dialect::{CLOCK, REQUEST};
use crate::failure::{Failure, Late};
use crate::session::{Row, Session};
use crate::store::{Shared, SqlStore};
use crate::work::now;

/// How many rows are looked at in one go.
const BATCH: usize = 128;
/// After so many new rows.
const EACH: usize = BATCH / 4;
/// A row goes so long after it is as good as new. While it is there it remembers the
/// latest time that it has seen: a clock that steps back by less mints nothing.
const GRACE: Duration = Duration::from_secs(60);

/// When to sweep, and how far it has come.
#[derive(Debug, Default)]
pub(crate) struct Sweeper {
    added: AtomicUsize,
    runs: AtomicBool,
    after: Mutex<Option<Vec<u8>>>,
}

impl Sweeper {
    /// So many rows have been added.
    pub(crate) fn added(&self, rows: usize) {
        if rows > 0 {
            self.added.fetch_add(rows, Ordering::Relaxed);
        }
    }

    /// Is it time, and nobody at it?
    fn is_due(&self) -> bool {
        self.added.load(Ordering::Relaxed) >= EACH && !self.runs.swap(true, Ordering::Relaxed)
    }

    /// Takes what one batch is for, if there is so much.
    fn takes(&self) -> bool {
        let less = |added: usize| added.checked_sub(EACH);
        self.added.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// Sweeping beside the calls; over when it is dropped, also by a runtime that ends.
#[derive(Debug)]
pub(crate) struct Sweeping(SqlStore);

impl Sweeping {
    /// If it is time, and nobody is at it.
    pub(crate) fn if_due(store: &SqlStore) -> Option<Sweeping> {
        store.shared().sweeper.is_due().then(|| Sweeping(store.clone()))
    }

    pub(crate) async fn run(self) {
        self.0.shared().sweep_in_passing().await;
    }
}

impl Drop for Sweeping {
    fn drop(&mut self) {
        self.0.shared().sweeper.runs.store(false, Ordering::Relaxed);
    }
}

/// What a batch has come to.
struct Swept {
    removed: u64,
    /// Where to go on; `None` at the end.
    after: Option<Vec<u8>>,
    /// There may be more requests that have expired.
    has_more: bool,
}

impl Shared {
    /// A batch for so many rows that have been added, until that is done.
    async fn sweep_in_passing(&self) {
        while self.sweeper.takes() {
            let after = mem::take(&mut *self.sweeper.after.lock().unwrap_or_else(PoisonError::into_inner));
            // That one fails is of no consequence: the next begins anew.
            if let Ok(swept) = self.sweep(after.as_deref()).await {
                *self.sweeper.after.lock().unwrap_or_else(PoisonError::into_inner) = swept.after;
            }
        }
    }

    /// All of it.
    pub(crate) async fn clean_up(&self) -> Result<u64, Error> {
        let (mut removed, mut after) = (0, None);
        loop {
            let swept = self.sweep(after.as_deref()).await?;
            removed += swept.removed;
            after = swept.after;
            if after.is_none() && !swept.has_more {
                return Ok(removed);
            }
        }
    }

    async fn sweep(&self, after: Option<&[u8]>) -> Result<Swept, Error> {
        let deadline = Instant::now() + self.timeout;
        let attempts = async {
            loop {
                match self.sweep_once(after, deadline).await {
                    Ok(swept) => return Ok(swept),
                    Err(error) => match Failure::of(&error) {
                        Failure::Other => return Err(Error::unavailable(error)),
                        Failure::Lost => self.pool.forget(),
                        Failure::Conflict | Failure::Cut => {}
                    },
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        match timeout_at(deadline.into(), attempts).await {
            Ok(swept) => swept,
            Err(_) => Err(Error::unavailable(Late { timeout: self.timeout, last: None })),
        }
    }

    async fn sweep_once(&self, after: Option<&[u8]>, deadline: Instant) -> Result<Swept, sqlx::Error> {
        let mut session = self.pool.session().await?;
        let swept = self.sweep_in(&mut session, after, deadline).await;
        if swept.is_err() {
            session.undo().await;
        }
        swept
    }

    /// Looks without locking; then locks what may go, passing over what is in use, and
    /// removes what may still go.
    async fn sweep_in(
        &self,
        session: &mut Session<'_>,
        after: Option<&[u8]>,
        deadline: Instant,
    ) -> Result<Swept, sqlx::Error> {
        let rows = session.finish(self.tables.next_keys(after, BATCH)).await?;
        let clock = rows.iter().find(|row| row.tag == CLOCK).and_then(|row| row.numbers[0]);
        let time = clock.map_or_else(now, |micros| Timestamp::from_nanos(micros.cast_unsigned().saturating_mul(1000)));
        let before = Timestamp::from_nanos(time.as_nanos().saturating_sub(nanos(GRACE)));
        let rows: Vec<_> = rows.into_iter().filter(|row| row.tag != CLOCK).collect();
        let after = if rows.len() < BATCH { None } else { rows.last().and_then(|row| row.bytes[0].clone()) };
        let is_old = |row: &Row| row.numbers[0].is_some_and(|fresh_at| fresh_at.cast_unsigned() <= before.as_nanos());
        let keys: Vec<_> = rows.into_iter().filter(is_old).filter_map(|row| row.bytes.into_iter().next()?).collect();
        let rows = session.finish(self.tables.expired_requests(before, BATCH)).await?;
        let has_more = rows.len() == BATCH;
        let requests: Vec<_> = rows.into_iter().filter_map(|row| row.bytes.into_iter().next()?).collect();
        if keys.is_empty() && requests.is_empty() {
            return Ok(Swept { removed: 0, after, has_more });
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let rows = session.run(self.tables.lock_old(&keys, &requests, before, left)).await?;
        let (requests, keys): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.tag == REQUEST);
        let names = |rows: Vec<Row>| rows.into_iter().filter_map(|row| row.bytes.into_iter().next()?).collect();
        let (keys, requests): (Vec<_>, Vec<_>) = (names(keys), names(requests));
        session.finish(self.tables.remove(&keys, &requests)).await?;
        let removed = u64::try_from(keys.len() + requests.len()).unwrap_or(u64::MAX);
        self.counters.removed.fetch_add(removed, Ordering::Relaxed);
        Ok(Swept { removed, after, has_more })
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
