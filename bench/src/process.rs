//! What the kernel knows about this process and this thread.

use std::fs;

/// Bytes of this process that are in memory now.
pub fn resident_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split_whitespace().nth(1).unwrap().parse().unwrap();
    // SAFETY: asks for a number.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64
}

/// The most bytes of this process that were in memory at a time.
pub fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// CPU time of this thread, user and system, in nanoseconds.
pub fn thread_cpu_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to be written to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How often this thread had to give way to another.
pub fn preemptions() -> i64 {
    usage(libc::RUSAGE_THREAD).ru_nivcsw
}

/// How often threads of this process had to.
pub fn process_preemptions() -> i64 {
    usage(libc::RUSAGE_SELF).ru_nivcsw
}

fn usage(who: libc::c_int) -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::zeroed();
    // SAFETY: `usage` is a valid rusage to be written to, and all zeroes are one.
    unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    }
}
