//! Statements with their arguments.

use std::fmt;

use sqlx::any::{AnyArguments, AnyRow};
use sqlx::{AnyConnection, Arguments as _, AssertSqlSafe};

use super::{Dialect, StoreError};

/// A statement with its arguments, in the order in which they are bound.
pub(crate) struct Sql {
    pub(super) dialect: Dialect,
    text: String,
    arguments: AnyArguments,
}

impl Sql {
    pub(crate) fn new(dialect: Dialect, text: impl Into<String>) -> Self {
        Self {
            dialect,
            text: text.into(),
            arguments: AnyArguments::default(),
        }
    }

    pub(crate) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    pub(super) fn arguments(&mut self) -> &mut AnyArguments {
        &mut self.arguments
    }

    /// Adds an argument and its place.
    pub(super) fn bind_text(&mut self, text: Option<String>) -> Result<(), StoreError> {
        let added = self.arguments.add(text);
        self.bound(added)
    }

    /// The same for a number.
    pub(super) fn bind_integer(&mut self, number: Option<i64>) -> Result<(), StoreError> {
        let added = self.arguments.add(number);
        self.bound(added)
    }

    fn bound(&mut self, added: Result<(), sqlx::error::BoxDynError>) -> Result<(), StoreError> {
        added.map_err(|error| StoreError::Refused {
            what: "bind an argument".to_owned(),
            source: sqlx::Error::Protocol(error.to_string()),
        })?;
        let place = self.dialect.argument(self.arguments.len());
        self.push(&place);
        Ok(())
    }

    /// Carries it out; how many rows it touched.
    pub(crate) async fn execute(self, connection: &mut AnyConnection) -> Result<u64, sqlx::Error> {
        let Self { text, arguments, .. } = self;
        let done = sqlx::query_with(AssertSqlSafe(text), arguments)
            .execute(connection)
            .await?;
        Ok(done.rows_affected())
    }

    /// All that it finds.
    pub(crate) async fn fetch(self, connection: &mut AnyConnection) -> Result<Vec<AnyRow>, sqlx::Error> {
        let Self { text, arguments, .. } = self;
        sqlx::query_with(AssertSqlSafe(text), arguments)
            .fetch_all(connection)
            .await
    }
}

impl fmt::Debug for Sql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
