//! Waiting for a word from other clients of a PostgreSQL server.

use sqlx::postgres::{PgListener, PgPoolOptions};

use crate::session::Target;

/// Hears what is said on a channel. It connects anew by itself when the server was away; what
/// was said in between is lost.
#[derive(Debug)]
pub struct Listener(PgListener);

impl Listener {
    /// Listens on a channel; `None` for databases that have none.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn on(target: &Target, channel: &str) -> Result<Option<Listener>, sqlx::Error> {
        #[allow(irrefutable_let_patterns, reason = "the only kind that is built in")]
        let Target::Postgres(options) = target else { return Ok(None) };
        let pool = PgPoolOptions::new().max_connections(1).connect_with(options.clone()).await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.listen(channel).await?;
        Ok(Some(Listener(listener)))
    }

    /// Waits for the next word, or for the loss of the connection.
    ///
    /// # Errors
    /// When the server cannot be reached any more.
    pub async fn heard(&mut self) -> Result<(), sqlx::Error> {
        self.0.try_recv().await.map(drop)
    }
}
