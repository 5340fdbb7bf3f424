//! Objects of one type in one table.

mod versions;

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Connection as _};

use super::dialect::Wait;
use super::executor::begin;
use super::{Dialect, Executor, Sql, StoreError, Table, TableError, failed};
use crate::boundary::{Held, Row, Stored, Write};
use crate::chain::{Chain, Unreadable};
use crate::object::Versioned;
use crate::pin::Pin;

pub use versions::Count;

/// A table and the chain of what stands in it.
pub struct Objects<T> {
    table: Table,
    chain: Arc<Chain<T>>,
}

/// A row of a list: one that cannot be read does not hide the others.
#[derive(Debug)]
pub struct Listed<T> {
    /// Its key.
    pub key: Vec<Value>,
    /// What it holds, or why it cannot be read.
    pub object: Result<Stored<T>, Unreadable>,
}

/// How often a change is tried anew where others write the same row.
const TRIES: usize = 64;

impl<T> Clone for Objects<T> {
    fn clone(&self) -> Self {
        Self {
            table: self.table.clone(),
            chain: Arc::clone(&self.chain),
        }
    }
}

impl<T: Versioned> fmt::Debug for Objects<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {}", self.chain, self.table.name())
    }
}

impl<T: Versioned> Objects<T> {
    /// Objects of that chain in that table.
    pub fn new(table: Table, chain: Arc<Chain<T>>) -> Self {
        Self { table, chain }
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The chain.
    pub fn chain(&self) -> &Chain<T> {
        &self.chain
    }

    /// Stores an object that is not there yet, in the version of the pin. It is [`StoreError::Taken`] only if there is a row
    /// of its key.
    pub async fn create<'a>(
        &self,
        on: impl Into<Executor<'a>>,
        held: &Held<T>,
        pin: &Pin,
    ) -> Result<(), StoreError> {
        let on = on.into();
        let dialect = on.dialect()?;
        let write = self.chain.create(held, pin)?;
        let mut sql = Sql::new(dialect, format!("INSERT INTO \"{}\" (", self.table.name()));
        for field in write.set.keys() {
            sql.push(&format!("\"{}\", ", self.table.column(field)?.name()));
        }
        sql.push(&format!("\"{}\") VALUES (", self.table.version()));
        for (field, value) in &write.set {
            self.table.push(&mut sql, self.table.column(field)?, value)?;
            sql.push(", ");
        }
        sql.bind_text(Some(write.version.to_string()))?;
        sql.push(")");
        let key = self.table.key_of(&write.set);
        let mut connection = on.connection().await?;
        match insert(dialect, &mut connection, sql).await {
            Ok(()) => Ok(()),
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
                let there = self.exists(dialect, &mut connection, &key).await?;
                let (table, key) = (self.table.name().to_owned(), self.table.key_text(&key));
                let why = error.message().to_owned();
                Err(if there {
                    StoreError::Taken { table, key }
                } else {
                    StoreError::Duplicate { table, key, why }
                })
            }
            Err(error) => Err(failed(format!("insert into {}", self.table.name()), error)),
        }
    }

    /// The object of that key.
    pub async fn get<'a>(
        &self,
        on: impl Into<Executor<'a>>,
        key: &[Value],
    ) -> Result<Option<Stored<T>>, StoreError> {
        let on = on.into();
        let mut sql = self.select(on.dialect()?);
        self.table.where_key(&mut sql, key)?;
        self.select_one(&mut *on.connection().await?, sql).await
    }

    /// The object of that key, which nobody else writes until the transaction ends: give one that has begun. SQLite locks no
    /// rows; there a transaction of [`Store::begin`](super::Store::begin) is the only one that writes.
    pub async fn lock<'a>(
        &self,
        on: impl Into<Executor<'a>>,
        key: &[Value],
    ) -> Result<Option<Stored<T>>, StoreError> {
        let on = on.into();
        let dialect = on.dialect()?;
        let mut sql = self.select(dialect);
        self.table.where_key(&mut sql, key)?;
        sql.push(dialect.lock(Wait::ForAll));
        self.select_one(&mut *on.connection().await?, sql).await
    }

    /// The one object that a select finds, if any.
    async fn select_one(
        &self,
        connection: &mut AnyConnection,
        sql: Sql,
    ) -> Result<Option<Stored<T>>, StoreError> {
        let listed = self.fetch(connection, sql).await?;
        match listed.into_iter().next() {
            None => Ok(None),
            Some(Listed {
                object: Ok(stored), ..
            }) => Ok(Some(stored)),
            Some(Listed {
                key,
                object: Err(why),
            }) => Err(StoreError::Unreadable {
                table: self.table.name().to_owned(),
                key: self.table.key_text(&key),
                why,
            }),
        }
    }

    /// At most `limit` objects, in the order of their keys, after the key given. Those that cannot be read are among them.
    /// For other orders and conditions see [`Objects::read`].
    pub async fn list<'a>(
        &self,
        on: impl Into<Executor<'a>>,
        after: Option<&[Value]>,
        limit: u32,
    ) -> Result<Vec<Listed<T>>, StoreError> {
        let on = on.into();
        let sql = self.listing(on.dialect()?, after, limit)?;
        self.fetch(&mut *on.connection().await?, sql).await
    }

    fn listing(&self, dialect: Dialect, after: Option<&[Value]>, limit: u32) -> Result<Sql, StoreError> {
        let mut sql = self.select(dialect);
        if let Some(after) = after {
            sql.push(" WHERE ");
            self.table.beside_key(&mut sql, ">", after)?;
        }
        sql.push(&format!(" ORDER BY {} LIMIT {limit}", self.table.in_order()));
        Ok(sql)
    }

    /// The object of a row that a statement of yours found: one that begins with [`Table::select`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use serde::{Deserialize, Serialize};
    /// # use stagger_versioned::store::{Connect, Kind, Objects, Store, Table};
    /// # use stagger_versioned::{Chain, Version, Versioned};
    /// # #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    /// # struct Item1_0 { sku: String, on_hand: i64 }
    /// # impl Versioned for Item1_0 {
    /// #     const NAME: &'static str = "Item";
    /// #     const VERSION: Version = Version::new(1, 0);
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let url = format!("sqlite://{}/x.sqlite?mode=rwc", folder.path().display());
    /// # let store = Store::connect(&url, Connect::default()).await?;
    /// # sqlx::query("CREATE TABLE items (sku TEXT PRIMARY KEY, on_hand BIGINT, version TEXT)").execute(store.pool()).await?;
    /// # sqlx::query("INSERT INTO items VALUES ('a', 3, '1.0'), ('b', 9, '1.0')").execute(store.pool()).await?;
    /// # let table = Table::new("items", &[("sku", Kind::Text)], &[("on_hand", Kind::Integer)])?;
    /// # let items: Objects<Item1_0> = Objects::new(table, Arc::new(Chain::first()));
    /// let sql = format!("{} WHERE on_hand < $1 ORDER BY on_hand DESC", items.table().select(store.engine()));
    /// let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(5_i64).fetch_all(store.pool()).await?;
    /// let scarce = items.read(&rows[0])?.object?;
    /// assert_eq!((rows.len(), scarce.held.value.sku.as_str()), (1, "a"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(&self, row: &AnyRow) -> Result<Listed<T>, TableError> {
        let key = self.table.key_from(row)?;
        let (row, text) = match self.table.row_and_version(row) {
            Ok(read) => read,
            Err(error) => {
                return Ok(Listed {
                    key,
                    object: Err(Unreadable::NoRow {
                        object: T::NAME.to_owned(),
                        why: error.to_string(),
                    }),
                });
            }
        };
        let object = self
            .known_version(text.as_deref())
            .and_then(|_| self.chain.load(row));
        Ok(Listed { key, object })
    }

    /// Saves what was read and changed: in the version of the pin, or in that of the row if it is newer, and only what
    /// changed. It is a [`StoreError::Conflict`] if the row got another version, or another revision, since it was read;
    /// and where the row gets a newer version, if anything of it was written since. Once it is written, `stored` has the row
    /// as it is then, and may be changed and saved again; after a rollback it must be read again.
    pub async fn save<'a>(
        &self,
        on: impl Into<Executor<'a>>,
        stored: &mut Stored<T>,
        pin: &Pin,
    ) -> Result<Write, StoreError> {
        let on = on.into();
        let dialect = on.dialect()?;
        let write = self.chain.save(stored, pin)?;
        if write.is_unchanged() {
            return Ok(write);
        }
        let raises = write.was != Some(Some(write.version));
        let mut connection = on.connection().await?;
        if !raises || self.table.revision().is_some() {
            self.write(dialect, &mut connection, stored, &write).await?;
            self.mark_written(stored, &write);
            return Ok(write);
        }
        // What is written is made of the whole row, also of columns that stay as they are. Who wrote one of them meanwhile,
        // and held to the older release, has not changed the version.
        let mut transaction = begin(dialect, &mut connection).await?;
        let fields = &stored.row().fields;
        let now = self
            .locked(dialect, &mut transaction, &self.table.key_of(fields))
            .await?;
        if now.as_ref().is_some_and(|now| now != stored.row()) {
            return Err(self.conflict(fields));
        }
        self.write(dialect, &mut transaction, stored, &write).await?;
        let what = || format!("commit an update of {}", self.table.name());
        transaction
            .commit()
            .await
            .map_err(|error| failed(what(), error))?;
        self.mark_written(stored, &write);
        Ok(write)
    }

    /// The row in hand becomes what it is in the store now.
    fn mark_written(&self, stored: &mut Stored<T>, write: &Write) {
        let mut now = write.clone();
        if let Some(revision) = self.table.revision() {
            let read = stored.row().fields.get(revision).and_then(Value::as_i64);
            now.set
                .insert(revision.to_owned(), read.map(|read| read + 1).into());
        }
        self.chain.written(stored, now);
    }

    /// A row, which nobody else writes until the transaction ends.
    async fn locked(
        &self,
        dialect: Dialect,
        transaction: &mut AnyConnection,
        key: &[Value],
    ) -> Result<Option<Row>, StoreError> {
        let mut sql = self.select(dialect);
        self.table.where_key(&mut sql, key)?;
        sql.push(dialect.lock(Wait::ForAll));
        let reading = |error| failed(format!("read {}", self.table.name()), error);
        let rows = sql.fetch(transaction).await.map_err(reading)?;
        match rows.first() {
            Some(row) => Ok(Some(self.table.row(row)?)),
            None => Ok(None),
        }
    }

    fn conflict(&self, fields: &Map<String, Value>) -> StoreError {
        StoreError::Conflict {
            table: self.table.name().to_owned(),
            key: self.table.key_text(&self.table.key_of(fields)),
        }
    }

    /// Saves a row that nobody else can write now.
    pub(super) async fn save_locked(
        &self,
        dialect: Dialect,
        transaction: &mut AnyConnection,
        stored: &Stored<T>,
        pin: &Pin,
    ) -> Result<(), StoreError> {
        let write = self.chain.save(stored, pin)?;
        if write.is_unchanged() {
            return Ok(());
        }
        self.write(dialect, transaction, stored, &write).await
    }

    async fn write(
        &self,
        dialect: Dialect,
        connection: &mut AnyConnection,
        stored: &Stored<T>,
        write: &Write,
    ) -> Result<(), StoreError> {
        let fields = &stored.row().fields;
        let key = self.table.key_of(fields);
        if self.update(dialect, connection, &key, fields, write).await? == 1 {
            return Ok(());
        }
        Err(if self.exists(dialect, connection, &key).await? {
            self.conflict(fields)
        } else {
            StoreError::Gone {
                table: self.table.name().to_owned(),
                key: self.table.key_text(&key),
            }
        })
    }

    /// Whether there is a row of that key.
    async fn exists(
        &self,
        dialect: Dialect,
        connection: &mut AnyConnection,
        key: &[Value],
    ) -> Result<bool, StoreError> {
        let table = self.table.name();
        let select = format!("SELECT {} FROM \"{table}\"", self.table.selected_key(dialect));
        let mut sql = Sql::new(dialect, select);
        self.table.where_key(&mut sql, key)?;
        let rows = sql.fetch(connection).await;
        Ok(!rows
            .map_err(|error| failed(format!("read {table}"), error))?
            .is_empty())
    }

    async fn update(
        &self,
        dialect: Dialect,
        connection: &mut AnyConnection,
        key: &[Value],
        fields: &Map<String, Value>,
        write: &Write,
    ) -> Result<u64, StoreError> {
        let table = &self.table;
        let update = format!("UPDATE \"{}\" SET \"{}\" = ", table.name(), table.version());
        let mut sql = Sql::new(dialect, update);
        sql.bind_text(Some(write.version.to_string()))?;
        for (field, value) in &write.set {
            let column = table.column(field)?;
            sql.push(&format!(", \"{}\" = ", column.name()));
            table.push(&mut sql, column, value)?;
        }
        if let Some(revision) = table.revision() {
            sql.push(&format!(", \"{revision}\" = \"{revision}\" + 1"));
        }
        table.where_key(&mut sql, key)?;
        sql.push(&format!(" AND \"{}\" {} ", table.version(), dialect.is_same()));
        sql.bind_text(write.was.flatten().map(|version| version.to_string()))?;
        if let Some(revision) = table.revision() {
            sql.push(&format!(" AND \"{revision}\" = "));
            sql.bind_integer(fields.get(revision).and_then(Value::as_i64))?;
        }
        sql.execute(connection)
            .await
            .map_err(|error| failed(format!("update {}", table.name()), error))
    }

    /// Reads, changes and saves, and does so again while others write the same row. `change` may be called several times,
    /// with what the row holds then. What comes back has the row as it was written.
    pub async fn change<'a>(
        &self,
        on: impl Into<Executor<'a>>,
        key: &[Value],
        pin: &Pin,
        mut change: impl FnMut(&mut T) + Send,
    ) -> Result<Stored<T>, StoreError> {
        let gone = || StoreError::Gone {
            table: self.table.name().to_owned(),
            key: self.table.key_text(key),
        };
        let mut on = on.into();
        let mut tries = 0;
        loop {
            let mut stored = self.get(on.reborrow(), key).await?.ok_or_else(gone)?;
            change(&mut stored.held.value);
            match self.save(on.reborrow(), &mut stored, pin).await {
                Ok(_) => return Ok(stored),
                Err(StoreError::Conflict { .. }) if tries < TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes the row of that key, whatever its version. Whether there was one.
    pub async fn delete<'a>(&self, on: impl Into<Executor<'a>>, key: &[Value]) -> Result<bool, StoreError> {
        let on = on.into();
        let mut sql = Sql::new(on.dialect()?, format!("DELETE FROM \"{}\"", self.table.name()));
        self.table.where_key(&mut sql, key)?;
        let mut connection = on.connection().await?;
        let deleted = sql.execute(&mut connection).await;
        Ok(deleted.map_err(|error| failed(format!("delete from {}", self.table.name()), error))? > 0)
    }

    fn select(&self, dialect: Dialect) -> Sql {
        Sql::new(dialect, self.table.selection(dialect))
    }

    /// Rows of a select of this table.
    async fn fetch(&self, connection: &mut AnyConnection, sql: Sql) -> Result<Vec<Listed<T>>, StoreError> {
        let rows = sql
            .fetch(connection)
            .await
            .map_err(|error| failed(format!("read {}", self.table.name()), error))?;
        let listed: Result<Vec<Listed<T>>, TableError> = rows.iter().map(|row| self.read(row)).collect();
        Ok(listed?)
    }
}

/// Inserts a row. One that is refused leaves a transaction as it was.
async fn insert(dialect: Dialect, connection: &mut AnyConnection, sql: Sql) -> Result<(), sqlx::Error> {
    if !(dialect.fails_as_a_whole() && connection.is_in_transaction()) {
        return sql.execute(connection).await.map(drop);
    }
    let mut savepoint = connection.begin().await?;
    match sql.execute(&mut savepoint).await {
        Ok(_) => savepoint.commit().await,
        Err(error) => {
            savepoint.rollback().await?;
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use serde_json::json;
    use sqlx::Row as _;

    use super::*;
    use crate::Version;
    use crate::store::{Connect, Kind, Store};

    #[derive(Clone, PartialEq, Serialize, Deserialize)]
    struct Port1_0 {
        id: i64,
    }

    impl Versioned for Port1_0 {
        const NAME: &'static str = "Port";
        const VERSION: Version = Version::new(1, 0);
    }

    /// A page of a large table costs as much as the page.
    #[tokio::test]
    async fn a_page_is_found_by_the_index_of_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/x.sqlite?mode=rwc", folder.path().display());
        let store = Store::connect(&url, Connect::default()).await.unwrap();
        let mut connection = store.connection().await.unwrap();
        let table = "CREATE TABLE ports (id BIGINT PRIMARY KEY, version TEXT)";
        let dialect = Dialect::Sqlite;
        Sql::new(dialect, table).execute(&mut connection).await.unwrap();
        let table = Table::new("ports", &[("id", Kind::Integer)], &[]).unwrap();
        let ports: Objects<Port1_0> = Objects::new(table, Arc::new(Chain::first()));
        for after in [None, Some([json!(5)])] {
            let sql = ports
                .listing(dialect, after.as_ref().map(|key| &key[..]), 10)
                .unwrap();
            let plan = Sql::new(dialect, format!("EXPLAIN QUERY PLAN {sql:?}"));
            let rows = plan.fetch(&mut connection).await.unwrap();
            let steps: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
            assert!(
                steps.iter().all(|step| step.contains("USING INDEX")),
                "{sql:?}\n{steps:#?}"
            );
        }
    }
}
