//! Rows in SQLite and PostgreSQL, each with the version in which it is to be read.
//!
//! A [`Table`] says which columns there are, [`Objects`] keeps objects of one type in it, [`migrate`] brings old rows up while
//! services work. The schema itself is none of its business: columns are added by migrations of the schema, before the code
//! that knows them.

pub mod migrate;
mod objects;
mod rewrite;
mod table;

use std::fmt;
use std::time::Duration;

use sqlx::any::{AnyArguments, AnyPoolOptions, AnyRow, install_default_drivers};
use sqlx::{Any, AnyConnection, AnyPool, AssertSqlSafe, Connection as _, Transaction};

pub use objects::{Count, Listed, Objects};
pub use rewrite::{RaiseRows, Update};
pub use table::{Column, Kind, Table, TableError};

use crate::boundary::Unsaved;
use crate::chain::Unreadable;

/// Which database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// A file.
    Sqlite,
    /// A server.
    Postgres,
}

/// A database.
#[derive(Debug, Clone)]
pub struct Store {
    pool: AnyPool,
    engine: Engine,
}

/// How to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect {
    /// How many connections at most.
    pub connections: u32,
    /// How long to wait for one until the database counts as out of reach.
    pub wait: Duration,
}

impl Default for Connect {
    fn default() -> Self {
        Self {
            connections: 8,
            wait: Duration::from_secs(10),
        }
    }
}

/// What could not be done with a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL is of no database that is known here.
    #[error("{url:?} is no store: use sqlite://FILE or postgres://USER@HOST/DATABASE")]
    NoStore {
        /// The URL, without a password.
        url: String,
    },
    /// The database does not answer. Nothing is known of what was asked last.
    #[error("{what}: the database does not answer")]
    Unreachable {
        /// What was tried.
        what: String,
        /// What the driver says.
        source: sqlx::Error,
    },
    /// The database refuses.
    #[error("{what}: the database refuses")]
    Refused {
        /// What was tried.
        what: String,
        /// What the driver says.
        source: sqlx::Error,
    },
    /// There is a row with that key.
    #[error("{table} has {key} already")]
    Taken {
        /// The table.
        table: String,
        /// The key.
        key: String,
    },
    /// The key is free, and the database refuses the row all the same: something else of it is there already.
    #[error(
        "{table} has no {key}, and another row has what only one may have: {why}; nothing was stored: change it, or look at that row"
    )]
    Duplicate {
        /// The table.
        table: String,
        /// The key.
        key: String,
        /// What the database says.
        why: String,
    },
    /// There is no row with that key any more.
    #[error("{table} has no {key}")]
    Gone {
        /// The table.
        table: String,
        /// The key.
        key: String,
    },
    /// Somebody wrote the row since it was read. Nothing was written.
    #[error("{table} {key} was written by somebody else since it was read: read it again")]
    Conflict {
        /// The table.
        table: String,
        /// The key.
        key: String,
    },
    /// The row cannot be read.
    #[error("{table} {key}: {why}")]
    Unreadable {
        /// The table.
        table: String,
        /// The key.
        key: String,
        /// Why not.
        why: Unreadable,
    },
    /// The object cannot be stored.
    #[error(transparent)]
    Unsaved(#[from] Unsaved),
    /// The object does not fit the table.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl StoreError {
    /// Whether the same may go well a moment later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Conflict { .. })
    }
}

impl Store {
    /// Opens `sqlite://FILE`, which has to exist unless it ends in `?mode=rwc`, or `postgres://…`.
    pub async fn connect(url: &str, connect: Connect) -> Result<Self, StoreError> {
        let Connect { connections, wait } = connect;
        install_default_drivers();
        let engine = match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("sqlite") => Engine::Sqlite,
            Some("postgres" | "postgresql") => Engine::Postgres,
            Some(_) | None => {
                return Err(StoreError::NoStore {
                    url: without_password(url),
                });
            }
        };
        let mut options = AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(wait);
        if engine == Engine::Sqlite {
            // Readers do not wait for the writer, and the writer does not wait for them.
            options = options.after_connect(|connection, _| {
                Box::pin(async move {
                    sqlx::query("PRAGMA journal_mode = WAL")
                        .execute(connection)
                        .await
                        .map(drop)
                })
            });
        }
        let pool = match options.connect(url).await {
            // A file does not keep anybody waiting: it is asked once more for what is wrong with it.
            Err(sqlx::Error::PoolTimedOut) if engine == Engine::Sqlite => {
                Err(wrong_with(url).await.unwrap_or(sqlx::Error::PoolTimedOut))
            }
            opened => opened,
        };
        let pool = pool.map_err(|error| failed(format!("open {}", without_password(url)), error))?;
        Ok(Self { pool, engine })
    }

    /// Which database it is.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// The connections, for what this library does not do: the schema, other tables.
    pub fn pool(&self) -> &AnyPool {
        &self.pool
    }

    /// Waits until all connections are closed.
    pub async fn close(self) {
        self.pool.close().await;
    }

    pub(crate) async fn connection(&self) -> Result<sqlx::pool::PoolConnection<Any>, StoreError> {
        self.pool
            .acquire()
            .await
            .map_err(|error| failed("get a connection".to_owned(), error))
    }

    /// A transaction that will write.
    pub(crate) async fn begin(&self) -> Result<Transaction<'static, Any>, StoreError> {
        let begun = match self.engine {
            // A transaction that reads first and then writes fails in SQLite when another has written in between.
            Engine::Sqlite => self.pool.begin_with("BEGIN IMMEDIATE").await,
            Engine::Postgres => self.pool.begin().await,
        };
        begun.map_err(|error| failed("begin a transaction".to_owned(), error))
    }
}

/// Why a file is no database.
async fn wrong_with(url: &str) -> Option<sqlx::Error> {
    let asked = async {
        let mut connection = AnyConnection::connect(url).await?;
        sqlx::query("PRAGMA journal_mode = WAL")
            .execute(&mut connection)
            .await
    };
    asked.await.err()
}

/// A URL as it may be shown: without a password, in whichever of the two places it stands.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let shown = match rest.rsplit_once('@') {
        Some((user, rest)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{rest}")
        }
        None => format!("{scheme}://{rest}"),
    };
    let Some(query) = query else { return shown };
    // One with an unescaped `?` or `@` in it has its end here.
    let query = query.rsplit_once('@').map_or(query, |(_, query)| query);
    let parts = query.split('&').filter(|part| !part.starts_with("password="));
    match parts.collect::<Vec<_>>().join("&") {
        none if none.is_empty() => shown,
        parts => format!("{shown}?{parts}"),
    }
}

/// Whether it is the answer or the silence of the database.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "of the driver's many errors these are those of a database that does not answer"
)]
pub(crate) fn failed(what: String, source: sqlx::Error) -> StoreError {
    let silent = match &source {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        // SQLite that is busy; PostgreSQL that has no connection left, or is starting or going down.
        sqlx::Error::Database(error) => error.code().is_some_and(|code| {
            matches!(code.as_ref(), "5" | "6" | "261" | "517")
                || code.starts_with("08")
                || code.starts_with("57P")
                || code == "53300"
        }),
        _ => false,
    };
    if silent {
        StoreError::Unreachable { what, source }
    } else {
        StoreError::Refused { what, source }
    }
}

/// A statement with its arguments, in the order in which they are bound.
pub(crate) struct Sql {
    text: String,
    arguments: AnyArguments,
    bound: usize,
}

impl Sql {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            arguments: AnyArguments::default(),
            bound: 0,
        }
    }

    pub(crate) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// The next place; the argument itself is added by the caller.
    pub(crate) fn place(&mut self) -> (String, &mut AnyArguments) {
        self.bound += 1;
        (format!("${}", self.bound), &mut self.arguments)
    }

    /// Carries it out; how many rows it touched.
    pub(crate) async fn execute(self, connection: &mut AnyConnection) -> Result<u64, sqlx::Error> {
        let Self { text, arguments, .. } = self;
        let done = sqlx::query_with(AssertSqlSafe(text), arguments)
            .execute(connection)
            .await?;
        Ok(done.rows_affected())
    }

    /// All that it finds.
    pub(crate) async fn fetch(self, connection: &mut AnyConnection) -> Result<Vec<AnyRow>, sqlx::Error> {
        let Self { text, arguments, .. } = self;
        sqlx::query_with(AssertSqlSafe(text), arguments)
            .fetch_all(connection)
            .await
    }
}

impl fmt::Debug for Sql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("postgres://me:secret@db/x", "postgres://me@db/x"),
            ("postgres://me:secr@et@db/x", "postgres://me@db/x"),
            (
                "postgres://db/x?user=me&password=secret&sslmode=require",
                "postgres://db/x?user=me&sslmode=require",
            ),
            ("postgres://db/x?password=secret", "postgres://db/x"),
            ("sqlite://a/b.sqlite?mode=rwc", "sqlite://a/b.sqlite?mode=rwc"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(without_password(url), shown);
        }
        for url in ["postgres://me:se?cret@db/x", "postgres://me:a@se?cret@db/x?y=1"] {
            assert!(
                !without_password(url).contains("cret"),
                "{}",
                without_password(url)
            );
        }
    }
}
