//! The scripts, and how they are run.

use redis::{Cmd, Script, Value, cmd};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::link::Link;
use crate::stats::Counters;

/// A script that the server is asked to run by its hash.
#[derive(Debug)]
pub(crate) struct Code {
    source: String,
    hash: String,
}

/// Both scripts.
#[derive(Debug)]
pub(crate) struct Scripts {
    /// One pace or bucket.
    pub(crate) one: Code,
    /// Everything else.
    pub(crate) decide: Code,
}

impl Scripts {
    pub(crate) fn new() -> Scripts {
        let leases = include_str!("scripts/leases.lua");
        // Within the branch that needs it: so it costs nothing where nothing is lent.
        let one = include_str!("scripts/one.lua").replace("-- @leases\n", leases);
        let kinds = include_str!("scripts/kinds.lua");
        let decide = [kinds, leases, include_str!("scripts/lend.lua"), include_str!("scripts/decide.lua")].concat();
        Scripts { one: Code::new(one), decide: Code::new(decide) }
    }
}

impl Code {
    fn new(source: String) -> Code {
        Code { hash: Script::new(&source).get_hash().to_owned(), source }
    }

    /// Runs the script once.
    ///
    /// A server that does not know it (it has been restarted, its replica has taken over,
    /// its scripts were flushed) has done nothing, and gets it in full, which makes it known.
    pub(crate) async fn run(
        &self,
        link: &Link,
        deadline: Instant,
        keys: &[String],
        arguments: &[&[u8]],
    ) -> Result<Value, Failure> {
        match link.ask(&command("EVALSHA", &self.hash, keys, arguments), deadline).await {
            Err(failure) if failure.is_no_script() => {
                Counters::add(&link.counters().scripts);
                link.ask(&command("EVAL", &self.source, keys, arguments), deadline).await
            }
            answer => answer,
        }
    }
}

fn command(name: &str, script: &str, keys: &[String], arguments: &[&[u8]]) -> Cmd {
    let mut command = cmd(name);
    command.arg(script).arg(keys.len());
    for key in keys {
        command.arg(key);
    }
    for argument in arguments {
        command.arg(*argument);
    }
    command
}
