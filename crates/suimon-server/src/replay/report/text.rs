//! The report for a terminal.

use super::{Look, plot, words};
use crate::replay::outcome::{Outcome, PolicyOutcome, percent};
use crate::replay::reorder::MOST;
use crate::replay::{show, time};
use anstyle::{AnsiColor, Style};
use std::fmt::Write;
use std::time::Duration;
use unicode_width::UnicodeWidthStr;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const PASS: Style = AnsiColor::Cyan.on_default();
const REFUSE: Style = AnsiColor::Red.on_default();

/// What a replay found, for a terminal. Colours are in it in any case: whoever
/// prints it takes them out where they are not wanted.
#[must_use]
pub fn text(outcome: &Outcome, look: &Look) -> String {
    let mut text = Text { out: String::new(), outcome, look };
    text.heading();
    if outcome.requests > 0 {
        if outcome.policies.len() > 1 {
            text.comparison();
        }
        for index in 0..outcome.policies.len() {
            text.policy(index);
        }
    }
    text.notes();
    text.out
}

struct Text<'a> {
    out: String,
    outcome: &'a Outcome,
    look: &'a Look,
}

/// Writing to a string does not fail.
macro_rules! line {
    ($text:expr) => { $text.out.push('\n') };
    ($text:expr, $($arg:tt)*) => {{ let _ = writeln!($text.out, $($arg)*); }};
}

impl Text<'_> {
    fn heading(&mut self) {
        let outcome = self.outcome;
        let Some((first, last)) = outcome.span else {
            line!(self, "There is no request in the log: nothing to replay.");
            return;
        };
        let who = if outcome.key_fields.is_empty() {
            "one limiter for all".to_string()
        } else {
            format!("{} ({})", words::counted(outcome.keys, &outcome.key_word()), outcome.key_fields.join(", "))
        };
        line!(self, "{BOLD}{} requests{BOLD:#}, {who}", words::count(outcome.requests));
        let span = words::duration(Duration::from_nanos(last - first));
        line!(self, "{DIM}{} to {} UTC, {span}{DIM:#}", time::show(first), time::show(last));
    }

    fn comparison(&mut self) {
        let outcome = self.outcome;
        let mut rows =
            vec![["policy", "refused", "", &outcome.key_word(), "longest refusal", "longest wait"].map(str::to_string)];
        for policy in &outcome.policies {
            rows.push([
                policy.policy.to_string(),
                words::count(policy.denied),
                words::percent(policy.denied_percent()),
                words::count(policy.keys_denied),
                policy.longest_stretch.as_ref().map_or("-".into(), |key| words::duration(key.longest_stretch)),
                policy.longest_wait.as_ref().map_or("-".into(), |key| words::duration(key.longest_wait)),
            ]);
        }
        line!(self);
        self.table(&rows, &[]);
    }

    fn policy(&mut self, index: usize) {
        let (outcome, policy) = (self.outcome, &self.outcome.policies[index]);
        line!(self);
        line!(self, "{BOLD}{}{BOLD:#}", policy.policy);
        let passed = percent(policy.allowed, outcome.requests);
        let width = words::count(outcome.requests).len();
        line!(
            self,
            "  {PASS}let through{PASS:#}  {:>width$}  {:>8}",
            words::count(policy.allowed),
            words::percent(passed)
        );
        let mut whom = String::new();
        if !outcome.key_fields.is_empty() && policy.denied > 0 {
            let _ = write!(
                whom,
                "  {} of {}",
                words::count(policy.keys_denied),
                words::counted(outcome.keys, &outcome.key_word())
            );
        }
        line!(
            self,
            "  {REFUSE}refused{REFUSE:#}      {:>width$}  {:>8}{whom}",
            words::count(policy.denied),
            words::percent(policy.denied_percent())
        );
        if policy.impossible > 0 {
            line!(
                self,
                "  of these      {:>width$}  can never pass: the limit lets no such cost through",
                words::count(policy.impossible)
            );
        }
        if let Some(field) = &outcome.cost_field {
            let refused = outcome.cost.without(policy.allowed_cost);
            line!(
                self,
                "  in {field}: {} let through, {} refused",
                words::count(policy.allowed_cost.whole()),
                words::count(refused.whole())
            );
        }
        self.plot(index);
        self.most_denied(policy);
        self.smallest(policy);
    }

    fn plot(&mut self, index: usize) {
        let outcome = self.outcome;
        let timeline = outcome.timeline.within(self.look.width.saturating_sub(14).max(10));
        let bars: Vec<(u64, u64, u64)> = timeline.bars(index).collect();
        line!(self);
        line!(self, "  {DIM}over time, a bar for {}{DIM:#}", words::length(timeline.bar()));
        self.panel(
            "let through",
            PASS,
            5,
            &bars.iter().map(|(_, requests, refused)| requests - refused).collect::<Vec<_>>(),
        );
        if self.outcome.policies[index].denied > 0 {
            self.panel("refused", REFUSE, 3, &bars.iter().map(|bar| bar.2).collect::<Vec<_>>());
        }
        if let (Some(first), Some(last)) = (bars.first(), bars.last()) {
            // Without the seconds where bars are minutes or more.
            let digits = if timeline.bar() < 60 * time::SECOND { 19 } else { 16 };
            let [first, last] = [first.0, last.0].map(|start| time::show(start)[..digits].to_string());
            let gap = bars.len().saturating_sub(2 * digits);
            let last = if gap > 1 { " ".repeat(gap) + &last } else { String::new() };
            line!(self, "  {:11} {DIM}{first}{last}{DIM:#}", "");
        }
    }

    /// One row of bars, labelled with its name and its largest value.
    fn panel(&mut self, name: &str, style: Style, height: usize, values: &[u64]) {
        let most = words::count(values.iter().copied().max().unwrap_or(0));
        for (row, bars) in plot::bars(values, height, self.look.unicode).into_iter().enumerate() {
            let label = match row {
                0 => format!("{most:>11}"),
                _ if row + 1 == height => format!("{name:>11}"),
                _ => String::new(),
            };
            line!(self, "  {label:11} {style}{bars}{style:#}");
        }
    }

    fn most_denied(&mut self, policy: &PolicyOutcome) {
        if policy.denied == 0 || self.outcome.key_fields.is_empty() {
            if let (Some(key), true) = (&policy.longest_stretch, self.outcome.key_fields.is_empty()) {
                line!(
                    self,
                    "\n  longest refusal {}, longest wait {}",
                    words::duration(key.longest_stretch),
                    words::duration(key.longest_wait)
                );
            }
            return;
        }
        line!(self);
        let mut rows =
            vec![["most refused", "requests", "refused", "", "longest refusal", "longest wait"].map(str::to_string)];
        let most = policy.most_denied.first().map_or(1, |key| key.denied);
        let key_width = self.look.width.saturating_sub(68).max(20);
        let mut shares = Vec::new();
        for key in &policy.most_denied {
            rows.push([
                shorten(&key.shown(), key_width),
                words::count(key.requests),
                words::count(key.denied),
                words::percent(percent(key.denied, key.requests)),
                words::duration(key.longest_stretch),
                words::duration(key.longest_wait),
            ]);
            shares.push(plot::share(key.denied, most, 8, self.look.unicode));
        }
        self.table(&rows, &shares);
        if let Some(longest) = &policy.longest_stretch {
            line!(
                self,
                "  {DIM}longest refusal: from one refusal to a later one, with nothing let through in between;\n  the longest is {} of {}, from {} UTC{DIM:#}",
                words::duration(longest.longest_stretch),
                shorten(&longest.shown(), 40),
                time::show(longest.stretch_from)
            );
        }
    }

    fn smallest(&mut self, policy: &PolicyOutcome) {
        let Some(found) = policy.smallest.as_ref().filter(|found| !found.is_empty()) else { return };
        let who = self.outcome.key_word();
        for limit in policy.policy.limits() {
            let of_limit: Vec<_> = found.iter().filter(|found| found.limit == *limit).collect();
            if of_limit.is_empty() {
                continue;
            }
            line!(self);
            if policy.policy.limits().len() > 1 {
                line!(self, "  smallest limit in place of {BOLD}{limit}{BOLD:#}, taken alone, that would have refused");
            } else {
                line!(self, "  smallest limit that would have refused");
            }
            let mut rows = vec![
                vec!["nothing".to_string()],
                vec!["at most 1 % of the requests".to_string()],
                vec![format!("something to at most 1 % of the {who}")],
            ];
            if self.outcome.keys < 2 {
                rows.truncate(2);
            }
            for found in &of_limit {
                for (row, smallest) in
                    rows.iter_mut().zip([&found.nobody, &found.percent_of_requests, &found.percent_of_keys])
                {
                    row.push(words::smallest(found, smallest));
                }
            }
            let widths: Vec<usize> = (0..=of_limit.len())
                .map(|column| rows.iter().map(|row| row[column].width()).max().unwrap_or(0))
                .collect();
            for row in rows {
                let mut cells = String::from("  ");
                for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                    let _ = write!(cells, "  {}{cell:width$}", if column > 1 { "or  " } else { "" });
                }
                line!(self, "{}", cells.trim_end());
            }
        }
    }

    fn notes(&mut self) {
        let outcome = self.outcome;
        let unreadable = outcome.unreadable();
        line!(self);
        if unreadable > 0 {
            line!(self, "{} of {} lines could not be read:", words::count(unreadable), words::count(outcome.lines()));
            for line in &outcome.unreadable_lines {
                let file = if outcome.files.len() > 1 {
                    format!("{}, ", outcome.files[line.file].name)
                } else {
                    String::new()
                };
                line!(self, "  {}line {}: {}", show::line(file.as_bytes()), words::count(line.line), line.cause);
            }
            if (outcome.unreadable_lines.len() as u64) < unreadable {
                line!(self, "  {DIM}--show-unreadable {unreadable} shows them all{DIM:#}");
            }
            line!(self);
        }
        if outcome.late() > 0 {
            let furthest = outcome.files.iter().map(|file| file.furthest_behind).max().unwrap_or(0);
            line!(
                self,
                "{} came too late to be put in their place (up to {} behind; --reorder is {}, and at most {} requests wait)\n\
                 and were taken at the latest time already replayed.\n",
                words::counted(outcome.late(), "requests"),
                words::length(furthest),
                words::duration(outcome.reorder),
                words::count(MOST as u64)
            );
        }
    }

    /// Columns, the first left-aligned and the others right; a bar behind each row but the first.
    fn table<const N: usize>(&mut self, rows: &[[String; N]], bars: &[String]) {
        let widths: [usize; N] =
            std::array::from_fn(|column| rows.iter().map(|row| row[column].width()).max().unwrap_or(0));
        for (index, row) in rows.iter().enumerate() {
            let mut cells = format!("{}{}", row[0], " ".repeat(widths[0] - row[0].width()));
            for (cell, width) in row.iter().zip(widths).skip(1) {
                let _ = write!(cells, "  {}{cell}", " ".repeat(width - cell.width()));
            }
            match index.checked_sub(1) {
                None => line!(self, "  {DIM}{}{DIM:#}", cells.trim_end()),
                Some(index) => match bars.get(index) {
                    Some(bar) => line!(self, "  {cells}  {REFUSE}{bar}{REFUSE:#}"),
                    None => line!(self, "  {}", cells.trim_end()),
                },
            }
        }
    }
}

/// Cuts a text to a width, in its middle.
fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let (mut head, mut tail) = (String::new(), Vec::new());
    for char in text.chars() {
        if format!("{head}{char}").width() > width * 2 / 3 {
            break;
        }
        head.push(char);
    }
    for char in text.chars().rev() {
        tail.push(char);
        if tail.iter().collect::<String>().width() + head.width() + 3 >= width {
            break;
        }
    }
    head + "..." + &tail.into_iter().rev().collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_keys_are_cut_in_the_middle() {
        assert_eq!(shorten("short", 10), "short");
        let cut = shorten("/a/very/long/path/to/something.html", 20);
        assert!(cut.width() <= 20 && cut.starts_with("/a/very/") && cut.ends_with("html"), "{cut}");
        assert!(shorten(&"水門".repeat(30), 20).width() <= 21);
    }
}
