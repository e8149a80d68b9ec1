//! Looking at what can be claimed, without locks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use suimon_sql::access::Session;

use crate::db::{Db, NEVER, Rows, Stop, Work};
use crate::lane::Lane;

/// So many lanes of a handler and priority are looked at in one go.
const LANES: usize = 16;

const HANDLER: i64 = 2;
const NEW: i64 = 3;
const LANE: i64 = 4;

/// What can be claimed.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Lanes in which something may be ready, in the order in which they are to be served.
    pub(crate) open: Vec<Lane>,
    /// Lanes that are to be closed, since the limit of their key is.
    pub(crate) stale: Vec<Lane>,
    /// Handlers with limits of their own.
    pub(crate) limited: BTreeSet<String>,
    /// Jobs that nobody has looked at.
    pub(crate) has_new: bool,
    /// The earliest time at which that changes by itself.
    pub(crate) next_at: i64,
    pub(crate) now: i64,
}

/// A look at what can be claimed, without locks.
pub(crate) struct Look<'a> {
    pub(crate) handlers: &'a [String],
    /// Which handler comes first among equals: it moves on, so that all get their turn.
    pub(crate) turn: usize,
}

impl Work for Look<'_> {
    type Answer = Seen;
    const STEP: &'static str = "look";
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, _: Duration) -> Result<Seen, Stop> {
        let sql = format!(
            "SELECT {HANDLER}, handler, open_at, paused_until, levels, \
             CASE WHEN policy IS NULL AND concurrency IS NULL THEN 0 ELSE 1 END FROM {} WHERE job_key = '' AND handler IN ({}); \
             SELECT {NEW}, id FROM {} WHERE state = 'new' LIMIT 1; {}",
            db.limits(),
            db.texts(self.handlers.iter().map(|handler| &**handler)),
            db.jobs(),
            db.select_clock()
        );
        let rows = Rows::read(session.finish_cells(sql).await.map_err(Stop::Before)?);
        let mut seen = Seen { next_at: NEVER, now: rows.now, ..Seen::default() };
        seen.has_new = rows.tagged(NEW).next().is_some();
        let mut sql = Vec::new();
        for row in rows.tagged(HANDLER) {
            let handler = row.text(1);
            let opens_at = row.number(2).max(row.number(3));
            if row.number(5) == 1 {
                seen.limited.insert(handler.clone());
            }
            if opens_at > rows.now {
                seen.next_at = seen.next_at.min(opens_at);
                continue;
            }
            let levels = row.number(4);
            sql.extend(
                (0..=9).filter(|priority| levels >> priority & 1 == 1).map(|priority| lanes(db, &handler, priority)),
            );
        }
        if sql.is_empty() {
            return Ok(seen);
        }
        let lanes = Rows::read(session.finish_cells(sql.join("; ")).await.map_err(Stop::Before)?);
        seen.read_lanes(&lanes, self);
        Ok(seen)
    }
}

/// The lanes of a handler and priority that are open, and the next one after them.
fn lanes(db: &Db, handler: &str, priority: i64) -> String {
    format!(
        "SELECT {LANE}, handler, job_key, priority, next_at, coalesce((SELECT {} FROM {} AS own \
         WHERE own.handler = lane.handler AND own.job_key = lane.job_key AND lane.job_key <> ''), 0) FROM \
         (SELECT handler, job_key, priority, next_at FROM {} WHERE handler = {} AND priority = {priority} \
         AND next_at >= 0 ORDER BY next_at LIMIT {LANES}) AS lane ORDER BY next_at",
        db.greatest("open_at, paused_until"),
        db.limits(),
        db.lanes(),
        db.text(handler),
    )
}

impl Seen {
    fn read_lanes(&mut self, rows: &Rows, look: &Look<'_>) {
        let mut open: BTreeMap<(i64, usize, usize), Lane> = BTreeMap::new();
        let mut nth: BTreeMap<(String, i64), usize> = BTreeMap::new();
        for row in rows.tagged(LANE) {
            let lane = (row.text(1), row.text(2), row.number(3));
            let next_at = row.number(4);
            let key_opens_at = row.number(5);
            if next_at > self.now {
                self.next_at = self.next_at.min(next_at);
            } else if key_opens_at > self.now {
                self.next_at = self.next_at.min(key_opens_at);
                self.stale.push(lane);
            } else {
                // By priority; of equal ones a lane of each handler, then the next of each.
                let handlers = look.handlers.len().max(1);
                let index = look.handlers.iter().position(|handler| *handler == lane.0).unwrap_or_default();
                let place = (index + handlers - look.turn % handlers) % handlers;
                let round = nth.entry((lane.0.clone(), lane.2)).or_default();
                open.insert((-lane.2, *round, place), lane);
                *round += 1;
            }
        }
        self.open = open.into_values().collect();
    }
}
