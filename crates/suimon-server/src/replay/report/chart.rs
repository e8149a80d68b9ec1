//! The chart over time, as SVG: all requests with what was refused of them, and
//! below it what each policy refused, on a scale of its own.
//!
//! Colours are classes, so that the page or the picture around it decides them.

use super::html::escape;
use super::words;
use crate::replay::time::{self, SECOND};
use crate::replay::{Outcome, Timeline};
use std::fmt::Write;

/// The size of the drawing, in its own units.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP_PANEL: f64 = 190.0;
const PANEL: f64 = 84.0;
/// A panel's heading, and the gap above it.
const HEADING: f64 = 34.0;
const AXIS: f64 = 34.0;
/// No more bars than can be seen.
const MOST_BARS: usize = 240;

/// A drawing and its height; the width is always [`WIDTH`].
pub(super) struct Chart {
    pub(super) body: String,
    pub(super) width: f64,
    pub(super) height: f64,
}

pub(super) fn chart(outcome: &Outcome) -> Chart {
    let timeline = outcome.timeline.within(MOST_BARS);
    let mut chart = Drawing::new(&timeline);
    let mut top = HEADING;
    let all: Vec<Bar> = timeline.bars(0).map(|(start, requests, refused)| Bar { start, requests, refused }).collect();
    let several = outcome.policies.len() > 1;
    let legend = match outcome.policies.first() {
        Some(first) if several => format!("requests, and what {} refuses", first.policy),
        _ => "requests, let through and refused".to_string(),
    };
    chart.panel(
        top,
        TOP_PANEL,
        &format!("{legend} (a bar for {})", words::length(timeline.bar())),
        &all,
        false,
        most(&all, |bar| bar.requests),
    );
    top += TOP_PANEL + HEADING;
    // The policies share a scale, so that their heights compare.
    let panels: Vec<Vec<Bar>> = (0..outcome.policies.len())
        .map(|index| timeline.bars(index).map(|(start, requests, refused)| Bar { start, requests, refused }).collect())
        .collect();
    let scale = panels.iter().map(|bars| most(bars, |bar| bar.refused)).max().unwrap_or(0);
    for (bars, policy) in panels.iter().zip(&outcome.policies) {
        if scale == 0 {
            break;
        }
        let heading = if several { format!("refused by {}", policy.policy) } else { "refused, enlarged".to_string() };
        chart.panel(top, PANEL, &heading, bars, true, scale);
        top += PANEL + HEADING;
    }
    let bottom = top - HEADING;
    chart.time_labels(bottom);
    Chart { body: chart.out, width: WIDTH, height: bottom + AXIS }
}

struct Bar {
    start: u64,
    requests: u64,
    refused: u64,
}

fn most(bars: &[Bar], value: impl Fn(&Bar) -> u64) -> u64 {
    bars.iter().map(value).max().unwrap_or(0)
}

struct Drawing {
    out: String,
    first: u64,
    bar: u64,
    bars: usize,
}

impl Drawing {
    fn new(timeline: &Timeline) -> Drawing {
        let first = timeline.bars(0).next().map_or(0, |(start, _, _)| start);
        Drawing { out: String::new(), first, bar: timeline.bar(), bars: timeline.len().max(1) }
    }

    /// Where an instant is.
    fn x(&self, time: u64) -> f64 {
        let share = (time.saturating_sub(self.first)) as f64 / (self.bar as f64 * self.bars as f64);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    /// Bars over a base line: of all requests, or only of the refused ones.
    fn panel(&mut self, top: f64, height: f64, heading: &str, bars: &[Bar], only_refused: bool, scale: u64) {
        let base = top + height;
        let _ =
            write!(self.out, r#"<text class="heading" x="{LEFT}" y="{:.1}">{}</text>"#, top - 12.0, escape(heading));
        let (step, ceiling) = nice(scale);
        let y = |value: u64| base - height * value as f64 / ceiling as f64;
        let mut value = 0;
        while value <= ceiling {
            let class = if value == 0 { "base" } else { "grid" };
            let _ = write!(self.out, r#"<path class="{class}" d="M{LEFT} {0:.1}H{1}"/>"#, y(value), WIDTH - RIGHT);
            let _ = write!(
                self.out,
                r#"<text class="tick" x="{}" y="{:.1}" text-anchor="end">{}</text>"#,
                LEFT - 8.0,
                y(value) + 4.0,
                words::count(value)
            );
            value += step;
        }
        for at in self.times().1 {
            let _ = write!(self.out, r#"<path class="grid" d="M{:.1} {top:.1}V{base:.1}"/>"#, self.x(at));
        }
        let slot = (WIDTH - LEFT - RIGHT) / self.bars as f64;
        let gap = if slot > 4.0 { 1.0 } else { slot * 0.15 };
        for bar in bars.iter().filter(|bar| if only_refused { bar.refused > 0 } else { bar.requests > 0 }) {
            let (x, width) = (self.x(bar.start), slot - gap);
            let _ = write!(
                self.out,
                "<g><title>{} UTC: {} requests, {} refused</title>",
                time::show(bar.start),
                words::count(bar.requests),
                words::count(bar.refused)
            );
            // What there is can be seen, however little it is.
            let tall = |from: u64, to: u64| (y(from) - y(to)).max(1.5);
            let passed = if only_refused { 0 } else { bar.requests - bar.refused };
            let mut roof = base;
            if passed > 0 {
                roof = base - tall(0, passed);
                let _ =
                    write!(self.out, r#"<path class="pass" d="M{x:.2} {base:.1}V{roof:.1}h{width:.2}V{base:.1}z"/>"#);
            }
            if bar.refused > 0 {
                let peak = roof - tall(0, bar.refused);
                let _ =
                    write!(self.out, r#"<path class="refuse" d="M{x:.2} {roof:.1}V{peak:.1}h{width:.2}V{roof:.1}z"/>"#);
            }
            self.out.push_str("</g>");
        }
    }

    /// Round instants.
    fn times(&self) -> (u64, impl Iterator<Item = u64> + use<>) {
        let end = self.first + self.bar * self.bars as u64;
        let step = time_step(end - self.first);
        let first = self.first.next_multiple_of(step);
        (step, (0..).map(move |nth| first + nth * step).take_while(move |at| *at <= end))
    }

    fn time_labels(&mut self, bottom: f64) {
        let (step, times) = self.times();
        for at in times {
            let x = self.x(at);
            let anchor = if x > WIDTH - 50.0 {
                "end"
            } else if x < LEFT + 20.0 {
                "start"
            } else {
                "middle"
            };
            let (upper, lower) = time_label(at, step);
            let _ = write!(
                self.out,
                r#"<text class="tick" x="{x:.1}" y="{:.1}" text-anchor="{anchor}">{upper}</text>"#,
                bottom + 16.0
            );
            let _ = write!(
                self.out,
                r#"<text class="tick day" x="{x:.1}" y="{:.1}" text-anchor="{anchor}">{lower}</text>"#,
                bottom + 29.0
            );
        }
    }
}

/// A round step and a multiple of it that is at least `most`: 2 to 5 steps.
fn nice(most: u64) -> (u64, u64) {
    let most = most.max(1);
    let mut unit: u64 = 1;
    loop {
        for step in [unit, unit.saturating_mul(2), unit.saturating_mul(5)] {
            if most.div_ceil(step) <= 4 {
                return (step, most.div_ceil(step).saturating_mul(step));
            }
        }
        unit = unit.saturating_mul(10);
    }
}

/// The step between two labels on the time axis: at most eight of them.
fn time_step(span: u64) -> u64 {
    const STEPS: [u64; 21] = [
        1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
        2_419_200, 7_257_600, 31_449_600,
    ];
    let fits = STEPS.iter().map(|step| step * SECOND).find(|step| span / step <= 7);
    fits.unwrap_or_else(|| (span / 7).next_multiple_of(31_449_600 * SECOND))
}

/// The time of day above, where the step is less than a day, and the date below.
fn time_label(at: u64, step: u64) -> (String, String) {
    let shown = time::show(at);
    let (date, clock) = (&shown[..10], &shown[11..19]);
    if step >= 86_400 * SECOND {
        (date.to_string(), String::new())
    } else if step >= 60 * SECOND {
        (clock[..5].to_string(), date.to_string())
    } else {
        (clock.to_string(), date.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn scales_are_round_and_large_enough(most in 0_u64..u64::MAX / 16) {
            let (step, ceiling) = nice(most);
            prop_assert!(ceiling >= most && ceiling.is_multiple_of(step) && (1..=4).contains(&(ceiling / step)));
        }

        #[test]
        fn labels_are_few(span in 1..230 * 365 * 86_400 * SECOND) {
            prop_assert!(span / time_step(span) <= 7);
        }
    }
}
