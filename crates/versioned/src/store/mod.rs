//! Rows in SQLite, PostgreSQL, and with the feature `mysql` MariaDB and MySQL, each with the version in which
//! it was written.
//!
//! A [`Table`] lists the columns, [`Objects`] keeps objects of one type in it, [`migrate`] converts old rows
//! while services work. The schema itself is out of scope: migrations of the schema add columns, before the
//! code that uses them.

mod dialect;
mod executor;
mod kind;
pub mod migrate;
mod objects;
mod rewrite;
mod sql;
mod table;

use std::time::Duration;

use sqlx::any::{AnyPoolOptions, install_default_drivers};
use sqlx::{Any, AnyConnection, AnyPool, Connection as _, Transaction};

pub use executor::Executor;
pub use kind::Kind;
pub use objects::{Count, Listed, Objects};
pub use rewrite::{RaiseRows, Update};
pub use table::{Column, Table, TableError};

use dialect::Dialect;
use sql::Sql;

use crate::boundary::Unsaved;
use crate::chain::Unreadable;

/// Which database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// A file.
    Sqlite,
    /// A server.
    Postgres,
    /// A server of MariaDB, from 10.6, or MySQL, from 8.0.19. Its sessions quote names as standard SQL does (`ANSI_QUOTES`)
    /// and read what is committed (`READ COMMITTED`), as the other databases do.
    #[cfg(feature = "mysql")]
    Mysql,
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
    /// How long to wait for one until the database counts as out of reach; SQLite also for whoever writes.
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
    #[error("{url:?} is no store: use sqlite://FILE or postgres://USER@HOST/DATABASE{}", if cfg!(feature = "mysql") { ", or mysql://USER@HOST/DATABASE" } else { "" })]
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
    #[error("{table} {key} was written by others since it was read: read it again")]
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
    /// Whether the same may go well a moment later: the whole transaction, where there is one.
    pub fn may_pass(&self) -> bool {
        if let Self::Refused {
            source: sqlx::Error::Database(error),
            ..
        } = self
        {
            return error.code().is_some_and(|code| was_preempted(&code));
        }
        matches!(self, Self::Unreachable { .. } | Self::Conflict { .. })
    }
}

impl Store {
    /// Opens `sqlite://FILE`, which has to exist unless it ends in `?mode=rwc`, or `postgres://…`, or with the feature `mysql`
    /// `mysql://…` and `mariadb://…`.
    pub async fn connect(url: &str, connect: Connect) -> Result<Self, StoreError> {
        let Connect { connections, wait } = connect;
        install_default_drivers();
        let engine = match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("sqlite") => Engine::Sqlite,
            Some("postgres" | "postgresql") => Engine::Postgres,
            #[cfg(feature = "mysql")]
            Some("mysql" | "mariadb") => Engine::Mysql,
            Some(_) | None => {
                return Err(StoreError::NoStore {
                    url: without_password(url),
                });
            }
        };
        let mut options = AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(wait);
        let session = match Dialect::from(engine) {
            // Readers do not wait for the writer, and the writer does not wait for them.
            Dialect::Sqlite => vec![
                format!("PRAGMA busy_timeout = {}", wait.as_millis()),
                "PRAGMA journal_mode = WAL".to_owned(),
            ],
            Dialect::Postgres => vec![],
            Dialect::Mysql => vec![
                "SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')".to_owned(),
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
            ],
        };
        if !session.is_empty() {
            options = options.after_connect(move |connection, _| {
                let session = session.clone();
                Box::pin(async move {
                    for statement in session {
                        sqlx::query(sqlx::AssertSqlSafe(statement))
                            .execute(&mut *connection)
                            .await?;
                    }
                    Ok(())
                })
            });
        }
        let pool = match options.connect(url).await {
            // A file does not keep anybody waiting: it is asked once more for what is wrong with it.
            Err(sqlx::Error::PoolTimedOut) if engine == Engine::Sqlite => {
                Err(open_error(url).await.unwrap_or(sqlx::Error::PoolTimedOut))
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

    pub(crate) fn dialect(&self) -> Dialect {
        self.engine.into()
    }

    /// A transaction that will write. What it writes of several [`Objects`] is committed together.
    pub async fn begin(&self) -> Result<Transaction<'static, Any>, StoreError> {
        let begun = match self.dialect().begin() {
            Some(statement) => self.pool.begin_with(statement).await,
            None => self.pool.begin().await,
        };
        begun.map_err(|error| failed("start a transaction".to_owned(), error))
    }
}

/// Why a file is no database.
async fn open_error(url: &str) -> Option<sqlx::Error> {
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

/// Whether a statement was ended for the sake of another one: a deadlock, what cannot be serialized (class 40 of `SQLSTATE`, ISO/IEC 9075-2), a
/// lock that was waited for too long (`55P03` of PostgreSQL). A code of SQLite is a number, and none has five digits.
fn was_preempted(code: &str) -> bool {
    code == "55P03" || (code.len() == 5 && code.starts_with("40"))
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
