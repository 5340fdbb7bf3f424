//! The webhook's registration: its configuration, which the manifests define, and the route to the leader's
//! pod.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use stagger_engine::cluster::BackendError;

use super::certificate::Certificate;
use super::{PATH, Reached, Webhook};
use crate::api::failed;
use crate::api::names::MANAGER;
use crate::reconcile::{Shared, owner};

/// The configuration, its Service, and the addresses behind that.
const NAME: &str = "stagger-evictions";
/// The webhook in it.
const WEBHOOK: &str = "evictions.stagger.dev";

/// What is written down.
pub(super) struct Registration {
    client: Client,
    namespace: String,
    /// Those whose evictions are asked about; all, if there are none.
    namespaces: Vec<String>,
    webhook: Webhook,
}

impl Registration {
    pub(super) fn new(shared: &Shared, webhook: &Webhook) -> Self {
        Self {
            client: shared.client.clone(),
            namespace: shared.options.namespace.clone(),
            namespaces: shared.options.watch_namespaces.clone(),
            webhook: webhook.clone(),
        }
    }

    /// The name or address by which the API server knows it.
    pub(super) fn host(&self) -> String {
        match &self.webhook.reached {
            Reached::Service { .. } => format!("{NAME}.{}.svc", self.namespace),
            Reached::Host(host) => host.clone(),
        }
    }

    /// Has the API server ask here, and trust these certificates.
    ///
    /// # Errors
    /// It takes it not.
    pub(super) async fn write(&self, certificates: &[&Certificate]) -> Result<(), BackendError> {
        if let Reached::Service { pod } = &self.webhook.reached {
            let owner = owner::reference(&self.client, &self.namespace).await?;
            let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.namespace);
            let slice = json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {
                    "name": NAME, "ownerReferences": Vec::from_iter(owner),
                    "labels": {
                        "kubernetes.io/service-name": NAME,
                        "endpointslice.kubernetes.io/managed-by": MANAGER,
                    },
                },
                "addressType": if pod.is_ipv4() { "IPv4" } else { "IPv6" },
                "endpoints": [{ "addresses": [pod.to_string()], "conditions": { "ready": true } }],
                "ports": [{ "name": "webhook", "protocol": "TCP", "port": self.webhook.listen.port() }],
            });
            let ours = PatchParams::apply(MANAGER).force();
            slices
                .patch(NAME, &ours, &Patch::Apply(&slice))
                .await
                .map_err(|error| failed(&format!("write EndpointSlice {NAME}"), &error))?;
        }
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        configurations
            .patch(
                NAME,
                &PatchParams::default(),
                &Patch::Strategic(&self.configuration(certificates)),
            )
            .await
            .map_err(|error| {
                failed(&format!("write ValidatingWebhookConfiguration {NAME}"), &error)
                    .hint("deploy/operator/webhook.yaml defines it; --webhook off does without")
            })?;
        Ok(())
    }

    fn configuration(&self, certificates: &[&Certificate]) -> Value {
        let bundle: String = certificates.iter().map(|one| one.pem()).collect();
        let bundle = ByteString(bundle.into_bytes());
        let client_config = match &self.webhook.reached {
            Reached::Service { .. } => json!({
                "caBundle": bundle, "url": null,
                "service": { "name": NAME, "namespace": self.namespace, "path": PATH, "port": 443 },
            }),
            Reached::Host(host) => {
                let host = if host.contains(':') {
                    format!("[{host}]")
                } else {
                    host.clone()
                };
                let url = format!("https://{host}:{}{PATH}", self.webhook.listen.port());
                json!({ "caBundle": bundle, "url": url, "service": null })
            }
        };
        let selector = if self.namespaces.is_empty() {
            json!({ "matchExpressions": null })
        } else {
            json!({ "matchExpressions": [{
                "key": "kubernetes.io/metadata.name", "operator": "In", "values": self.namespaces,
            }] })
        };
        json!({ "webhooks": [{ "name": WEBHOOK, "clientConfig": client_config, "namespaceSelector": selector }] })
    }
}
