//! What many new keys cost: memory, and the slowest single call.
//!
//! Each is measured in a process of its own: no memory of others is used again, and
//! resident memory is what counts for a table whose pages are touched lazily.

use std::process::Command;
use std::time::Instant;

use crate::keyed::{Contender, Key};
use crate::process::{peak_bytes, preemptions, resident_bytes, thread_cpu_nanos};

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

/// Milliseconds to make it; then of the first call for each key, in microseconds: mean, p99.99 and most by
/// the clock, and the most of this thread's CPU time. Of the calls in which somebody else
/// got the core only those of a millisecond and more count: nearly all of that is their own.
fn calls<K: Key>(contender: &Contender<K>, keys: u64) -> Vec<f64> {
    let mut key = K::of(0);
    // Written to, so that recording touches no new memory.
    let mut nanos = vec![1_u32; keys as usize];
    let start = Instant::now();
    let limiter = contender.make(keys as usize);
    let making = start.elapsed();
    let (mut preempted, mut most_cpu, mut cpu) = (preemptions(), 0, thread_cpu_nanos());
    for (number, nanos) in nanos.iter_mut().enumerate() {
        key.set(number as u64);
        let start = Instant::now();
        let admitted = limiter.admits(&key);
        *nanos = start.elapsed().as_nanos() as u32;
        assert!(admitted);
        // Reading these costs more than most calls: the CPU time from call to call, and the
        // preemptions only now and then and when it matters.
        let cpu_before = std::mem::replace(&mut cpu, thread_cpu_nanos());
        if cpu - cpu_before > most_cpu || number % 64 == 0 {
            let preempted_before = std::mem::replace(&mut preempted, preemptions());
            if preempted == preempted_before || cpu - cpu_before > 1_000_000 {
                most_cpu = most_cpu.max(cpu - cpu_before);
            }
            cpu = thread_cpu_nanos();
        }
    }
    let mean = nanos.iter().map(|nanos| f64::from(*nanos)).sum::<f64>() / keys as f64;
    nanos.sort_unstable();
    let at = |share: f64| f64::from(nanos[((keys - 1) as f64 * share) as usize]) / 1000.0;
    vec![making.as_secs_f64() * 1000.0, mean / 1000.0, at(0.9999), at(1.0), most_cpu as f64 / 1000.0]
}
