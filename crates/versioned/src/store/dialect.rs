//! Differences between the databases.

use super::Engine;

/// What is said to a database. Names stand in double quotes in all of them: connections to MariaDB and MySQL are told that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// A file.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MariaDB and MySQL.
    Mysql,
}

/// What a transaction does about rows that somebody else is writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// It waits until they are written.
    ForAll,
    /// It leaves them out.
    ForNone,
    /// It waits when it writes them.
    Later,
}

impl Dialect {
    /// That of a driver, by the name that it gives itself.
    pub(super) fn of_driver(name: &str) -> Option<Self> {
        match name {
            "SQLite" => Some(Self::Sqlite),
            "PostgreSQL" => Some(Self::Postgres),
            "MySQL" => Some(Self::Mysql),
            _ => None,
        }
    }

    /// The place of the argument of that number, counted from 1.
    pub(super) fn argument(self, number: usize) -> String {
        match self {
            Self::Sqlite | Self::Postgres => format!("${number}"),
            Self::Mysql => "?".to_owned(),
        }
    }

    /// A column as text, under its own name.
    pub(super) fn as_text(self, column: &str) -> String {
        let text = match self {
            Self::Sqlite | Self::Postgres => "TEXT",
            Self::Mysql => "CHAR",
        };
        format!("CAST(\"{column}\" AS {text}) AS \"{column}\"")
    }

    /// A number of 64 bits.
    pub(super) fn as_integer(self, expression: &str, name: &str) -> String {
        let integer = match self {
            Self::Sqlite => "INTEGER",
            Self::Postgres => "BIGINT",
            Self::Mysql => "SIGNED",
        };
        format!("CAST({expression} AS {integer}) AS \"{name}\"")
    }

    /// Equal, or both `NULL`.
    pub(super) fn is_same(self) -> &'static str {
        match self {
            Self::Sqlite | Self::Postgres => "IS NOT DISTINCT FROM",
            Self::Mysql => "<=>",
        }
    }

    /// The end of a select of rows that will be written. In SQLite whoever is in a transaction that writes is alone.
    pub(super) fn lock(self, wait: Wait) -> &'static str {
        match (self, wait) {
            (Self::Sqlite, _) | (_, Wait::Later) => "",
            (Self::Postgres, Wait::ForAll) => " FOR NO KEY UPDATE",
            (Self::Postgres, Wait::ForNone) => " FOR NO KEY UPDATE SKIP LOCKED",
            (Self::Mysql, Wait::ForAll) => " FOR UPDATE",
            (Self::Mysql, Wait::ForNone) => " FOR UPDATE SKIP LOCKED",
        }
    }

    /// Whether a statement that fails makes all that follow fail, until the transaction is rolled back.
    pub(super) fn fails_as_a_whole(self) -> bool {
        self == Self::Postgres
    }

    /// How a transaction begins that will write.
    pub(super) fn begin(self) -> Option<&'static str> {
        // A transaction that reads first and then writes fails in SQLite when another has written in between.
        (self == Self::Sqlite).then_some("BEGIN IMMEDIATE")
    }

    /// What the database says of one row that it does not take: too long, there twice, against a check.
    pub(super) fn refused_row(self, error: &sqlx::Error) -> Option<&str> {
        let sqlx::Error::Database(error) = error else {
            return None;
        };
        let code = error.code()?;
        let of_a_row = match self {
            // Data, constraints, limits, views, and what a trigger raises.
            Self::Postgres => ["22", "23", "54", "44", "P0001"]
                .iter()
                .any(|class| code.starts_with(class)),
            // Too big, constraints, the wrong type; what is above the lowest byte only says more of it.
            Self::Sqlite => code
                .parse::<u32>()
                .is_ok_and(|code| matches!(code & 0xff, 18..=20)),
            // Data, constraints, views, and what a trigger raises.
            Self::Mysql => ["22", "23", "44", "45"]
                .iter()
                .any(|class| code.starts_with(class)),
        };
        of_a_row.then(|| error.message())
    }

    /// Whether the transaction was ended for another one, which it and this one would have waited for in a circle.
    pub(super) fn was_a_deadlock(self, error: &sqlx::Error) -> bool {
        match self {
            Self::Sqlite => false,
            Self::Postgres => is_code(error, "40P01"),
            Self::Mysql => is_code(error, "40001"),
        }
    }
}

impl From<Engine> for Dialect {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Sqlite => Self::Sqlite,
            Engine::Postgres => Self::Postgres,
            #[cfg(feature = "mysql")]
            Engine::Mysql => Self::Mysql,
        }
    }
}

/// Whether the database says that code.
pub(super) fn is_code(error: &sqlx::Error, code: &str) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    error.code().is_some_and(|found| found == code)
}
