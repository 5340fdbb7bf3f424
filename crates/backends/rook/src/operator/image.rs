//! The image that the operator itself runs, from its own pod.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};

/// The image of this pod; none, if this is no pod or may not be read.
pub(super) async fn own_image(client: &Client, namespace: &str) -> Option<String> {
    // Kubernetes names a pod's host after the pod.
    let name = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty())?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    match pods.get_opt(&name).await {
        Ok(pod) => {
            let containers = pod?.spec?.containers;
            containers.into_iter().next()?.image
        }
        Err(error) => {
            tracing::warn!(%error, name, "the image of this pod cannot be read; --image says it");
            None
        }
    }
}
