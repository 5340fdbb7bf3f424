//! Nodes as objects: made, ready, and alive by their Leases.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::Shared;
use super::resources::{MEMORY, PROCESSORS, STORAGE};

/// Between two signs of life.
const BEAT: Duration = Duration::from_secs(4);

const MANAGER: &str = "node-agent";

/// Makes a node, or makes it as it should be.
pub(super) async fn register(shared: &Shared, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(shared.client.clone());
    let node = shared.settings.nodes.get(name).cloned().unwrap_or_default();
    let address = node.address();
    let mut labels = node.labels;
    labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
    labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": labels },
    });
    let params = PatchParams::apply(MANAGER).force();
    nodes
        .patch(name, &params, &Patch::Apply(&node))
        .await
        .with_context(|| format!("making the node {name}"))?;
    let room = json!({ "cpu": PROCESSORS, "memory": MEMORY, "pods": "250", "ephemeral-storage": STORAGE });
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let status = json!({
        "status": {
            "capacity": room, "allocatable": room,
            // No name: the API server would ask by it for logs, and nobody knows the address of it.
            "addresses": [{ "type": "InternalIP", "address": address }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": shared.log_port } },
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it plays the kubelet",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }],
            "nodeInfo": {
                "machineID": name, "systemUUID": name, "bootID": name, "kernelVersion": "", "osImage": "",
                "containerRuntimeVersion": "processes://1", "kubeletVersion": "v1.36.4",
                "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    });
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Strategic(&status))
        .await
        .with_context(|| format!("telling how the node {name} is"))?;
    Ok(())
}

/// Renews a node's Lease, until it is lost; and says that it is ready where the controllers took it for
/// lost meanwhile.
pub(super) async fn keep_alive(shared: Arc<Shared>, name: String) {
    let leases: Api<Lease> = Api::namespaced(shared.client.clone(), "kube-node-lease");
    let mark = shared.settings.folder.join("lost").join(&name);
    let mut was_lost = false;
    loop {
        if mark.exists() {
            was_lost = true;
        } else {
            if std::mem::take(&mut was_lost) {
                register(&shared, &name).await.ok();
            }
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "name": name },
                "spec": {
                    "holderIdentity": name, "leaseDurationSeconds": 20,
                    "renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string(),
                },
            });
            // A server that restarts is asked again in a moment.
            leases
                .patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&lease))
                .await
                .ok();
        }
        tokio::time::sleep(BEAT).await;
    }
}
