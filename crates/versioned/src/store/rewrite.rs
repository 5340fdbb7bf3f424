//! The two migrations that most programs need: rows converted one by one, and rows converted by one
//! statement.

use std::num::NonZeroU64;

use async_trait::async_trait;
use serde_json::Value;
use sqlx::{Any, AnyConnection, Connection as _, Row as _, Transaction};

use super::dialect::{Wait, is_code};
use super::migrate::{Batch, Migration, Stuck};
use super::{Dialect, Objects, Sql, Store, StoreError, Table, failed};
use crate::boundary::Stored;
use crate::object::Versioned;
use crate::pin::Pin;

/// Reads every row that is not of the newest version, converts it, and saves it. A row without a version gets one, if the
/// chain says what it was before. One that the database refuses is stuck, and keeps no other back.
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
            pin: pin.without_pin(),
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

    async fn remaining(&self, store: &Store) -> Result<u64, StoreError> {
        self.objects.count_behind(store).await
    }

    async fn batch(
        &self,
        store: &Store,
        after: Option<&[Value]>,
        max: NonZeroU64,
    ) -> Result<Batch, StoreError> {
        let mut how = Rows::Together;
        let mut deadlocks = 0;
        loop {
            match self.attempt(store, after, max, how).await {
                // Which one it was the others do not tell, and nothing of the batch is done.
                Err(StoreError::Refused { source, .. })
                    if how == Rows::Together && store.dialect().refused_row(&source).is_some() =>
                {
                    how = Rows::Apart;
                }
                // Nothing of the batch is done, and whoever else was in the circle goes on.
                Err(StoreError::Refused { source, .. })
                    if deadlocks < DEADLOCKS && store.dialect().was_a_deadlock(&source) =>
                {
                    deadlocks += 1;
                }
                batch => return batch,
            }
        }
    }
}

/// How often a batch begins anew because the database ended it for another transaction.
const DEADLOCKS: u32 = 16;

/// How the rows of a batch are saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// All or none.
    Together,
    /// Each so that one that the database refuses takes no other with it. It takes longer.
    Apart,
}

impl<T: Versioned> RaiseRows<T> {
    /// A transaction.
    async fn attempt(
        &self,
        store: &Store,
        after: Option<&[Value]>,
        max: NonZeroU64,
        how: Rows,
    ) -> Result<Batch, StoreError> {
        let mut transaction = store.begin().await?;
        match self.bring_up(store, &mut transaction, after, max, how).await {
            Ok(batch) => {
                let commit = |error| failed(format!("commit a batch of {}", self.name), error);
                transaction.commit().await.map_err(commit)?;
                Ok(batch)
            }
            Err(error) => {
                // At once, or the next attempt would find its own rows locked. What comes of it tells nothing more.
                drop(transaction.rollback().await);
                Err(error)
            }
        }
    }

    async fn bring_up(
        &self,
        store: &Store,
        transaction: &mut AnyConnection,
        after: Option<&[Value]>,
        max: NonZeroU64,
        how: Rows,
    ) -> Result<Batch, StoreError> {
        force_index_scan(store, transaction).await?;
        let dialect = store.dialect();
        if how == Rows::Apart && dialect == Dialect::Postgres {
            // Or what is looked at when the batch is committed would be told of none of its rows.
            let set = Sql::new(dialect, "SET CONSTRAINTS ALL IMMEDIATE").execute(transaction);
            set.await
                .map_err(|error| failed(format!("set up a batch of {}", self.name), error))?;
        }
        // Who writes a row has the batch wait for nothing but that row: with others in hand, each could wait for the other.
        let mut limit = max.get();
        let behind = self
            .objects
            .outdated_rows(store, transaction, after, limit, Wait::ForNone);
        let mut rows = behind.await?;
        if rows.is_empty() && dialect != Dialect::Sqlite {
            limit = 1;
            let behind = self
                .objects
                .outdated_rows(store, transaction, after, limit, Wait::ForAll);
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
                Ok(stored) => match self.save(store, transaction, &stored, how).await {
                    Ok(()) => {
                        batch.done += 1;
                        continue;
                    }
                    // Somebody was faster. The next pass sees what is left of it.
                    Err(StoreError::Conflict { .. } | StoreError::Gone { .. }) => continue,
                    Err(why @ (StoreError::Unsaved(_) | StoreError::Table(_))) => why.to_string(),
                    Err(StoreError::Refused { what, source }) if how == Rows::Apart => {
                        match dialect.refused_row(&source) {
                            Some(why) => format!("the database refuses it: {why}"),
                            None => return Err(StoreError::Refused { what, source }),
                        }
                    }
                    Err(other) => return Err(other),
                },
            };
            batch.stuck.push(Stuck {
                row: format!(
                    "{} {}",
                    self.objects.table().name(),
                    self.objects.table().key_text(&row.key)
                ),
                why,
            });
        }
        Ok(batch)
    }

    /// Saves a row, in a savepoint of its own if it is set apart.
    async fn save(
        &self,
        store: &Store,
        transaction: &mut AnyConnection,
        stored: &Stored<T>,
        how: Rows,
    ) -> Result<(), StoreError> {
        if how == Rows::Together {
            return self
                .objects
                .save_locked(store.dialect(), transaction, stored, &self.pin)
                .await;
        }
        let apart = |error| failed(format!("set a row of {} apart", self.name), error);
        let mut one = transaction.begin().await.map_err(apart)?;
        let saved = self
            .objects
            .save_locked(store.dialect(), &mut one, stored, &self.pin)
            .await;
        let ended = if saved.is_ok() {
            one.commit().await
        } else {
            one.rollback().await
        };
        ended.map_err(apart)?;
        saved
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
    /// a run notices. Both are SQL of the program's own, for all of its databases, with names in double quotes. On PostgreSQL the table must not be partitioned:
    /// [`RaiseRows`] is for those.
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

    async fn remaining(&self, store: &Store) -> Result<u64, StoreError> {
        let Self {
            name, table, pending, ..
        } = self;
        let count = store.dialect().as_integer("count(*)", "rows");
        let sql = Sql::new(
            store.dialect(),
            format!("SELECT {count} FROM \"{}\" WHERE ({pending})", table.name()),
        );
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
        if store.dialect() == Dialect::Postgres
            && let Some(batch) = self.at_once(store, after, max).await?
        {
            return Ok(batch);
        }
        let mut transaction = store.begin().await?;
        force_index_scan(store, &mut transaction).await?;
        let batch = match store.dialect() {
            Dialect::Sqlite => self.range(&mut transaction, after, max).await?,
            Dialect::Postgres => self.chosen(&mut transaction, after, max).await?,
            Dialect::Mysql => self.listed(&mut transaction, after, max).await?,
        };
        self.commit(transaction).await?;
        Ok(batch)
    }
}

/// Settings of one transaction. So long a batch waits for rows that others write while it has some in hand: PostgreSQL looks
/// for those who wait in a circle after a second, and would end one of them, perhaps the service.
const PATIENCE: &str = "SELECT set_config('lock_timeout', '100ms', true)";
/// How many rows are written by their keys in one statement.
const KEYS: usize = 1000;
/// The code of PostgreSQL by which that is over.
const LOCK_NOT_AVAILABLE: &str = "55P03";

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
        connection: &mut AnyConnection,
        after: Option<&[Value]>,
        max: NonZeroU64,
    ) -> Result<Batch, StoreError> {
        let Self { table, pending, .. } = self;
        let dialect = Dialect::Sqlite;
        let select = format!(
            "SELECT {} FROM \"{}\" WHERE ({pending})",
            table.selected_key(dialect),
            table.name()
        );
        let mut last = Sql::new(dialect, select);
        let mut update = Sql::new(dialect, format!("{} WHERE ({pending})", self.set_clause()));
        if let Some(after) = after {
            table.beside_key(last.push(" AND "), ">", after)?;
            table.beside_key(update.push(" AND "), ">", after)?;
        }
        last.push(&format!(
            " ORDER BY {} LIMIT 1 OFFSET {}",
            table.in_order(),
            max.get() - 1
        ));
        let rows = last.fetch(connection).await.map_err(self.failed())?;
        let last = match rows.first() {
            Some(row) => Some(table.key_from(row)?),
            None => None,
        };
        if let Some(last) = &last {
            table.beside_key(update.push(" AND "), "<=", last)?;
        }
        Ok(Batch {
            done: update.execute(connection).await.map_err(self.failed())?,
            stuck: Vec::new(),
            next: last,
        })
    }

    async fn commit(&self, transaction: Transaction<'static, Any>) -> Result<(), StoreError> {
        let commit = |error| failed(format!("commit a batch of {}", self.name), error);
        transaction.commit().await.map_err(commit)
    }

    /// Without locking rows before they are written, which would be written twice then. `None`: somebody else had one of
    /// them for too long, and nothing was done.
    async fn at_once(
        &self,
        store: &Store,
        after: Option<&[Value]>,
        max: NonZeroU64,
    ) -> Result<Option<Batch>, StoreError> {
        let mut transaction = store.begin().await?;
        let patience = Sql::new(Dialect::Postgres, PATIENCE);
        let patience = patience.execute(&mut transaction).await;
        patience.map_err(self.failed())?;
        force_index_scan(store, &mut transaction).await?;
        let updated = self.update(&mut transaction, after, max.get(), Wait::Later);
        match updated.await {
            Ok(batch) => {
                self.commit(transaction).await?;
                Ok(Some(batch))
            }
            Err(StoreError::Refused { source, .. }) if is_code(&source, LOCK_NOT_AVAILABLE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Rows that nobody else is writing; if there are none but those, the first of them, for which it waits. So it never has
    /// others in hand while it waits, and nobody who waits for it is waited for.
    async fn chosen(
        &self,
        connection: &mut AnyConnection,
        after: Option<&[Value]>,
        max: NonZeroU64,
    ) -> Result<Batch, StoreError> {
        let batch = self.update(connection, after, max.get(), Wait::ForNone).await?;
        if batch.next.is_some() {
            return Ok(batch);
        }
        self.update(connection, after, 1, Wait::ForAll).await
    }

    /// The same where no statement both chooses rows and writes them: they are locked, then written by their keys.
    async fn listed(
        &self,
        connection: &mut AnyConnection,
        after: Option<&[Value]>,
        max: NonZeroU64,
    ) -> Result<Batch, StoreError> {
        let mut keys = self.lock(connection, after, max.get(), Wait::ForNone).await?;
        if keys.is_empty() {
            keys = self.lock(connection, after, 1, Wait::ForAll).await?;
        }
        let mut done = 0;
        for some in keys.chunks(KEYS) {
            let mut sql = Sql::new(Dialect::Mysql, self.set_clause());
            sql.push(&format!(
                " WHERE ({}) AND ({}) IN (",
                self.pending,
                self.table.key_list()
            ));
            for (at, key) in some.iter().enumerate() {
                sql.push(if at == 0 { "" } else { ", " });
                self.table.push_key(&mut sql, key)?;
            }
            sql.push(")");
            done += sql.execute(connection).await.map_err(self.failed())?;
        }
        Ok(Batch {
            done,
            stuck: Vec::new(),
            next: keys.pop(),
        })
    }

    /// The keys of rows that are still to do, locked until the transaction ends.
    async fn lock(
        &self,
        connection: &mut AnyConnection,
        after: Option<&[Value]>,
        limit: u64,
        wait: Wait,
    ) -> Result<Vec<Vec<Value>>, StoreError> {
        let Self { table, pending, .. } = self;
        let dialect = Dialect::Mysql;
        let select = format!(
            "SELECT {} FROM \"{}\" WHERE ({pending})",
            table.selected_key(dialect),
            table.name()
        );
        let mut sql = Sql::new(dialect, select);
        if let Some(after) = after {
            table.beside_key(sql.push(" AND "), ">", after)?;
        }
        sql.push(&format!(" ORDER BY {} LIMIT {limit}", table.in_order()));
        sql.push(dialect.lock(wait));
        let rows = sql.fetch(connection).await.map_err(self.failed())?;
        let keys = rows.iter().map(|row| table.key_from(row));
        Ok(keys.collect::<Result<_, _>>()?)
    }

    /// Rows are chosen once, and written by their place, whatever the planner thinks of the table.
    async fn update(
        &self,
        connection: &mut AnyConnection,
        after: Option<&[Value]>,
        limit: u64,
        wait: Wait,
    ) -> Result<Batch, StoreError> {
        let Self { table, pending, .. } = self;
        let (name, keys) = (table.name(), table.key_list());
        let dialect = Dialect::Postgres;
        let chosen = format!(
            "WITH \"stagger_chosen\" AS MATERIALIZED (SELECT ctid AS \"stagger_place\" FROM \"{name}\" WHERE ({pending})"
        );
        let mut sql = Sql::new(dialect, chosen);
        if let Some(after) = after {
            table.beside_key(sql.push(" AND "), ">", after)?;
        }
        sql.push(&format!(
            " ORDER BY {keys} LIMIT {limit}{}), ",
            dialect.lock(wait)
        ));
        sql.push(&format!("\"stagger_done\" AS ({}", self.set_clause()));
        sql.push(" WHERE ctid = ANY (ARRAY(SELECT \"stagger_place\" FROM \"stagger_chosen\"))");
        sql.push(&format!(" AND ({pending}) RETURNING {keys}) "));
        let last: Vec<String> = table
            .key_columns()
            .map(|column| format!("\"stagger_done\".\"{column}\" DESC"))
            .collect();
        sql.push(&format!(
            "SELECT {}, (SELECT count(*) FROM \"stagger_done\") AS \"stagger_rows\" FROM \"stagger_done\" ORDER BY {} LIMIT 1",
            table.selected_key(dialect),
            last.join(", ")
        ));
        let rows = sql.fetch(connection).await.map_err(self.failed())?;
        let Some(row) = rows.first() else {
            return Ok(Batch::default());
        };
        let done: i64 = row.try_get("stagger_rows").map_err(self.failed())?;
        Ok(Batch {
            done: done.unsigned_abs(),
            stuck: Vec::new(),
            next: Some(table.key_from(row)?),
        })
    }
}

/// Rows are found in the order of their key, for which there is an index. Of a table that was filled lately the planner
/// knows too little, and would sort all that is left of it for each batch.
async fn force_index_scan(store: &Store, transaction: &mut AnyConnection) -> Result<(), StoreError> {
    if store.dialect() == Dialect::Postgres {
        // What is sorted all the same costs more than anything by this, and is not to be compiled for that.
        let set = Sql::new(
            Dialect::Postgres,
            "SELECT set_config('enable_sort', 'off', true), set_config('jit', 'off', true)",
        );
        let set = set.execute(transaction).await;
        set.map_err(|error| failed("set a transaction up".to_owned(), error))?;
    }
    Ok(())
}
