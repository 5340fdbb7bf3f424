//! A store as an administrator sees it: its address, its schema revision, the versions in it, and the
//! remaining migrations.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sqlx::Row as _;
use stagger_core::releases::{Own, unpinned};
use stagger_core::run::{Command, Event};
use stagger_versioned::store::migrate::{Failed, Limits, Migrations, Progress, Report};
use stagger_versioned::store::{Connect, Count, Engine, Kind, Objects, Table, TableError, Update};
use stagger_versioned::store::{Store as Rows, StoreError as RowsError};

use crate::postgres::{self, DatabaseAddress, PostgresStore};
use crate::sqlite::{self, SqliteStore};
use crate::store::{JournalStore, Listed, StoreError};

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// A file.
    File(PathBuf),
    /// A database on a server.
    Server(DatabaseAddress),
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Server(address) => address.fmt(f),
        }
    }
}

impl StoreLocation {
    /// Opens the store. A file is made if it is not there, and brought to the newest schema.
    ///
    /// # Errors
    /// It cannot be opened, or has a schema that is not for this program.
    pub async fn open(&self) -> Result<Box<dyn JournalStore>, StoreError> {
        Ok(match self {
            Self::File(path) => Box::new(SqliteStore::open(path)?),
            Self::Server(address) => Box::new(PostgresStore::open(address).await?),
        })
    }

    /// Whether there is something to be opened. A server is there.
    pub fn exists(&self) -> bool {
        match self {
            Self::File(path) => path.exists(),
            Self::Server(_) => true,
        }
    }

    /// Brings the schema to the newest revision; at which it was, 0 for none.
    ///
    /// # Errors
    /// It cannot be opened, or the database refuses.
    pub async fn upgrade(&self) -> Result<i64, StoreError> {
        match self {
            Self::File(path) => Ok(SqliteStore::open(path)?.found()),
            Self::Server(address) => postgres::upgrade(address).await,
        }
    }

    /// Copies the whole store into a new file, as it is at one moment, while others write to it.
    ///
    /// # Errors
    /// It is not a file that can be read, or `to` is there already or cannot be written.
    pub fn copy(&self, to: &Path) -> Result<(), StoreError> {
        match self {
            Self::File(path) => sqlite::copy(path, to),
            Self::Server(address) => Err(StoreError::Failed {
                tried: format!("copy {address}"),
                why: "it is a database on a server, whose own programs copy it".to_owned(),
            }),
        }
    }

    /// The newest revision that this program knows.
    pub fn newest(&self) -> i64 {
        match self {
            Self::File(_) => sqlite::newest(),
            Self::Server(_) => postgres::newest(),
        }
    }

    /// Looks at the store as it is.
    ///
    /// # Errors
    /// It is not there, or does not answer.
    pub async fn inspect(&self) -> Result<StoreReader, RowsError> {
        let url = match self {
            Self::File(path) => url_of(path),
            Self::Server(address) => address.secret().to_owned(),
        };
        let connect = Connect {
            connections: 2,
            ..Connect::default()
        };
        let rows = Rows::connect(&url, connect).await?;
        Ok(StoreReader {
            rows,
            before: i64::from(matches!(self, Self::File(_))),
        })
    }
}

/// A path in a URL.
fn url_of(path: &Path) -> String {
    const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'/')
        .remove(b'.')
        .remove(b'-')
        .remove(b'_');
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let text = path.to_string_lossy();
    format!("sqlite://{}?mode=rw", utf8_percent_encode(&text, PLAIN))
}

/// A store that was opened to be looked at.
#[derive(Debug)]
pub struct StoreReader {
    rows: Rows,
    /// The revision of a schema that has tables, and none that says which it is.
    before: i64,
}

/// How many rows of one table are of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The table.
    pub table: &'static str,
    /// The object that is in it.
    pub object: &'static str,
    /// How many rows, of which version, and whether this program reads them.
    pub count: Count,
}

/// What rows without a version are: the oldest of each chain.
const FILL: &str = "version = '1.0'";
const WITHOUT: &str = "version is null";

fn table(name: &str, key: &[(&str, Kind)]) -> Result<Table, TableError> {
    Table::new(name, key, &[])
}

fn journal() -> Result<Table, TableError> {
    table("journal", &[("run", Kind::Text), ("seq", Kind::Integer)])
}

fn runs() -> Result<Table, TableError> {
    table("run", &[("id", Kind::Text)])
}

fn commands() -> Result<Table, TableError> {
    table("asked", &[("id", Kind::Integer)])
}

impl StoreReader {
    /// Which revision the schema is at; 0: there is none.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn revision(&self) -> Result<i64, RowsError> {
        if self.has("schema_revision").await? {
            return self.number("select revision from schema_revision").await;
        }
        Ok(if self.has("journal").await? {
            self.before
        } else {
            0
        })
    }

    async fn has(&self, table: &str) -> Result<bool, RowsError> {
        let found = sqlx::query(match self.rows.engine() {
            Engine::Sqlite => "select 1 from sqlite_master where type = 'table' and name = $1",
            Engine::Postgres => {
                "select 1 from information_schema.tables where table_schema = current_schema() and table_name = $1"
            }
        })
        .bind(table.to_owned())
        .fetch_optional(self.rows.pool())
        .await;
        Ok(found.map_err(|error| read_error("the schema", error))?.is_some())
    }

    async fn number(&self, sql: &'static str) -> Result<i64, RowsError> {
        let row = sqlx::query(sql).fetch_one(self.rows.pool()).await;
        let number = row.and_then(|row| row.try_get(0));
        number.map_err(|error| read_error("the schema", error))
    }

    /// How many rows there are of each version, in each table. The schema must have versions.
    ///
    /// # Errors
    /// The database does not answer, or has no versions yet.
    pub async fn versions(&self) -> Result<Vec<Counted>, RowsError> {
        let mut counted = self.counted::<Event>("journal", journal()?).await?;
        counted.extend(self.counted::<Listed>("run", runs()?).await?);
        counted.extend(self.counted::<Command>("asked", commands()?).await?);
        Ok(counted)
    }

    async fn counted<T: Own>(&self, name: &'static str, table: Table) -> Result<Vec<Counted>, RowsError> {
        let counts = Objects::new(table, Arc::clone(T::chain()))
            .versions(&self.rows)
            .await?;
        let each = counts.into_iter().map(|count| Counted {
            table: name,
            object: T::NAME,
            count,
        });
        Ok(each.collect())
    }

    /// How many rows each online migration has still to do.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn remaining_rows(&self) -> Result<Vec<(String, u64)>, Failed> {
        migrations()?.count(&self.rows).await
    }

    /// Migrates as much as it may; `tell` gets each batch. Events are never rewritten, since their checksums
    /// cover them; they only lack a version.
    ///
    /// # Errors
    /// The database does not answer. Batches before that are kept.
    pub async fn migrate(
        &self,
        limits: Limits,
        tell: impl FnMut(Progress<'_>) + Send,
    ) -> Result<Report, Failed> {
        migrations()?.run(&self.rows, &unpinned(), limits, tell).await
    }

    /// Waits until all connections are closed.
    pub async fn close(self) {
        self.rows.close().await;
    }
}

fn read_error(at: &str, source: sqlx::Error) -> RowsError {
    RowsError::Refused {
        what: format!("look at {at} of the store"),
        source,
    }
}

/// All online migrations of the store, in order.
#[expect(clippy::result_large_err, reason = "it is called once")]
fn migrations() -> Result<Migrations, Failed> {
    let mut all = Migrations::new();
    for (name, table) in [
        ("versions-of-events", journal()),
        ("versions-of-runs", runs()),
        ("versions-of-commands", commands()),
    ] {
        let table = table.map_err(|error| Failed::Store {
            name: name.to_owned(),
            source: error.into(),
        })?;
        all = all.then(Update::new(name, table, WITHOUT, FILL))?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_a_version_get_the_one_that_they_are_read_in() {
        for without in [
            Event::chain().without_version(),
            Listed::chain().without_version(),
            Command::chain().without_version(),
        ] {
            assert_eq!(format!("version = '{}'", without.unwrap()), FILL);
        }
        migrations().unwrap();
    }

    #[test]
    fn a_path_may_have_any_characters() {
        let url = url_of(Path::new("/srv/a b/50%?/journal.db"));
        assert_eq!(url, "sqlite:///srv/a%20b/50%25%3F/journal.db?mode=rw");
    }
}
