//! Counting anew what those that run hold.
//!
//! What is held is written together with the runs that hold it, so the two agree, unless somebody changes
//! a running job by hand: then what it held would never come back, and its handler could stay closed for ever.

use std::time::Duration;

use suimon::Cost;
use suimon_sql::access::Session;

use crate::Error;
use crate::claim::booking;
use crate::db::{Db, Rows, Stop, Work};
use crate::limits::{Name, Scope};
use crate::queue::Queue;
use crate::row::Lock;

const HELD: i64 = 2;
const MOST: usize = 200;

impl Queue {
    /// Puts right what limits count as held, where it is wrong.
    pub(crate) async fn recount(&self) -> Result<(), Error> {
        for name in self.0.db.run(&Holding).await? {
            if self.0.db.run(&Recount { name: &name }).await? {
                tracing::warn!(handler = name.0, "running jobs were changed by hand; what they held is given back");
                self.0.news.notify_waiters();
            }
        }
        Ok(())
    }
}

/// Finds limits of which something is held.
struct Holding;

impl Work for Holding {
    type Answer = Vec<Name>;
    const STEP: &'static str = "holding";
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, _: Duration) -> Result<Vec<Name>, Stop> {
        let sql = format!(
            "SELECT {HELD}, handler, job_key FROM {} WHERE held <> '0' OR running <> 0 LIMIT {MOST}",
            db.limits()
        );
        let rows = Rows::read(session.finish_cells(sql).await.map_err(Stop::Before)?);
        Ok(rows.tagged(HELD).map(|row| (row.text(1), row.text(2))).collect())
    }
}

struct Recount<'a> {
    name: &'a Name,
}

impl Work for Recount<'_> {
    /// Was it wrong?
    type Answer = bool;
    const STEP: &'static str = "recount";
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, left: Duration) -> Result<bool, Stop> {
        let is_key = !self.name.1.is_empty();
        // After the lock: nobody claims or ends anything under this limit meanwhile.
        let sql = format!(
            "{}; {}{}; SELECT {HELD}, booking FROM {} WHERE state = 'running' AND {} AND booking IS NOT NULL",
            db.tables.begin(left),
            db.select_limit(self.name, Lock::Alone),
            db.select_clock(),
            db.jobs(),
            db.under(self.name),
        );
        let rows = Rows::read(session.cells(sql).await.map_err(Stop::Before)?);
        let scope = if is_key { Scope::Key } else { Scope::Handler };
        let (mut held, mut running) = (Cost::ZERO, 0);
        for booking in rows.tagged(HELD).map(|row| booking(row.optional_text(1))) {
            let of_scope = booking.held.iter().filter(|(of, _)| *of == scope);
            held = of_scope.fold(held, |held, (_, cost)| held.saturating_add(cost.parse().unwrap_or_default()));
            running += i64::from(booking.is_counted && !is_key);
        }
        let mut locked = rows.limits();
        let row = locked.get_mut(self.name).filter(|row| (row.held, row.running) != (held, running));
        let Some(row) = row else {
            session.undo().await;
            return Ok(false);
        };
        (row.held, row.running, row.open_at, row.is_changed) = (held, running, 0, true);
        let mut sql = db.write_limits(&locked);
        if is_key {
            sql += &db.open_lanes(self.name, rows.now);
        }
        session.finish_cells(sql + "COMMIT").await.map_err(Stop::Amid)?;
        Ok(true)
    }
}
