//! The address of a database, and its credentials.

use std::fmt;
use std::str::FromStr as _;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use crate::store::StoreError;

/// The address of a database, and its credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseAddress {
    url: String,
    /// With the password; never shown.
    secret: String,
}

/// An address that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Of another kind.
    #[error("{0:?} is no store: write postgres://USER@HOST/DATABASE")]
    NoAddress(String),
    /// Configurations are read by many.
    #[error("the URL of the store has a password in it: name a file with `password_file`, or set PGPASSWORD")]
    Password,
    /// The driver does not understand it.
    #[error("{url:?} is no store: {why}")]
    Refused {
        /// The URL.
        url: String,
        /// What the driver says.
        why: String,
    },
}

impl DatabaseAddress {
    /// From a URL without a password, and the password. Without one, the environment is used (`PGPASSWORD`,
    /// `PGPASSFILE`).
    ///
    /// # Errors
    /// It is no PostgreSQL address, or has a password in it.
    pub fn new(url: &str, password: Option<&str>) -> Result<Self, AddressError> {
        let Some((scheme @ ("postgres" | "postgresql"), rest)) = url.split_once("://") else {
            return Err(AddressError::NoAddress(before_a_password(url)));
        };
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        if user.contains(':') || tail.contains("password=") {
            return Err(AddressError::Password);
        }
        let secret = match password {
            None => url.to_owned(),
            Some(password) => format!(
                "{scheme}://{user}:{}@{host}{tail}",
                utf8_percent_encode(password, NON_ALPHANUMERIC)
            ),
        };
        PgConnectOptions::from_str(&secret).map_err(|error| AddressError::Refused {
            url: url.to_owned(),
            why: error.to_string(),
        })?;
        Ok(Self {
            url: url.to_owned(),
            secret,
        })
    }

    /// With the password: for drivers only.
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    pub(super) fn pool(&self, connections: u32) -> Result<PgPool, StoreError> {
        let options = PgConnectOptions::from_str(&self.secret).map_err(|error| self.failed("open", error))?;
        let options = options.application_name("stagger").options([
            // Writes are durable, whatever the server's default.
            ("synchronous_commit", "on"),
            ("statement_timeout", "30s"),
            ("idle_in_transaction_session_timeout", "10s"),
        ]);
        Ok(PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(Duration::from_secs(10))
            .connect_lazy_with(options))
    }

    pub(super) fn failed(&self, what: &str, why: impl fmt::Display) -> StoreError {
        StoreError::Failed {
            tried: format!("{what} the store {}", self.url),
            why: why.to_string(),
        }
    }
}

impl fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl fmt::Debug for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// An invalid URL may begin like a valid one.
fn before_a_password(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_neither_taken_from_the_url_nor_shown() {
        let address =
            DatabaseAddress::new("postgres://anna@db/stagger?sslmode=require", Some("p@ss:w/rd")).unwrap();
        assert_eq!(format!("{address} {address:?}").matches("p@ss").count(), 0);
        assert!(!format!("{address:?}").contains("%40"));
        let options = PgConnectOptions::from_str(address.secret()).unwrap();
        assert_eq!((options.get_host(), options.get_username()), ("db", "anna"));
        for bad in [
            "postgres://anna:secret@db/stagger",
            "postgres://db/stagger?user=a&password=secret",
        ] {
            let error = DatabaseAddress::new(bad, None).unwrap_err();
            assert_eq!(error, AddressError::Password);
            assert!(!error.to_string().contains("secret"));
        }
        for bad in ["mysql://anna:secret@db/stagger", "journal.db", ""] {
            let error = DatabaseAddress::new(bad, None).unwrap_err().to_string();
            assert!(
                error.contains("write postgres://") && !error.contains("secret"),
                "{error}"
            );
        }
    }
}
