//! `suimon replay`, and the demonstration that `suimon` alone is.

use super::progress::Bar;
use super::values::{parse_policy, parse_time};
use super::{EXIT_CODES, Ending, Failure, sample};
use crate::replay::report::{self, Look};
use crate::replay::time::Unit;
use crate::replay::{Format, Input, Options, Outcome, Wanted};
use crate::terminal;
use clap::ValueEnum;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  suimon replay --policy 'bucket 2/s burst 20' --key client access.log
  suimon replay --policy 'bucket 2/s burst 20' --compare 'window 60/min' --key client access.log*
  suimon replay --policy 'fixed 100000/day' --key user.id --cost usage.tokens --out report.html api.jsonl
  journalctl -o cat -u api | suimon replay --policy 'pace 60/min' --format json --key tenant -
  suimon replay --policy 'bucket 5/s' --key client --fail-over 1 --json access.log.zst

Fields of an access log:
  client, user, ident, vhost, time, method, path, url, protocol, request, status, bytes, referer, agent
  (and the names of Apache and nginx, as remote_addr or body_bytes_sent)";

/// Replay a log: what would a limit have let through, and what refused?
///
/// Reads access logs of Apache and nginx, JSON lines and CSV, compressed or not
/// (gzip, zstd, bzip2, xz), and asks the limit about each request at the time
/// that the log gives it. The limiter is the one of the library, so the answer is
/// what it would have been.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(super) struct Args {
    /// The logs, in any order; `-` is standard input.
    ///
    /// Several are replayed as one, by their times.
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,

    /// The limit, as `bucket 2/s burst 20`, `pace 60/min`, `window 100/60s`, `fixed 1000/day`.
    ///
    /// Several limits of one policy are joined with `and`. Given several times, the
    /// policies are shown side by side.
    #[arg(short, long, value_name = "POLICY", required = true)]
    policy: Vec<String>,

    /// Another limit to show beside it; may be given several times.
    #[arg(long, value_name = "POLICY")]
    compare: Vec<String>,

    /// The field that tells who asked, or several as `client,path`; without it one limiter counts all.
    ///
    /// In JSON a dot goes into an object, as in `user.id`.
    #[arg(short, long, value_name = "FIELD", value_delimiter = ',')]
    key: Vec<String>,

    /// The field with the cost of a request, a decimal; without it each costs 1.
    #[arg(long, value_name = "FIELD")]
    cost: Option<String>,

    /// The field with the time (JSON and CSV); without it the usual names are tried.
    ///
    /// RFC 3339, a Unix time with or without a fraction, or the date of an access
    /// log. A time without a zone is UTC.
    #[arg(long, value_name = "FIELD")]
    time: Option<String>,

    /// What a Unix time counts; `auto` tells by its size.
    #[arg(long, value_name = "UNIT", default_value = "auto")]
    time_unit: UnitArg,

    /// The format; `auto` looks at the first lines of each file.
    #[arg(short, long, value_name = "FORMAT", default_value = "auto")]
    format: FormatArg,

    /// How far out of order lines may be and are still put in their place, as `90s` or `5min`.
    ///
    /// At most 1,048,576 requests wait. One that comes later still is taken at the
    /// latest time already replayed, and counted.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    reorder: Duration,

    /// Also write a report to a file: .html (a page) or .svg (its chart); may be given several times.
    #[arg(short, long, value_name = "FILE")]
    out: Vec<PathBuf>,

    /// Print one JSON object instead of the report.
    #[arg(long)]
    json: bool,

    /// How many of the most refused keys are named.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// How many of the lines that could not be read are shown.
    #[arg(long, value_name = "N", default_value_t = 5)]
    show_unreadable: usize,

    /// Do not search for the smallest limit that would have refused nobody.
    #[arg(long)]
    no_search: bool,

    /// Exit with 3 if more than this share of the requests would have been refused (by the first policy), as `1` or `0.5%`.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    fail_over: Option<f64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatArg {
    Auto,
    /// Apache's and nginx's access log, combined or common
    #[value(alias = "common", alias = "clf", alias = "apache", alias = "nginx")]
    Combined,
    /// One JSON object a line
    #[value(alias = "jsonl", alias = "ndjson")]
    Json,
    /// Names in the first line; the separator (comma, tab, semicolon, bar) is told by it
    #[value(alias = "tsv")]
    Csv,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum UnitArg {
    Auto,
    S,
    Ms,
    Us,
    Ns,
}

/// Replays what the arguments name.
pub(super) fn run(args: &Args) -> Result<Ending, Failure> {
    let options = options(args)?;
    for out in &args.out {
        report::check_name(out).map_err(Failure::Usage)?;
    }
    let outcome = replay(&options)?;
    if args.json {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", report::json(&outcome))?;
    } else {
        print(&outcome)?;
    }
    for out in &args.out {
        write(out, &outcome)?;
    }
    let mut ending = Ending::Done;
    if let Some(most) = args.fail_over {
        let share = outcome.policies.first().map_or(0.0, crate::replay::PolicyOutcome::denied_percent);
        if share > most {
            terminal::error(&format!(
                "{share:.2} % of the requests would have been refused, and --fail-over allows {most} %"
            ));
            ending = Ending::OverThreshold;
        }
    }
    // A log that was not read to its end proves nothing about a share.
    for file in outcome.files.iter().filter(|file| file.damage.is_some()) {
        let damage = file.damage.as_deref().unwrap_or_default();
        terminal::error(&format!("{}: {damage}; the report covers the {} lines before that", file.name, file.lines));
        ending = Ending::Incomplete;
    }
    Ok(ending)
}

/// What `suimon` does without arguments: a replay of the log that is built in.
pub(super) fn demo() -> Result<Ending, Failure> {
    let (format, wanted) = sample::wanted();
    let policy = "bucket 30/min burst 10";
    let options = Options {
        inputs: vec![sample::input()],
        format,
        wanted,
        reorder: Duration::from_secs(60),
        policies: vec![parse_policy("the policy", policy)?],
        top: 5,
        show_unreadable: 5,
        search: true,
    };
    let outcome = replay(&options)?;
    print(&outcome)?;
    let next = [
        ("suimon replay --policy 'bucket 2/s burst 20' --key client access.log", "your own log"),
        ("suimon sample > access.log", "this log, to try things on"),
        ("suimon replay --help", "formats, keys, costs, reports in HTML"),
    ];
    let width = next.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let mut out = anstream::stdout().lock();
    writeln!(out, "Try next:")?;
    for (command, what) in next {
        writeln!(out, "  {command:width$}  {what}")?;
    }
    Ok(Ending::Done)
}

fn replay(options: &Options) -> Result<Outcome, Failure> {
    let total = options.inputs.iter().map(Input::stored_bytes).sum();
    let mut bar = Bar::new(total);
    Ok(crate::replay::run(options, &mut |progress| bar.show(progress))?)
}

fn print(outcome: &Outcome) -> Result<(), Failure> {
    let look = Look { width: terminal::width(), unicode: terminal::is_unicode(), colors: terminal::has_colors() };
    let text = report::text(outcome, &look);
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

fn write(path: &Path, outcome: &Outcome) -> Result<(), Failure> {
    let content = if report::is_svg(path) { report::svg(outcome) } else { report::html(outcome) };
    std::fs::write(path, content).map_err(|error| Failure::Io(format!("{}: {error}", path.display())))
}

fn options(args: &Args) -> Result<Options, Failure> {
    let policies = args.policy.iter().map(|text| parse_policy("--policy", text));
    let compared = args.compare.iter().map(|text| parse_policy("--compare", text));
    let stdin = args.logs.iter().filter(|log| log.as_os_str() == "-").count();
    if stdin > 1 {
        return Err(Failure::Usage("standard input (`-`) can be read only once".to_string()));
    }
    if let Some(empty) = args.key.iter().chain(&args.cost).chain(&args.time).find(|name| name.is_empty()) {
        return Err(Failure::Usage(format!(
            "a field has the empty name `{empty}`; name the fields as in --key client,path"
        )));
    }
    Ok(Options {
        inputs: args
            .logs
            .iter()
            .map(|log| if log.as_os_str() == "-" { Input::Stdin } else { Input::File(log.clone()) })
            .collect(),
        format: match args.format {
            FormatArg::Auto => Format::Auto,
            FormatArg::Combined => Format::Combined,
            FormatArg::Json => Format::Json,
            FormatArg::Csv => Format::Csv,
        },
        wanted: Wanted {
            key: args.key.clone(),
            cost: args.cost.clone(),
            time: args.time.clone(),
            unit: match args.time_unit {
                UnitArg::Auto => Unit::Auto,
                UnitArg::S => Unit::Seconds,
                UnitArg::Ms => Unit::Millis,
                UnitArg::Us => Unit::Micros,
                UnitArg::Ns => Unit::Nanos,
            },
        },
        reorder: args.reorder,
        policies: policies.chain(compared).collect::<Result<_, _>>()?,
        top: args.top,
        show_unreadable: args.show_unreadable,
        search: !args.no_search,
    })
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim();
    let percent = number.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "a share is a number from 0 to 100, in percent, as in `0.5`".to_string())
}
