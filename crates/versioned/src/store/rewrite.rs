//! The two migrations that most programs need: rows converted one by one, and rows that one statement can bring up.

use std::num::NonZeroU64;

use async_trait::async_trait;
use serde_json::Value;
use sqlx::{Any, AnyConnection, Connection as _, Row as _, Transaction};

use super::migrate::{Batch, Migration, Stuck};
use super::objects::Wait;
use super::{Engine, Objects, Sql, Store, StoreError, Table, failed};
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
        match self.attempt(store, after, max, Rows::Together).await {
            // Which one it was the others do not tell, and nothing of the batch is done.
            Err(StoreError::Refused { source, .. }) if refused_row(store.engine, &source).is_some() => {
                self.attempt(store, after, max, Rows::Apart).await
            }
            batch => batch,
        }
    }
}

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
        by_the_index(store, transaction).await?;
        if how == Rows::Apart && store.engine == Engine::Postgres {
            // Or what is looked at when the batch is committed would be told of none of its rows.
            let set = Sql::new("SET CONSTRAINTS ALL IMMEDIATE").execute(transaction);
            set.await
                .map_err(|error| failed(format!("set up a batch of {}", self.name), error))?;
        }
        // Who writes a row has the batch wait for nothing but that row: with others in hand, each could wait for the other.
        let mut limit = max.get();
        let behind = self
            .objects
            .behind(store, transaction, after, limit, Wait::ForNone);
        let mut rows = behind.await?;
        if rows.is_empty() && store.engine == Engine::Postgres {
            limit = 1;
            let behind = self
                .objects
                .behind(store, transaction, after, limit, Wait::ForAll);
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
                        match refused_row(store.engine, &source) {
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
                    self.objects.table().shown(&row.key)
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
                .save_locked(store, transaction, stored, &self.pin)
                .await;
        }
        let apart = |error| failed(format!("set a row of {} apart", self.name), error);
        let mut one = transaction.begin().await.map_err(apart)?;
        let saved = self.objects.save_locked(store, &mut one, stored, &self.pin).await;
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
    /// a run notices. Both are SQL of the program's own, for both databases. On PostgreSQL the table must not be partitioned:
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
        if store.engine == Engine::Postgres
            && let Some(batch) = self.at_once(store, after, max).await?
        {
            return Ok(batch);
        }
        let mut transaction = store.begin().await?;
        by_the_index(store, &mut transaction).await?;
        let batch = match store.engine {
            Engine::Sqlite => self.range(store, &mut transaction, after, max).await?,
            Engine::Postgres => self.chosen(store, &mut transaction, after, max).await?,
        };
        self.commit(transaction).await?;
        Ok(batch)
    }
}

/// Settings of one transaction. So long a batch waits for rows that others write while it has some in hand: PostgreSQL looks
/// for those who wait in a circle after a second, and would end one of them, perhaps the service.
const PATIENCE: &str = "SELECT set_config('lock_timeout', '100ms', true)";
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
            table.in_order(),
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
        let patience = Sql::new(PATIENCE).execute(&mut transaction).await;
        patience.map_err(self.failed())?;
        by_the_index(store, &mut transaction).await?;
        let updated = self.update(store, &mut transaction, after, max.get(), Wait::Later);
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
        store: &Store,
        connection: &mut AnyConnection,
        after: Option<&[Value]>,
        max: NonZeroU64,
    ) -> Result<Batch, StoreError> {
        let batch = self
            .update(store, connection, after, max.get(), Wait::ForNone)
            .await?;
        if batch.next.is_some() {
            return Ok(batch);
        }
        self.update(store, connection, after, 1, Wait::ForAll).await
    }

    /// Rows are chosen once, and written by their place, whatever the planner thinks of the table.
    async fn update(
        &self,
        store: &Store,
        connection: &mut AnyConnection,
        after: Option<&[Value]>,
        limit: u64,
        wait: Wait,
    ) -> Result<Batch, StoreError> {
        let Self { table, pending, .. } = self;
        let (name, keys) = (table.name(), table.key_list());
        let mut sql = Sql::new(format!(
            "WITH \"stagger_chosen\" AS MATERIALIZED (SELECT ctid AS \"stagger_place\" FROM \"{name}\" WHERE ({pending})"
        ));
        if let Some(after) = after {
            table.beside_key(store.engine, sql.push(" AND "), ">", after)?;
        }
        sql.push(&format!(
            " ORDER BY {keys} LIMIT {limit}{}), ",
            wait.clause(store.engine)
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
            table.selected_key(store.engine),
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
            next: Some(table.key_from(store.engine, row)?),
        })
    }
}

/// What the database says of one row that it does not take: too long, there twice, against a check.
fn refused_row(engine: Engine, error: &sqlx::Error) -> Option<&str> {
    let sqlx::Error::Database(error) = error else {
        return None;
    };
    let code = error.code()?;
    let of_a_row = match engine {
        // Data, constraints, limits, views, and what a trigger raises.
        Engine::Postgres => ["22", "23", "54", "44", "P0001"]
            .iter()
            .any(|class| code.starts_with(class)),
        // Too big, constraints, the wrong type; what is above the lowest byte only says more of it.
        Engine::Sqlite => code
            .parse::<u32>()
            .is_ok_and(|code| matches!(code & 0xff, 18..=20)),
    };
    of_a_row.then(|| error.message())
}

fn is_code(error: &sqlx::Error, code: &str) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    error.code().is_some_and(|found| found == code)
}

/// Rows are found in the order of their key, for which there is an index. Of a table that was filled lately the planner
/// knows too little, and would sort all that is left of it for each batch.
async fn by_the_index(store: &Store, transaction: &mut AnyConnection) -> Result<(), StoreError> {
    if store.engine == Engine::Postgres {
        // What is sorted all the same costs more than anything by this, and is not to be compiled for that.
        let set = Sql::new("SELECT set_config('enable_sort', 'off', true), set_config('jit', 'off', true)");
        let set = set.execute(transaction).await;
        set.map_err(|error| failed("set a transaction up".to_owned(), error))?;
    }
    Ok(())
}
