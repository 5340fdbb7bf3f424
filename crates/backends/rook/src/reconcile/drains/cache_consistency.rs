//! The current state in the API server, where the watch may lag behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, Request};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde::Deserialize;
use serde::de::IgnoredAny;
use stagger_engine::cluster::BackendError;

use crate::api::cache::ObjectCache;
use crate::api::failed;
use crate::api::names;
use crate::api::objects::Pod;

/// So many pods are listed at once: who has written which field of a thousand of them is megabytes.
const PAGE: u32 = 200;

/// Pods, as far as it matters whether they go.
#[derive(Deserialize)]
struct Listed {
    metadata: Page,
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Page {
    /// How the list goes on, as of the same moment.
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Marks,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Marks {
    name: String,
    uid: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
}

/// Whether the watch shows each pod of an OSD as the API server has it now, and no eviction is granted that has not
/// yet deleted its pod: it may be behind what was let go just before the budget was closed.
pub(super) async fn cache_is_current(
    client: &Client,
    namespace: &str,
    watched: &ObjectCache,
) -> Result<bool, BackendError> {
    let tried = "read the pods of OSDs again";
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), namespace);
    // As the account may list them.
    let it = ListParams::default().fields(&format!("metadata.name={}", names::DEFAULT_BUDGET));
    let budgets = budgets.list(&it).await.map_err(|error| failed(tried, &error))?;
    let granted: BTreeSet<String> = budgets
        .items
        .into_iter()
        .filter_map(|budget| budget.status?.disrupted_pods)
        .flat_map(BTreeMap::into_keys)
        .collect();
    // As they are watched.
    let label = format!("{}={},rook_cluster={namespace}", names::APP, names::OSD_APP);
    let mut of_osds = ListParams::default().labels(&label).limit(PAGE);
    let mut there: Vec<Item> = Vec::new();
    loop {
        let request = Request::new(Pod::url_path(&(), Some(namespace))).list_metadata(&of_osds);
        let request = request.map_err(|error| BackendError::permanent(tried, error.to_string()))?;
        let listed: Listed = client
            .request(request)
            .await
            .map_err(|error| failed(tried, &error))?;
        there.extend(listed.items);
        match listed.metadata.next.filter(|next| !next.is_empty()) {
            Some(next) => of_osds = of_osds.continue_token(&next),
            None => break,
        }
    }
    let is_on_its_way = |pod: &Marks| pod.deletion_timestamp.is_none() && granted.contains(&pod.name);
    let shown = watched.pods();
    let is_osd = |pod: &&Arc<Pod>| pod.labels().get(names::APP).map(String::as_str) == Some(names::OSD_APP);
    let shown: BTreeSet<_> = shown
        .iter()
        .filter(is_osd)
        .map(|pod| {
            let meta = &pod.metadata;
            (meta.uid.clone(), meta.deletion_timestamp.is_some())
        })
        .collect();
    let marks = there.iter().map(|pod| &pod.metadata);
    let now: BTreeSet<_> = marks
        .map(|pod| (pod.uid.clone(), pod.deletion_timestamp.is_some()))
        .collect();
    Ok(now == shown && !there.iter().any(|pod| is_on_its_way(&pod.metadata)))
}
