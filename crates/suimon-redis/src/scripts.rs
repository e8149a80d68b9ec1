//! The scripts, and how they are run.

use redis::{Cmd, Script, Value, cmd};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::link::Link;

/// A script that the server is asked to run by its hash.
#[derive(Debug)]
pub(crate) struct Code {
    source: &'static str,
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
        Scripts {
            one: Code::new(include_str!("scripts/one.lua")),
            decide: Code::new(concat!(include_str!("scripts/kinds.lua"), include_str!("scripts/decide.lua"))),
        }
    }
}

impl Code {
    fn new(source: &'static str) -> Code {
        Code { source, hash: Script::new(source).get_hash().to_owned() }
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
                link.ask(&command("EVAL", self.source, keys, arguments), deadline).await
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
