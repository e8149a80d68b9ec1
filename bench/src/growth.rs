//! What many new keys cost: memory, and the slowest single call.
//!
//! Each is measured in a process of its own: no memory of others is used again, and
//! resident memory is what counts for a table whose pages are touched lazily.

use std::process::Command;
use std::time::Instant;

use crate::keyed::{Contender, Key};
use crate::process::{happened, peak_bytes, resident_bytes, thread_cpu_nanos};

/// What a child is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Question {
    Bytes,
    Calls,
}

/// Runs this program again, with the arguments that [`answer`] understands.
/// Returns the numbers it prints.
pub fn ask<K: Key>(question: Question, name: &str, keys: u64) -> Vec<f64> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["child", K::NAME, name, &format!("{question:?}"), &keys.to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// The child's side: prints numbers.
pub fn answer<K: Key>(contender: &Contender<K>, question: &str, keys: u64) {
    let numbers = match question {
        "Bytes" => bytes(contender, keys),
        "Calls" => calls(contender, keys),
        other => panic!("no such question: {other}"),
    };
    let numbers: Vec<String> = numbers.iter().map(f64::to_string).collect();
    println!("{}", numbers.join(" "));
}

/// Bytes a key in memory when all are there, and at most on the way.
fn bytes<K: Key>(contender: &Contender<K>, keys: u64) -> Vec<f64> {
    let mut key = K::of(0);
    let before = resident_bytes();
    let limiter = contender.make(keys as usize);
    for number in 0..keys {
        key.set(number);
        assert!(limiter.admits(&key));
    }
    let a_key = |bytes: u64| bytes.saturating_sub(before) as f64 / keys as f64;
    let numbers = vec![a_key(resident_bytes()), a_key(peak_bytes())];
    drop(limiter);
    numbers
}

/// Milliseconds to make it; then of the first call for each key: the mean by the clock, in
/// microseconds; of this thread's CPU time, in microseconds, p99.99, p99.999 and the most;
/// how many took 100 of them and more, how many of these met a page that the system had to
/// give first, how many others met another thread that took the core, and the most of all
/// calls that met neither.
fn calls<K: Key>(contender: &Contender<K>, keys: u64) -> Vec<f64> {
    const LONG: u32 = 100_000;
    let mut key = K::of(0);
    // Written to, so that recording touches no new memory.
    let mut nanos = vec![1_u32; keys as usize];
    let start = Instant::now();
    let limiter = contender.make(keys as usize);
    let making = start.elapsed();
    let (mut wall, mut long, mut faulted, mut preempted, mut most_alone) = (0.0, 0, 0, 0, 0);
    for (number, nanos) in nanos.iter_mut().enumerate() {
        key.set(number as u64);
        let before = happened();
        let (start, cpu) = (Instant::now(), thread_cpu_nanos());
        let admitted = limiter.admits(&key);
        *nanos = (thread_cpu_nanos() - cpu) as u32;
        wall += start.elapsed().as_secs_f64();
        let after = happened();
        assert!(admitted);
        let (fault, preemption) = (after.0 != before.0, after.1 != before.1);
        if *nanos >= LONG {
            long += 1;
            faulted += u64::from(fault);
            preempted += u64::from(preemption && !fault);
        }
        if !fault && !preemption {
            most_alone = most_alone.max(*nanos);
        }
    }
    nanos.sort_unstable();
    let at = |share: f64| f64::from(nanos[((keys - 1) as f64 * share) as usize]) / 1000.0;
    vec![
        making.as_secs_f64() * 1000.0,
        wall * 1e6 / keys as f64,
        at(0.9999),
        at(0.99999),
        at(1.0),
        f64::from(long),
        faulted as f64,
        preempted as f64,
        f64::from(most_alone) / 1000.0,
    ]
}
