//! What the API server has now, where the watch may be behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, Client, ResourceExt as _};
use stagger_engine::backend::BackendError;

use crate::api::cache::ObjectCache;
use crate::api::failed;
use crate::api::names;
use crate::api::objects::Pod;

/// Whether the watch shows each pod of an OSD as the API server has it now, and no eviction is granted that has not
/// yet deleted its pod: it may be behind what was let go just before the budget was closed.
pub(super) async fn shows_all_that_go(
    client: &Client,
    namespace: &str,
    watched: &ObjectCache,
) -> Result<bool, BackendError> {
    let tried = "read the pods of OSDs once more";
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
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let of_osds = ListParams::default().labels(&format!("{}={}", names::APP, names::OSD_APP));
    let there = pods
        .list_metadata(&of_osds)
        .await
        .map_err(|error| failed(tried, &error))?;
    let goes = |pod: &ObjectMeta| (pod.uid.clone(), pod.deletion_timestamp.is_some());
    let is_on_its_way = |pod: &ObjectMeta| {
        pod.deletion_timestamp.is_none() && pod.name.as_ref().is_some_and(|name| granted.contains(name))
    };
    let shown = watched.pods();
    let is_osd = |pod: &&Arc<Pod>| pod.labels().get(names::APP).map(String::as_str) == Some(names::OSD_APP);
    let shown: BTreeSet<_> = shown
        .iter()
        .filter(is_osd)
        .map(|pod| goes(&pod.metadata))
        .collect();
    let now: BTreeSet<_> = there.items.iter().map(|pod| goes(&pod.metadata)).collect();
    Ok(now == shown && !there.items.iter().any(|pod| is_on_its_way(&pod.metadata)))
}
