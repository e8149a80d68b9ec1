use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Folder, Kind, Server, apt_get, done, find, install};

/// A private Redis server. What it has answered it keeps when it is killed.
#[derive(Debug)]
pub struct Redis(Server);

/// A private Valkey server.
#[derive(Debug)]
pub struct Valkey(Server);

/// A private Redis Sentinel, which watches one master as `suimon`.
#[derive(Debug)]
pub struct Sentinel(Server);

/// A private cluster of three Redis servers.
#[derive(Debug)]
pub struct RedisCluster(Vec<Server>);

impl Redis {
    /// Starts one that is empty.
    ///
    /// # Panics
    /// When it cannot be installed or started.
    #[must_use]
    pub fn start() -> Redis {
        Redis(start(Kind { name: "Redis", command: redis, is_ready, stop: Signal::TERM }))
    }
}

impl Valkey {
    /// Starts one that is empty; `None` where Debian has no package of it, which is then
    /// said.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start() -> Option<Valkey> {
        if let Err(error) = valkey_program() {
            eprintln!("Valkey is not tested: {error}");
            return None;
        }
        Some(Valkey(start(Kind { name: "Valkey", command: valkey, is_ready, stop: Signal::TERM })))
    }
}

impl Sentinel {
    /// Starts one that watches the master on a port of this machine, and lets a replica of
    /// it take over half a second after it has gone.
    ///
    /// # Panics
    /// When it cannot be installed or started.
    #[must_use]
    pub fn start(master: u16) -> Sentinel {
        let folder = folder("sentinel");
        let lines = [
            format!("sentinel monitor suimon 127.0.0.1 {master} 1"),
            "sentinel down-after-milliseconds suimon 500".to_owned(),
            "sentinel failover-timeout suimon 3000".to_owned(),
        ];
        let path = folder.path().join("sentinel.conf");
        fs::write(&path, lines.join("\n")).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // It writes into its configuration.
        folder.give(&path);
        Sentinel(Server::start(Kind { name: "Sentinel", command: sentinel, is_ready, stop: Signal::TERM }, folder))
    }
}

impl RedisCluster {
    /// Starts three masters and joins them.
    ///
    /// # Panics
    /// When that does not succeed.
    #[must_use]
    pub fn start() -> RedisCluster {
        let kind = Kind { name: "Redis", command: node, is_ready, stop: Signal::TERM };
        let nodes: Vec<_> = (0..3).map(|_| start(kind)).collect();
        let mut join = Command::new(install("redis-cli", "redis-tools"));
        join.args(["--cluster", "create", "--cluster-yes"]);
        join.args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())));
        done(&mut join).unwrap_or_else(|error| panic!("the cluster was not joined: {error}"));
        let end = Instant::now() + Duration::from_secs(20);
        let knows = |node: &Server| matches!(ask(node.port(), "CLUSTER INFO", 2), Ok(info) if info.contains("cluster_state:ok"));
        while !nodes.iter().all(knows) {
            assert!(Instant::now() < end, "the cluster does not get ready");
            thread::sleep(Duration::from_millis(20));
        }
        RedisCluster(nodes)
    }

    /// Where its nodes are.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.0.iter().map(url).collect()
    }

    /// Kills one of its nodes.
    pub fn kill(&mut self, node: usize) {
        self.0[node].kill();
    }

    /// Starts it again with its data.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self, node: usize) {
        self.0[node].restart();
    }
}

macro_rules! a_server {
    ($($name:ident),*) => {$(
        impl $name {
            /// Where it is.
            #[must_use]
            pub fn url(&self) -> String {
                url(&self.0)
            }

            /// Its port on this machine.
            #[must_use]
            pub fn port(&self) -> u16 {
                self.0.port()
            }

            /// Stops it in good order.
            pub fn stop(&mut self) {
                self.0.stop();
            }

            /// Kills it.
            pub fn kill(&mut self) {
                self.0.kill();
            }

            /// Starts it again with its data, at the same place.
            ///
            /// # Panics
            /// When it does not start.
            pub fn restart(&mut self) {
                self.0.restart();
            }

            /// Stops its process where it is.
            pub fn pause(&self) {
                self.0.pause();
            }

            /// Lets it go on.
            pub fn resume(&self) {
                self.0.resume();
            }

            /// The processor time that it has used so far.
            #[must_use]
            pub fn cpu_time(&self) -> Duration {
                self.0.cpu_time()
            }
        }
    )*};
}

a_server!(Redis, Valkey, Sentinel);

fn start(kind: Kind) -> Server {
    Server::start(kind, folder("redis"))
}

fn folder(name: &str) -> Folder {
    Folder::new(name, &["redis", "valkey"])
}

fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}/", server.port())
}

fn redis(folder: &Folder, port: u16) -> Command {
    server(folder, install("redis-server", "redis-server"), port)
}

fn valkey(folder: &Folder, port: u16) -> Command {
    server(folder, valkey_program().unwrap_or_else(|error| panic!("Valkey: {error}")), port)
}

fn node(folder: &Folder, port: u16) -> Command {
    let mut command = redis(folder, port);
    command.args(["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000"]);
    command.args(["--cluster-port", &(port + 30_000).to_string(), "--cluster-require-full-coverage", "no"]);
    command
}

fn sentinel(folder: &Folder, port: u16) -> Command {
    let mut command = folder.run(install("redis-server", "redis-server"));
    command.args(["sentinel.conf", "--sentinel", "--bind", "127.0.0.1", "--port", &port.to_string()]);
    command
}

/// Every write is in the log, and the log with the operating system, before it is
/// answered: so nothing is lost with the process.
fn server(folder: &Folder, program: PathBuf, port: u16) -> Command {
    let mut command = folder.run(program);
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir", &folder.at("")]);
    command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "no", "--repl-diskless-sync-delay", "0"]);
    command
}

fn valkey_program() -> io::Result<PathBuf> {
    let program = || find("valkey-server");
    if program().is_none() {
        // Debian 13 has it; 12 has it among its backports.
        apt_get("valkey-server", &[]).or_else(|_| backport("valkey-server"))?;
    }
    program().ok_or_else(|| io::Error::other("the package valkey-server has no valkey-server"))
}

/// Installs a package from Debian's backports, with lists that are of no use to anybody
/// else.
fn backport(package: &str) -> io::Result<()> {
    let release = fs::read_to_string("/etc/os-release")?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.ok_or_else(|| io::Error::other("this is no Debian"))?;
    let sites =
        Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]).output()?;
    let sites = String::from_utf8_lossy(&sites.stdout).into_owned();
    let site = sites.lines().find(|site| site.trim_end_matches('/').ends_with("/debian"));
    let site = site.ok_or_else(|| io::Error::other("no source of Debian's packages is known"))?;
    let folder = Folder::new("backports", &["root"]);
    fs::create_dir_all(folder.path().join("lists/partial"))?;
    fs::write(folder.path().join("list"), format!("deb {site} {codename}-backports main\n"))?;
    let mut options = vec!["-t".to_owned(), format!("{codename}-backports")];
    for option in [
        format!("Dir::Etc::sourcelist={}", folder.at("list")),
        "Dir::Etc::sourceparts=-".to_owned(),
        format!("Dir::State::lists={}", folder.at("lists")),
        "Dir::Cache::pkgcache=".to_owned(),
        "Dir::Cache::srcpkgcache=".to_owned(),
        "APT::Sandbox::User=root".to_owned(),
    ] {
        options.extend(["-o".to_owned(), option]);
    }
    apt_get(package, &options)
}

fn is_ready(_: &Folder, port: u16) -> bool {
    matches!(ask(port, "PING", 1), Ok(answer) if answer.starts_with("+PONG"))
}

/// Sends a command in one line, and reads so many lines of the answer.
fn ask(port: u16, command: &str, lines: usize) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    write!(stream, "{command}\r\n")?;
    let mut answer = String::new();
    let mut reader = BufReader::new(stream);
    for _ in 0..lines {
        reader.read_line(&mut answer)?;
    }
    Ok(answer)
}
