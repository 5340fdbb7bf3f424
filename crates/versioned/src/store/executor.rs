//! Executors of statements: a store, which takes a connection for each, or the caller's connection or
//! transaction.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyConnection, Connection as _, Transaction};

use super::{Dialect, Store, StoreError, failed};

/// Where the methods of [`Objects`](super::Objects) run their statements.
///
/// It is made from `&Store`, `&mut AnyConnection`, or `&mut Transaction`, and whoever calls gives one of those: what runs in
/// a transaction is committed or rolled back with it, so two objects are written together or not at all.
///
/// ```
/// # use std::sync::Arc;
/// # use serde::{Deserialize, Serialize};
/// # use serde_json::json;
/// # use stagger_versioned::store::{Connect, Kind, Objects, Store, StoreError, Table};
/// # use stagger_versioned::{Chain, Declared, Held, Manifest, Pin, Version, Versioned};
/// # #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
/// # struct Account1_0 { owner: String, cents: i64 }
/// # impl Versioned for Account1_0 {
/// #     const NAME: &'static str = "Account";
/// #     const VERSION: Version = Version::new(1, 0);
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}/x.sqlite?mode=rwc", folder.path().display());
/// # let store = Store::connect(&url, Connect::default()).await?;
/// # sqlx::query("CREATE TABLE accounts (owner TEXT PRIMARY KEY, cents BIGINT, version TEXT)").execute(store.pool()).await?;
/// # let manifest = "current = '1.0'\n[[release]]\nnumber = '1.0'\nnames = ['first']\ndate = '2026-01-01'\napi = '1.0'\nrpc = '1.0'\nobjects = { Account = '1.0' }";
/// # let pin = Pin::none(Arc::new(Manifest::new(toml::from_str::<Declared>(manifest)?)?));
/// let table = Table::new("accounts", &[("owner", Kind::Text)], &[("cents", Kind::Integer)])?;
/// let accounts: Objects<Account1_0> = Objects::new(table, Arc::new(Chain::first()));
/// for (owner, cents) in [("a", 100), ("b", 0)] {
///     accounts.create(&store, &Held::new(Account1_0 { owner: owner.into(), cents }), &pin).await?;
/// }
///
/// let mut transaction = store.begin().await?;
/// for (owner, cents) in [("a", -40), ("b", 40)] {
///     let mut account = accounts.lock(&mut transaction, &[json!(owner)]).await?.ok_or("no such account")?;
///     account.held.value.cents += cents;
///     accounts.save(&mut transaction, &mut account, &pin).await?;
/// }
/// transaction.commit().await?;
/// let b = accounts.get(&store, &[json!("b")]).await?.ok_or("gone")?;
/// assert_eq!(b.held.value.cents, 40);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Executor<'a>(Inner<'a>);

#[derive(Debug)]
enum Inner<'a> {
    Store(&'a Store),
    Connection(&'a mut AnyConnection),
}

/// A connection for some statements.
#[derive(Debug)]
pub(super) enum Lease<'a> {
    /// Of the pool, to which it goes back.
    Own(PoolConnection<Any>),
    /// The caller's.
    Given(&'a mut AnyConnection),
}

impl<'a> From<&'a Store> for Executor<'a> {
    fn from(store: &'a Store) -> Self {
        Self(Inner::Store(store))
    }
}

impl<'a> From<&'a mut AnyConnection> for Executor<'a> {
    fn from(connection: &'a mut AnyConnection) -> Self {
        Self(Inner::Connection(connection))
    }
}

impl<'a> From<&'a mut PoolConnection<Any>> for Executor<'a> {
    fn from(connection: &'a mut PoolConnection<Any>) -> Self {
        Self(Inner::Connection(connection))
    }
}

impl<'a> From<&'a mut Transaction<'_, Any>> for Executor<'a> {
    fn from(transaction: &'a mut Transaction<'_, Any>) -> Self {
        Self(Inner::Connection(transaction))
    }
}

impl<'a> Executor<'a> {
    /// The same once more.
    pub(super) fn reborrow(&mut self) -> Executor<'_> {
        Executor(match &mut self.0 {
            Inner::Store(store) => Inner::Store(store),
            Inner::Connection(connection) => Inner::Connection(connection),
        })
    }

    /// What is to be said to it.
    pub(super) fn dialect(&self) -> Result<Dialect, StoreError> {
        match &self.0 {
            Inner::Store(store) => Ok(store.dialect()),
            Inner::Connection(connection) => {
                let name = connection.backend_name();
                Dialect::of_driver(name).ok_or_else(|| StoreError::NoStore { url: name.to_owned() })
            }
        }
    }

    /// A connection.
    pub(super) async fn connection(self) -> Result<Lease<'a>, StoreError> {
        Ok(match self.0 {
            Inner::Store(store) => Lease::Own(store.connection().await?),
            Inner::Connection(connection) => Lease::Given(connection),
        })
    }
}

impl Deref for Lease<'_> {
    type Target = AnyConnection;
    fn deref(&self) -> &AnyConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Given(connection) => connection,
        }
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut AnyConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Given(connection) => connection,
        }
    }
}

/// A transaction that will write, or a savepoint where one has begun already.
pub(super) async fn begin(
    dialect: Dialect,
    connection: &mut AnyConnection,
) -> Result<Transaction<'_, Any>, StoreError> {
    let begun = match dialect.begin() {
        Some(statement) if !connection.is_in_transaction() => connection.begin_with(statement).await,
        Some(_) | None => connection.begin().await,
    };
    begun.map_err(|error| failed("start a transaction".to_owned(), error))
}
