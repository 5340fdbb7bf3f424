//! Rook's own operator: whether one that manages a namespace is meant to run, anywhere.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use stagger_engine::cluster::BackendError;

use crate::api::cache::ObjectCache;
use crate::api::failed;

/// The labels of its Deployment, in Rook's manifests and in its chart.
const LABELS: &str = "operator=rook,storage-backend=ceph";
/// How it is found where somebody has left the labels away.
const NAME: &str = "metadata.name=rook-ceph-operator";
/// The label of a daemon's Deployment that says where the operator is that made it.
const MADE_BY: &str = "rook.io/operator-namespace";
/// The variable by which it manages its own namespace only.
const OWN_ONLY: &str = "ROOK_CURRENT_NAMESPACE_ONLY";

const TRIED: &str = "look for Rook's operator";

/// Why nothing is changed while Rook's operator is to run: both would write. `None`: none that manages that namespace has
/// replicas. It is looked for in all namespaces; where an account may not, in that of the cluster and in those that made
/// its daemons.
///
/// # Errors
/// Kubernetes does not answer, or it may not be looked there either.
pub async fn running(
    client: &Client,
    namespace: &str,
    watched: &ObjectCache,
) -> Result<Option<String>, BackendError> {
    let everywhere: Api<Deployment> = Api::all(client.clone());
    let found = match of(&everywhere).await {
        Err(kube::Error::Api(answer)) if answer.code == 403 => {
            let mut found = Vec::new();
            for one in namespaces(namespace, watched) {
                let there: Api<Deployment> = Api::namespaced(client.clone(), &one);
                found.extend(of(&there).await.map_err(|error| {
                    let hint = format!("let the operator's account list deployments.apps in namespace {one}");
                    failed(TRIED, &error).hint(hint)
                })?);
            }
            found
        }
        found => found.map_err(|error| failed(TRIED, &error))?,
    };
    Ok(found.iter().find_map(|one| conflict_text(one, namespace)))
}

async fn of(deployments: &Api<Deployment>) -> Result<Vec<Deployment>, kube::Error> {
    let mut found = deployments
        .list(&ListParams::default().labels(LABELS))
        .await?
        .items;
    found.extend(deployments.list(&ListParams::default().fields(NAME)).await?.items);
    Ok(found)
}

/// That of the cluster, and those whose operators made its daemons.
fn namespaces(own: &str, watched: &ObjectCache) -> BTreeSet<String> {
    let deployments = watched.deployments();
    let made_by = deployments
        .iter()
        .filter_map(|one| one.labels().get(MADE_BY).cloned());
    made_by.chain([own.to_owned()]).collect()
}

/// What to do about that operator, if it is to run and manages that namespace.
fn conflict_text(operator: &Deployment, namespace: &str) -> Option<String> {
    let replicas = operator.spec.replicas.unwrap_or(1);
    let own = operator.namespace().unwrap_or_default();
    let template = operator.spec.template.spec.as_ref();
    let containers = template.map(|spec| &spec.containers);
    let variables: BTreeMap<&str, &str> = containers
        .into_iter()
        .flatten()
        .flat_map(|container| container.env.iter().flatten())
        .filter_map(|one| Some((one.name.as_str(), one.value.as_deref()?)))
        .collect();
    let elsewhere = own != namespace && variables.get(OWN_ONLY) == Some(&"true");
    (replicas > 0 && !elsewhere).then(|| {
        let name = operator.name_any();
        let replicas = if replicas == 1 {
            "1 replica".to_owned()
        } else {
            format!("{replicas} replicas")
        };
        format!("Deployment {own}/{name} has {replicas}; scale it to 0, and this one continues")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn operator(replicas: i32, own_only: Option<&str>) -> Deployment {
        let env = own_only.map(|value| json!([{ "name": OWN_ONLY, "value": value }]));
        serde_json::from_value(json!({
            "metadata": { "name": "rook-ceph-operator", "namespace": "rook" },
            "spec": {
                "replicas": replicas, "selector": {},
                "template": { "spec": { "containers": [{ "name": "rook", "env": env }] } },
            },
        }))
        .unwrap()
    }

    #[test]
    fn one_in_another_namespace_counts_unless_it_keeps_to_its_own() {
        let said = "Deployment rook/rook-ceph-operator has 1 replica; scale it to 0, and this one continues";
        assert_eq!(conflict_text(&operator(1, None), "ceph").as_deref(), Some(said));
        assert_eq!(
            conflict_text(&operator(1, Some("false")), "ceph").as_deref(),
            Some(said)
        );
        assert_eq!(conflict_text(&operator(1, Some("true")), "ceph"), None);
        assert_eq!(
            conflict_text(&operator(1, Some("true")), "rook").as_deref(),
            Some(said)
        );
        assert_eq!(conflict_text(&operator(0, None), "rook"), None);
    }
}
