//! Kinds of columns: how they store a JSON value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::{Arguments as _, Row as _};

use super::Dialect;

/// What a column holds, and how that is written in JSON.
///
/// What is read is always in one form, that of the table below. A type whose serde form is another one is written, but the
/// column counts as changed at each save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// True or false. `BOOLEAN`.
    Bool,
    /// A whole number of 64 bits. `INTEGER` in SQLite, up to `BIGINT` elsewhere.
    Integer,
    /// `REAL` in SQLite, `DOUBLE PRECISION` in PostgreSQL, `DOUBLE` in MariaDB.
    Real,
    /// `TEXT`, or `VARCHAR`.
    Text,
    /// Anything, as JSON. `TEXT` in SQLite, `JSONB` in PostgreSQL, `JSON` in MariaDB.
    Json,
    /// A point in time, down to microseconds, as text: `"2026-11-28T20:15:00.25Z"`, which is what jiff's `Timestamp` writes;
    /// any offset is read. `TEXT` in SQLite, `TIMESTAMPTZ` in PostgreSQL, `DATETIME(6)` in UTC in MariaDB.
    Timestamp,
    /// A UUID, as text in lower case with hyphens. `TEXT` in SQLite, `UUID` in PostgreSQL, `CHAR(36)` or MariaDB's `UUID`.
    Uuid,
    /// Bytes, as text in base64 with padding. `BLOB` in SQLite and MariaDB, `BYTEA` in PostgreSQL.
    Bytes,
    /// An exact number, as text: `"-12.50"`. `NUMERIC` in PostgreSQL, `DECIMAL(p, s)` in MariaDB, both with the digits after
    /// the point that the column has. `TEXT` in SQLite, which orders it as text: it is no key there.
    Decimal,
}

impl Kind {
    /// How a column is asked for, so that the driver gives it in one of the few types that all databases have.
    pub(super) fn read(self, dialect: Dialect, name: &str) -> String {
        let cast = |to: &str| format!("CAST(\"{name}\" AS {to}) AS \"{name}\"");
        match (self, dialect) {
            (Self::Bool, Dialect::Postgres) => cast("BOOLEAN"),
            (Self::Bool | Self::Integer, _) => dialect.as_integer(&format!("\"{name}\""), name),
            (Self::Real, Dialect::Sqlite) => cast("REAL"),
            (Self::Real, Dialect::Postgres) => cast("DOUBLE PRECISION"),
            (Self::Real, Dialect::Mysql) => cast("DOUBLE"),
            (Self::Timestamp, Dialect::Postgres) => format!(
                "to_char(\"{name}\" AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') AS \"{name}\""
            ),
            (Self::Timestamp, Dialect::Mysql) => {
                format!("DATE_FORMAT(\"{name}\", '%Y-%m-%dT%H:%i:%s.%fZ') AS \"{name}\"")
            }
            (Self::Bytes, _) => format!("\"{name}\""),
            (Self::Text | Self::Json | Self::Timestamp | Self::Uuid | Self::Decimal, _) => {
                dialect.as_text(name)
            }
        }
    }

    /// What stands in a row under that name, or why it cannot be read.
    pub(super) fn value(self, name: &str, from: &AnyRow) -> Result<Value, String> {
        let text = || from.try_get::<Option<String>, _>(name);
        let value = match self {
            // Where it is a number, it is one of 64 bits.
            Self::Bool => match from.try_get::<Option<bool>, _>(name) {
                Ok(value) => Ok(Value::from(value)),
                Err(_) => from
                    .try_get::<Option<i64>, _>(name)
                    .map(|value| value.map_or(Value::Null, |value| Value::Bool(value != 0))),
            },
            Self::Integer => from.try_get::<Option<i64>, _>(name).map(Value::from),
            Self::Real => from.try_get::<Option<f64>, _>(name).map(Value::from),
            Self::Text => text().map(Value::from),
            Self::Bytes => from
                .try_get::<Option<Vec<u8>>, _>(name)
                .map(|bytes| bytes.map_or(Value::Null, |bytes| Value::from(STANDARD.encode(bytes)))),
            Self::Json => {
                return match text().map_err(|error| error.to_string())? {
                    Some(text) => serde_json::from_str(&text).map_err(|error| error.to_string()),
                    None => Ok(Value::Null),
                };
            }
            Self::Timestamp | Self::Uuid | Self::Decimal => {
                return match text().map_err(|error| error.to_string())? {
                    Some(text) => self
                        .canonical(&text)
                        .map(Value::from)
                        .ok_or_else(|| format!("{text:?} is none")),
                    None => Ok(Value::Null),
                };
            }
        };
        value.map_err(|error| error.to_string())
    }

    /// The one form of a text of this kind; `None` if it is none.
    fn canonical(self, text: &str) -> Option<String> {
        match self {
            Self::Timestamp => {
                let time: Timestamp = text.parse().ok()?;
                // No database keeps more.
                Some(
                    Timestamp::from_microsecond(time.as_microsecond())
                        .ok()?
                        .to_string(),
                )
            }
            Self::Uuid => {
                let hyphens = [8, 13, 18, 23];
                let plain = text.len() == 36
                    && text.bytes().enumerate().all(|(at, byte)| {
                        if hyphens.contains(&at) {
                            byte == b'-'
                        } else {
                            byte.is_ascii_hexdigit()
                        }
                    });
                plain.then(|| text.to_ascii_lowercase())
            }
            Self::Decimal => {
                let digits = text.strip_prefix('-').unwrap_or(text);
                let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
                let number =
                    |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                (number(whole) && number(part)).then(|| text.to_owned())
            }
            Self::Bool | Self::Integer | Self::Real | Self::Text | Self::Json | Self::Bytes => None,
        }
    }

    /// Adds the value as an argument; `None` if a column of this kind cannot hold it.
    pub(super) fn add(self, value: &Value, arguments: &mut AnyArguments) -> Option<()> {
        let added = match (self, value) {
            (Self::Bool, Value::Null) => arguments.add(None::<bool>),
            (Self::Bool, Value::Bool(value)) => arguments.add(*value),
            (Self::Integer, Value::Null) => arguments.add(None::<i64>),
            (Self::Integer, Value::Number(value)) => arguments.add(value.as_i64()?),
            (Self::Real, Value::Null) => arguments.add(None::<f64>),
            (Self::Real, Value::Number(value)) => arguments.add(value.as_f64()?),
            (Self::Bytes, Value::Null) => arguments.add(None::<Vec<u8>>),
            (Self::Bytes, Value::String(text)) => arguments.add(STANDARD.decode(text).ok()?),
            (Self::Text | Self::Json | Self::Timestamp | Self::Uuid | Self::Decimal, Value::Null) => {
                arguments.add(None::<String>)
            }
            (Self::Text, Value::String(value)) => arguments.add(value.clone()),
            (Self::Json, value) => arguments.add(value.to_string()),
            // With all its digits, so that a text is ordered as what it means.
            (Self::Timestamp, Value::String(text)) => {
                let time: Timestamp = self.canonical(text)?.parse().ok()?;
                arguments.add(format!("{time:.6}"))
            }
            (Self::Uuid | Self::Decimal, Value::String(text)) => arguments.add(self.canonical(text)?),
            (
                Self::Bool
                | Self::Integer
                | Self::Real
                | Self::Text
                | Self::Timestamp
                | Self::Uuid
                | Self::Bytes
                | Self::Decimal,
                _,
            ) => return None,
        };
        added.ok()
    }

    /// What stands in a statement for an argument of this kind.
    pub(super) fn placeholder(self, dialect: Dialect, place: &str) -> String {
        match (self, dialect) {
            (Self::Json, Dialect::Postgres) => format!("CAST({place} AS JSONB)"),
            (Self::Timestamp, Dialect::Postgres) => format!("CAST({place} AS TIMESTAMPTZ)"),
            // Without its `Z`: a time with an offset would be taken for one of the session's zone.
            (Self::Timestamp, Dialect::Mysql) => {
                format!("CAST(REPLACE({place}, 'Z', '') AS DATETIME(6))")
            }
            (Self::Uuid, Dialect::Postgres) => format!("CAST({place} AS UUID)"),
            (Self::Decimal, Dialect::Postgres) => format!("CAST({place} AS NUMERIC)"),
            // As many digits before the point as after it.
            (Self::Decimal, Dialect::Mysql) => format!("CAST({place} AS DECIMAL(65, 30))"),
            _ => place.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_has_one_form_or_is_refused() {
        for (kind, text, form) in [
            (
                Kind::Timestamp,
                "2026-11-28T21:15:00.2500001+01:00",
                Some("2026-11-28T20:15:00.25Z"),
            ),
            (Kind::Timestamp, "2026-11-28", None),
            (
                Kind::Uuid,
                "0E984725-C51C-4BF4-9960-E1C80E27ABA0",
                Some("0e984725-c51c-4bf4-9960-e1c80e27aba0"),
            ),
            (Kind::Uuid, "0e984725c51c4bf49960e1c80e27aba0", None),
            (Kind::Decimal, "-12.50", Some("-12.50")),
            (Kind::Decimal, "1e3", None),
            (Kind::Decimal, "NaN", None),
            (Kind::Decimal, ".5", None),
        ] {
            assert_eq!(kind.canonical(text).as_deref(), form, "{kind:?} {text}");
            let added = kind.add(&json!(text), &mut AnyArguments::default());
            assert_eq!(added.is_some(), form.is_some(), "{kind:?} {text}");
        }
        for (kind, value) in [
            (Kind::Bytes, json!("not base64!")),
            (Kind::Bytes, json!([1, 2])),
            (Kind::Decimal, json!(1.5)),
            (Kind::Integer, json!("1")),
        ] {
            let added = kind.add(&value, &mut AnyArguments::default());
            assert!(added.is_none(), "{kind:?} {value}");
        }
    }
}
