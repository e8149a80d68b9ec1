//! Is the server one that keeps limits?

use redis::{Value, cmd};
use tokio::time::Instant;

use crate::error::{self, Error};
use crate::store::RedisStore;

/// The first version with all that the scripts use.
const OLDEST: (u32, u32) = (6, 2);

impl RedisStore {
    /// Asks the server what it is, and warns through the facade of the crate `tracing`
    /// when it may evict keys before they expire: an evicted key is as good as new, so its
    /// tokens would be given twice. The warnings are returned as well.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), suimon::Error> {
    /// let store = suimon_redis::RedisStore::open("redis://127.0.0.1/")?.build()?;
    /// assert!(store.check().await?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::is_unavailable`] when it cannot be asked, [`Error::is_unsupported`] when it
    /// is too old (before Redis 6.2).
    pub async fn check(&self) -> Result<Vec<String>, Error> {
        let link = &self.shared().link;
        let info = link.ask(&cmd("INFO"), Instant::now() + link.timeout()).await?;
        let mut warnings = Vec::new();
        for info in texts(&info) {
            let field = |name: &str| {
                let mut lines = info.lines().filter_map(|line| line.split_once(':'));
                lines.find_map(|(key, value)| (key == name).then_some(value.trim()))
            };
            if let Some(version) = field("redis_version")
                && is_too_old(version)
            {
                return Err(error::unsupported(format!(
                    "the server is of version {version}, and the store needs 6.2 or later"
                )));
            }
            let policy = field("maxmemory_policy").unwrap_or("noeviction");
            if policy != "noeviction" {
                warnings.push(format!(
                    "the server may evict keys (maxmemory-policy is {policy}, maxmemory {}): a limit that is evicted is as good as new, \
                     set maxmemory-policy to noeviction",
                    field("maxmemory_human").unwrap_or("unknown"),
                ));
            }
        }
        for warning in &warnings {
            tracing::warn!(target: "suimon_redis", "{warning}");
        }
        Ok(warnings)
    }
}

/// The texts in an answer: a cluster gives one for each node.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::BulkString(bytes) => vec![String::from_utf8_lossy(bytes).into_owned()],
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::Map(pairs) => pairs.iter().flat_map(|(_, value)| texts(value)).collect(),
        _ => Vec::new(),
    }
}

fn is_too_old(version: &str) -> bool {
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let version = numbers.next().zip(numbers.next());
    version.is_some_and(|version| version < OLDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(is_too_old("6.0.16") && is_too_old("5.0.7") && is_too_old("2.8.24"));
        assert!(!is_too_old("6.2.0") && !is_too_old("7.0.15") && !is_too_old("10.0.0") && !is_too_old("unknown"));
    }
}
