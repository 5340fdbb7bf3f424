//! The resource definitions: ours, and where no Rook is at hand something in the place of its own.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::Plane;

/// Ours, as a user applies them.
///
/// # Errors
/// The server refuses them.
pub fn ours(plane: &Plane) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds.yaml");
    plane.ask(&["apply", "--server-side", "-f", &file.display().to_string()])?;
    established(plane, "cephmaintenances.stagger.dev")
}

/// A CephCluster that takes everything, for what plays Rook.
///
/// # Errors
/// The server refuses it.
pub fn of_rook(plane: &Plane) -> Result<()> {
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let column = |name: &str, path: &str| json!({ "name": name, "type": "string", "jsonPath": path });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "cephclusters.ceph.rook.io" },
        "spec": {
            "group": "ceph.rook.io", "scope": "Namespaced",
            "names": {
                "kind": "CephCluster", "listKind": "CephClusterList", "plural": "cephclusters",
                "singular": "cephcluster",
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "additionalPrinterColumns": [column("Phase", ".status.phase")],
                "schema": { "openAPIV3Schema": {
                    "type": "object", "properties": { "spec": anything, "status": anything },
                } },
            }],
        },
    });
    plane.apply("rook", &[definition])?;
    established(plane, "cephclusters.ceph.rook.io")
}

fn established(plane: &Plane, name: &str) -> Result<()> {
    let what = format!("crd/{name}");
    plane
        .ask(&["wait", &what, "--for=condition=Established", "--timeout=30s"])
        .map(|_| ())
}
