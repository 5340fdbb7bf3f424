//! What Rook 1.20 writes of each kind of daemon beside what runs: labels, selectors, variables and other containers. A case
//! compares it with what the real one writes (`rook_beside/written.rs`).

use serde_json::{Value, json};

use super::NAMESPACE;
use crate::ceph::Kind;

/// Variables of every container of a daemon.
const OF_DAEMONS: [&str; 7] = [
    "CEPH_USE_RANDOM_NONCE",
    "POD_CPU_LIMIT",
    "POD_CPU_REQUEST",
    "POD_MEMORY_LIMIT",
    "POD_MEMORY_REQUEST",
    "POD_NAMESPACE",
    "ROOK_CEPH_MON_HOST",
];
/// More of them, of all but OSDs.
const INITIAL_MONS: &str = "ROOK_CEPH_MON_INITIAL_MEMBERS";
/// More of them, of OSDs.
const OF_OSDS: [&str; 22] = [
    "CEPH_ARGS",
    "CEPH_VOLUME_DEBUG",
    "CEPH_VOLUME_SKIP_RESTORECON",
    "DM_DISABLE_UDEV",
    "ROOK_CEPH_CONFIG_OVERRIDE",
    "ROOK_CLUSTER_ID",
    "ROOK_CLUSTER_NAME",
    "ROOK_CONFIG_DIR",
    "ROOK_CRUSHMAP_HOSTNAME",
    "ROOK_CRUSHMAP_ROOT",
    "ROOK_CV_MODE",
    "ROOK_MON_ENDPOINTS",
    "ROOK_NODE_NAME",
    "ROOK_OSDS_PER_DEVICE",
    "ROOK_OSD_CRUSH_DEVICE_CLASS",
    "ROOK_OSD_DEVICE_CLASS",
    "ROOK_OSD_RESTART_INTERVAL",
    "ROOK_OSD_UUID",
    "ROOK_POD_IP",
    "ROOK_PRIVATE_IP",
    "ROOK_PUBLIC_IP",
    "ROOK_OSD_ID",
];
/// More of them, of managers.
const OF_MANAGERS: [&str; 5] = [
    "CEPH_ARGS",
    "ROOK_CEPH_CLUSTER_CRD_NAME",
    "ROOK_CEPH_CLUSTER_CRD_VERSION",
    "ROOK_OPERATOR_NAMESPACE",
    "ROOK_POD_IP",
];
/// Those of the container beside a manager, which tells by a label which of them is active.
const OF_WATCH_ACTIVE: [&str; 12] = [
    "POD_NAMESPACE",
    "ROOK_CEPH_CONFIG_OVERRIDE",
    "ROOK_CEPH_USERNAME",
    "ROOK_CLUSTER_ID",
    "ROOK_CLUSTER_NAME",
    "ROOK_DAEMON_NAME",
    "ROOK_DASHBOARD_ENABLED",
    "ROOK_MONITORING_ENABLED",
    "ROOK_MON_ENDPOINTS",
    "ROOK_PRIVATE_IP",
    "ROOK_PUBLIC_IP",
    "ROOK_UPDATE_INTERVAL",
];

/// A daemon, and what image it has.
#[derive(Debug, Clone, Copy)]
pub(super) struct AsRook<'a> {
    pub(super) kind: Kind,
    pub(super) id: &'a str,
    pub(super) image: &'a str,
}

impl AsRook<'_> {
    /// Labels of its Deployment and pods that say nothing which those of the daemon do not say.
    pub(super) fn labels(&self) -> Value {
        let mut labels = json!({
            "app.kubernetes.io/created-by": "rook-ceph-operator",
            "app.kubernetes.io/instance": self.id,
            "app.kubernetes.io/part-of": NAMESPACE,
            "rook.io/operator-namespace": NAMESPACE,
        });
        match self.kind {
            Kind::Mon => {
                labels["mon_cluster"] = json!(NAMESPACE);
                labels["mon_daemon"] = json!("true");
            }
            Kind::Mgr => {
                labels["instance"] = json!(self.id);
                labels["mgr_role"] = json!("standby");
            }
            Kind::Osd => {
                for (label, value) in [
                    ("device-class", "hdd"),
                    ("device-type", "hdd"),
                    ("encrypted", "false"),
                    ("osd-store", "bluestore"),
                ] {
                    labels[label] = json!(value);
                }
            }
            Kind::Mds | Kind::Rgw => {}
        }
        labels
    }

    /// The labels by which its Deployment finds its pods.
    pub(super) fn selector(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Mon => &["app", "rook_cluster", "ceph_daemon_id", "mon", "mon_cluster"],
            Kind::Mgr => &["app", "rook_cluster", "ceph_daemon_id", "mgr", "instance"],
            Kind::Osd => &["app", "rook_cluster", "ceph-osd-id"],
            Kind::Mds => &["app", "rook_cluster", "ceph_daemon_id", "mds", "rook_file_system"],
            Kind::Rgw => &[
                "app",
                "rook_cluster",
                "ceph_daemon_id",
                "rgw",
                "rook_object_store",
            ],
        }
    }

    /// Annotations of its pods.
    pub(super) fn annotations_of_pods(&self) -> Value {
        match self.kind {
            Kind::Osd => json!({ "cephx-status": "{}" }),
            Kind::Mgr => json!({
                "cephx-key-identifier": "", "prometheus.io/port": "9283", "prometheus.io/scrape": "true",
            }),
            Kind::Mon | Kind::Mds | Kind::Rgw => json!({ "cephx-key-identifier": "" }),
        }
    }

    /// How its Deployment replaces pods.
    pub(super) fn strategy(&self) -> Value {
        match self.kind {
            Kind::Rgw => json!({
                "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 0 },
            }),
            Kind::Mon | Kind::Mgr | Kind::Osd | Kind::Mds => json!({ "type": "Recreate" }),
        }
    }

    /// Variables of its own container.
    pub(super) fn variables(&self) -> Vec<Value> {
        let more: &[&str] = match self.kind {
            Kind::Osd => &OF_OSDS,
            Kind::Mgr => &OF_MANAGERS,
            Kind::Mon | Kind::Mds => &["ROOK_POD_IP"],
            Kind::Rgw => &[],
        };
        let mut all: Vec<Value> = OF_DAEMONS.iter().chain(more).map(|name| plain(name)).collect();
        if self.kind == Kind::Osd {
            // Of a disk that is no disk of any node here.
            all.push(json!({ "name": "ROOK_BLOCK_PATH", "value": format!("/dev/of-osd-{}", self.id) }));
        } else {
            all.push(plain(INITIAL_MONS));
        }
        all.push(self.container_image());
        all
    }

    fn container_image(&self) -> Value {
        json!({ "name": "CONTAINER_IMAGE", "value": self.image })
    }

    /// The containers that come before its own.
    pub(super) fn init_containers(&self) -> Vec<Value> {
        let one = |name: &str, env: Vec<Value>| json!({ "name": name, "image": self.image, "command": ["true"], "env": env });
        let named = |names: &[&str]| names.iter().map(|name| plain(name)).collect();
        let mut all = vec![one("chown-container-data-dir", Vec::new())];
        match self.kind {
            Kind::Mon => {
                let mut env: Vec<Value> = OF_DAEMONS.iter().map(|name| plain(name)).collect();
                env.extend([INITIAL_MONS, "NODE_NAME", "POD_NAME"].map(plain));
                env.push(self.container_image());
                all.push(one("init-mon-fs", env));
            }
            Kind::Osd => {
                let activate = [
                    "CEPH_ARGS",
                    "CEPH_VOLUME_DEBUG",
                    "CEPH_VOLUME_SKIP_RESTORECON",
                    "DM_DISABLE_UDEV",
                    "ROOK_BLOCK_PATH",
                    "ROOK_CEPH_MON_HOST",
                    "ROOK_METADATA_DEVICE",
                    "ROOK_OSD_ID",
                    "ROOK_WAL_DEVICE",
                ];
                all.push(one("activate", named(&activate)));
                all.push(one(
                    "cephx-keyring-update",
                    named(&["CEPH_ARGS", "ROOK_CEPH_MON_HOST"]),
                ));
                all.push(one("expand-bluefs", Vec::new()));
            }
            Kind::Mgr | Kind::Mds | Kind::Rgw => {}
        }
        all
    }

    /// The container beside its own, if there is one. `release`: what the image holds, as Rook says it.
    pub(super) fn beside(&self, release: &str) -> Option<Value> {
        if self.kind != Kind::Mgr {
            return None;
        }
        let mut env: Vec<Value> = OF_WATCH_ACTIVE.iter().map(|name| plain(name)).collect();
        env.push(json!({ "name": "ROOK_CEPH_VERSION", "value": release }));
        Some(json!({
            "name": "watch-active", "image": self.image, "command": ["sleep", "infinity"], "env": env,
        }))
    }
}

/// A variable of which only the name is compared, and which nobody reads here.
fn plain(name: &str) -> Value {
    json!({ "name": name, "value": "" })
}
