//! News from other processes.

use std::sync::Arc;
use std::time::Duration;

use suimon_sql::access::Target;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::queue::Shared;

/// How often a file is looked at: cheap, since it only reads a counter.
#[cfg(feature = "sqlite")]
const FILE: Duration = Duration::from_millis(20);

/// Listens until it is dropped.
pub(super) struct Watch {
    task: Option<JoinHandle<()>>,
    /// How long a worker sleeps at most, in case something was not heard.
    pub(super) longest: Duration,
}

impl Watch {
    /// Wakes the workers of this process when another has news, if the database can tell.
    pub(super) fn start(shared: &Arc<Shared>) -> Watch {
        let of = shared.clone();
        match shared.db.pool.target() {
            #[cfg(feature = "postgres")]
            Target::Postgres(_) => Watch { task: Some(tokio::spawn(listen(of))), longest: Duration::from_secs(5) },
            #[cfg(feature = "sqlite")]
            Target::Sqlite(_) => Watch { task: Some(tokio::spawn(look(of))), longest: Duration::from_secs(5) },
            // It is asked again and again.
            #[allow(unreachable_patterns, reason = "depends on the kinds that are built in")]
            _ => {
                drop(of);
                Watch { task: None, longest: Duration::from_millis(250) }
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[cfg(feature = "postgres")]
async fn listen(shared: Arc<Shared>) {
    use suimon_sql::access::Listener;
    loop {
        if let Ok(Some(mut listener)) = Listener::on(shared.db.pool.target(), &shared.db.jobs()).await {
            // What was said before is lost.
            shared.news.notify_waiters();
            while listener.heard().await.is_ok() {
                shared.news.notify_waiters();
            }
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// The counter of a file changes with each commit of another connection.
#[cfg(feature = "sqlite")]
async fn look(shared: Arc<Shared>) {
    loop {
        if let Ok(mut connection) = shared.db.pool.target().connect().await {
            let mut last = None;
            while let Ok(rows) = connection.cells("PRAGMA data_version".to_owned()).await {
                let version = rows.into_iter().next();
                if version != last {
                    last = version;
                    shared.news.notify_waiters();
                }
                sleep(FILE).await;
            }
        }
        sleep(Duration::from_millis(200)).await;
    }
}
