//! Lanes: a handler, a key and a priority, with the earliest time at which something in it may
//! start.

use std::collections::BTreeSet;
use std::time::Duration;

use suimon_sql::access::Session;

use crate::db::{Db, NEVER, Stop, Work};
use crate::limits::Name;

/// Handler, key and priority.
pub(crate) type Lane = (String, String, i64);

/// The limits that a lane may have.
pub(crate) fn names((handler, key, _): &Lane) -> (Name, Option<Name>) {
    let of_key = (!key.is_empty()).then(|| (handler.clone(), key.clone()));
    ((handler.clone(), String::new()), of_key)
}

/// Looks at lanes under their locks: removes those that are empty, and moves on the others to
/// when something in them may start.
pub(crate) struct Tidy<'a> {
    pub(crate) lanes: &'a BTreeSet<Lane>,
}

impl Work for Tidy<'_> {
    type Answer = ();
    const STEP: &'static str = "tidy";
    const IS_REPEATABLE: bool = true;

    async fn attempt(&self, db: &Db, session: &mut Session<'_>, left: Duration) -> Result<(), Stop> {
        let (table, jobs, limits) = (db.lanes(), db.jobs(), db.limits());
        let (lock, clock) = (db.tables.dialect.words().lock, db.clock());
        let mut sql = db.tables.begin(left) + "; ";
        // The limits of the keys first, as everywhere: whoever opens one of them meanwhile opens its
        // lanes too, and that must not be overwritten by what was read before.
        sql += &db.lock_limits(&self.lanes.iter().filter_map(|lane| names(lane).1).collect());
        for lane in self.lanes {
            sql += &format!("SELECT 0 FROM {table} WHERE {}{lock}; ", db.lane(lane));
        }
        // What is read now was written by all who had the lock before.
        for name in self.lanes {
            let (handler, key, priority) = name;
            let lane = db.lane(name);
            let pending =
                format!("FROM {jobs} WHERE state = 'pending' AND {} AND priority = {priority}", db.names(handler, key));
            sql += &format!("DELETE FROM {table} WHERE {lane} AND NOT EXISTS (SELECT 1 {pending}); ");
            let first = format!("coalesce((SELECT min(run_at) {pending}), {NEVER})");
            let opens = format!(
                "coalesce((SELECT {} FROM {limits} WHERE {} AND job_key <> ''), 0)",
                db.greatest("open_at, paused_until"),
                db.names(handler, key)
            );
            let next = db.greatest(&format!("{first}, {opens}"));
            // One that is open keeps its place among the others.
            let open = db.least(&format!("next_at, {clock}"));
            sql += &format!(
                "UPDATE {table} SET next_at = CASE WHEN {next} > {clock} THEN {next} ELSE {open} END WHERE {lane}; "
            );
        }
        session.finish_cells(sql + "COMMIT").await.map(drop).map_err(Stop::Amid)
    }
}
