//! Claiming jobs: looking for lanes in which something can start, then starting it in one
//! transaction that books its limits.
//!
//! A *lane* is a handler, a key and a priority. It has the earliest time at which something
//! in it may start; a handler's row has another. So what is closed costs nothing, however many
//! jobs lie in it. Both may be too early, which costs a look, and never too late: they are moved on
//! only under the lock of the row.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use suimon::{Calendar, Cost};
use suimon_sql::access::Session;

use crate::db::{Db, NEVER, Row, Rows, Stop, Work, until};
use crate::lane::{Lane, names};
use crate::limits::{Answer, Asking, Booking, Limited, Locked, Name, start};
use crate::look::Seen;
use crate::row::Lock;

/// How long nothing starts under a limit that cannot be read, in microseconds.
const BROKEN: i64 = 10_000_000;

const HEAD: i64 = 2;
const PAYLOAD: i64 = 3;

/// Claims jobs from lanes that have been seen.
pub(crate) struct Claim<'a> {
    pub(crate) seen: &'a Seen,
    pub(crate) most: usize,
    /// By which the claim is known.
    pub(crate) token: i64,
    /// How long the jobs are held without a sign of life, in microseconds.
    pub(crate) lease: i64,
    pub(crate) calendar: &'a (dyn Calendar + Send + Sync),
}

/// A job that has been claimed.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) id: i64,
    pub(crate) lane: Lane,
    pub(crate) payload: String,
    pub(crate) attempts: u32,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) booking: Booking,
    pub(crate) token: i64,
    pub(crate) cost: Cost,
}

/// What came of a claim.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    pub(crate) jobs: Vec<Claimed>,
    /// Lanes that are to be looked at under their lock: they are empty, or their key is closed.
    pub(crate) stale: Vec<Lane>,
    /// Jobs that can never start, which have failed.
    pub(crate) failed: Vec<(i64, String)>,
    /// When something that was found closed opens.
    pub(crate) next_at: i64,
}

/// A job at the head of a lane.
struct Head {
    lane: usize,
    id: i64,
    cost: String,
    attempts: i64,
    max_attempts: Option<i64>,
}

impl Work for Claim<'_> {
    type Answer = Claims;
    const STEP: &'static str = "claim";
    /// What was claimed and not heard of is found by its token.
    const IS_REPEATABLE: bool = false;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, left: Duration) -> Result<Claims, Stop> {
        let lanes = &self.seen.open[..self.seen.open.len().min(self.most.max(4) * 2)];
        // One more than are wanted: a lane in which none is left has to be tidied.
        // And many where there are many keys: most of them may be about to be closed.
        let least = if lanes.iter().any(|(_, key, _)| !key.is_empty()) { self.most / 2 } else { 0 };
        let each = self.most.div_ceil(lanes.len().max(1)).max(least) + 1;
        let sql = db.tables.begin(left) + "; " + &self.lock(db, lanes, each);
        let rows = Rows::read(session.cells(sql).await.map_err(Stop::Before)?);
        let mut locked = rows.limits();
        if self.has_changed(&locked) {
            session.undo().await;
            return Ok(Claims { next_at: rows.now, ..Claims::default() });
        }
        let heads = heads(&rows);
        let mut claims = Claims { next_at: NEVER, ..Claims::default() };
        let mut found = vec![0; lanes.len()];
        heads.iter().for_each(|head| found[head.lane] += 1);
        let mut closed: BTreeSet<Name> = BTreeSet::new();
        for head in in_turn(heads, lanes) {
            if claims.jobs.len() == self.most {
                break;
            }
            let lane = &lanes[head.lane];
            let (handler, key) = names(lane);
            if closed.contains(&handler) || key.as_ref().is_some_and(|key| closed.contains(key)) {
                continue;
            }
            let cost = match head.cost.parse::<Cost>() {
                Ok(cost) => cost,
                Err(why) => {
                    found[head.lane] -= 1;
                    claims.failed.push((head.id, format!("the cost `{}`: {why}", head.cost)));
                    continue;
                }
            };
            let asking = Asking { handler: &handler, key: key.as_ref(), cost };
            match start(&mut locked, &asking, rows.now, self.calendar) {
                Answer::Start(booking) => {
                    found[head.lane] -= 1;
                    claims.jobs.push(self.claimed(&head, lane, booking, cost));
                }
                Answer::Closed(scope, at) => {
                    claims.next_at = claims.next_at.min(at);
                    let name = asking.name(scope);
                    if !name.1.is_empty() {
                        claims.stale.push(lane.clone());
                    }
                    close(&mut locked, name, at, rows.now);
                    closed.insert(name.clone());
                }
                Answer::Impossible(why) => {
                    found[head.lane] -= 1;
                    claims.failed.push((head.id, why));
                }
                Answer::Broken(scope, why) => {
                    // No reason to let its jobs fail: somebody can mend it, by setting it anew.
                    let name = asking.name(scope);
                    let row = locked.entry(name.clone()).or_insert_with(Limited::unknown);
                    row.paused_until = rows.now.saturating_add(BROKEN);
                    row.pause_reason = Some(why);
                    row.is_changed = true;
                    closed.insert(name.clone());
                }
            }
        }
        // All that was found has been taken: there may be nothing left.
        claims.stale.extend(lanes.iter().zip(&found).filter(|(_, left)| **left == 0).map(|(lane, _)| lane.clone()));
        let sql = self.write(db, &claims, &locked, lanes, rows.now);
        if sql.is_empty() {
            session.undo().await;
            return Ok(claims);
        }
        let rows = Rows::read(session.finish_cells(sql + "COMMIT").await.map_err(Stop::Amid)?);
        let payloads: BTreeMap<i64, String> = rows
            .tagged(PAYLOAD)
            .map(|row| (row.number(1), row.optional_text(2).unwrap_or_else(|| "null".into())))
            .collect();
        for job in &mut claims.jobs {
            job.payload = payloads.get(&job.id).cloned().unwrap_or_default();
        }
        Ok(claims)
    }
}

impl Claim<'_> {
    /// Locks the limits of some lanes, in their order; reads the time; then locks what is first
    /// in each lane and nobody else is about to take.
    fn lock(&self, db: &Db, lanes: &[Lane], each: usize) -> String {
        let mut all: BTreeMap<Name, Lock> = BTreeMap::new();
        for lane in lanes {
            let (handler, key) = names(lane);
            // A handler without a limit is kept from getting one, or a key of it from getting its first
            // row, while the claim goes on; claims of others are not kept from anything.
            let lock = if self.seen.limited.contains(&lane.0) { Lock::Alone } else { Lock::Shared };
            all.insert(handler, lock);
            all.extend(key.map(|key| (key, Lock::Alone)));
        }
        let mut sql = db.select_limits(all.iter().map(|(name, lock)| (name, *lock)));
        sql += &db.select_clock();
        let (jobs, lock, now) = (db.jobs(), db.tables.dialect.words().lock_free, self.seen.now);
        for (index, (handler, key, priority)) in lanes.iter().enumerate() {
            sql += &format!(
                "; SELECT {HEAD}, {index}, id, cost, attempts, max_attempts FROM {jobs} WHERE state = 'pending' AND {} \
                 AND priority = {priority} AND run_at <= {now} ORDER BY run_at, id LIMIT {each}{lock}",
                db.names(handler, key)
            );
        }
        sql
    }

    /// Has a handler got a limit since it was looked at? Then its row is not locked as it has to be.
    fn has_changed(&self, locked: &Locked) -> bool {
        let is_limited = |row: &Limited| row.policy.is_some() || row.concurrency.is_some();
        let unlimited = |name: &Name| name.1.is_empty() && !self.seen.limited.contains(&name.0);
        locked.iter().any(|(name, row)| unlimited(name) && is_limited(row))
    }

    fn claimed(&self, head: &Head, lane: &Lane, booking: Booking, cost: Cost) -> Claimed {
        Claimed {
            id: head.id,
            lane: lane.clone(),
            payload: String::new(),
            attempts: u32::try_from(head.attempts).unwrap_or_default().saturating_add(1),
            max_attempts: head.max_attempts.and_then(|most| u32::try_from(most).ok()),
            booking,
            token: self.token,
            cost,
        }
    }

    fn write(&self, db: &Db, claims: &Claims, locked: &Locked, lanes: &[Lane], now: i64) -> String {
        let jobs = db.jobs();
        let mut sql = db.write_limits(locked);
        let until = now.saturating_add(self.lease);
        // Most bookings are alike, or need not be kept.
        let mut alike: BTreeMap<Option<String>, Vec<i64>> = BTreeMap::new();
        for job in &claims.jobs {
            alike.entry(job.booking.kept()).or_default().push(job.id);
        }
        for (booking, jobs_of) in alike {
            sql += &format!(
                "UPDATE {jobs} SET state = 'running', attempts = attempts + 1, started_at = {now}, finished_at = NULL, \
                 lease_token = {}, lease_until = {until}, booking = {} WHERE id IN ({}); ",
                self.token,
                db.optional_text(booking.as_deref()),
                ids(jobs_of.into_iter()),
            );
        }
        for (id, why) in &claims.failed {
            sql += &format!(
                "UPDATE {jobs} SET state = 'failed', finished_at = {now}, error = {} WHERE id = {id}; ",
                db.text(why)
            );
        }
        if !claims.jobs.is_empty() {
            let ids = ids(claims.jobs.iter().map(|job| job.id));
            sql += &format!("SELECT {PAYLOAD}, id, payload FROM {jobs} WHERE id IN ({ids}); ");
            // Those that were served go behind the others of their handler.
            let has_others =
                |lane: &Lane| lanes.iter().any(|other| other.0 == lane.0 && other.2 == lane.2 && other.1 != lane.1);
            let served: BTreeSet<_> = claims.jobs.iter().map(|job| &job.lane).filter(|lane| has_others(lane)).collect();
            for lane in served {
                let (lanes, lane) = (db.lanes(), db.lane(lane));
                sql += &format!("UPDATE {lanes} SET next_at = {now} WHERE {lane} AND next_at < {now}; ");
            }
        }
        sql
    }
}

/// Writes down that a limit lets nothing pass before a time.
fn close(locked: &mut Locked, name: &Name, at: i64, now: i64) {
    let row = locked.entry(name.clone()).or_insert_with(Limited::unknown);
    if row.open_at != at && row.paused_until <= now {
        row.open_at = at;
        row.is_changed = true;
    }
}

fn heads(rows: &Rows) -> Vec<Head> {
    let head = |row: &Row| Head {
        lane: usize::try_from(row.number(1)).unwrap_or_default(),
        id: row.number(2),
        cost: row.text(3),
        attempts: row.number(4),
        max_attempts: row.optional_number(5),
    };
    rows.tagged(HEAD).map(head).collect()
}

/// Of each priority the first of each lane, then the second of each.
fn in_turn(heads: Vec<Head>, lanes: &[Lane]) -> Vec<Head> {
    let mut nth: BTreeMap<usize, usize> = BTreeMap::new();
    let mut ordered: Vec<_> = heads
        .into_iter()
        .map(|head| {
            let round = nth.entry(head.lane).or_default();
            *round += 1;
            (*round, head)
        })
        .collect();
    ordered.sort_by_key(|(round, head)| (-lanes[head.lane].2, *round, head.lane));
    ordered.into_iter().map(|(_, head)| head).collect()
}

pub(crate) fn ids(ids: impl Iterator<Item = i64>) -> String {
    ids.map(|id| id.to_string()).collect::<Vec<_>>().join(", ")
}

/// The claimed jobs of a claim whose answer was lost.
pub(crate) struct Recall {
    pub(crate) token: i64,
}

impl Work for Recall {
    type Answer = Vec<Claimed>;
    const STEP: &'static str = "recall";
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, _: Duration) -> Result<Vec<Claimed>, Stop> {
        let sql = format!(
            "SELECT {PAYLOAD}, {CLAIMED}, payload FROM {} WHERE state = 'running' AND lease_token = {}",
            db.jobs(),
            self.token
        );
        let rows = Rows::read(session.finish_cells(sql).await.map_err(Stop::Before)?);
        Ok(rows.tagged(PAYLOAD).map(Row::claimed).collect())
    }
}

/// The columns of a job that has been claimed; its payload may come after them.
pub(crate) const CLAIMED: &str = "id, handler, job_key, priority, lease_token, attempts, max_attempts, booking, cost";

impl Row {
    /// A job that has been claimed, by those columns.
    pub(crate) fn claimed(&self) -> Claimed {
        Claimed {
            id: self.number(1),
            lane: (self.text(2), self.text(3), self.number(4)),
            token: self.number(5),
            attempts: u32::try_from(self.number(6)).unwrap_or_default(),
            max_attempts: self.optional_number(7).and_then(|most| u32::try_from(most).ok()),
            booking: booking(self.optional_text(8)),
            cost: self.text(9).parse().unwrap_or(Cost::ONE),
            payload: self.optional_text(10).unwrap_or_else(|| "null".into()),
        }
    }
}

/// A booking as it is in a row.
pub(crate) fn booking(text: Option<String>) -> Booking {
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// How long to sleep until a time, at most so long.
pub(crate) fn sleep_until(at: i64, now: i64, longest: Duration) -> Duration {
    if at == NEVER { longest } else { until(at, now).min(longest) }
}
