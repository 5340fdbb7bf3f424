//! Whether the operator may be uninstalled: what is held, only an operator that runs gives back.

use futures::future::try_join_all;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use stagger_engine::cluster::BackendError;

use crate::api::failed;
use crate::api::maintenance::CephMaintenance;
use crate::reconcile::finalizer;

/// The CephMaintenances, as `namespace/name`, in whose name budgets, `noout` or labels may be held: those with our finalizer, which is set before
/// anything is. `namespaces`: where is looked; none: everywhere. Where there is no such resource, there is none.
///
/// # Errors
/// The API server does not list them.
pub async fn holding(client: &Client, namespaces: &[String]) -> Result<Vec<String>, BackendError> {
    let all: Vec<Api<CephMaintenance>> = match namespaces {
        [] => vec![Api::all(client.clone())],
        named => named
            .iter()
            .map(|namespace| Api::namespaced(client.clone(), namespace))
            .collect(),
    };
    let listed = all.iter().map(|api| async {
        match api.list(&ListParams::default()).await {
            Ok(found) => Ok(found.items),
            Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(Vec::new()),
            Err(error) => Err(failed("list CephMaintenances", &error)),
        }
    });
    let found = try_join_all(listed).await?;
    let names = found.into_iter().flatten().filter(finalizer::has).map(|of| {
        let namespace = of.namespace().unwrap_or_default();
        format!("{namespace}/{}", of.name_any())
    });
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::maintenance::FINALIZER;

    fn list(items: &[Value]) -> String {
        json!({ "apiVersion": "stagger.dev/v1alpha1", "kind": "CephMaintenanceList", "metadata": {}, "items": items }).to_string()
    }

    fn one(namespace: &str, finalizers: &[&str]) -> Value {
        json!({
            "apiVersion": "stagger.dev/v1alpha1", "kind": "CephMaintenance",
            "metadata": { "name": "m", "namespace": namespace, "finalizers": finalizers },
            "spec": { "cephCluster": "c", "manage": [] },
        })
    }

    #[tokio::test]
    async fn who_holds_something_is_named_wherever_it_is_looked() {
        let path =
            |namespace: &str| format!("/apis/stagger.dev/v1alpha1/namespaces/{namespace}/cephmaintenances");
        let (holds, idle) = (one("a", &["others", FINALIZER]), one("b", &["others"]));
        let (all, of_a, of_b) = (
            list(&[holds.clone(), idle.clone()]),
            list(&[holds]),
            list(&[idle]),
        );
        let router = Router::new()
            .route(
                "/apis/stagger.dev/v1alpha1/cephmaintenances",
                get(|| async { all }),
            )
            .route(&path("a"), get(|| async { of_a }))
            .route(&path("b"), get(|| async { of_b }));
        let client = Client::new(router, "default");
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(holding(&client, &[]).await.unwrap(), ["a/m"]);
        assert_eq!(holding(&client, &named(&["a", "b"])).await.unwrap(), ["a/m"]);
        assert!(holding(&client, &named(&["b", "none"])).await.unwrap().is_empty());
    }
}
