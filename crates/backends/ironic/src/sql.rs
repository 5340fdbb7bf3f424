//! Queries that work on MariaDB, PostgreSQL and SQLite.

use std::path::Path;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sqlx::any::{AnyArguments, AnyPoolOptions, AnyRow, install_default_drivers};
use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyConnection, AnyPool, Arguments as _, AssertSqlSafe, Connection as _, Transaction};
use stagger_engine::cluster::BackendError;
use stagger_engine::secrets;

/// Which database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Mysql,
    Postgres,
    Sqlite,
}

/// A database that is connected to when it is asked.
#[derive(Debug, Clone)]
pub(crate) struct Sql {
    pool: AnyPool,
    pub(crate) engine: Engine,
    /// The URL without its password.
    shown: String,
    limit: Duration,
}

/// A value in a question.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Text(String),
    Maybe(Option<String>),
    Number(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// The URL with the password of that file in it.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn with_password(url: &str, file: Option<&Path>) -> Result<String, BackendError> {
    let Some(file) = file.filter(|_| url.contains("{password}")) else {
        return Ok(url.to_owned());
    };
    let password = secrets::read(file)
        .map_err(|why| BackendError::permanent(format!("read the password of {url}"), why))?;
    let password = utf8_percent_encode(&password, NON_ALPHANUMERIC).to_string();
    Ok(url.replace("{password}", &password))
}

impl Sql {
    /// One that is read only, or one of ours.
    ///
    /// # Errors
    /// The URL is none.
    pub(crate) fn new(url: &str, reads_only: bool, limit: Duration) -> Result<Self, BackendError> {
        install_default_drivers();
        let engine = match url.split("://").next().unwrap_or_default() {
            "mysql" | "mariadb" => Engine::Mysql,
            "postgres" | "postgresql" => Engine::Postgres,
            _ => Engine::Sqlite,
        };
        let read_only = match engine {
            Engine::Mysql if reads_only => Some("SET SESSION TRANSACTION READ ONLY"),
            Engine::Postgres if reads_only => Some("SET default_transaction_read_only = on"),
            Engine::Sqlite if reads_only => Some("PRAGMA query_only = on"),
            Engine::Mysql | Engine::Postgres | Engine::Sqlite => None,
        };
        let options = AnyPoolOptions::new()
            .max_connections(4)
            // What is left of the limit is for asking what it waited for.
            .acquire_timeout(limit / 2)
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    match read_only {
                        Some(word) => sqlx::query(word).execute(connection).await.map(drop),
                        None => Ok(()),
                    }
                })
            });
        let shown = without_password(url);
        let pool = options.connect_lazy(url).map_err(|error| {
            BackendError::permanent(format!("use the database {shown}"), error.to_string())
        })?;
        Ok(Self {
            pool,
            engine,
            shown,
            limit,
        })
    }

    /// The statement in the words of this database: `?` is the place of a value.
    fn statement(&self, text: &str) -> String {
        use std::fmt::Write as _;
        match self.engine {
            Engine::Mysql | Engine::Sqlite => text.to_owned(),
            Engine::Postgres => {
                let mut parts = text.split('?');
                let mut words = parts.next().unwrap_or_default().to_owned();
                for (at, part) in parts.enumerate() {
                    let _ = write!(words, "${}", at + 1);
                    words.push_str(part);
                }
                words
            }
        }
    }

    fn error(&self, tried: &str, error: &sqlx::Error) -> BackendError {
        let tried = format!("{tried} in {}", self.shown);
        let refused = matches!(error, sqlx::Error::Database(error) if !is_transient(&**error));
        if refused {
            BackendError::permanent(tried, error.to_string())
        } else {
            BackendError::transient(tried, error.to_string())
        }
    }

    /// All rows that it finds.
    ///
    /// # Errors
    /// The database does not answer, or not so.
    pub(crate) async fn fetch(
        &self,
        tried: &str,
        text: &str,
        values: Vec<Value>,
    ) -> Result<Vec<AnyRow>, BackendError> {
        let asked = async {
            let mut connection = self.connection().await?;
            let values = arguments(values)?;
            sqlx::query_with(AssertSqlSafe(self.statement(text)), values)
                .fetch_all(&mut *connection)
                .await
        };
        match tokio::time::timeout(self.limit, asked).await {
            Ok(found) => found.map_err(|error| self.error(tried, &error)),
            Err(_) => Err(self.unreachable(tried)),
        }
    }

    /// One of the pool. It says only that it waited; one of its own says for what.
    async fn connection(&self) -> Result<PoolConnection<Any>, sqlx::Error> {
        match self.pool.acquire().await {
            Err(sqlx::Error::PoolTimedOut) => {
                let own = AnyConnection::connect_with(&self.pool.connect_options()).await?;
                own.close().await?;
                Err(sqlx::Error::PoolTimedOut)
            }
            acquired => acquired,
        }
    }

    fn unreachable(&self, tried: &str) -> BackendError {
        let why = format!("no answer for {} s", self.limit.as_secs());
        BackendError::transient(format!("{tried} in {}", self.shown), why)
    }

    /// Carries statements out, all or none; each must touch as many rows as it says, if it says so. Whether they were.
    ///
    /// # Errors
    /// The database does not answer, or not so. Where the answer was lost it may have carried them out.
    pub(crate) async fn change(&self, tried: &str, statements: Vec<Statement>) -> Result<bool, BackendError> {
        let changed = async {
            let mut connection = self.connection().await?;
            let mut transaction: Transaction<'_, Any> = connection.begin().await?;
            for Statement {
                text,
                values,
                touches,
            } in statements
            {
                let rows = self.execute(&mut transaction, &text, values).await?;
                if touches.is_some_and(|touches| touches != rows) {
                    transaction.rollback().await?;
                    return Ok(false);
                }
            }
            transaction.commit().await?;
            Ok(true)
        };
        match tokio::time::timeout(self.limit, changed).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => {
                let error = self.error(tried, &error);
                Err(
                    if error.retryability == stagger_engine::cluster::Retryability::Transient {
                        error.outcome_unknown()
                    } else {
                        error
                    },
                )
            }
            Err(_) => Err(self.unreachable(tried).outcome_unknown()),
        }
    }

    /// Carries statements out and takes them back, so that nothing is left of them.
    ///
    /// # Errors
    /// The database does not answer, or refuses one of them.
    pub(crate) async fn try_out(&self, tried: &str, statements: Vec<Statement>) -> Result<(), BackendError> {
        let taken_back = async {
            let mut connection = self.connection().await?;
            let mut transaction: Transaction<'_, Any> = connection.begin().await?;
            for Statement { text, values, .. } in statements {
                self.execute(&mut transaction, &text, values).await?;
            }
            transaction.rollback().await
        };
        match tokio::time::timeout(self.limit, taken_back).await {
            Ok(done) => done.map_err(|error| self.error(tried, &error)),
            Err(_) => Err(self.unreachable(tried)),
        }
    }

    async fn execute(
        &self,
        connection: &mut AnyConnection,
        text: &str,
        values: Vec<Value>,
    ) -> Result<u64, sqlx::Error> {
        let values = arguments(values)?;
        let done = sqlx::query_with(AssertSqlSafe(self.statement(text)), values)
            .execute(connection)
            .await?;
        Ok(done.rows_affected())
    }
}

/// A statement that changes something.
#[derive(Debug)]
pub(crate) struct Statement {
    text: String,
    values: Vec<Value>,
    touches: Option<u64>,
}

impl Statement {
    pub(crate) fn new(text: impl Into<String>, values: Vec<Value>) -> Self {
        Self {
            text: text.into(),
            values,
            touches: None,
        }
    }

    /// The same, of which nothing counts unless it touches exactly one row.
    pub(crate) fn exactly_one(text: impl Into<String>, values: Vec<Value>) -> Self {
        Self {
            touches: Some(1),
            ..Self::new(text, values)
        }
    }
}

fn arguments(values: Vec<Value>) -> Result<AnyArguments, sqlx::Error> {
    let mut arguments = AnyArguments::default();
    for value in values {
        let added = match value {
            Value::Text(text) => arguments.add(text),
            Value::Maybe(text) => arguments.add(text),
            Value::Number(number) => arguments.add(number),
        };
        added.map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

/// Whether a refusal is one of a database that is starting, going down, full or busy.
fn is_transient(error: &dyn sqlx::error::DatabaseError) -> bool {
    error.code().is_some_and(|code| {
        // SQLite's busy and locked; PostgreSQL's connection errors and shutdown; MySQL's deadlock and its lock and
        // connection limits.
        matches!(
            code.as_ref(),
            "5" | "6" | "261" | "517" | "53300" | "40001" | "40P01" | "08004" | "HY000"
        ) || code.starts_with("08")
            || code.starts_with("57P")
    })
}

/// A URL as it may be shown: the user, the host and the database. Drivers take passwords as options too.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (user, rest) = match rest.rsplit_once('@') {
        Some((user, rest)) => (
            user.split(':').next().filter(|user| !user.contains(['/', '?'])),
            rest,
        ),
        None => (None, rest),
    };
    let rest = rest.split('?').next().unwrap_or_default();
    match user {
        Some(user) => format!("{scheme}://{user}@{rest}"),
        None => format!("{scheme}://{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_come_from_a_file_and_are_never_shown() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "p@ss word\n").unwrap();
        let may = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&file, may(0o644)).unwrap();
        let error = with_password("mysql://me:{password}@db/ironic", Some(&file)).unwrap_err();
        assert!(error.why.contains("chmod o-rwx"), "{error}");
        std::fs::set_permissions(&file, may(0o600)).unwrap();
        let url = with_password("mysql://me:{password}@db/ironic", Some(&file)).unwrap();
        assert_eq!(url, "mysql://me:p%40ss%20word@db/ironic");
        assert_eq!(without_password(&url), "mysql://me@db/ironic");
        assert_eq!(without_password("mysql://me:a@b@db/x"), "mysql://me@db/x");
        for (url, shown) in [
            ("postgres://db/x?user=me&password=secret", "postgres://db/x"),
            ("postgres://me:a?b@db/x?password=secret", "postgres://me@db/x"),
            ("postgres://db/x?password=a@b", "postgres://b"),
        ] {
            let told = without_password(url);
            assert!(!told.contains("secret") && !told.contains("a@"), "{told}");
            assert_eq!(told, shown);
        }
        assert_eq!(
            with_password("mysql://db/x", Some(&file)).unwrap(),
            "mysql://db/x"
        );
    }

    #[tokio::test]
    async fn who_does_not_answer_is_told_as_the_system_tells_it() {
        let nobody = Sql::new("mysql://me:secret@127.0.0.1:1/x", true, Duration::from_secs(2)).unwrap();
        let asked = nobody.fetch("read", "select 1", Vec::new()).await;
        let error = asked.map(|rows| rows.len()).unwrap_err().to_string();
        assert!(
            error.contains("refused") && error.contains("me@127.0.0.1:1") && !error.contains("secret"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_database_that_is_only_read_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/x.db?mode=rwc", folder.path().display());
        let limit = Duration::from_secs(5);
        let ours = Sql::new(&url, false, limit).unwrap();
        let make = || vec![Statement::new("create table t (a bigint)", Vec::new())];
        assert!(ours.change("make", make()).await.unwrap());
        let theirs = Sql::new(&url, true, limit).unwrap();
        let error = theirs
            .change(
                "write",
                vec![Statement::new("insert into t values (?)", vec![Value::Number(1)])],
            )
            .await
            .unwrap_err();
        assert!(error.why.contains("readonly"), "{error}");
        assert!(
            theirs
                .fetch("read", "select a from t", Vec::new())
                .await
                .unwrap()
                .is_empty()
        );
    }
}
