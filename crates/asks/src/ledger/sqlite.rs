//! In a file.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::types::ToSql;
use rusqlite::{Connection, TransactionBehavior};
use stagger_engine::clock::Clock;
use stagger_engine::secrets;

use super::{Database, LedgerError, Rows, Statement, Value};

const SCHEMA: &str = include_str!("../../schema/0001-asks.sql");
/// How long to wait for who is writing.
const BUSY: Duration = Duration::from_secs(10);

/// A file with the tables.
pub(super) struct Sqlite {
    connection: Mutex<Connection>,
    path: String,
    clock: Arc<dyn Clock>,
}

impl Sqlite {
    pub(super) fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, LedgerError> {
        let shown = path.display().to_string();
        let failed = |why: String| LedgerError::Failed {
            tried: format!("open the asks {shown}"),
            why,
        };
        if let Some(folder) = path.parent() {
            secrets::make_folder(folder).map_err(|error| failed(error.to_string()))?;
        }
        secrets::ensure_private_file(path).map_err(|error| failed(error.to_string()))?;
        let connection = Connection::open(path)
            .and_then(|mut on| {
                prepare(&mut on)?;
                Ok(on)
            })
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            connection: Mutex::new(connection),
            path: shown,
            clock,
        })
    }

    /// Now, as a number in a statement.
    fn literal_now(&self) -> String {
        let now = self.clock.now().as_microsecond();
        format!("{}.{:06}", now.div_euclid(1_000_000), now.rem_euclid(1_000_000))
    }
}

fn prepare(on: &mut Connection) -> Result<(), rusqlite::Error> {
    on.busy_timeout(BUSY)?;
    on.query_row("pragma journal_mode = wal", [], |_| Ok(()))?;
    on.pragma_update(None, "synchronous", "full")?;
    let on = on.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let there: i64 = on.query_row(
        "select count(*) from sqlite_master where type = 'table' and name = 'gate_cluster'",
        [],
        |row| row.get(0),
    )?;
    if there == 0 {
        on.execute_batch(SCHEMA)?;
    }
    on.commit()
}

#[async_trait]
impl Database for Sqlite {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn carry_out(
        &self,
        what: &str,
        statements: Vec<Statement>,
    ) -> Result<Option<Vec<Rows>>, LedgerError> {
        let failed = |error: rusqlite::Error| LedgerError::Failed {
            tried: format!("{what} {}", self.path),
            why: error.to_string(),
        };
        let now = self.literal_now();
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let reads = statements
            .iter()
            .all(|statement| statement.sql.starts_with("select"));
        let behavior = if reads {
            TransactionBehavior::Deferred
        } else {
            TransactionBehavior::Immediate
        };
        let on = connection.transaction_with_behavior(behavior).map_err(failed)?;
        let mut all = Vec::with_capacity(statements.len());
        for Statement {
            sql,
            values,
            must_hit,
        } in statements
        {
            let (rows, hit) =
                run(&on, &sql.replace("{now}", &now).replace('$', "?"), &values).map_err(failed)?;
            if must_hit && !hit {
                return Ok(None);
            }
            all.push(rows);
        }
        on.commit().map_err(failed)?;
        Ok(Some(all))
    }
}

/// Its rows, and whether it hit any.
fn run(on: &Connection, sql: &str, values: &[Value]) -> Result<(Rows, bool), rusqlite::Error> {
    let mut statement = on.prepare(sql)?;
    let given: Vec<&dyn ToSql> = values
        .iter()
        .map(|value| -> &dyn ToSql {
            match value {
                Value::Text(text) => text,
                Value::MaybeText(text) => text,
                Value::Whole(whole) => whole,
                Value::Real(real) => real,
            }
        })
        .collect();
    let columns = statement.column_count();
    if columns == 0 {
        let hit = statement.execute(given.as_slice())?;
        return Ok((Vec::new(), hit > 0));
    }
    let mut found = statement.query(given.as_slice())?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        let columns = (0..columns).map(|at| row.get::<_, Option<String>>(at));
        rows.push(columns.collect::<Result<_, _>>()?);
    }
    let hit = !rows.is_empty();
    Ok((rows, hit))
}
