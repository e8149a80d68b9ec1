//! Why a command got no answer, and what that means.

use std::fmt;
use std::time::Duration;

use redis::{ErrorKind, RedisError};

use crate::error::Error;

/// A command that was not answered as it should be.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    meaning: Meaning,
    advice: &'static str,
    cause: Cause,
}

#[derive(Clone, Debug)]
enum Cause {
    Redis(RedisError),
    Overdue(Duration),
}

/// What an error says about the command and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The server does not serve now, and the command did nothing.
    NotNow,
    /// The connection is gone; the command may have run.
    Lost,
    /// The server says no; the command did nothing.
    Answer,
}

impl Failure {
    /// No connection could be made.
    pub(crate) fn connecting(error: RedisError) -> Failure {
        Failure { meaning: Meaning::Answer, advice: "", cause: Cause::Redis(error) }
    }

    /// There was no answer in time; the command may have run, or run later.
    pub(crate) fn overdue(timeout: Duration) -> Failure {
        Failure { meaning: Meaning::Lost, advice: "", cause: Cause::Overdue(timeout) }
    }

    /// The command was sent.
    pub(crate) fn asking(error: RedisError) -> Failure {
        let (meaning, advice) = judge(&error);
        Failure { meaning, advice, cause: Cause::Redis(error) }
    }

    pub(crate) fn meaning(&self) -> Meaning {
        self.meaning
    }

    /// Is it certain that the command did nothing, and likely that it soon would?
    pub(crate) fn did_nothing(&self) -> bool {
        self.meaning == Meaning::NotNow
    }

    /// Does the server not know the script?
    pub(crate) fn is_no_script(&self) -> bool {
        matches!(&self.cause, Cause::Redis(error) if error.code() == Some("NOSCRIPT"))
    }
}

/// The first word of an error, or where a script was around it, the one inside:
/// servers before 7.0 answer `ERR Error running script (...): -READONLY ...`.
fn judge(error: &RedisError) -> (Meaning, &'static str) {
    let detail = error.detail().unwrap_or_default();
    let is = |code: &str| error.code() == Some(code) || detail.contains(&format!("-{code} "));
    if is("READONLY") || is("LOADING") || is("MASTERDOWN") || is("CLUSTERDOWN") || is("TRYAGAIN") {
        return (Meaning::NotNow, "");
    }
    if error.kind() == ErrorKind::ClusterConnectionNotFound {
        return (Meaning::NotNow, "");
    }
    if is("MOVED") || is("ASK") {
        return (
            Meaning::NotNow,
            "; the key lies on another node of a cluster: for a cluster the store is built with `RedisStore::cluster`",
        );
    }
    if error.is_io_error() || error.kind() == ErrorKind::Parse {
        return (Meaning::Lost, "");
    }
    let advice = if is("WRONGTYPE") {
        "; the key holds something else than a limit: choose another prefix, or delete it"
    } else if is("OOM") {
        "; the server has no memory left: raise its `maxmemory`, or let other keys expire"
    } else if is("NOPERM") || detail.contains("can't run this command") {
        "; the user needs the keys of the prefix and the commands eval, evalsha, get, set, setrange, pttl, pexpire and time"
    } else if is("CROSSSLOT") {
        "; give all keys of a call the same part in braces"
    } else {
        ""
    };
    (Meaning::Answer, advice)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Redis(error) => write!(f, "{error}{}", self.advice),
            Cause::Overdue(timeout) => write!(f, "no answer within {timeout:?}"),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Redis(error) => Some(error),
            Cause::Overdue(_) => None,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::unavailable(failure)
    }
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn meaning(line: &str) -> Meaning {
        let error = parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap().extract_error().unwrap_err();
        Failure::asking(error).meaning()
    }

    /// StackExchange/StackExchange.Redis#2074: the error of a demoted node came wrapped in
    /// that of a script, and was not recognised.
    #[test]
    fn a_node_that_is_no_master_is_recognised_in_both_spellings() {
        for line in [
            "READONLY You can't write against a read only replica.",
            "READONLY You can't write against a read only replica. script: 1234, on @user_script:3.",
            "ERR Error running script (call to f_12): @user_script:50: -READONLY You can't write against a read only replica.",
            "LOADING Redis is loading the dataset in memory",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "CLUSTERDOWN The cluster is down",
            "TRYAGAIN Multiple keys request during rehashing of slot",
        ] {
            assert_eq!(meaning(line), Meaning::NotNow, "{line}");
        }
        for line in [
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "OOM command not allowed when used memory > 'maxmemory'. script: 1234, on @user_script:3.",
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "NOSCRIPT No matching script. Please use EVAL.",
            "ERR unknown command 'evalsha'",
        ] {
            assert_eq!(meaning(line), Meaning::Answer, "{line}");
        }
    }
}
