//! Whether the operator may be uninstalled: only a running operator clears what it holds.

use futures::future::try_join_all;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use stagger_engine::cluster::BackendError;

use crate::api::failed;
use crate::api::maintenance::CephMaintenance;
use crate::reconcile::finalizer;

/// A CephMaintenance in whose name budgets, `noout` or labels may be held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether an operator for those namespaces would give back what is held.
    pub is_watched: bool,
}

/// Those with our finalizer, which is set before anything is held: in all namespaces, as one may have been taken out of those that are
/// `watched` (none: all are); where that may not be listed, in these. Where there is no such resource, there is none.
///
/// # Errors
/// The API server does not list them.
pub async fn holding(client: &Client, watched: &[String]) -> Result<Vec<Holding>, BackendError> {
    let found = match list(&Api::all(client.clone())).await {
        Err(kube::Error::Api(answer)) if answer.code == 403 && !watched.is_empty() => {
            let all = watched.iter().map(|namespace| {
                let api = Api::namespaced(client.clone(), namespace);
                async move { list(&api).await }
            });
            try_join_all(all).await.map(|all| all.concat())
        }
        found => found,
    };
    let found = found.map_err(|error| failed("list CephMaintenances", &error))?;
    let holding = found.into_iter().filter(finalizer::has).map(|of| {
        let namespace = of.namespace().unwrap_or_default();
        Holding {
            is_watched: watched.is_empty() || watched.contains(&namespace),
            name: of.name_any(),
            namespace,
        }
    });
    Ok(holding.collect())
}

async fn list(api: &Api<CephMaintenance>) -> Result<Vec<CephMaintenance>, kube::Error> {
    match api.list(&ListParams::default()).await {
        Ok(found) => Ok(found.items),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use http::StatusCode;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::maintenance::FINALIZER;

    fn listed(items: &[Value]) -> String {
        json!({ "apiVersion": "stagger.dev/v1alpha1", "kind": "CephMaintenanceList", "metadata": {}, "items": items }).to_string()
    }

    fn one(namespace: &str, finalizers: &[&str]) -> Value {
        json!({
            "apiVersion": "stagger.dev/v1alpha1", "kind": "CephMaintenance",
            "metadata": { "name": "m", "namespace": namespace, "finalizers": finalizers },
            "spec": { "cephCluster": "c", "manage": [] },
        })
    }

    /// An API server with one that holds something in namespace a, and another that holds nothing in b. `everywhere`: whether all may be
    /// listed at once.
    fn server(everywhere: bool) -> Client {
        let path =
            |namespace: &str| format!("/apis/stagger.dev/v1alpha1/namespaces/{namespace}/cephmaintenances");
        let (holds, idle) = (one("a", &["others", FINALIZER]), one("b", &["others"]));
        let forbidden = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no",
        });
        let all = if everywhere {
            (StatusCode::OK, listed(&[holds.clone(), idle.clone()]))
        } else {
            (StatusCode::FORBIDDEN, forbidden.to_string())
        };
        let (of_a, of_b) = (listed(&[holds]), listed(&[idle]));
        let router = Router::new()
            .route(
                "/apis/stagger.dev/v1alpha1/cephmaintenances",
                get(|| async { all }),
            )
            .route(&path("a"), get(|| async { of_a }))
            .route(&path("b"), get(|| async { of_b }));
        Client::new(router, "default")
    }

    fn named(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn held(is_watched: bool) -> Holding {
        Holding {
            namespace: "a".to_owned(),
            name: "m".to_owned(),
            is_watched,
        }
    }

    #[tokio::test]
    async fn who_holds_something_is_named_wherever_it_is() {
        let client = server(true);
        assert_eq!(holding(&client, &[]).await.unwrap(), [held(true)]);
        assert_eq!(holding(&client, &named(&["a", "b"])).await.unwrap(), [held(true)]);
        assert_eq!(
            holding(&client, &named(&["b", "none"])).await.unwrap(),
            [held(false)]
        );
    }

    #[tokio::test]
    async fn where_not_all_may_be_listed_those_that_are_watched_are() {
        let client = server(false);
        assert!(holding(&client, &[]).await.is_err());
        assert_eq!(
            holding(&client, &named(&["a", "none"])).await.unwrap(),
            [held(true)]
        );
        assert!(holding(&client, &named(&["b"])).await.unwrap().is_empty());
    }
}
