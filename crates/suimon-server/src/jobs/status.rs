//! How handlers stand: a table for people, an object for programs.

use std::io::Write;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use suimon_jobs::{Count, HandlerStatus};
use unicode_width::UnicodeWidthStr;

use super::Error;
use crate::replay::report::words::duration;
use crate::replay::{show, time};

#[derive(Serialize)]
struct Report<'a> {
    handlers: Vec<Handler<'a>>,
}

/// The names are part of the interface. Times are in seconds.
#[derive(Serialize)]
struct Handler<'a> {
    handler: &'a str,
    pending: u64,
    running: u64,
    done: u64,
    failed: u64,
    limit: Option<&'a str>,
    key_limit: Option<&'a str>,
    count: &'static str,
    /// Can no run start now?
    limited: bool,
    /// When one can, if time alone brings that about.
    limited_until: Option<String>,
    available_in: Option<f64>,
    paused: bool,
    /// None until it is resumed.
    paused_for: Option<f64>,
    pause_reason: Option<&'a str>,
    served_ago: Option<f64>,
}

/// One JSON object on one line.
pub(crate) fn json(all: &[HandlerStatus], out: &mut impl Write) -> Result<(), Error> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let handlers = all.iter().map(|status| handler(status, now)).collect();
    let text = serde_json::to_string(&Report { handlers }).map_err(|error| Error::Io(error.to_string()))?;
    Ok(writeln!(out, "{text}")?)
}

fn handler(status: &HandlerStatus, now: Duration) -> Handler<'_> {
    let is_limited = status.available_in > Duration::ZERO;
    let opens = now.checked_add(status.available_in).and_then(|at| u64::try_from(at.as_nanos()).ok());
    Handler {
        handler: &status.handler,
        pending: status.pending,
        running: status.running,
        done: status.done,
        failed: status.failed,
        limit: status.limit.as_deref(),
        key_limit: status.key_limit.as_deref(),
        count: match status.count {
            Count::Started => "started",
            Count::Completed => "completed",
        },
        limited: is_limited,
        limited_until: opens.filter(|_| is_limited).map(time::show_rfc3339),
        available_in: seconds(status.available_in),
        paused: status.paused_for.is_some(),
        paused_for: status.paused_for.and_then(seconds),
        pause_reason: status.pause_reason.as_deref(),
        served_ago: status.served_ago.and_then(seconds),
    }
}

fn seconds(time: Duration) -> Option<f64> {
    (time != Duration::MAX).then_some(time.as_secs_f64())
}

/// A table; a dash is where there is nothing.
pub(crate) fn table(all: &[HandlerStatus], out: &mut impl Write) -> Result<(), Error> {
    if all.is_empty() {
        return Ok(writeln!(out, "no handler is known: nothing was dispatched, limited or served yet")?);
    }
    let head = ["handler", "pending", "running", "done", "failed", "limit", "limited", "paused", "served"];
    let mut rows: Vec<[String; 9]> = vec![head.map(str::to_string)];
    rows.extend(all.iter().map(row));
    let widths: Vec<usize> =
        (0..head.len()).map(|column| rows.iter().map(|row| row[column].width()).max().unwrap_or_default()).collect();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let blank = " ".repeat(width - cell.width());
            // Numbers end at the same place, texts begin there.
            line += &if (1..5).contains(&column) { format!("{blank}{cell}  ") } else { format!("{cell}{blank}  ") };
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn row(status: &HandlerStatus) -> [String; 9] {
    let dash = || "-".to_string();
    let limits = [(&status.limit, ""), (&status.key_limit, " each key")];
    let limits: Vec<_> =
        limits.iter().filter_map(|(text, of)| text.as_ref().map(|text| format!("{text}{of}"))).collect();
    let completed = if status.count == Count::Completed { " (completed)" } else { "" };
    let limited = match status.available_in {
        Duration::ZERO => dash(),
        Duration::MAX => "until that changes".to_string(),
        time => format!("for {}", duration(time)),
    };
    let paused = status.paused_for.map(|time| match time {
        Duration::MAX => "until resumed".to_string(),
        time => format!("for {}", duration(time)),
    });
    let reason = status.pause_reason.as_ref().map(|why| format!(" ({})", show::short(why.as_bytes())));
    [
        show::line(status.handler.as_bytes()),
        status.pending.to_string(),
        status.running.to_string(),
        status.done.to_string(),
        status.failed.to_string(),
        if limits.is_empty() { dash() } else { limits.join(", ") + completed },
        limited,
        paused.map_or_else(dash, |paused| paused + &reason.unwrap_or_default()),
        status.served_ago.map_or_else(dash, |ago| format!("{} ago", duration(Duration::from_secs(ago.as_secs())))),
    ]
}
