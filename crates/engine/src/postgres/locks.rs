//! The one-row lease: which process may work on a cluster.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgPool;
use stagger_core::model::ClusterName;

use super::{DatabaseAddress, answer_in_time};
use crate::cluster::{BackendError, LockError, LockRecord};
use crate::store::{Locks, StoreError};

/// The locks of a database.
#[derive(Debug)]
pub struct PostgresLocks {
    pool: PgPool,
    address: DatabaseAddress,
}

impl PostgresLocks {
    /// In the database of a store.
    ///
    /// # Errors
    /// The address is invalid; no connection is made yet.
    pub fn new(address: &DatabaseAddress) -> Result<Self, StoreError> {
        Ok(Self {
            pool: address.pool(2)?,
            address: address.clone(),
        })
    }

    async fn ask<T>(
        &self,
        what: &str,
        asked: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, LockError> {
        answer_in_time(asked).await.map_err(|why| {
            LockError::Backend(BackendError::transient(
                format!("{what} the lock in {}", self.address),
                why,
            ))
        })
    }
}

#[async_trait]
impl Locks for PostgresLocks {
    async fn lock(
        &self,
        cluster: &ClusterName,
        claim: &LockRecord,
        at_least: u64,
        expires: Duration,
    ) -> Result<u64, LockError> {
        let taken: Option<i64> = self
            .ask(
                "take",
                sqlx::query_scalar(
                    "insert into lease (cluster, fence, claim, expires)
                     values ($1, $2 + 1, $3, clock_timestamp() + make_interval(secs => $4))
                     on conflict (cluster) do update set
                       fence = greatest(lease.fence, $2) + 1, claim = excluded.claim,
                       expires = clock_timestamp() + make_interval(secs => $4)
                       where lease.claim is null or lease.expires < clock_timestamp()
                     returning fence",
                )
                .bind(cluster.as_str())
                .bind(at_least.cast_signed())
                .bind(claim.to_json())
                .bind(expires.as_secs_f64())
                .fetch_optional(&self.pool),
            )
            .await?;
        if let Some(fence) = taken {
            return Ok(fence.cast_unsigned());
        }
        let holder: Option<String> = self
            .ask(
                "read",
                sqlx::query_scalar("select claim from lease where cluster = $1 and claim is not null")
                    .bind(cluster.as_str())
                    .fetch_optional(&self.pool),
            )
            .await?;
        Err(LockError::of_holder(holder.as_deref()))
    }

    async fn renew(
        &self,
        cluster: &ClusterName,
        claim: &LockRecord,
        fence: u64,
        expires: Duration,
    ) -> Result<(), LockError> {
        let renewed = self
            .ask(
                "renew",
                sqlx::query(
                    "update lease set expires = clock_timestamp() + make_interval(secs => $4)
                     where cluster = $1 and fence = $2 and claim = $3 and expires > clock_timestamp()",
                )
                .bind(cluster.as_str())
                .bind(fence.cast_signed())
                .bind(claim.to_json())
                .bind(expires.as_secs_f64())
                .execute(&self.pool),
            )
            .await?;
        if renewed.rows_affected() == 0 {
            return Err(LockError::Lost(
                "another has it, or it was renewed too late".to_owned(),
            ));
        }
        Ok(())
    }

    async fn unlock(&self, cluster: &ClusterName, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        self.ask(
            "release",
            sqlx::query("update lease set claim = null where cluster = $1 and fence = $2 and claim = $3")
                .bind(cluster.as_str())
                .bind(fence.cast_signed())
                .bind(claim.to_json())
                .execute(&self.pool),
        )
        .await
        .map(drop)
    }
}
