//! Beside an operator of Rook: whose the budgets over gateways and mirrors are, and what waits while that operator is to run.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::bad_input::{DEGRADED, IMAGE, osd};
use crate::{NAMESPACE, World};

/// A Deployment of one daemon that is not placed by a failure domain; its pod sleeps.
fn daemon(name: &str, labels: &Value, owners: &Value) -> Value {
    let mut of_pod = labels.clone();
    of_pod["own"] = json!(name);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels, "ownerReferences": owners },
        "spec": {
            "selector": { "matchLabels": { "own": name } },
            "template": { "metadata": { "labels": of_pod }, "spec": {
                "automountServiceAccountToken": false,
                "containers": [{ "name": "daemon", "image": IMAGE, "command": ["sleep", "86400"] }],
            } },
        },
    })
}

/// Rook's operator, as its manifests have it, in a namespace of its own.
fn rook(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "rook-ceph-operator", "namespace": "rook",
            "labels": { "operator": "rook", "storage-backend": "ceph" },
        },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "rook-ceph-operator" } },
            "template": { "metadata": { "labels": { "app": "rook-ceph-operator" } }, "spec": {
                "automountServiceAccountToken": false,
                "containers": [{ "name": "rook", "image": IMAGE, "command": ["sleep", "86400"] }],
            } },
        },
    })
}

/// The right to look for Rook's operator in its namespace.
fn may_look() -> [Value; 2] {
    let metadata = json!({ "name": "stagger-looks-for-rook", "namespace": "rook" });
    let rules = json!([{ "apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"] }]);
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "stagger-looks-for-rook" },
            "subjects": [{ "kind": "ServiceAccount", "name": "stagger-operator", "namespace": NAMESPACE }],
        }),
    ]
}

impl World {
    /// One of two mirrors may go, and none is bound once there is one. A store's gateways go with the store, and so does their
    /// budget.
    pub(crate) fn budgets_have_owners(&self) -> Result<()> {
        let store = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "store", "namespace": NAMESPACE },
        });
        self.apply(&store)?;
        let uid = self.plane.object(NAMESPACE, "configmap", "store")?["metadata"]["uid"].clone();
        let by_store = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "store", "uid": uid, "controller": true,
        }]);
        for name in ["a", "b"] {
            let mirror = json!({ "app": "rook-ceph-rbd-mirror", "rook_cluster": NAMESPACE });
            self.apply(&daemon(
                &format!("rook-ceph-rbd-mirror-{name}"),
                &mirror,
                &json!([]),
            ))?;
            let gateway = json!({
                "app": "rook-ceph-rgw", "rgw": "store", "rook_object_store": "store", "rook_cluster": NAMESPACE,
            });
            self.apply(&daemon(
                &format!("rook-ceph-rgw-store-{name}"),
                &gateway,
                &by_store,
            ))?;
        }
        let budget = |name: &str| -> Result<Value> {
            let all = self.plane.objects(NAMESPACE, "pdb")?;
            let found = all.into_iter().find(|one| one["metadata"]["name"] == name);
            Ok(found.unwrap_or_default())
        };
        let owner = |found: &Value| found["metadata"]["ownerReferences"][0]["kind"].clone();
        self.wait("one of two mirrors may go", || {
            let found = budget("rook-ceph-rbd-mirror")?;
            Ok(found["spec"]["maxUnavailable"] == 1 && owner(&found) == "CephCluster")
        })?;
        self.wait(
            "one of two gateways may go, and the budget is the store's",
            || {
                let found = budget("rook-ceph-rgw-store")?;
                Ok(found["spec"]["minAvailable"] == 1 && owner(&found) == "ConfigMap")
            },
        )?;
        let delete = |kind: &str, name: &str| self.plane.ask(&["delete", kind, name, "-n", NAMESPACE]);
        delete("deployment", "rook-ceph-rbd-mirror-b")?;
        delete("configmap", "store")?;
        self.wait(
            "a mirror that is alone has no budget, nor has a store that is gone",
            || Ok(budget("rook-ceph-rbd-mirror")?.is_null() && budget("rook-ceph-rgw-store")?.is_null()),
        )
    }

    /// What both would write is not done here while Rook's operator is to run, wherever that is, or while nobody can tell; and it
    /// is once that is scaled to zero.
    pub(crate) fn provisioning_waits_for_rook(&self, mut cluster: Value) -> Result<()> {
        self.plane.ask(&["create", "namespace", "rook"])?;
        self.apply(&rook(1))?;
        self.apply(&osd(1, &json!({ "rook.io/operator-namespace": "rook" })))?;
        let delete = ["delete", "configmap", "rook-ceph-osd-n0-status", "-n", NAMESPACE];
        self.plane.ask(&delete)?;
        cluster["spec"]["storage"] = json!({ "nodes": [{ "name": "n0", "devices": [{ "name": "sdz" }] }] });
        self.apply(&cluster)?;
        let waits = |why: &str| self.is_told("ProvisioningBesideRook", &[why]);
        self.wait("the right to look for Rook is missed", || {
            waits("let the operator's account list deployments.apps in namespace rook")
        })?;
        for object in may_look() {
            self.apply(&object)?;
        }
        self.wait("provisioning waits for Rook", || {
            waits("Deployment rook/rook-ceph-operator has 1 replica; scale it to 0")
        })?;
        self.wait("that both manage budgets is told", || {
            self.is_told("RookManagesBudgets", &["Rook manages the PodDisruptionBudgets"])
        })?;
        // This operator was not told its image: it says so as soon as it begins.
        let begun = || Ok(self.status("{.status.provisioning.remarks}")?.contains("--image"));
        ensure!(!begun()?, "devices are prepared beside Rook");
        self.apply(&rook(0))?;
        self.wait("it goes on once Rook is scaled to zero", begun)?;
        self.wait("nothing is told of Rook then", || {
            let wrong = self.status(DEGRADED)?;
            Ok(!wrong.contains("rook-ceph-operator") && !wrong.contains("Rook manages"))
        })
    }
}
