//! The lock in the cluster, kept in the monitors' `config-key` store.
//!
//! The store has no compare-and-set, so each contender writes a key of its own and then reads all keys. A
//! contender that sees another live claim removes its own and gives up. Two can never both continue: each
//! would have read before the other wrote, and after writing itself. The monitors order all writes by Paxos
//! and answer reads from a state no older than the last acknowledged write.
//!
//! Whether a claim is live is decided without comparing clocks of different hosts: a holder changes its claim
//! at each renewal, and a contender removes a claim only after it has watched it unchanged for longer than
//! its lifetime.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;
use stagger_core::model::ClusterId;
use stagger_engine::cluster::{Anchor, BackendError, Holder, LockError, LockRecord};
use stagger_engine::liveness::Liveness;

use crate::api::{CephApi, QueryTarget};
use crate::effects::api_error;

const PREFIX: &str = "stagger/lock/";
const FENCE: &str = "stagger/fence";
const ANCHOR: &str = "stagger/anchor";

/// A claim as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    #[serde(flatten)]
    claim: LockRecord,
    fence: u64,
    /// Grows with each renewal.
    beat: u64,
    /// How long after a renewal it may be taken over, in seconds.
    expires: u64,
}

/// Takes, renews and gives back the lock.
#[derive(Debug)]
pub(crate) struct ConfigKeyLock {
    expires: Duration,
    beat: std::sync::atomic::AtomicU64,
}

impl ConfigKeyLock {
    pub(crate) fn new(expires: Duration) -> Self {
        Self {
            expires,
            beat: std::sync::atomic::AtomicU64::new(0),
        }
    }

    pub(crate) fn expires(&self) -> Duration {
        self.expires
    }

    pub(crate) async fn take(
        &self,
        api: &dyn CephApi,
        claim: &LockRecord,
        at_least: u64,
    ) -> Result<u64, LockError> {
        // Those that were there before us: who of them still lives shows within their own time.
        let mut fence = at_least.max(stored_fence(api).await?);
        let before = claims(api).await?;
        let mut watched: BTreeMap<String, (Written, Instant)> = before
            .into_iter()
            .map(|(key, written)| (key, (written, Instant::now())))
            .collect();
        while !watched.is_empty() {
            let now = claims(api).await?;
            watched.retain(|key, _| now.contains_key(key));
            for (key, (seen, since)) in &mut watched {
                let Some(current) = now.get(key) else { continue };
                fence = fence.max(current.fence);
                if current != seen {
                    return Err(LockError::Held(Box::new(current.claim.clone())));
                }
                // What has provably ended renews nothing any more: there is nothing to watch.
                let gone = current.claim.pulse() == Liveness::Gone;
                if gone || since.elapsed() > Duration::from_secs(current.expires) {
                    remove(api, key).await?;
                }
            }
            let waits = watched
                .values()
                .any(|(seen, _)| seen.claim.pulse() != Liveness::Gone);
            if waits {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
        fence = fence.max(stored_fence(api).await?) + 1;
        self.write(api, claim, fence).await?;
        let others: Vec<Written> = claims(api)
            .await?
            .into_values()
            .filter(|other| other.claim.incarnation != claim.incarnation)
            .collect();
        if let Some(other) = others.into_iter().next() {
            remove(api, &key_of(claim)).await?;
            return Err(LockError::Held(Box::new(other.claim)));
        }
        // Another may have taken and given back the lock between our reading of the token and our claim.
        let seen = stored_fence(api).await?;
        if seen >= fence {
            fence = seen + 1;
            self.write(api, claim, fence).await?;
        }
        set(api, FENCE, &fence.to_string()).await?;
        Ok(fence)
    }

    /// Says that the holder lives. One who was away so long that another took over gives way.
    pub(crate) async fn renew(
        &self,
        api: &dyn CephApi,
        claim: &LockRecord,
        fence: u64,
    ) -> Result<(), LockError> {
        let all = claims(api).await?;
        let newest = stored_fence(api).await?;
        let other = all
            .values()
            .find(|other| other.claim.incarnation != claim.incarnation && other.fence > fence);
        if let Some(other) = other {
            remove(api, &key_of(claim)).await?;
            return Err(LockError::Held(Box::new(other.claim.clone())));
        }
        if newest > fence {
            return Err(LockError::Lost(format!(
                "the cluster has seen the fencing token {newest}, ours is {fence}"
            )));
        }
        if !all.contains_key(&key_of(claim)) {
            return Err(LockError::Lost(
                "another process removed our claim: it was not renewed".to_owned(),
            ));
        }
        self.write(api, claim, fence).await
    }

    pub(crate) async fn release(&self, api: &dyn CephApi, claim: &LockRecord) -> Result<(), LockError> {
        remove(api, &key_of(claim)).await
    }

    /// Whose claim stands there now: that with the newest token.
    pub(crate) async fn holder(api: &dyn CephApi) -> Result<Option<Holder>, LockError> {
        let newest = claims(api)
            .await?
            .into_values()
            .max_by_key(|written| written.fence);
        Ok(newest.map(|Written { claim, expires, .. }| Holder {
            claim,
            expires: Duration::from_secs(expires),
        }))
    }

    async fn write(&self, api: &dyn CephApi, claim: &LockRecord, fence: u64) -> Result<(), LockError> {
        let beat = self.beat.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let written = Written {
            claim: claim.clone(),
            fence,
            beat,
            expires: self.expires.as_secs(),
        };
        let text = serde_json::to_string(&written).map_err(|error| {
            LockError::Backend(BackendError::permanent("write the lock", error.to_string()))
        })?;
        set(api, &key_of(claim), &text).await
    }
}

/// Keeps where a journal stands. The key outlives the lock.
pub(crate) async fn anchor(api: &dyn CephApi, anchor: &Anchor) -> Result<(), LockError> {
    let text = serde_json::to_string(anchor).map_err(|error| {
        LockError::Backend(BackendError::permanent("anchor the journal", error.to_string()))
    })?;
    set(api, ANCHOR, &text).await
}

/// Where the journal of the last holder stood.
pub(crate) async fn anchored(api: &dyn CephApi) -> Result<Option<Anchor>, LockError> {
    let keys = dump(api, ANCHOR).await?;
    let Some(text) = keys.get(ANCHOR) else {
        return Ok(None);
    };
    serde_json::from_str(text).map(Some).map_err(|error| {
        LockError::Backend(
            BackendError::permanent(format!("read {ANCHOR}"), error.to_string()).hint(format!(
                "if no journal was restored, `ceph config-key rm {ANCHOR}` takes it away"
            )),
        )
    })
}

/// The cluster's own identity, which is in its map of monitors.
pub(crate) async fn identity(api: &dyn CephApi) -> Result<ClusterId, BackendError> {
    const TRIED: &str = "ask the cluster which it is";
    #[derive(Deserialize)]
    struct Quorum {
        monmap: Map,
    }
    #[derive(Deserialize)]
    struct Map {
        fsid: String,
    }
    let out = api
        .ask(QueryTarget::Mon, json!({ "prefix": "quorum_status" }))
        .await
        .map_err(|error| api_error(TRIED, &error))?;
    let unread = |why: String| BackendError::transient(TRIED, why);
    let quorum: Quorum = serde_json::from_slice(&out).map_err(|error| unread(error.to_string()))?;
    ClusterId::new(quorum.monmap.fsid).map_err(|error| unread(error.to_string()))
}

fn key_of(claim: &LockRecord) -> String {
    format!("{PREFIX}{}", claim.incarnation)
}

async fn set(api: &dyn CephApi, key: &str, value: &str) -> Result<(), LockError> {
    let command = json!({ "prefix": "config-key set", "key": key, "val": value });
    api.ask(QueryTarget::Mon, command)
        .await
        .map(|_| ())
        .map_err(|e| LockError::Backend(api_error(&format!("set {key}"), &e)))
}

async fn remove(api: &dyn CephApi, key: &str) -> Result<(), LockError> {
    let command = json!({ "prefix": "config-key rm", "key": key });
    api.ask(QueryTarget::Mon, command)
        .await
        .map(|_| ())
        .map_err(|e| LockError::Backend(api_error(&format!("remove {key}"), &e)))
}

async fn dump(api: &dyn CephApi, prefix: &str) -> Result<BTreeMap<String, String>, LockError> {
    let command = json!({ "prefix": "config-key dump", "key": prefix });
    let tried = format!("read the keys below {prefix}");
    let out = api
        .ask(QueryTarget::Mon, command)
        .await
        .map_err(|e| LockError::Backend(api_error(&tried, &e)))?;
    serde_json::from_slice(&out)
        .map_err(|e| LockError::Backend(BackendError::transient(tried, e.to_string())))
}

async fn stored_fence(api: &dyn CephApi) -> Result<u64, LockError> {
    let keys = dump(api, FENCE).await?;
    let Some(text) = keys.get(FENCE) else { return Ok(0) };
    text.trim().parse().map_err(|_| {
        let why = format!("{text:?} is not a number");
        LockError::Backend(
            BackendError::permanent(format!("read {FENCE}"), why)
                .hint("set it to a number larger than any that a run of this cluster has shown"),
        )
    })
}

async fn claims(api: &dyn CephApi) -> Result<BTreeMap<String, Written>, LockError> {
    let mut found = BTreeMap::new();
    for (key, text) in dump(api, PREFIX).await? {
        let written = serde_json::from_str(&text).map_err(|e| {
            LockError::Backend(
                BackendError::permanent(format!("read the lock {key}"), e.to_string()).hint(format!(
                    "if no stagger is running, `ceph config-key rm {key}` removes it"
                )),
            )
        })?;
        found.insert(key, written);
    }
    Ok(found)
}
