//! What the worker tells, in the words of this tool: warnings, and how each job ended.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use super::output::Output;
use crate::replay::show;

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Loudness {
    /// Warnings.
    Quiet,
    /// Also how jobs end.
    Usual,
    /// Everything.
    Verbose,
}

struct Log {
    output: Output,
    loudness: Loudness,
}

/// Lets everything in this process be told from here on.
pub(super) fn start(output: Output, loudness: Loudness) {
    let subscriber = tracing_subscriber::registry().with(Log { output, loudness });
    // There is one worker in a process.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

impl Log {
    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        // What others tell, a driver of a database say, may have secrets in it.
        let is_ours = metadata.target().starts_with("suimon");
        let is_loud = match self.loudness {
            Loudness::Quiet => *metadata.level() <= Level::WARN,
            Loudness::Usual => *metadata.level() <= Level::WARN || is_end(metadata),
            Loudness::Verbose => *metadata.level() <= Level::DEBUG,
        };
        is_ours && metadata.is_event() && is_loud
    }
}

/// Is it the end of a job? Those have an outcome.
fn is_end(metadata: &Metadata<'_>) -> bool {
    metadata.fields().field("outcome").is_some()
}

impl<S: Subscriber> Layer<S> for Log {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.wants(metadata)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.output.tell(&fields.line(*event.metadata().level() <= Level::WARN));
    }
}

#[derive(Debug, Default)]
struct Fields {
    message: String,
    job: Option<String>,
    handler: Option<String>,
    outcome: Option<String>,
    why: Option<String>,
    others: String,
}

impl Fields {
    fn line(&self, is_warning: bool) -> String {
        let Fields { message, job, handler, outcome, why, others } = self;
        let job = job.as_ref().map(|job| format!("job {job}"));
        let of: Vec<_> = job.iter().map(String::as_str).chain(handler.as_deref()).collect();
        let of = of.join(" ");
        let what = match outcome.as_deref() {
            Some("retried") => "to be tried again",
            Some("released") => "given back",
            Some(outcome) => outcome,
            None => message,
        };
        let warning = if is_warning { "warning: " } else { "" };
        let of = if of.is_empty() { of } else { of + ": " };
        // Of a limit the reason begins with the same word.
        let why = why.as_ref().map(|why| why.strip_prefix("limited, ").unwrap_or(why));
        let why = why.map(|why| format!(": {}", show::line(why.as_bytes()))).unwrap_or_default();
        format!("{warning}{}{what}{others}{why}", show::line(of.as_bytes()))
    }

    fn put(&mut self, name: &str, value: String) {
        match name {
            "message" => self.message = value,
            "job" => self.job = Some(value),
            "handler" => self.handler = Some(value),
            "outcome" => self.outcome = Some(value),
            "error" | "why" => self.why = Some(value),
            // Writing to a text cannot fail.
            _ => drop(write!(self.others, ", {name} {}", show::line(value.as_bytes()))),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fields: &[(&str, &str)], is_warning: bool) -> String {
        let mut all = Fields::default();
        fields.iter().for_each(|(name, value)| all.put(name, (*value).to_string()));
        all.line(is_warning)
    }

    #[test]
    fn events_in_words() {
        let end = [("message", "a run has ended"), ("job", "3"), ("handler", "call")];
        assert_eq!(line(&[&end[..], &[("outcome", "done")]].concat(), false), "job 3 call: done");
        assert_eq!(
            line(&[&end[..], &[("outcome", "retried"), ("error", "exit status: 1: a\nb\u{1b}[1m")]].concat(), false),
            "job 3 call: to be tried again: exit status: 1: a\\u{a}b\\u{1b}[1m"
        );
        assert_eq!(
            line(&[&end[..], &[("outcome", "limited"), ("error", "limited, retry after 5s")]].concat(), false),
            "job 3 call: limited: retry after 5s"
        );
        assert_eq!(
            line(&[("message", "the queue cannot be reached"), ("error", "gone")], true),
            "warning: the queue cannot be reached: gone"
        );
        assert_eq!(
            line(&[("message", "workers were lost; their jobs go on"), ("jobs", "2")], true),
            "warning: workers were lost; their jobs go on, jobs 2"
        );
        assert_eq!(
            line(&[("message", "a job can never run"), ("job", "5"), ("why", "x")], true),
            "warning: job 5: a job can never run: x"
        );
    }
}
