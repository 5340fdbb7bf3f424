//! In a `PostgreSQL`, beside the journals.

use std::str::FromStr as _;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgPoolOptions, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Column as _, Postgres as Kind, Row as _};

use super::{Database, LedgerError, Rows, Statement, Value};

const SCHEMA: &str = include_str!("../../schema/0001-asks.sql");
/// So long is waited for an answer.
const ANSWER: Duration = Duration::from_secs(20);
/// What makers of the tables wait for, so that one of them works at a time.
const MAKERS: i64 = 0x7374_6167_6765_7232;
/// Now, by the server.
const NOW: &str = "cast(extract(epoch from clock_timestamp()) as double precision)";

/// A database with the tables.
pub(super) struct Postgres {
    pool: PgPool,
    /// Without the password.
    url: String,
}

impl Postgres {
    pub(super) async fn open(url: &str, password: Option<&str>) -> Result<Self, LedgerError> {
        let failed = |why: String| LedgerError::Failed {
            tried: format!("open the asks of {url}"),
            why,
        };
        let mut options = PgConnectOptions::from_str(url).map_err(|error| failed(error.to_string()))?;
        if let Some(password) = password {
            options = options.password(password);
        }
        let options = options.application_name("stagger").options([
            // Writes are durable, whatever the server's default.
            ("synchronous_commit", "on"),
            ("lock_timeout", "15s"),
            ("statement_timeout", "20s"),
        ]);
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .acquire_timeout(ANSWER)
            .connect_lazy_with(options);
        let opened = Self {
            pool,
            url: url.to_owned(),
        };
        opened
            .in_time("open the asks of", async {
                let there: bool = sqlx::query_scalar("select to_regclass('gate_cluster') is not null")
                    .fetch_one(&opened.pool)
                    .await?;
                if there {
                    return Ok(());
                }
                let mut on = opened.pool.begin().await?;
                sqlx::query("select pg_advisory_xact_lock($1)")
                    .bind(MAKERS)
                    .execute(&mut *on)
                    .await?;
                let there: bool = sqlx::query_scalar("select to_regclass('gate_cluster') is not null")
                    .fetch_one(&mut *on)
                    .await?;
                if !there {
                    sqlx::raw_sql(SCHEMA).execute(&mut *on).await?;
                }
                on.commit().await
            })
            .await?;
        Ok(opened)
    }

    async fn in_time<T>(
        &self,
        what: &str,
        asked: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, LedgerError> {
        let failed = |why: String| LedgerError::Failed {
            tried: format!("{what} {}", self.url),
            why,
        };
        match tokio::time::timeout(ANSWER, asked).await {
            Ok(answer) => answer.map_err(|error| failed(error.to_string())),
            Err(_) => Err(failed(format!("it did not answer for {} s", ANSWER.as_secs()))),
        }
    }
}

fn bound(sql: String, values: Vec<Value>) -> Query<'static, Kind, PgArguments> {
    let query = sqlx::query(AssertSqlSafe(sql));
    values.into_iter().fold(query, |query, value| match value {
        Value::Text(text) => query.bind(text),
        Value::MaybeText(text) => query.bind(text),
        Value::Whole(whole) => query.bind(whole),
        Value::Real(real) => query.bind(real),
    })
}

fn columns(row: &PgRow) -> Result<Vec<Option<String>>, sqlx::Error> {
    row.columns()
        .iter()
        .map(|column| row.try_get(column.ordinal()))
        .collect()
}

#[async_trait]
impl Database for Postgres {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    async fn carry_out(
        &self,
        what: &str,
        statements: Vec<Statement>,
    ) -> Result<Option<Vec<Rows>>, LedgerError> {
        self.in_time(what, async {
            let mut on = self.pool.begin().await?;
            let mut all = Vec::with_capacity(statements.len());
            for Statement {
                sql,
                values,
                must_hit,
            } in statements
            {
                let reads = sql.starts_with("select") || sql.contains(" returning ");
                let query = bound(sql.replace("{now}", NOW), values);
                let (rows, hit) = if reads {
                    let rows = query.fetch_all(&mut *on).await?;
                    let rows: Rows = rows.iter().map(columns).collect::<Result<_, _>>()?;
                    let hit = !rows.is_empty();
                    (rows, hit)
                } else {
                    let done = query.execute(&mut *on).await?;
                    (Rows::new(), done.rows_affected() > 0)
                };
                if must_hit && !hit {
                    on.rollback().await?;
                    return Ok(None);
                }
                all.push(rows);
            }
            on.commit().await?;
            Ok(Some(all))
        })
        .await
    }
}
