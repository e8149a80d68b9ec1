//! How many lines a second `suimon replay` reads, on one core.
//!
//! ```text
//! cargo bench -p suimon-server            a million lines
//! cargo bench -p suimon-server -- 4       four million
//! ```
//!
//! The log is the shipped sample over and over, each time two days later, so that
//! times run on and the keys stay the same. Each figure is the best of three runs
//! over files in the page cache. Peak memory is that of the whole process so far
//! (Linux): it is printed after each, smallest work first.

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use suimon_server::replay::time::{ClfClock, SECOND, Unit, parse, show};
use suimon_server::replay::{Format, Input, Options, Wanted, run};

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn main() {
    // Without `--bench`, as in `cargo test --benches`, it only shows that it works.
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let millions: usize = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(1);
    let copies = if is_bench { millions * 200 } else { 2 };

    let dir = tempfile::tempdir().expect("a temporary directory");
    let log = dir.path().join("access.log");
    let json = dir.path().join("access.jsonl");
    let packed = dir.path().join("access.log.gz");
    write_logs(copies, &log, &json, &packed);

    let lines = copies * 5_000;
    let rounds = if is_bench { 3 } else { 1 };
    println!(
        "{lines} lines, {} keys, {} bytes a line",
        925,
        log.metadata().map_or(0, |about| about.len()) / lines as u64
    );
    let one: &[&str] = &["bucket 30/min burst 10"];
    let three: &[&str] = &["bucket 30/min burst 10", "window 30/60s", "fixed 500/day"];
    for (name, path, format, policies, search) in [
        ("combined, parse and decide", &log, Format::Combined, one, false),
        ("combined, three policies", &log, Format::Combined, three, false),
        ("combined, gzip", &packed, Format::Combined, one, false),
        ("JSON lines", &json, Format::Json, one, false),
        ("combined, with the search", &log, Format::Combined, one, true),
    ] {
        let options = options(path, format, policies, search);
        let best = (0..rounds).map(|_| measure(&options, lines)).min().unwrap_or_default();
        let rate = lines as f64 / best.as_secs_f64();
        println!("{name:28} {rate:>12.0} lines/s  {:>8.3} s  {}", best.as_secs_f64(), peak_memory());
    }
}

fn measure(options: &Options, lines: usize) -> Duration {
    let begun = Instant::now();
    let outcome = run(options, &mut |_| ()).expect("a replay");
    let took = begun.elapsed();
    let unreadable = outcome.unreadable();
    assert_eq!((outcome.requests + unreadable) as usize, lines);
    assert!(outcome.policies[0].denied > 0 && outcome.late() == 0);
    took
}

fn options(path: &Path, format: Format, policies: &[&str], search: bool) -> Options {
    Options {
        inputs: vec![Input::File(PathBuf::from(path))],
        format,
        wanted: Wanted { key: vec!["client".into()], ..Wanted::default() },
        reorder: Duration::from_secs(60),
        policies: policies.iter().map(|policy| policy.parse().expect("a policy")).collect(),
        top: 10,
        show_unreadable: 5,
        search,
    }
}

fn write_logs(copies: usize, log: &Path, json: &Path, packed: &Path) {
    let mut sample = String::new();
    let bytes = include_bytes!("../sample/access.log.gz");
    GzDecoder::new(&bytes[..]).read_to_string(&mut sample).expect("the sample");
    let create = |path| BufWriter::new(File::create(path).expect("a file"));
    let (mut log, mut json) = (create(log), create(json));
    let mut packed = GzEncoder::new(create(packed), flate2::Compression::default());
    let mut clock = ClfClock::default();
    for copy in 0..copies as u64 {
        for line in sample.lines() {
            let (head, rest) = line.split_once('[').expect("a date");
            let (date, tail) = rest.split_once(']').expect("a date");
            let time = parse(date.as_bytes(), Unit::Auto, &mut clock).expect("a date") + copy * 2 * 86_400 * SECOND;
            let shown = show(time);
            let month: usize = shown[5..7].parse().expect("a month");
            let moved = format!(
                "{head}[{}/{}/{}:{} +0000]{tail}\n",
                &shown[8..10],
                MONTHS[month - 1],
                &shown[..4],
                &shown[11..]
            );
            log.write_all(moved.as_bytes()).expect("writing");
            packed.write_all(moved.as_bytes()).expect("writing");
            let mut object = format!(
                "{{\"time\":\"{}Z\",\"client\":\"{}\"",
                shown.replace(' ', "T"),
                head.split(' ').next().expect("a client")
            );
            for (name, value) in ["request", "status", "referer", "agent"]
                .iter()
                .zip(tail.split('"').filter(|part| *part != " ").skip(1))
            {
                let _ = write!(object, ",\"{name}\":\"{}\"", value.trim().replace('\\', "\\\\"));
            }
            writeln!(json, "{object}}}").expect("writing");
        }
    }
    for out in [log, json, packed.finish().expect("writing")] {
        out.into_inner().expect("writing");
    }
}

/// The most memory that this process has had.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.map_or_else(String::new, |peak| format!("peak {}", peak.trim()))
}
