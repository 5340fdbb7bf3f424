//! Tables: their columns, and how these store JSON values.

use serde_json::{Map, Value};
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::{Arguments as _, Row as _};

use super::{Dialect, Engine, Kind, Sql};
use crate::{Row, Version};

/// A column of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    name: String,
    kind: Kind,
}

/// A table that keeps objects: a column for each field of every version that may stand in it, and one for the version.
///
/// Types of objects must not refuse unknown fields: a row has the columns of all versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    name: String,
    key: Vec<Column>,
    columns: Vec<Column>,
    version: String,
    revision: Option<String>,
}

/// A table, or a value for it, that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A name that would have to be escaped.
    #[error(
        "{name:?} is no name of a table or a column: use letters, digits and _, not beginning with a digit"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The table has no column for a field.
    #[error(
        "{table} has no column for the field {field:?}: add it to the schema and to the table before code writes it"
    )]
    NoColumn {
        /// The table.
        table: String,
        /// The field.
        field: String,
    },
    /// A value that the column cannot hold.
    #[error("{table}.{column} is {kind:?}, and cannot hold {value}")]
    Value {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// What the column holds.
        kind: Kind,
        /// The value.
        value: Value,
    },
    /// A column holds what it should not.
    #[error("{table}.{column} cannot be read as {kind:?}: {why}")]
    Read {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// What the column should hold.
        kind: Kind,
        /// What the driver says.
        why: String,
    },
    /// A key with too few or too many parts.
    #[error("the key of {table} has {wants} parts, not {got}")]
    Key {
        /// The table.
        table: String,
        /// How many parts the key has.
        wants: usize,
        /// How many were given.
        got: usize,
    },
}

impl Table {
    /// A table with its key, of one column or of several, which is among the fields of the object. The version stands in the
    /// column `version`.
    pub fn new(name: &str, key: &[(&str, Kind)], columns: &[(&str, Kind)]) -> Result<Self, TableError> {
        let column = |(name, kind): &(&str, Kind)| {
            Ok(Column {
                name: checked(name)?,
                kind: *kind,
            })
        };
        Ok(Self {
            name: checked(name)?,
            key: key.iter().map(column).collect::<Result<_, _>>()?,
            columns: columns.iter().map(column).collect::<Result<_, _>>()?,
            version: "version".to_owned(),
            revision: None,
        })
    }

    /// Another column for the version.
    pub fn version_in(mut self, column: &str) -> Result<Self, TableError> {
        self.version = checked(column)?;
        Ok(self)
    }

    /// A column, `BIGINT NOT NULL DEFAULT 0`, that grows with each write. Two writers of one row then never overwrite each
    /// other; without it they do not in what they did not change, and the later one wins in what both changed.
    pub fn revision_in(mut self, column: &str) -> Result<Self, TableError> {
        self.revision = Some(checked(column)?);
        Ok(self)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The column of the version.
    pub fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    /// A key as it is shown.
    pub(crate) fn key_text(&self, key: &[Value]) -> String {
        let parts = self
            .key
            .iter()
            .zip(key)
            .map(|(column, value)| format!("{}={value}", column.name));
        parts.collect::<Vec<_>>().join(" ")
    }

    /// The parts of the key among these fields.
    pub(crate) fn key_of(&self, fields: &Map<String, Value>) -> Vec<Value> {
        let part = |column: &Column| fields.get(&column.name).cloned().unwrap_or(Value::Null);
        self.key.iter().map(part).collect()
    }

    pub(crate) fn column(&self, field: &str) -> Result<&Column, TableError> {
        let all = self.key.iter().chain(&self.columns);
        all.clone()
            .find(|column| column.name == field)
            .ok_or_else(|| TableError::NoColumn {
                table: self.name.clone(),
                field: field.to_owned(),
            })
    }

    /// The names of the key's columns.
    pub(crate) fn key_columns(&self) -> impl Iterator<Item = &str> + Clone {
        self.key.iter().map(Column::name)
    }

    /// `"a", "b"`.
    pub(crate) fn key_list(&self) -> String {
        let names = self.key.iter().map(|column| format!("\"{}\"", column.name));
        names.collect::<Vec<_>>().join(", ")
    }

    /// `"t"."a", "t"."b"`: in an order the column, not what a select makes of it under the same name, or no index would be used.
    pub(crate) fn in_order(&self) -> String {
        let names = self
            .key
            .iter()
            .map(|column| format!("\"{}\".\"{}\"", self.name, column.name));
        names.collect::<Vec<_>>().join(", ")
    }

    /// `SELECT … FROM "table"`, with all columns that [`Table::row`] and [`Objects::read`](super::Objects::read) need. What
    /// you add to it is yours: `WHERE`, `ORDER BY`, `LIMIT`. Names stand in double quotes, in all databases.
    pub fn select(&self, engine: Engine) -> String {
        self.selection(engine.into())
    }

    pub(crate) fn selection(&self, dialect: Dialect) -> String {
        let all = self.key.iter().chain(&self.columns);
        let mut parts: Vec<String> = all.map(|column| column.read(dialect)).collect();
        parts.push(dialect.as_text(&self.version));
        parts.extend(
            self.revision
                .iter()
                .map(|name| dialect.as_integer(&format!("\"{name}\""), name)),
        );
        format!("SELECT {} FROM \"{}\"", parts.join(", "), self.name)
    }

    pub(crate) fn selected_key(&self, dialect: Dialect) -> String {
        let parts: Vec<String> = self.key.iter().map(|column| column.read(dialect)).collect();
        parts.join(", ")
    }

    /// A row that [`Table::select`] gave: the version in which it is to be read, and its fields. A version that is none is no
    /// error here: it is absent.
    pub fn row(&self, from: &AnyRow) -> Result<Row, TableError> {
        self.row_and_version(from).map(|(row, _)| row)
    }

    /// A row; the version as it stands there, which may be no version at all.
    pub(crate) fn row_and_version(&self, from: &AnyRow) -> Result<(Row, Option<String>), TableError> {
        let mut fields = Map::new();
        for column in self.key.iter().chain(&self.columns) {
            fields.insert(column.name.clone(), self.value(column, from)?);
        }
        let unreadable = |column: &str, error: sqlx::Error| TableError::Read {
            table: self.name.clone(),
            column: column.to_owned(),
            kind: Kind::Text,
            why: error.to_string(),
        };
        if let Some(revision) = &self.revision {
            let value: Option<i64> = from
                .try_get(revision.as_str())
                .map_err(|error| unreadable(revision, error))?;
            fields.insert(revision.clone(), value.into());
        }
        let text: Option<String> = from
            .try_get(self.version.as_str())
            .map_err(|error| unreadable(&self.version, error))?;
        let version: Option<Version> = text.as_deref().and_then(|text| text.parse().ok());
        Ok((Row { version, fields }, text))
    }

    /// The key of a row of which at least that was selected.
    pub(crate) fn key_from(&self, from: &AnyRow) -> Result<Vec<Value>, TableError> {
        self.key.iter().map(|column| self.value(column, from)).collect()
    }

    fn value(&self, column: &Column, from: &AnyRow) -> Result<Value, TableError> {
        let value = column.kind.value(&column.name, from);
        value.map_err(|why| TableError::Read {
            table: self.name.clone(),
            column: column.name.clone(),
            kind: column.kind,
            why,
        })
    }

    /// Adds a value of that field to the arguments of a statement of yours, and gives what to write in its place: `$3`, or
    /// `CAST($3 AS JSONB)`. The arguments must be bound in the order in which they were added.
    ///
    /// ```
    /// use stagger_versioned::store::{Engine, Kind, Table};
    ///
    /// let table = Table::new("items", &[("sku", Kind::Text)], &[("facts", Kind::Json)])?;
    /// let mut arguments = sqlx::any::AnyArguments::default();
    /// let facts = table.bind(Engine::Postgres, &mut arguments, "facts", &serde_json::json!({"color": "red"}))?;
    /// let sql = format!("{} WHERE facts @> {facts} ORDER BY sku LIMIT 20", table.select(Engine::Postgres));
    /// assert!(sql.ends_with("WHERE facts @> CAST($1 AS JSONB) ORDER BY sku LIMIT 20"));
    /// // sqlx::query_with(sqlx::AssertSqlSafe(sql), arguments).fetch_all(store.pool())
    /// # Ok::<(), stagger_versioned::store::TableError>(())
    /// ```
    pub fn bind(
        &self,
        engine: Engine,
        arguments: &mut AnyArguments,
        field: &str,
        value: &Value,
    ) -> Result<String, TableError> {
        self.bound(engine.into(), arguments, self.column(field)?, value)
    }

    fn bound(
        &self,
        dialect: Dialect,
        arguments: &mut AnyArguments,
        column: &Column,
        value: &Value,
    ) -> Result<String, TableError> {
        let added = column.kind.add(value, arguments);
        added.ok_or_else(|| TableError::Value {
            table: self.name.clone(),
            column: column.name.clone(),
            kind: column.kind,
            value: value.clone(),
        })?;
        Ok(column
            .kind
            .placeholder(dialect, &dialect.argument(arguments.len())))
    }

    /// Adds the place of a value to a statement.
    pub(crate) fn push(&self, sql: &mut Sql, column: &Column, value: &Value) -> Result<(), TableError> {
        let text = self.bound(sql.dialect, sql.arguments(), column, value)?;
        sql.push(&text);
        Ok(())
    }

    /// Adds ` WHERE key = …`.
    pub(crate) fn where_key(&self, sql: &mut Sql, key: &[Value]) -> Result<(), TableError> {
        self.key_parts(key)?;
        for (at, (column, value)) in self.key.iter().zip(key).enumerate() {
            sql.push(if at == 0 { " WHERE " } else { " AND " });
            sql.push(&format!("\"{}\" = ", column.name));
            self.push(sql, column, value)?;
        }
        Ok(())
    }

    /// Adds `(a, b) > (…)`, or another comparison.
    pub(crate) fn beside_key(&self, sql: &mut Sql, compared: &str, key: &[Value]) -> Result<(), TableError> {
        sql.push(&format!("({}) {compared} ", self.key_list()));
        self.push_key(sql, key)
    }

    /// Adds `(…)` with the parts of a key.
    pub(crate) fn push_key(&self, sql: &mut Sql, key: &[Value]) -> Result<(), TableError> {
        self.key_parts(key)?;
        for (at, (column, value)) in self.key.iter().zip(key).enumerate() {
            sql.push(if at == 0 { "(" } else { ", " });
            self.push(sql, column, value)?;
        }
        sql.push(")");
        Ok(())
    }

    fn key_parts(&self, key: &[Value]) -> Result<(), TableError> {
        if key.len() == self.key.len() {
            return Ok(());
        }
        Err(TableError::Key {
            table: self.name.clone(),
            wants: self.key.len(),
            got: key.len(),
        })
    }
}

impl Column {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How it is asked for.
    fn read(&self, dialect: Dialect) -> String {
        self.kind.read(dialect, &self.name)
    }
}

fn checked(name: &str) -> Result<String, TableError> {
    let plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let starts = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    if plain && starts {
        Ok(name.to_owned())
    } else {
        Err(TableError::Name {
            name: name.to_owned(),
        })
    }
}
