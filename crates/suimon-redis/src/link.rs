//! The connection to the server, or to the servers, of a store.
//!
//! One multiplexed connection for all calls, made when it is first wanted and again when
//! it is lost. A command is sent again only after an error which says that it did
//! nothing; after any other loss it is unknown whether it ran, and the caller is told.

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError, Value};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::failure::{Failure, Meaning};
use crate::stats::Counters;

/// Where a connection comes from.
pub(crate) enum Source {
    Single(Box<redis::Client>),
    #[cfg(feature = "sentinel")]
    Sentinel(Box<tokio::sync::Mutex<redis::sentinel::SentinelClient>>),
    #[cfg(feature = "cluster")]
    Cluster(Box<redis::cluster::ClusterClient>),
}

#[derive(Clone)]
enum Connection {
    Single {
        connection: MultiplexedConnection,
        /// Set as soon as the server has closed it: nothing is sent into the void.
        closed: Arc<AtomicBool>,
    },
    #[cfg(feature = "cluster")]
    Cluster(redis::cluster_async::ClusterConnection),
}

/// The way to the server.
pub(crate) struct Link {
    source: Source,
    timeout: Duration,
    state: Mutex<State>,
    /// Held by the one who connects.
    connecting: tokio::sync::Mutex<()>,
    counters: Counters,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    /// Counts connections, so that only the one that failed is dropped.
    generation: u64,
    /// How many calls in a row got no answer in time.
    overdue: u32,
    /// The last attempt to connect failed: with this, and none is made before then.
    failed: Option<(RedisError, Instant, Duration)>,
}

/// So many calls in a row without an answer, and the connection is taken to be dead: the
/// other side may be gone without a word.
const OVERDUE: u32 = 3;
/// How long to pause after an error that is over soon.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// How long after a failed attempt to connect calls fail at once.
const REST: Duration = Duration::from_millis(20);
const LONGEST_REST: Duration = Duration::from_secs(1);

impl Link {
    pub(crate) fn new(source: Source, timeout: Duration) -> Link {
        let (state, counters) = (Mutex::default(), Counters::default());
        Link { source, timeout, state, connecting: tokio::sync::Mutex::new(()), counters }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Is the other side a cluster?
    pub(crate) fn is_cluster(&self) -> bool {
        match &self.source {
            #[cfg(feature = "cluster")]
            Source::Cluster(_) => true,
            _ => false,
        }
    }

    /// Sends a command and waits for its answer until the deadline.
    pub(crate) async fn ask(&self, command: &Cmd, deadline: Instant) -> Result<Value, Failure> {
        let mut pause = PAUSE;
        loop {
            let failure = match timeout_at(deadline, self.connection()).await {
                Err(_) => {
                    Counters::add(&self.counters.late);
                    return Err(Failure::overdue(self.timeout));
                }
                Ok(Err(error)) => {
                    Counters::add(&self.counters.failed);
                    return Err(Failure::connecting(error));
                }
                Ok(Ok((connection, generation))) => match timeout_at(deadline, connection.send(command)).await {
                    Err(_) => {
                        Counters::add(&self.counters.late);
                        self.answered(generation, false);
                        return Err(Failure::overdue(self.timeout));
                    }
                    Ok(Ok(value)) => {
                        self.answered(generation, true);
                        return Ok(value);
                    }
                    Ok(Err(error)) => {
                        let failure = Failure::asking(error);
                        if failure.meaning() != Meaning::Answer {
                            self.drop_connection(generation, failure.meaning());
                        }
                        failure
                    }
                },
            };
            let next = Instant::now() + pause;
            if !failure.did_nothing() || next >= deadline {
                if !failure.is_no_script() {
                    Counters::add(&self.counters.failed);
                    tracing::debug!(%failure, "a command had no answer");
                }
                return Err(failure);
            }
            Counters::add(&self.counters.retries);
            tracing::debug!(%failure, "a command is sent again");
            sleep_until(next).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// The connection there is, or a new one.
    async fn connection(&self) -> Result<(Connection, u64), RedisError> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let _connecting = self.connecting.lock().await;
        // Somebody else may have connected meanwhile, or failed to.
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        if let Some((error, until, _)) = &self.lock().failed
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        let connected = self.source.connect(self.timeout).await;
        let mut state = self.lock();
        match connected {
            Ok(connection) => {
                state.generation += 1;
                Counters::add(&self.counters.connections);
                *state =
                    State { connection: Some(connection.clone()), generation: state.generation, ..State::default() };
                Ok((connection, state.generation))
            }
            Err(error) => {
                let rest = state.failed.as_ref().map_or(REST, |(_, _, rest)| (2 * *rest).min(LONGEST_REST));
                state.failed = Some((error.clone(), Instant::now() + rest, rest));
                Err(error)
            }
        }
    }

    fn current(&self) -> Option<(Connection, u64)> {
        let mut state = self.lock();
        if state.connection.as_ref().is_some_and(Connection::is_closed) {
            state.connection = None;
        }
        let generation = state.generation;
        state.connection.clone().map(|connection| (connection, generation))
    }

    fn answered(&self, generation: u64, in_time: bool) {
        let mut state = self.lock();
        if state.generation != generation {
            return;
        }
        state.overdue = if in_time { 0 } else { state.overdue + 1 };
        if state.overdue >= OVERDUE {
            state.connection = None;
            state.overdue = 0;
        }
    }

    fn drop_connection(&self, generation: u64, meaning: Meaning) {
        let mut state = self.lock();
        // A cluster's connection finds its new masters by itself.
        if state.generation == generation && (meaning == Meaning::Lost || !self.is_cluster()) {
            state.connection = None;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = match &self.source {
            Source::Single(client) => client.get_connection_info().addr().to_string(),
            #[cfg(feature = "sentinel")]
            Source::Sentinel(_) => "sentinel".to_owned(),
            #[cfg(feature = "cluster")]
            Source::Cluster(_) => "cluster".to_owned(),
        };
        f.debug_struct("Link").field("to", &to).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Source {
    async fn connect(&self, timeout: Duration) -> Result<Connection, RedisError> {
        match self {
            Source::Single(client) => Connection::single(client, timeout).await,
            #[cfg(feature = "sentinel")]
            Source::Sentinel(sentinel) => {
                let master = sentinel.lock().await.async_get_client().await?;
                Connection::single(&master, timeout).await
            }
            #[cfg(feature = "cluster")]
            Source::Cluster(client) => Ok(Connection::Cluster(client.get_async_connection().await?)),
        }
    }
}

impl Connection {
    /// With version 3 of the protocol, in which a connection that is closed tells so.
    async fn single(client: &redis::Client, timeout: Duration) -> Result<Connection, RedisError> {
        let closed = Arc::new(AtomicBool::new(false));
        // Calls have deadlines of their own; these come after all of them.
        let last = Some(2 * timeout);
        let config = || AsyncConnectionConfig::new().set_connection_timeout(last).set_response_timeout(last);
        let info = client.get_connection_info().clone();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let telling = redis::Client::open(info.set_redis_settings(settings))?;
        let sign = closed.clone();
        let push = move |info: PushInfo| {
            if info.kind == PushKind::Disconnection {
                sign.store(true, Ordering::Release);
            }
            Ok::<(), redis::aio::SendError>(())
        };
        let connected = telling.get_multiplexed_async_connection_with_config(&config().set_push_sender(push)).await;
        let connection = match connected {
            Err(error) if error.kind() == ErrorKind::RESP3NotSupported => {
                client.get_multiplexed_async_connection_with_config(&config()).await?
            }
            other => other?,
        };
        Ok(Connection::Single { connection, closed })
    }

    fn is_closed(&self) -> bool {
        match self {
            Connection::Single { closed, .. } => closed.load(Ordering::Acquire),
            #[cfg(feature = "cluster")]
            Connection::Cluster(_) => false,
        }
    }

    async fn send(self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Connection::Single { mut connection, .. } => {
                connection.req_packed_command(command).await.and_then(Value::extract_error)
            }
            #[cfg(feature = "cluster")]
            Connection::Cluster(connection) => crate::cluster::send(connection, command).await,
        }
    }
}
