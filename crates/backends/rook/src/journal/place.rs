//! Journals in the ConfigMaps of an API server, as the laws of stores reach them: a fake one in tests of this crate, and a real
//! one in `e2e`, which includes this file.
#![allow(clippy::unwrap_used, reason = "test code")]

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use stagger_conformance::store::{Damage, StorePlace};
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::Seq;

use super::{CommandQueue, KubeStore};

/// The ConfigMaps of a namespace.
pub(super) struct ConfigMaps {
    client: Client,
    namespace: &'static str,
}

impl ConfigMaps {
    /// Those of that one.
    pub(super) fn of(client: Client, namespace: &'static str) -> Self {
        Self { client, namespace }
    }
}

impl StorePlace for ConfigMaps {
    type Store = KubeStore;
    const CLUSTERS: u8 = 1;
    /// They stand in a queue of the operator.
    const KEEPS_COMMANDS: bool = false;
    /// A chunk of 400 events is full.
    const LENGTHS: &'static [u64] = &[1, 2, 400, 401, 402];

    async fn open(&self, cluster: &ClusterName) -> KubeStore {
        let asked = CommandQueue::default();
        KubeStore::new(&self.client, self.namespace, cluster.clone(), asked)
    }

    async fn damage(&self, cluster: &ClusterName, run: &RunId, seq: Seq, damage: Damage) {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), self.namespace);
        let (chunk, key) = (format!("stagger-{cluster}-{run}-"), format!("event-{seq:08}"));
        let all = maps.list(&ListParams::default()).await.unwrap();
        let mut of_run = all.items.iter().filter(|map| map.name_any().starts_with(&chunk));
        let (name, text) = of_run
            .find_map(|map| Some((map.name_any(), map.data.as_ref()?.get(&key)?)))
            .unwrap();
        let value = match damage {
            Damage::Changed => json!(text.replace('x', "y")),
            Damage::Gone => Value::Null,
        };
        let patch = Patch::Merge(json!({ "data": { key: value } }));
        maps.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    }
}
