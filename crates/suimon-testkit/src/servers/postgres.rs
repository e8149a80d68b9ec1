use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use super::{Folder, Kind, Server, done, install};

/// A private PostgreSQL server.
#[derive(Debug)]
pub struct Postgres(Server);

const KIND: Kind = Kind {
    name: "PostgreSQL",
    command,
    is_ready,
    // Ends the sessions and shuts down.
    stop: Signal::INT,
};

impl Postgres {
    /// Starts one with an empty database.
    ///
    /// # Panics
    /// When it cannot be installed or started.
    #[must_use]
    pub fn start() -> Postgres {
        let folder = Folder::new("postgres", &["postgres"]);
        let mut initdb = folder.run(program("initdb"));
        initdb.args(["--pgdata", "data", "--username", "suimon", "--auth", "trust", "--encoding", "UTF8"]);
        initdb.args(["--locale", "C.UTF-8", "--no-sync", "--no-instructions"]);
        done(&mut initdb).unwrap_or_else(|error| panic!("initdb: {error}"));
        Postgres(Server::start(KIND, folder))
    }

    /// Where it is: a URL of a database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://suimon@127.0.0.1:{}/postgres", self.0.port())
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

fn program(name: &str) -> impl AsRef<Path> + use<> {
    install(name, "postgresql")
}

fn command(folder: &Folder, port: u16) -> Command {
    // Of a killed one: it would be taken for a sign that this one is ready.
    let _ = fs::remove_file(folder.path().join("data/postmaster.pid"));
    let mut command = folder.run(program("postgres"));
    command.args(["-D", "data", "-p", &port.to_string(), "-k", &folder.at("")]);
    for setting in [
        "listen_addresses=127.0.0.1",
        "fsync=off",
        "full_page_writes=off",
        "shared_buffers=32MB",
        "max_connections=200",
        "wal_level=minimal",
        "max_wal_senders=0",
    ] {
        command.args(["-c", setting]);
    }
    command
}

/// The last line of its file says so.
fn is_ready(folder: &Folder, _: u16) -> bool {
    let file = fs::read_to_string(folder.path().join("data/postmaster.pid"));
    file.is_ok_and(|file| file.lines().nth(7).is_some_and(|state| state.trim() == "ready"))
}
