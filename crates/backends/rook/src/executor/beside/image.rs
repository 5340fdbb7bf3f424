//! Rook's handling of the image that the CephCluster names: no daemon is changed before Rook has accepted the
//! image, or it would stop managing what runs.

use kube::ResourceExt as _;

use crate::api::cluster::CephCluster;
use crate::api::names::DO_NOT_RECONCILE;

/// Rook's handling of the image that a CephCluster names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RookImageStatus {
    /// It has asked it for its release, and goes by it.
    TakenUp,
    /// No operator of Rook's runs: it looks at it when one is started.
    NobodyLooks,
    /// It has not yet, or refuses it: why, and what to do.
    NotTakenUp(String),
}

/// The image that a CephCluster names, with Rook's word about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterImage {
    /// What it names.
    pub named: Option<String>,
    /// Rook's handling of it.
    pub word: RookImageStatus,
}

impl ClusterImage {
    /// By what the CephCluster and Rook's status in it say. `rook_runs`: whether an operator of Rook's is to.
    pub fn of(cluster: &CephCluster, rook_runs: bool) -> Self {
        let named = cluster.spec.ceph_version.image.clone();
        let word = match &named {
            Some(named) if !is_image_active(cluster) => {
                if rook_runs {
                    RookImageStatus::NotTakenUp(why_not(cluster, named))
                } else {
                    RookImageStatus::NobodyLooks
                }
            }
            Some(_) | None => RookImageStatus::TakenUp,
        };
        Self { named, word }
    }

    /// Why a run may not go on to change daemons to it, if it may not.
    pub fn inactive_reason(&self) -> Option<&str> {
        match &self.word {
            RookImageStatus::NotTakenUp(why) => Some(why),
            RookImageStatus::TakenUp | RookImageStatus::NobodyLooks => None,
        }
    }
}

/// Whether Rook goes by the image that is named: `status.version.image` is written once it has asked the image for its release, knows
/// that, and finds Ceph well enough for an update (`detectAndValidateCephVersion` in `pkg/operator/ceph/cluster/version.go`, the same in
/// 1.16.9 and 1.20.6). That comes before the first daemon is looked at, so it does not matter that those are kept from Rook.
pub(crate) fn is_image_active(cluster: &CephCluster) -> bool {
    let seen = cluster.status.as_ref().and_then(|status| status.version.as_ref());
    let seen = seen.and_then(|version| version.image.as_ref());
    seen.is_some() && seen == cluster.spec.ceph_version.image.as_ref()
}

fn why_not(cluster: &CephCluster, named: &str) -> String {
    // Rook looks at no CephCluster with that label since 1.18.9 (`reconcile` in `pkg/operator/ceph/cluster/controller.go`); older ones do.
    if cluster.labels().contains_key(DO_NOT_RECONCILE) {
        return format!(
            "the CephCluster has the label {DO_NOT_RECONCILE}, so Rook has not looked at {named}: take the label off, or end the run"
        );
    }
    match cluster.status.as_ref().and_then(|status| status.failure()) {
        Some(message) => format!(
            "Rook does not take up {named}: {message}. Rook tries again by itself once that is put right; or end the run"
        ),
        None => format!(
            "Rook has not taken up {named} yet: it asks it for its release by the Job rook-ceph-detect-version, once it has ended what it is \
             at"
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const OLD: &str = "ceph:20.2.4";
    const NEW: &str = "ceph:20.2.5";

    /// With its status as Rook 1.20.6 writes it.
    fn cluster(image: &str, labels: &Value, status: &Value) -> CephCluster {
        serde_json::from_value(json!({
            "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
            "metadata": { "name": "c", "namespace": "n", "labels": labels },
            "spec": { "cephVersion": { "image": image } },
            "status": status,
        }))
        .unwrap()
    }

    fn status(image: &str, progressing: (&str, &str)) -> Value {
        json!({
            "phase": "Ready", "state": "Created", "message": "Cluster created successfully",
            "version": { "image": image, "version": "20.2.4-0" },
            "conditions": [
                { "type": "Ready", "status": "True", "reason": "ClusterCreated", "message": "Cluster created successfully" },
                { "type": "Progressing", "status": progressing.0, "message": progressing.1, "reason": "ClusterProgressing" },
            ],
            "ceph": { "health": "HEALTH_OK", "lastChecked": "2026-11-29T10:00:00Z" },
        })
    }

    fn why(cluster: &CephCluster) -> String {
        let image = ClusterImage::of(cluster, true);
        image.inactive_reason().expect("it is taken up").to_owned()
    }

    #[test]
    fn an_image_is_taken_up_once_rook_has_asked_it_for_its_release() {
        let detecting = status(OLD, ("True", "Detecting Ceph version"));
        let named = cluster(NEW, &json!({}), &detecting);
        assert!(why(&named).contains("has not taken up ceph:20.2.5 yet"));
        // It goes through its daemons, all of which are kept from it.
        let taken = cluster(NEW, &json!({}), &status(NEW, ("True", "Configuring Ceph OSDs")));
        assert_eq!(ClusterImage::of(&taken, true).word, RookImageStatus::TakenUp);
        // What fails later is no matter of the image.
        let failed = cluster(
            NEW,
            &json!({}),
            &status(NEW, ("False", "failed to start ceph osds")),
        );
        assert_eq!(ClusterImage::of(&failed, true).word, RookImageStatus::TakenUp);
        // It was made by Rook a moment ago, and nobody has looked.
        assert!(why(&cluster(NEW, &json!({}), &Value::Null)).contains("not taken up"));
    }

    /// `state` and `message` are those of health checks by then; the condition stays.
    #[test]
    fn who_is_refused_hears_rooks_own_words() {
        let message = "failed to configure local ceph cluster: failed the ceph version check: allowUnsupported must be set to true to run \
                       with this version";
        let refused = cluster(NEW, &json!({}), &status(OLD, ("False", message)));
        let why = why(&refused);
        assert!(why.contains(message) && why.contains("end the run"), "{why}");
    }

    /// A run would wait for ever, and the person who set the label knows of none.
    #[test]
    fn a_label_that_keeps_rook_from_the_cluster_is_named() {
        let labels = json!({ DO_NOT_RECONCILE: "true" });
        let named = cluster(NEW, &labels, &status(OLD, ("True", "")));
        assert!(why(&named).contains("take the label off"));
        // Rook before 1.18.9 does not look at the label.
        let taken = cluster(NEW, &labels, &status(NEW, ("True", "")));
        assert_eq!(ClusterImage::of(&taken, true).word, RookImageStatus::TakenUp);
    }

    #[test]
    fn where_no_rook_runs_nobody_is_waited_for() {
        let named = cluster(NEW, &json!({}), &status(OLD, ("True", "")));
        assert_eq!(ClusterImage::of(&named, false).inactive_reason(), None);
    }
}
