//! The two migrations that most programs need: rows converted one by one, and rows that one statement can bring up.

use std::num::NonZeroU64;

use async_trait::async_trait;
use serde_json::Value;
use sqlx::Row as _;

use super::migrate::{Batch, Migration, Stuck};
use super::{Objects, Sql, Store, StoreError, Table, failed};
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
        let rows = self
            .objects
            .behind(store, &mut transaction, after, max.get())
            .await?;
        let full = rows.len() as u64 == max.get();
        let mut batch = Batch {
            next: rows.last().filter(|_| full).map(|row| row.key.clone()),
            ..Batch::default()
        };
        for row in rows {
            let why = match row.object {
                Err(why) => why.to_string(),
                Ok(stored) => match self
                    .objects
                    .save_on(store, &mut transaction, &stored, &self.pin)
                    .await
                {
                    Ok(_) => {
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
        let Self {
            name,
            table,
            pending,
            set,
        } = self;
        let (from, keys) = (table.name(), table.key_list());
        // The condition stands there twice: between choosing a row and writing it somebody else may have written it.
        let revision = table
            .revision()
            .map(|revision| format!(", \"{revision}\" = \"{revision}\" + 1"))
            .unwrap_or_default();
        let chosen = format!("SELECT {keys} FROM \"{from}\" WHERE ({pending})");
        let mut sql = Sql::new(format!(
            "UPDATE \"{from}\" SET {set}{revision} WHERE ({pending}) AND ({keys}) IN ({chosen}"
        ));
        if let Some(after) = after {
            sql.push(" AND ");
            table.after_key(store.engine, &mut sql, after)?;
        }
        sql.push(&format!(
            " ORDER BY {keys} LIMIT {max}) RETURNING {}",
            table.selected_key(store.engine)
        ));
        let mut transaction = store.begin().await?;
        let rows = sql
            .fetch(&mut transaction)
            .await
            .map_err(|error| failed(format!("a batch of {name}"), error))?;
        let mut last: Option<Vec<Value>> = None;
        for row in &rows {
            let key = table.key_from(store.engine, row)?;
            if last.as_ref().is_none_or(|last| later(&key, last)) {
                last = Some(key);
            }
        }
        transaction
            .commit()
            .await
            .map_err(|error| failed(format!("commit a batch of {name}"), error))?;
        Ok(Batch {
            done: rows.len() as u64,
            stuck: Vec::new(),
            next: last,
        })
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
