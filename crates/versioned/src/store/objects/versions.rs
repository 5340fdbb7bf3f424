//! Of which versions the rows of a table are.

use serde_json::Value;
use sqlx::{AnyConnection, Row as _};

use super::{Listed, Objects};
use crate::chain::Unreadable;
use crate::object::Versioned;
use crate::store::dialect::Wait;
use crate::store::{Executor, Sql, Store, StoreError, failed};

/// How many rows of a version there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// The version as it stands in the rows; `None` if there is none.
    pub version: Option<String>,
    /// How many rows.
    pub rows: u64,
    /// Whether this code reads them, or why not.
    pub readable: Result<(), Unreadable>,
}

impl<T: Versioned> Objects<T> {
    /// How many rows there are of each version, and whether this code reads them.
    pub async fn versions<'a>(&self, on: impl Into<Executor<'a>>) -> Result<Vec<Count>, StoreError> {
        let on = on.into();
        let dialect = on.dialect()?;
        let (name, version) = (self.table.name(), self.table.version());
        let sql = Sql::new(
            dialect,
            format!(
                "SELECT {}, {} FROM \"{name}\" GROUP BY \"{version}\"",
                dialect.as_text(version),
                dialect.as_integer("count(*)", "rows")
            ),
        );
        let mut connection = on.connection().await?;
        let counting = |error| failed(format!("count the versions of {name}"), error);
        let mut counts = Vec::new();
        for row in sql.fetch(&mut connection).await.map_err(counting)? {
            let text: Option<String> = row.try_get(version).map_err(counting)?;
            let rows: i64 = row.try_get("rows").map_err(counting)?;
            counts.push(Count {
                readable: self.known_version(text.as_deref()).map(drop),
                version: text,
                rows: rows.unsigned_abs(),
            });
        }
        counts.sort_by_key(|count| {
            count
                .version
                .as_deref()
                .map(|text| (text.parse::<crate::Version>().ok(), text.to_owned()))
        });
        Ok(counts)
    }

    /// The version of a row, if this code knows it.
    pub(super) fn known_version(&self, text: Option<&str>) -> Result<crate::Version, Unreadable> {
        let version = match text {
            Some(text) => text.parse().map_err(|_| Unreadable::NotAVersion {
                object: T::NAME.to_owned(),
                text: text.to_owned(),
            })?,
            None => self
                .chain
                .without_version()
                .ok_or_else(|| Unreadable::NoVersion {
                    object: T::NAME.to_owned(),
                })?,
        };
        if self.chain.can_write(version) {
            Ok(version)
        } else {
            Err(self.chain.unknown(version))
        }
    }

    /// Rows that are not of the newest version, after the key given. Nobody else writes them until the transaction ends.
    pub(in crate::store) async fn outdated_rows(
        &self,
        store: &Store,
        transaction: &mut AnyConnection,
        after: Option<&[Value]>,
        limit: u64,
        wait: Wait,
    ) -> Result<Vec<Listed<T>>, StoreError> {
        let mut sql = self.select(store.dialect());
        self.where_outdated(&mut sql)?;
        if let Some(after) = after {
            sql.push(" AND ");
            self.table.beside_key(&mut sql, ">", after)?;
        }
        sql.push(&format!(" ORDER BY {} LIMIT {limit}", self.table.in_order()));
        sql.push(store.dialect().lock(wait));
        self.fetch(transaction, sql).await
    }

    pub(in crate::store) async fn count_behind(&self, store: &Store) -> Result<u64, StoreError> {
        let dialect = store.dialect();
        let count = dialect.as_integer("count(*)", "rows");
        let mut sql = Sql::new(dialect, format!("SELECT {count} FROM \"{}\"", self.table.name()));
        self.where_outdated(&mut sql)?;
        let mut connection = store.connection().await?;
        let counting = |error| failed(format!("count rows of {}", self.table.name()), error);
        let rows = sql.fetch(&mut connection).await.map_err(counting)?;
        let count: i64 = match rows.first() {
            Some(row) => row.try_get("rows").map_err(counting)?,
            None => 0,
        };
        Ok(count.unsigned_abs())
    }

    fn where_outdated(&self, sql: &mut Sql) -> Result<(), StoreError> {
        let version = self.table.version();
        sql.push(&format!(" WHERE (\"{version}\" IS NULL OR \"{version}\" <> "));
        sql.bind_text(Some(T::VERSION.to_string()))?;
        sql.push(")");
        Ok(())
    }
}
