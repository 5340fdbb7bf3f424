//! Rook's names and labels, as of its release 1.20.

use sha2::{Digest as _, Sha256};

/// The label that says what a pod is.
pub const APP: &str = "app";
/// `app` of every OSD.
pub const OSD_APP: &str = "rook-ceph-osd";
/// `app` of every monitor.
pub const MON_APP: &str = "rook-ceph-mon";
/// `app` of every metadata server.
pub const MDS_APP: &str = "rook-ceph-mds";
/// The label with an OSD's number.
pub const OSD: &str = "osd";
/// The label of a node by which pods are bound to it.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The budget over all OSDs.
pub const DEFAULT_BUDGET: &str = "rook-ceph-osd";

/// The label with which a person keeps Rook and this program from a daemon.
pub const DO_NOT_RECONCILE: &str = "ceph.rook.io/do-not-reconcile";
/// The value of that label where it is ours: Rook looks at none (`GetDaemonsToSkipReconcile` in `pkg/operator/ceph/controller/spec.go`,
/// 1.16.9 and 1.20.6), and people and other tools write `true`.
pub const HELD: &str = "stagger";
/// The label with the set that a claim, or an OSD, belongs to.
pub const SET: &str = "ceph.rook.io/DeviceSet";
/// `app` of a Job that prepares devices.
pub const PREPARE_APP: &str = "rook-ceph-osd-prepare";
/// The labels of a ConfigMap with what such a Job reports.
pub const PREPARE_REPORTS: &str = "app=rook-ceph-osd,status=provisioning";
/// The variable that says, as Rook's does, which device an OSD has.
pub(crate) const BLOCK_PATH: &str = "ROOK_BLOCK_PATH";

/// The name of the operator's Deployment.
pub const OPERATOR: &str = "stagger-operator";
/// The Lease that says which of several operators leads.
pub const LEASE: &str = "stagger-operator";
/// The name under which fields of objects are ours (server-side apply).
pub const MANAGER: &str = "stagger";
/// The annotation of a CephMaintenance by which a person commands its run: `resume`, `abort`, `approve DOOR` …
pub const COMMAND: &str = "stagger.dev/command";
/// The label with the release of an operator or agent.
pub const VERSION: &str = "app.kubernetes.io/version";

/// Rook's annotation of the Deployment of an OSD that is being replaced.
pub const REPLACED: &str = "osd.rook.io/replace-in-progress";

/// The variable of a container with the image of Ceph that its pod is made of.
pub const IMAGE: &str = "CONTAINER_IMAGE";
/// The variable of a container with Ceph's release: `ceph version 20.2.4-0 tentacle`.
pub const RELEASE: &str = "ROOK_CEPH_VERSION";

/// The levels of failure domains, from the lowest up.
pub const LEVELS: [&str; 11] = [
    "osd",
    "host",
    "chassis",
    "rack",
    "row",
    "pdu",
    "pod",
    "room",
    "datacenter",
    "zone",
    "region",
];

/// The longest name that an object may have.
const LONGEST: usize = 253;

/// The label that has an OSD's place at a level.
pub fn topology(level: &str) -> String {
    format!("topology-location-{level}")
}

/// The longest name of a Job, whose pods' names and labels hold it too.
const LONGEST_OF_JOB: usize = 63;

/// A name that a Job may have: as it is, or cut, with a few letters that keep two of them apart.
pub(crate) fn short(name: &str) -> String {
    if name.len() <= LONGEST_OF_JOB && is_object_name(name) {
        return name.to_owned();
    }
    let [a, b, c, d, ..] = Sha256::digest(name.as_bytes()).0;
    let plain: String = name
        .chars()
        .filter(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-')
        .take(LONGEST_OF_JOB - 9)
        .collect();
    format!("{}-{a:02x}{b:02x}{c:02x}{d:02x}", plain.trim_matches('-'))
}

/// Adds the fields of one JSON object to another.
pub(crate) fn add(to: &mut serde_json::Value, fields: &serde_json::Value) {
    if let (Some(to), Some(fields)) = (to.as_object_mut(), fields.as_object()) {
        to.extend(fields.clone());
    }
}

/// Whether an object may have that name (RFC 1123 subdomain).
fn is_object_name(name: &str) -> bool {
    let good = |part: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !part.is_empty() && part.chars().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    name.len() <= LONGEST && name.split('.').all(good)
}
