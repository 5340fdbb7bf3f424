//! Prunes old journals: a takeover reads, and writes to, every journal that exists.

use std::collections::BTreeSet;

use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Map, Value};
use stagger_engine::store::{JournalStore as _, StoreError};

use super::{KubeStore, LABEL, RUN, failed};

impl KubeStore {
    /// Deletes the journals of runs that are over, except the newest `keep`, and chunks that no journal leads
    /// to. First the head forgets a run, then its chunks go, so that a journal is there whole or not at all.
    ///
    /// What a newer holder than `fence` has made stays.
    ///
    /// # Errors
    /// The API server does not answer; the next time it is tried again.
    pub async fn prune(&self, fence: u64, keep: usize) -> Result<(), StoreError> {
        let head = self.head().await?;
        let mut forgotten = Map::new();
        for old in self.runs().await?.iter().skip(keep) {
            if self.is_over(&old.run).await? {
                forgotten.insert(format!("{RUN}{}", old.run), Value::Null);
            }
        }
        if !forgotten.is_empty() {
            let version = head.metadata.resource_version.as_deref();
            if self
                .set(&self.head_name(), version, &Value::Object(forgotten))
                .await?
                .is_none()
            {
                return Ok(());
            }
        }
        let head = self.head().await?;
        let runs: BTreeSet<&str> = head
            .data
            .iter()
            .flatten()
            .filter_map(|(key, _)| key.strip_prefix(RUN))
            .collect();
        let tried = "look for chunks of old journals";
        let of_cluster = ListParams::default().labels(&format!("{LABEL}={}", self.cluster));
        let chunks = self.maps.list_metadata(&of_cluster).await;
        let chunks = chunks.map_err(|error| failed(tried, &error))?;
        for name in chunks.items.iter().map(ResourceExt::name_any) {
            let Some((run, by)) = self.chunk_owner(&name) else {
                continue;
            };
            if by <= fence && !runs.contains(run) {
                match self.maps.delete(&name, &DeleteParams::default()).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(answer)) if answer.code == 404 => {}
                    Err(error) => return Err(failed(&format!("delete ConfigMap {name}"), &error)),
                }
            }
        }
        Ok(())
    }

    /// Of which run a chunk is, and the token of the holder that made it.
    fn chunk_owner<'a>(&self, chunk: &'a str) -> Option<(&'a str, u64)> {
        let rest = chunk.strip_prefix(&self.head_name())?.strip_prefix('-')?;
        let (rest, fence) = rest.rsplit_once('-')?;
        let (run, _first) = rest.rsplit_once('-')?;
        Some((run, fence.parse().ok()?))
    }
}
