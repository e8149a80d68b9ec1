//! Private servers for the tests of stores: started in a second or two on a free port of
//! this machine, gone with the test, whatever becomes of it.
//!
//! What is missing is installed from Debian's packages, which takes root. No service of
//! the system is started or touched. As root, a server runs as a user without rights.
//!
//! Commits reach the operating system, not the disk: nothing is lost when a server is
//! killed, everything when the machine is.

mod mariadb;
mod postgres;
mod redis;

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};
use std::{env, process, thread};

use rustix::process::{Pid, Signal, kill_process};

pub use mariadb::MariaDb;
pub use postgres::Postgres;
pub use redis::{Redis, RedisCluster, Sentinel, Valkey};

/// A server that can be stopped, killed, paused and started again, on the same port and
/// with the same data.
#[derive(Debug)]
pub(crate) struct Server {
    kind: Kind,
    port: u16,
    child: Option<Child>,
    folder: Folder,
}

/// What differs from one kind of server to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// The command that starts it in the foreground, in its folder and on a port.
    pub(crate) command: fn(&Folder, u16) -> Command,
    /// Does it answer?
    pub(crate) is_ready: fn(&Folder, u16) -> bool,
    /// Asks it to stop in good order.
    pub(crate) stop: Signal,
}

impl Server {
    /// Starts a server in a folder that has been made ready for it.
    pub(crate) fn start(kind: Kind, folder: Folder) -> Server {
        let mut server = Server { kind, port: free_port(), child: None, folder };
        for _ in 0..3 {
            if server.launch() {
                return server;
            }
            // Somebody else was quicker on that port.
            server.kill();
            server.port = free_port();
        }
        panic!("{} did not start:\n{}", kind.name, server.log());
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Stops it in good order.
    pub(crate) fn stop(&mut self) {
        self.folder.signal(Signal::CONT);
        if let Some(child) = &mut self.child {
            let _ = kill_process(Pid::from_child(child), self.kind.stop);
            let end = Instant::now() + Duration::from_secs(20);
            while child.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
        }
        self.kill();
    }

    /// Kills it and all of its processes at once.
    pub(crate) fn kill(&mut self) {
        while !self.folder.processes().is_empty() {
            self.folder.signal(Signal::KILL);
            if let Some(mut child) = self.child.take() {
                let _ = child.wait();
            }
            thread::sleep(Duration::from_millis(2));
        }
        self.child = None;
    }

    /// Starts it again where it was; one that runs is stopped before.
    pub(crate) fn restart(&mut self) {
        self.stop();
        assert!(self.launch(), "{} did not start again:\n{}", self.kind.name, self.log());
    }

    /// Stops all of its processes where they are: it neither answers nor refuses.
    pub(crate) fn pause(&self) {
        self.folder.signal(Signal::STOP);
        // Each thread stops when it next comes to run.
        let end = Instant::now() + Duration::from_secs(20);
        while !self.folder.processes().into_iter().all(has_stopped) && Instant::now() < end {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Lets them go on.
    pub(crate) fn resume(&self) {
        self.folder.signal(Signal::CONT);
    }

    /// Starts it and waits until it answers; `false` when it has ended, or does not
    /// answer for long.
    fn launch(&mut self) -> bool {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log"));
        let log = log.unwrap_or_else(|error| panic!("the log of {}: {error}", self.kind.name));
        let mut command = (self.kind.command)(&self.folder, self.port);
        command.current_dir(self.folder.path()).process_group(0).stdin(Stdio::null());
        command.stdout(log.try_clone().map_or_else(|_| Stdio::null(), Stdio::from)).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.kind.name));
        let child = self.child.insert(child);
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            if (self.kind.is_ready)(&self.folder, self.port) {
                return true;
            }
            if child.try_wait().is_ok_and(|status| status.is_some()) {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// The processor time that its process has used so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = self.child.as_ref().and_then(|child| fs::read_to_string(format!("/proc/{}/stat", child.id())).ok());
        // Behind the name, which may hold anything: the 12th and 13th number, in ticks.
        let stat = stat.unwrap_or_default();
        let numbers = stat.rsplit_once(')').map_or("", |(_, numbers)| numbers).split_whitespace();
        let ticks: u64 = numbers.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // In good order, so that it collects its processes.
        self.stop();
    }
}

/// A folder for one server, which is also how its processes are known: they run in it.
///
/// When it is dropped, or this process ends in whatever way, they are killed and it is
/// removed: a shell waits for the end of a pipe.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    users: &'static [&'static str],
    watch: Child,
}

const WATCH: &str = r#"
read -r _
for cwd in /proc/[0-9]*/cwd; do
    case "$(readlink "$cwd" 2>/dev/null)" in
        "$1" | "$1"/*) pid=${cwd#/proc/}; kill -KILL "${pid%/cwd}" 2>/dev/null ;;
    esac
done
rm -rf "$1" || { sleep 0.2; rm -rf "$1"; }
"#;

impl Folder {
    /// A folder that belongs to the first of these users that there is, if this process
    /// is root; without any, to root.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(name: &str, users: &'static [&'static str]) -> Folder {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("suimon-{name}-{}-{number}", process::id()));
        // What an earlier process of the same id left behind when it could not clean up.
        let _ = fs::remove_dir_all(&path);
        let made = fs::create_dir_all(&path).and_then(|()| fs::canonicalize(&path));
        let path = made.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut watch = Command::new("sh");
        watch.args(["-c", WATCH, "watch"]).arg(&path).current_dir("/").process_group(0);
        watch.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let watch = watch.spawn().unwrap_or_else(|error| panic!("a shell: {error}"));
        let folder = Folder { path, users, watch };
        folder.give(&folder.path);
        folder
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in it, as text.
    pub(crate) fn at(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    /// Makes a folder in it.
    pub(crate) fn make(&self, name: &str) {
        let path = self.path.join(name);
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.give(&path);
    }

    /// A command that runs in it, as its owner.
    pub(crate) fn run(&self, program: impl AsRef<Path>) -> Command {
        let mut command = as_user(program, self.users);
        command.current_dir(&self.path);
        command
    }

    /// The processes that run in it.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let runs_here = |path: &Path| fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd.starts_with(&self.path));
        let running = entries.filter(|entry| runs_here(&entry.path()));
        let pids = running.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Pid::from_raw).collect()
    }

    /// Sends all of them a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        for pid in self.processes() {
            // It may have ended meanwhile.
            let _ = kill_process(pid, signal);
        }
    }

    fn give(&self, path: &Path) {
        let owner = Some(self.users).filter(|users| is_root() && !users.is_empty()).map(|users| ids(users).0);
        let given = fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            .and_then(|()| if owner.is_some() { chown(path, owner, None) } else { Ok(()) });
        given.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.watch.stdin.take());
        let _ = self.watch.wait();
    }
}

/// Have all threads of a process stopped, or ended?
fn has_stopped(process: Pid) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()));
    tasks.into_iter().flatten().flatten().all(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses and may have any in it.
        stat.rsplit(") ").next().is_none_or(|rest| !rest.starts_with(['R', 'S', 'D', 'I']))
    })
}

/// A port that nobody listens on, below those that the system gives to outgoing
/// connections.
pub(crate) fn free_port() -> u16 {
    const FIRST: u16 = 10_240;
    const PORTS: u16 = 20_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run side by side start in different places.
    let start = u16::try_from(process::id() * 101 % u32::from(PORTS)).unwrap_or_default();
    let ports = (0..PORTS).map(|_| FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed) % PORTS) % PORTS);
    let mut free = ports.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.next().unwrap_or_else(|| panic!("there is no free port"))
}

/// Where a program is; installs its package if it is nowhere.
pub(crate) fn install(program: &str, package: &str) -> PathBuf {
    find(program).unwrap_or_else(|| {
        apt_get(package, &[])
            .unwrap_or_else(|error| panic!("the Debian package {package} could not be installed: {error}"));
        find(program).unwrap_or_else(|| panic!("the package {package} is installed and has no {program}"))
    })
}

/// A command that runs a program whose clock is off by so much, as `faketime` says it: `+1h`.
///
/// # Panics
/// When `faketime` cannot be installed.
#[must_use]
pub fn with_clock(offset: &str, program: impl AsRef<Path>) -> Command {
    install("faketime", "faketime");
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let library = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1")).find(|path| path.exists());
    let library = library.unwrap_or_else(|| panic!("the library of faketime is in no folder of /usr/lib"));
    let mut command = Command::new(program.as_ref());
    // Loaded here and not by its program, which would stand between the test and the process. Waiting
    // goes on as before.
    command.env("LD_PRELOAD", library).env("FAKETIME", offset).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command
}

/// Looks for a program, also where only administrators do, and Debian's PostgreSQL.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    folders.into_iter().map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Installs a package, with options that tell where from.
///
/// # Errors
/// When there is none, or this process is not root.
fn apt_get(package: &str, options: &[String]) -> io::Result<()> {
    const POLICY: &str = "/usr/sbin/policy-rc.d";
    if !is_root() {
        return Err(io::Error::other("installing a package takes root"));
    }
    // One at a time, also of several processes, because of the file that keeps the
    // services of packages from starting.
    let lock = File::create(env::temp_dir().join("suimon-testkit-install"));
    let lock = lock.and_then(|lock| lock.lock().map(|()| lock));
    let _lock = lock.unwrap_or_else(|error| panic!("a lock for installing: {error}"));
    let forbids = File::create_new(POLICY).and_then(|mut file| {
        file.write_all(b"#!/bin/sh\nexit 101\n")?;
        file.set_permissions(fs::Permissions::from_mode(0o755))
    });
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .args(["-o", "DPkg::Lock::Timeout=120"])
            .args(options)
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive");
        done(command.stdin(Stdio::null()))
    };
    let installed = apt(&["update"]).and_then(|()| apt(&["install", "--yes", "--no-install-recommends", package]));
    if forbids.is_ok() {
        let _ = fs::remove_file(POLICY);
    }
    installed
}

/// A command that runs a program as the first of these users that there is, if this
/// process is root.
pub(crate) fn as_user(program: impl AsRef<Path>, candidates: &[&str]) -> Command {
    let program = program.as_ref();
    if !is_root() {
        return Command::new(program);
    }
    let (user, group) = ids(candidates);
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user.to_string(), "--regid", &group.to_string(), "--clear-groups"]).arg(program);
    command
}

/// Runs a command to its end.
///
/// # Errors
/// With what it wrote, when it fails.
pub(crate) fn done(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let told = [&output.stdout[..], &output.stderr[..]].concat();
    Err(io::Error::other(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&told))))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user and the group of the first of these users that there is.
fn ids(candidates: &[&str]) -> (u32, u32) {
    let id = |what: &str, user: &str| {
        let output = Command::new("id").args([what, user]).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    let ids = |user: &&str| Some((id("-u", user)?, id("-g", user)?));
    let found = candidates.iter().chain(&["nobody"]).find_map(ids);
    found.unwrap_or_else(|| panic!("there is no user {candidates:?} or nobody"))
}
