//! The lock of a cluster in the file of a store.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, params};
use stagger_core::model::ClusterName;

use super::SqliteStore;
use crate::cluster::{BackendError, LockError, LockRecord};
use crate::store::{Locks, StoreError};

/// The locks of a file, for processes of one machine.
#[derive(Debug)]
pub struct SqliteLocks {
    store: SqliteStore,
    path: PathBuf,
}

impl SqliteLocks {
    /// In the file of a store.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            store: SqliteStore::open(path)?,
            path: path.to_owned(),
        })
    }

    fn on<T>(
        &self,
        what: &str,
        ask: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, LockError> {
        ask(&self.store.connection()).map_err(|error| {
            let tried = format!("{what} the lock in {}", self.path.display());
            LockError::Backend(BackendError::transient(tried, error.to_string()))
        })
    }
}

#[async_trait]
impl Locks for SqliteLocks {
    async fn lock(
        &self,
        cluster: &ClusterName,
        claim: &LockRecord,
        at_least: u64,
        expires: Duration,
    ) -> Result<u64, LockError> {
        let taken = self.on("take", |on| {
            on.query_row(
                "insert into lease (cluster, fence, claim, expires)
                 values (?1, ?2 + 1, ?3, unixepoch('now', 'subsec') + ?4)
                 on conflict (cluster) do update set
                   fence = max(lease.fence, ?2) + 1, claim = ?3, expires = unixepoch('now', 'subsec') + ?4
                   where lease.claim is null or lease.expires < unixepoch('now', 'subsec')
                 returning fence",
                params![
                    cluster.as_str(),
                    at_least.cast_signed(),
                    claim.to_json(),
                    expires.as_secs_f64()
                ],
                |row| row.get::<_, i64>(0),
            )
            .optional()
        })?;
        if let Some(fence) = taken {
            return Ok(fence.cast_unsigned());
        }
        let holder: Option<String> = self.on("read", |on| {
            on.query_row(
                "select claim from lease where cluster = ?1",
                [cluster.as_str()],
                |row| row.get(0),
            )
        })?;
        Err(LockError::of_holder(holder.as_deref()))
    }

    async fn renew(
        &self,
        cluster: &ClusterName,
        claim: &LockRecord,
        fence: u64,
        expires: Duration,
    ) -> Result<(), LockError> {
        let renewed = self.on("renew", |on| {
            on.execute(
                "update lease set expires = unixepoch('now', 'subsec') + ?4
                 where cluster = ?1 and fence = ?2 and claim = ?3 and expires > unixepoch('now', 'subsec')",
                params![
                    cluster.as_str(),
                    fence.cast_signed(),
                    claim.to_json(),
                    expires.as_secs_f64()
                ],
            )
        })?;
        if renewed == 0 {
            return Err(LockError::Lost(
                "another has it, or it was renewed too late".to_owned(),
            ));
        }
        Ok(())
    }

    async fn unlock(&self, cluster: &ClusterName, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.on("release", |on| {
            on.execute(
                "update lease set claim = null where cluster = ?1 and fence = ?2 and claim = ?3",
                params![cluster.as_str(), fence.cast_signed(), claim.to_json()],
            )
        })
        .map(|_| ())
    }
}
