//! The two migrations that most programs need: rows converted one by one, and rows that one statement can bring up.

use std::num::NonZeroU64;

use async_trait::async_trait;
use serde_json::Value;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row as _};

use super::migrate::{Batch, Migration, Stuck};
use super::objects::Wait;
use super::{Engine, Objects, Sql, Store, StoreError, Table, failed};
use crate::object::Versioned;
use crate::pin::Pin;

/// Reads every row that is not of the newest version, converts it, and saves it. A row without a version gets one, if the
/// chain says what it was before.
#[derive(Debug)]
pub struct RaiseRows<T: Versioned> {
    name: String,
    objects: Objects<T>,
    pin: Pin,
}

impl<T: Versioned> RaiseRows<T> {
    /// For the rows of these objects. The manifest is that of the pin, which is not in force here.
    pub fn new(name: &str, objects: Objects<T>, pin: &Pin) -> Self {
        Self {
            name: name.to_owned(),
            objects,
            pin: pin.lifted(),
        }
    }
}

#[async_trait]
impl<T: Versioned> Migration for RaiseRows<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        format!(
            "each row of `{}` that is not yet {} {} is read, converted and saved",
            self.objects.table().name(),
            T::NAME,
            T::VERSION
        )
    }

    async fn left(&self, store: &Store) -> Result<u64, StoreError> {
        self.objects.count_behind(store).await
    }

    async fn batch(
        &self,
        store: &Store,
        after: Option<&[Value]>,
        max: NonZeroU64,
    ) -> Result<Batch, StoreError> {
        let mut transaction = store.begin().await?;
        // Who writes a row has the batch wait for nothing but that row: with others in hand, each could wait for the other.
        let mut limit = max.get();
        let behind = self
            .objects
            .behind(store, &mut transaction, after, limit, Wait::ForNone);
        let mut rows = behind.await?;
        if rows.is_empty() && store.engine == Engine::Postgres {
            limit = 1;
            let behind = self
                .objects
                .behind(store, &mut transaction, after, limit, Wait::ForAll);
            rows = behind.await?;
        }
        let full = rows.len() as u64 == limit;
        let mut batch = Batch {
            next: rows.last().filter(|_| full).map(|row| row.key.clone()),
            ..Batch::default()
        };
        for row in rows {
            let why = match row.object {
                Err(why) => why.to_string(),
                Ok(stored) => match self
                    .objects
                    .save_locked(store, &mut transaction, &stored, &self.pin)
                    .await
                {
                    Ok(()) => {
                        batch.done += 1;
                        continue;
                    }
                    // Somebody was faster. The next pass sees what is left of it.
                    Err(StoreError::Conflict { .. } | StoreError::Gone { .. }) => continue,
                    Err(why @ (StoreError::Unsaved(_) | StoreError::Table(_))) => why.to_string(),
                    Err(other) => return Err(other),
                },
            };
            batch.stuck.push(Stuck {
                row: format!(
                    "{} {}",
                    self.objects.table().name(),
                    self.objects.table().shown(&row.key)
                ),
                why,
            });
        }
        let commit = |error| failed(format!("commit a batch of {}", self.name), error);
        transaction.commit().await.map_err(commit)?;
        Ok(batch)
    }
}

/// One statement that brings up all rows of which a condition holds, in batches. It is faster than reading them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    name: String,
    table: Table,
    pending: &'static str,
    set: &'static str,
}

impl Update {
    /// `UPDATE table SET {set} WHERE {pending}`. What it sets must make `pending` false, or it is done again and again, which
    /// a run notices. Both are SQL of the program's own, for both databases.
    pub fn new(name: &str, table: Table, pending: &'static str, set: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            table,
            pending,
            set,
        }
    }
}

#[async_trait]
impl Migration for Update {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        let Self {
            table, pending, set, ..
        } = self;
        format!("`UPDATE {} SET {set} WHERE {pending}`, in batches", table.name())
    }

    async fn left(&self, store: &Store) -> Result<u64, StoreError> {
        let Self {
            name, table, pending, ..
        } = self;
        let sql = Sql::new(format!(
            "SELECT CAST(count(*) AS BIGINT) AS \"rows\" FROM \"{}\" WHERE ({pending})",
            table.name()
        ));
        let mut connection = store.connection().await?;
        let counting = |error| failed(format!("count what is left of {name}"), error);
        let rows = sql.fetch(&mut connection).await.map_err(counting)?;
        let count: i64 = match rows.first() {
            Some(row) => row.try_get("rows").map_err(counting)?,
            None => 0,
        };
        Ok(count.unsigned_abs())
    }

    async fn batch(
        &self,
        store: &Store,
        after: Option<&[Value]>,
        max: NonZeroU64,
    ) -> Result<Batch, StoreError> {
        let mut transaction = store.begin().await?;
        let batch = match store.engine {
            Engine::Sqlite => self.range(store, &mut transaction, after, max).await?,
            Engine::Postgres => self.chosen(store, &mut transaction, after, max).await?,
        };
        let commit = |error| failed(format!("commit a batch of {}", self.name), error);
        transaction.commit().await.map_err(commit)?;
        Ok(batch)
    }
}

impl Update {
    /// `UPDATE … SET …`.
    fn set_clause(&self) -> String {
        let Self { table, set, .. } = self;
        let revision = table
            .revision()
            .map(|revision| format!(", \"{revision}\" = \"{0}\".\"{revision}\" + 1", table.name()))
            .unwrap_or_default();
        format!("UPDATE \"{}\" SET {set}{revision}", table.name())
    }

    fn failed(&self) -> impl Fn(sqlx::Error) -> StoreError + '_ {
        |error| failed(format!("a batch of {}", self.name), error)
    }

    /// A whole range of keys, whose end is looked for first. Nobody writes meanwhile: SQLite has one writer, and it is this
    /// transaction.
    async fn range(
        &self,
        store: &Store,
        connection: &mut AnyConnection,
        after: Option<&[Value]>,
        max: NonZeroU64,
    ) -> Result<Batch, StoreError> {
        let Self { table, pending, .. } = self;
        let mut last = Sql::new(format!(
            "SELECT {} FROM \"{}\" WHERE ({pending})",
            table.selected_key(store.engine),
            table.name()
        ));
        let mut update = Sql::new(format!("{} WHERE ({pending})", self.set_clause()));
        if let Some(after) = after {
            table.beside_key(store.engine, last.push(" AND "), ">", after)?;
            table.beside_key(store.engine, update.push(" AND "), ">", after)?;
        }
        last.push(&format!(
            " ORDER BY {} LIMIT 1 OFFSET {}",
            table.key_list(),
            max.get() - 1
        ));
        let rows = last.fetch(connection).await.map_err(self.failed())?;
        let last = match rows.first() {
            Some(row) => Some(table.key_from(store.engine, row)?),
            None => None,
        };
        if let Some(last) = &last {
            table.beside_key(store.engine, update.push(" AND "), "<=", last)?;
        }
        Ok(Batch {
            done: update.execute(connection).await.map_err(self.failed())?,
            stuck: Vec::new(),
            next: last,
        })
    }

    /// Rows that nobody else is writing; if there are none but those, the first of them, for which it waits. So it never has
    /// others in hand while it waits, and nobody who waits for it is waited for.
    async fn chosen(
        &self,
        store: &Store,
        connection: &mut AnyConnection,
        after: Option<&[Value]>,
        max: NonZeroU64,
    ) -> Result<Batch, StoreError> {
        let mut rows = self
            .update(store, connection, after, max.get(), Wait::ForNone)
            .await?;
        if rows.is_empty() {
            rows = self.update(store, connection, after, 1, Wait::ForAll).await?;
        }
        let mut last: Option<Vec<Value>> = None;
        for row in &rows {
            let key = self.table.key_from(store.engine, row)?;
            if last.as_ref().is_none_or(|last| later(&key, last)) {
                last = Some(key);
            }
        }
        Ok(Batch {
            done: rows.len() as u64,
            stuck: Vec::new(),
            next: last,
        })
    }

    /// The rows are chosen and locked once, whatever the planner does with the rest. Columns of the choice have names of
    /// their own, since the program's SQL says the names of the table's without the table.
    async fn update(
        &self,
        store: &Store,
        connection: &mut AnyConnection,
        after: Option<&[Value]>,
        limit: u64,
        wait: Wait,
    ) -> Result<Vec<AnyRow>, StoreError> {
        let Self { table, pending, .. } = self;
        let (name, keys) = (table.name(), table.key_list());
        let names: Vec<String> = (0..table.key_columns().count())
            .map(|at| format!("\"stagger_key_{at}\""))
            .collect();
        let mut update = Sql::new(format!(
            "WITH \"stagger_chosen\" ({}) AS MATERIALIZED (SELECT {keys} FROM \"{name}\" WHERE ({pending})",
            names.join(", ")
        ));
        if let Some(after) = after {
            table.beside_key(store.engine, update.push(" AND "), ">", after)?;
        }
        update.push(&format!(
            " ORDER BY {keys} LIMIT {limit}{}) ",
            wait.clause(store.engine)
        ));
        update.push(&self.set_clause());
        update.push(&format!(" FROM \"stagger_chosen\" WHERE ({pending})"));
        for (column, chosen) in table.key_columns().zip(&names) {
            update.push(&format!(" AND \"{name}\".\"{column}\" = {chosen}"));
        }
        update.push(&format!(" RETURNING {}", table.selected_key(store.engine)));
        update.fetch(connection).await.map_err(self.failed())
    }
}

/// Whether a key comes after another. The database may order texts in another way; a key that is taken too early is only
/// looked at once more, and one that is taken too late is found by the next pass.
fn later(key: &[Value], than: &[Value]) -> bool {
    for (a, b) in key.iter().zip(than) {
        let order = match (a, b) {
            (Value::Number(a), Value::Number(b)) => a.as_i64().cmp(&b.as_i64()),
            (a, b) => a.as_str().cmp(&b.as_str()),
        };
        if order.is_ne() {
            return order.is_gt();
        }
    }
    false
}
