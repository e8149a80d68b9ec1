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

/// What has happened to this thread: pages that the system had to give it, and how often
/// it had to give way to another.
pub fn happened() -> (i64, i64) {
    let usage = usage(libc::RUSAGE_THREAD);
    (usage.ru_minflt, usage.ru_nivcsw)
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

/// Processes, to be asked for their CPU time.
pub struct Tree(Vec<u32>);

impl Tree {
    /// Those that this process has started, with those that they have.
    pub fn started() -> Tree {
        let pids = fs::read_dir("/proc").unwrap();
        let pids = pids.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, fields(pid)?[1].parse().ok()?))).collect();
        let mut all = vec![std::process::id()];
        let mut next = 0;
        while let Some(parent) = all.get(next).copied() {
            all.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
            next += 1;
        }
        Tree(all.split_off(1))
    }

    /// User and system time of those that are there still, in ticks.
    pub fn cpu_ticks(&self) -> u64 {
        let ticks = |pid: &u32| {
            let fields = fields(*pid)?;
            Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
        };
        self.0.iter().filter_map(ticks).sum()
    }
}

/// How many ticks of [`Tree::cpu_ticks`] a second has.
pub fn ticks_per_second() -> f64 {
    // SAFETY: asks for a number.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) as f64 }
}

/// What the kernel tells of a process, from its state on.
fn fields(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}
