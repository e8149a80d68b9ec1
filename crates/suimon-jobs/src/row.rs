//! The rows of limits: how they are read, locked and written.

use std::cell::RefCell;
use std::collections::BTreeSet;

use suimon::store::Record;
use suimon::{Cost, Timestamp};

use crate::config::Count;
use crate::db::{Db, Row, Rows};
use crate::lane::Lane;
use crate::limits::{Limited, Locked, Name};

/// The tag of a row of a limit.
pub(crate) const LIMIT: i64 = 1;

/// How a row is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// As it is, and it may change at once.
    None,
    /// It cannot be changed before the end of the transaction.
    Shared,
    /// Nor can others lock it.
    Alone,
}

const COLUMNS: &str = "handler, job_key, policy, count_on, key_policy, key_count_on, concurrency, state_policy, \
                       state_version, state, seen, fresh_at, held, running, open_at, paused_until, pause_reason, \
                       given_by, key_given_by, served_at";

impl Db {
    /// Reads a row of a limit.
    pub(crate) fn select_limit(&self, name: &Name, lock: Lock) -> String {
        self.select_limits([(name, lock)])
    }

    /// Reads rows of limits, locked in the order in which they are given. Neighbours that are
    /// locked alike take one statement.
    pub(crate) fn select_limits<'a>(&self, names: impl IntoIterator<Item = (&'a Name, Lock)>) -> String {
        let mut sql = String::new();
        let mut names = names.into_iter().peekable();
        while let Some(((handler, key), lock)) = names.next() {
            let mut which = format!("({})", self.names(handler, key));
            while let Some(((handler, key), _)) = names.next_if(|(_, other)| *other == lock) {
                which += &format!(" OR ({})", self.names(handler, key));
            }
            let lock = match lock {
                Lock::None => "",
                Lock::Shared => self.lock_shared(),
                Lock::Alone => self.tables.dialect.words().lock,
            };
            let order = self.in_order();
            sql += &format!("SELECT {LIMIT}, {COLUMNS} FROM {} WHERE {which}{order}{lock}; ", self.limits());
        }
        sql
    }

    /// Reads the rows of all handlers.
    pub(crate) fn select_handlers(&self) -> String {
        format!("SELECT {LIMIT}, {COLUMNS} FROM {} WHERE job_key = ''; ", self.limits())
    }

    /// Reads rows of limits, locked in their order.
    pub(crate) fn lock_limits(&self, names: &BTreeSet<Name>) -> String {
        self.select_limits(names.iter().map(|name| (name, Lock::Alone)))
    }

    pub(crate) fn names(&self, handler: &str, key: &str) -> String {
        format!("handler = {} AND job_key = {}", self.text(handler), self.text(key))
    }

    /// What is under a limit: all of a handler, or what is of a key of it.
    pub(crate) fn under(&self, (handler, key): &Name) -> String {
        match key.is_empty() {
            true => format!("handler = {}", self.text(handler)),
            false => self.names(handler, key),
        }
    }

    /// Lets the lanes under a limit be looked at from a time on, if that is earlier than before.
    pub(crate) fn open_lanes(&self, name: &Name, at: i64) -> String {
        format!("UPDATE {} SET next_at = {at} WHERE {} AND next_at > {at}; ", self.lanes(), self.under(name))
    }

    /// The row of a lane.
    pub(crate) fn lane(&self, (handler, key, priority): &Lane) -> String {
        format!("{} AND priority = {priority}", self.names(handler, key))
    }

    /// Makes the row of a handler where there is none, and notes a priority.
    pub(crate) fn make_handler(&self, handler: &str, priority: Option<u8>) -> String {
        let (limits, text) = (self.limits(), self.text(handler));
        let bits = priority.map_or(0, |priority| 1_i64 << priority);
        let insert = format!("INSERT INTO {limits} (handler, job_key, levels) VALUES ({text}, '', {bits})");
        match self.is_mysql() {
            true => format!("{insert} ON DUPLICATE KEY UPDATE levels = levels | {bits}; "),
            false => format!(
                "{insert} ON CONFLICT (handler, job_key) DO UPDATE SET levels = {limits}.levels | {bits} \
                 WHERE {limits}.levels & {bits} <> {bits}; "
            ),
        }
    }

    /// Makes the row of a key where there is none.
    pub(crate) fn make_key(&self, handler: &str, key: &str) -> String {
        let (limits, handler, key) = (self.limits(), self.text(handler), self.text(key));
        let insert = format!("INSERT INTO {limits} (handler, job_key) VALUES ({handler}, {key})");
        match self.is_mysql() {
            true => format!("{insert} ON DUPLICATE KEY UPDATE job_key = job_key; "),
            false => format!("{insert} ON CONFLICT (handler, job_key) DO NOTHING; "),
        }
    }

    /// Writes the rows that have changed, in one statement.
    pub(crate) fn write_limits(&self, locked: &Locked) -> String {
        let changed: Vec<_> = locked.iter().filter(|(_, row)| row.is_changed).collect();
        if changed.is_empty() {
            return String::new();
        }
        let limits = self.limits();
        let mut sql = String::new();
        // Fails when somebody else was first; what follows would write over what that one did.
        for ((handler, key), _) in changed.iter().filter(|(_, row)| row.is_new) {
            let (handler, key) = (self.text(handler), self.text(key));
            sql += &format!("INSERT INTO {limits} (handler, job_key) VALUES ({handler}, {key}); ");
        }
        let rows: Vec<_> = changed.into_iter().map(|(name, row)| self.values(name, row)).collect();
        let columns = "state_policy state_version state seen fresh_at held running open_at paused_until pause_reason";
        let sets = |new: fn(&str) -> String| {
            let sets = columns.split(' ').map(|column| format!("{column} = {}", new(column)));
            sets.collect::<Vec<_>>().join(", ")
        };
        let columns = columns.replace(' ', ", ");
        sql += &format!("INSERT INTO {limits} (handler, job_key, {columns}) VALUES {} ", rows.join(", "));
        sql += &match self.is_mysql() {
            true => format!("ON DUPLICATE KEY UPDATE {}; ", sets(|column| format!("VALUES({column})"))),
            false => {
                let sets = sets(|column| format!("excluded.{column}"));
                format!("ON CONFLICT (handler, job_key) DO UPDATE SET {sets}; ")
            }
        };
        sql
    }

    fn values(&self, (handler, key): &Name, row: &Limited) -> String {
        let record = row.record.as_ref().map_or_else(
            || "NULL, 0, NULL, 0, 0".to_owned(),
            |record| {
                format!(
                    "{}, {}, {}, {}, {}",
                    self.text(&record.policy),
                    record.version.cast_signed(),
                    self.tables.bytes(&record.state),
                    nanos(record.seen),
                    nanos(record.fresh_at),
                )
            },
        );
        let Limited { held, running, open_at, paused_until, .. } = row;
        let reason = self.optional_text(row.pause_reason.as_deref());
        let (handler, key) = (self.text(handler), self.text(key));
        format!("({handler}, {key}, {record}, '{held}', {running}, {open_at}, {paused_until}, {reason})")
    }
}

/// A time that is only compared, as a number that all databases have.
fn nanos(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

impl Row {
    /// A row of a limit.
    pub(crate) fn limited(&self) -> (Name, Limited) {
        let count = |column: usize| Count::parse(&self.text(column)).unwrap_or_default();
        let time = |column: usize| Timestamp::from_nanos(self.number(column).try_into().unwrap_or_default());
        let record = self.optional_text(8).zip(self.bytes(10)).map(|(policy, state)| Record {
            version: self.number(9).cast_unsigned(),
            policy,
            state,
            seen: time(11),
            fresh_at: time(12),
        });
        let limited = Limited {
            policy: self.optional_text(3),
            count: count(4),
            key_policy: self.optional_text(5),
            key_count: count(6),
            concurrency: self.optional_number(7),
            record,
            held: self.text(13).parse().unwrap_or_default(),
            running: self.number(14),
            open_at: self.number(15),
            paused_until: self.number(16),
            pause_reason: self.optional_text(17),
            is_changed: false,
            is_new: false,
            completed: Cost::ZERO,
            ready: RefCell::default(),
        };
        ((self.text(1), self.text(2)), limited)
    }

    /// Who gave the limit of the row, and that of its keys.
    pub(crate) fn given_by(&self) -> (i64, i64) {
        (self.number(18), self.number(19))
    }
}

impl Rows {
    /// The rows of limits in an answer.
    pub(crate) fn limits(&self) -> Locked {
        self.tagged(LIMIT).map(Row::limited).collect()
    }
}
