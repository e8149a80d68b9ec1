use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::{Folder, Kind, Server, done, install};

/// A private MariaDB server.
#[derive(Debug)]
pub struct MariaDb(Server);

const KIND: Kind = Kind { name: "MariaDB", command, is_ready, stop: Signal::TERM };

/// Run when it starts.
const INIT: &str = "
CREATE DATABASE IF NOT EXISTS suimon CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS suimon@'127.0.0.1';
GRANT ALL ON *.* TO suimon@'127.0.0.1';
";

impl MariaDb {
    /// Starts one with an empty database.
    ///
    /// # Panics
    /// When it cannot be installed or started.
    #[must_use]
    pub fn start() -> MariaDb {
        let folder = Folder::new("mariadb", &["mysql"]);
        folder.make("data");
        install("mariadbd", "mariadb-server-core");
        let written = fs::write(folder.path().join("tables.sql"), system_tables())
            .and_then(|()| fs::write(folder.path().join("init.sql"), INIT))
            .and_then(|()| fs::File::open(folder.path().join("tables.sql")));
        let tables = written.unwrap_or_else(|error| panic!("the system tables of MariaDB: {error}"));
        let mut bootstrap = mariadbd(&folder);
        done(bootstrap.arg("--bootstrap").stdin(Stdio::from(tables)))
            .unwrap_or_else(|error| panic!("the system tables of MariaDB: {error}"));
        MariaDb(Server::start(KIND, folder))
    }

    /// Where it is: a URL of a database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mysql://suimon@127.0.0.1:{}/suimon", self.0.port())
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

    /// Stops its processes where they are.
    pub fn pause(&self) {
        self.0.pause();
    }

    /// Lets them go on.
    pub fn resume(&self) {
        self.0.resume();
    }
}

/// What makes the system tables, in the statements of the package: the script that is
/// meant for it is in a larger one.
fn system_tables() -> String {
    let mut all = "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n".to_owned();
    // Named after MySQL up to 10.11.
    let named = ["/usr/share/mariadb/mariadb", "/usr/share/mysql/mariadb", "/usr/share/mysql/mysql"];
    let named = named.into_iter().find(|named| Path::new(&format!("{named}_system_tables.sql")).is_file());
    let named = named.unwrap_or_else(|| panic!("the statements that make MariaDB's system tables are nowhere"));
    for file in ["system_tables", "performance_tables", "system_tables_data"] {
        let path = format!("{named}_{file}.sql");
        all += &fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    all
}

fn mariadbd(folder: &Folder) -> Command {
    let mut command = folder.run(install("mariadbd", "mariadb-server-core"));
    command.args(["--no-defaults", "--skip-log-bin", "--skip-name-resolve", "--innodb-log-file-size=8M"]);
    command.args(["--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=2"]);
    command.args(["--innodb-flush-method=nosync", "--innodb-fast-shutdown=2", "--max-connections=200"]);
    command.arg(format!("--datadir={}", folder.at("data"))).arg(format!("--tmpdir={}", folder.at("")));
    command
}

fn command(folder: &Folder, port: u16) -> Command {
    let mut command = mariadbd(folder);
    command.args(["--bind-address=127.0.0.1", &format!("--port={port}")]);
    command.arg(format!("--socket={}", folder.at("sock"))).arg(format!("--pid-file={}", folder.at("pid")));
    command.arg(format!("--init-file={}", folder.at("init.sql")));
    command
}

/// It greets whoever connects.
fn is_ready(_: &Folder, port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    // The fifth byte is the version of the protocol; an error has 255 there.
    let mut start = [0; 5];
    stream.read_exact(&mut start).is_ok() && start[4] == 10
}
