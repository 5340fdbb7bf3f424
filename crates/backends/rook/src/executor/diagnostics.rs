//! Diagnostics of daemons: objects as they are and as they were, events, termination messages.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stagger_core::model::UnitId;

use crate::api::daemons::kind_of;
use crate::api::objects;

/// So many lines of a container's log.
const LINES: i64 = 500;

/// Files by their names.
pub(crate) type Files = Vec<(String, Vec<u8>)>;

/// Asks the API server, as what is watched is not kept whole. What it refuses is told in the file.
pub(crate) struct Gather<'a> {
    pub(crate) client: &'a Client,
    pub(crate) namespace: &'a str,
}

impl Gather<'_> {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// All objects of a kind that `params` choose, and the file with them.
    async fn list<K>(&self, params: &ListParams, file: String, files: &mut Files) -> Vec<K>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize,
        K::DynamicType: Default,
    {
        match self.api::<K>().list(params).await {
            Ok(list) => {
                let text = serde_json::to_vec_pretty(&list.items);
                files.push((file, text.unwrap_or_else(|error| error.to_string().into_bytes())));
                list.items
            }
            Err(error) => {
                files.push((file, error.to_string().into_bytes()));
                Vec::new()
            }
        }
    }

    /// A daemon's Deployment, its templates of before, its pods, their events and logs.
    pub(crate) async fn of_daemon(&self, unit: &UnitId, deployment: &objects::Deployment, files: &mut Files) {
        let labels = deployment.spec.selector.match_labels.iter().flatten();
        let labels: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
        let own = ListParams::default().labels(&labels.join(","));
        let file = |what: &str| format!("{unit}-{what}.json");
        self.list::<Deployment>(&own, file("deployment"), files).await;
        self.list::<ReplicaSet>(&own, file("replicasets"), files).await;
        let pods = self.list::<Pod>(&own, file("pods"), files).await;
        for pod in pods.iter().map(ResourceExt::name_any) {
            let of_pod = ListParams::default().fields(&format!("involvedObject.name={pod}"));
            self.list::<Event>(&of_pod, format!("{unit}-{pod}-events.json"), files)
                .await;
            for previous in [true, false] {
                let params = LogParams {
                    container: Some(kind_of(unit).to_owned()),
                    previous,
                    tail_lines: Some(LINES),
                    ..LogParams::default()
                };
                // Most have no run before; that is no news.
                if let Ok(log) = self.api::<Pod>().logs(&pod, &params).await {
                    let which = if previous { "previous" } else { "current" };
                    files.push((format!("{unit}-{pod}-{which}.log"), log.into_bytes()));
                }
            }
        }
    }

    /// What is not one daemon's: budgets, and what runs on each node.
    pub(crate) async fn of_cluster(&self, files: &mut Files) {
        let all = ListParams::default();
        self.list::<PodDisruptionBudget>(&all, "poddisruptionbudgets.json".to_owned(), files)
            .await;
        self.list::<DaemonSet>(&all, "daemonsets.json".to_owned(), files)
            .await;
    }
}
