//! What Rook is to lay out.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::NAMESPACE;
use crate::node::Image;
use crate::rook_program::RookRelease;
use crate::roots::Release;

/// The pool that each cluster has.
pub const POOL: &str = "replicated";
/// The file system and the object store, where there are.
pub const FILE_SYSTEM: &str = "fs";
/// See [`FILE_SYSTEM`].
pub const OBJECT_STORE: &str = "store";

/// Settings of Ceph for a small and busy machine.
const SETTINGS: [(&str, &str); 5] = [
    ("osd_pool_default_size", "3"),
    // The disk of the machine is the disk of all its tests.
    ("mon_data_avail_warn", "5"),
    ("mon_warn_on_pool_no_redundancy", "false"),
    ("bluestore_cache_autotune", "false"),
    ("bluestore_cache_size", "16777216"),
];

/// The shape of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RookSpec {
    /// By this Rook.
    pub rook: RookRelease,
    /// The Rook that it is to be upgraded to, if there is to be one.
    pub next_rook: Option<RookRelease>,
    /// Of this Ceph.
    pub ceph: Release,
    /// So many nodes: `n0`, `n1`, and on.
    pub nodes: u8,
    /// In so many zones, one after the other: `z0`, `z1`, and on. None: a node is its own failure domain.
    pub zones: u8,
    /// So many OSDs on each node, each on a disk of its own.
    pub osds_per_node: u8,
    /// So many monitors, each on a node of its own.
    pub mons: u8,
    /// With a file system: an active metadata server and one that follows it.
    pub file_system: bool,
    /// With an object store of one gateway: all nodes have one network, and its port can be taken once.
    pub object_store: bool,
    /// Images more than its own, by name.
    pub images: BTreeMap<String, Image>,
    /// Whether pods that do not ask for their node's network have one of their own.
    pub pod_networks: bool,
}

impl Default for RookSpec {
    fn default() -> Self {
        Self {
            rook: RookRelease::V1_20,
            next_rook: None,
            ceph: Release::Tentacle,
            nodes: 6,
            zones: 3,
            osds_per_node: 1,
            mons: 3,
            file_system: false,
            object_store: false,
            images: BTreeMap::new(),
            pod_networks: false,
        }
    }
}

impl RookSpec {
    /// The names of the nodes.
    pub fn nodes(&self) -> Vec<String> {
        (0..self.nodes).map(|node| format!("n{node}")).collect()
    }

    /// So many OSDs in all.
    pub fn osds(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.osds_per_node)
    }

    /// The address of the node of that number.
    pub(super) fn address(node: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 20, 0, node + 1))
    }

    /// The labels of the node of that number.
    pub(super) fn labels(&self, node: u8) -> BTreeMap<String, String> {
        let zone = node.checked_rem(self.zones);
        zone.map(|zone| ("topology.kubernetes.io/zone".to_owned(), format!("z{zone}")))
            .into_iter()
            .collect()
    }

    /// The CephCluster. `devices` are those of each node, by its name.
    pub(super) fn cluster(&self, image: &str, devices: &BTreeMap<String, Vec<String>>) -> Value {
        let nodes: Vec<Value> = devices
            .iter()
            .map(|(node, devices)| {
                let devices: Vec<Value> = devices.iter().map(|name| json!({ "name": name })).collect();
                json!({ "name": node, "devices": devices })
            })
            .collect();
        json!({
            "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
            "metadata": { "name": NAMESPACE, "namespace": NAMESPACE },
            "spec": {
                "cephVersion": { "image": image },
                "dataDirHostPath": "/var/lib/rook",
                // Without it monitors are at addresses of Services, for which there would have to be a proxy.
                "network": { "provider": "host" },
                "mon": { "count": self.mons, "allowMultiplePerNode": false },
                "mgr": { "count": 2, "allowMultiplePerNode": false },
                "dashboard": { "enabled": false },
                "crashCollector": { "disable": true },
                "logCollector": { "enabled": false },
                "monitoring": { "enabled": false, "metricsDisabled": true },
                "disruptionManagement": { "managePodBudgets": true },
                "storage": { "useAllNodes": false, "useAllDevices": false, "nodes": nodes },
                "cephConfig": { "global": BTreeMap::from(SETTINGS) },
            },
        })
    }

    /// The pool, the file system and the object store.
    pub(super) fn pools(&self) -> Vec<Value> {
        let meta = |name: &str| json!({ "name": name, "namespace": NAMESPACE });
        let failure_domain = if self.zones == 0 { "host" } else { "zone" };
        let pool = json!({ "failureDomain": failure_domain, "replicated": { "size": 3 } });
        let mut all = vec![json!({
            "apiVersion": "ceph.rook.io/v1", "kind": "CephBlockPool",
            "metadata": meta(POOL), "spec": pool,
        })];
        if self.file_system {
            all.push(json!({
                "apiVersion": "ceph.rook.io/v1", "kind": "CephFilesystem",
                "metadata": meta(FILE_SYSTEM),
                "spec": {
                    "metadataPool": pool,
                    "dataPools": [{ "name": "data", "failureDomain": failure_domain, "replicated": { "size": 3 } }],
                    "metadataServer": { "activeCount": 2, "activeStandby": true },
                },
            }));
        }
        if self.object_store {
            all.push(json!({
                "apiVersion": "ceph.rook.io/v1", "kind": "CephObjectStore",
                "metadata": meta(OBJECT_STORE),
                "spec": {
                    "metadataPool": pool, "dataPool": pool,
                    "gateway": { "port": 8080, "instances": 1 },
                },
            }));
        }
        all
    }
}
