//! Measuring: rounds of all candidates in turn, so that a noisy moment of the
//! machine meets them all; the median of the rounds counts.

pub mod floors;
pub mod growth;
pub mod keyed;
pub mod process;

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

/// One thing to be measured: a name and what it does `n` times.
pub struct Candidate<'a> {
    pub name: &'static str,
    pub run: Box<dyn Fn(u64) + 'a>,
}

impl<'a> Candidate<'a> {
    pub fn new(name: &'static str, run: impl Fn(u64) + 'a) -> Candidate<'a> {
        Candidate { name, run: Box::new(run) }
    }
}

/// Nanoseconds of one operation: the medians of `rounds` of `n` operations each.
pub fn medians(candidates: &[Candidate<'_>], rounds: usize, n: u64) -> Vec<f64> {
    let start = Instant::now();
    medians_by(candidates, rounds, n, || start.elapsed().as_nanos() as u64)
}

/// The same in CPU time of this thread, which others who use the machine do not add to.
pub fn cpu_medians(candidates: &[Candidate<'_>], rounds: usize, n: u64) -> Vec<f64> {
    medians_by(candidates, rounds, n, process::thread_cpu_nanos)
}

fn medians_by(candidates: &[Candidate<'_>], rounds: usize, n: u64, nanos: impl Fn() -> u64) -> Vec<f64> {
    let mut times = vec![Vec::with_capacity(rounds); candidates.len()];
    for _ in 0..rounds {
        for (candidate, times) in candidates.iter().zip(&mut times) {
            let start = nanos();
            (candidate.run)(n);
            times.push((nanos() - start) as f64 / n as f64);
        }
    }
    times.iter_mut().map(|times| median(times)).collect()
}

/// The middle one.
pub fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Prints a table, each beside the first and the second row.
pub fn print(title: &str, candidates: &[Candidate<'_>], nanos: &[f64]) {
    println!("\n{title}");
    for (candidate, nanos_one) in candidates.iter().zip(nanos) {
        println!(
            "  {:<44} {:>8.2} ns   {:>5.2} x {}",
            candidate.name,
            nanos_one,
            nanos_one / nanos[0],
            candidates[0].name
        );
    }
}

/// CPU time of this process, user and system, in nanoseconds.
pub fn cpu_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to be written to.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A waker that unparks this thread.
pub fn unpark_me() -> Waker {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    Arc::new(Unpark(std::thread::current())).into()
}
