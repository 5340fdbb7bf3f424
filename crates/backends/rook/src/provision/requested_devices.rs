//! The devices that the resource requests, by node.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::cluster::{StorageDevice, StorageSpec};

/// What the resource asks for, and what of it is not done here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestedDevices {
    /// The devices, as paths, by node.
    pub devices: BTreeMap<String, BTreeSet<String>>,
    /// Fields that are not obeyed, each in a sentence.
    pub remarks: Vec<String>,
}

/// The devices that `spec.storage` names. `nodes` are all nodes there are, for `useAllNodes`.
///
/// Only devices named one by one are prepared: a filter that matches a disk which somebody has put there for
/// something else costs data, and asking for it by name does not.
pub fn requested_devices(storage: &StorageSpec, nodes: &BTreeSet<String>) -> RequestedDevices {
    let mut requested_devices = RequestedDevices::default();
    if storage.use_all_nodes == Some(true) {
        let devices = paths(storage.devices.as_deref());
        if !devices.is_empty() {
            requested_devices.devices = nodes.iter().map(|node| (node.clone(), devices.clone())).collect();
        }
    } else {
        for node in storage.nodes.iter().flatten() {
            let Some(name) = node.name.clone().filter(|name| !name.is_empty()) else {
                let what = "a node in spec.storage.nodes has no name: give it that of its Node";
                requested_devices.remarks.push(what.to_owned());
                continue;
            };
            let mut devices = paths(node.devices.as_deref());
            if node.devices.is_none() {
                devices = paths(storage.devices.as_deref());
            }
            if !devices.is_empty() {
                requested_devices.devices.entry(name).or_default().extend(devices);
            }
        }
    }
    let of_nodes = || storage.nodes.iter().flatten();
    let mut say = |is_set: bool, field: &str| {
        if is_set {
            requested_devices.remarks.push(format!(
                "spec.storage.{field} is set, and no device is chosen by it here: name the devices, or have Rook \
                 prepare them"
            ));
        }
    };
    say(
        storage.use_all_devices == Some(true) || of_nodes().any(|node| node.use_all_devices == Some(true)),
        "useAllDevices",
    );
    let is_set = |filter: &Option<String>| filter.as_deref().is_some_and(|filter| !filter.is_empty());
    say(
        is_set(&storage.device_filter) || of_nodes().any(|node| is_set(&node.device_filter)),
        "deviceFilter",
    );
    say(
        is_set(&storage.device_path_filter) || of_nodes().any(|node| is_set(&node.device_path_filter)),
        "devicePathFilter",
    );
    requested_devices
}

fn paths(devices: Option<&[StorageDevice]>) -> BTreeSet<String> {
    let path = |device: &StorageDevice| {
        let full = device.fullpath.clone().filter(|path| !path.is_empty());
        full.or_else(|| device.name.clone())
    };
    devices
        .into_iter()
        .flatten()
        .filter_map(path)
        .map(|name| {
            if name.starts_with('/') {
                name
            } else {
                format!("/dev/{name}")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(storage: Value) -> RequestedDevices {
        let nodes = ["n1", "n2"].map(str::to_owned).into();
        requested_devices(&serde_json::from_value(storage).unwrap(), &nodes)
    }

    #[test]
    fn devices_are_named_in_each_of_rooks_ways() {
        let one = of(json!({ "useAllNodes": false, "nodes": [
            { "name": "n1", "devices": [{ "name": "sdb" }, { "name": "/dev/sdc" }] },
            { "name": "n3", "devices": [{ "name": "x", "fullpath": "/dev/disk/by-id/x" }] },
            { "name": "n4" },
        ] }));
        let expected = json!({ "n1": ["/dev/sdb", "/dev/sdc"], "n3": ["/dev/disk/by-id/x"] });
        assert_eq!(serde_json::to_value(&one.devices).unwrap(), expected);
        assert!(one.remarks.is_empty());
        let all = of(json!({ "useAllNodes": true, "devices": [{ "name": "nvme0n1" }] }));
        let expected = json!({ "n1": ["/dev/nvme0n1"], "n2": ["/dev/nvme0n1"] });
        assert_eq!(serde_json::to_value(&all.devices).unwrap(), expected);
        assert_eq!(
            of(json!({ "useAllNodes": true, "useAllDevices": false })),
            RequestedDevices::default()
        );
    }

    #[test]
    fn what_is_not_obeyed_is_said() {
        let all = of(json!({
            "useAllNodes": true, "useAllDevices": true, "deviceFilter": "^sd.",
            "nodes": [{ "name": "n1", "devicePathFilter": "x" }],
        }));
        assert_eq!(all.devices, BTreeMap::new());
        assert_eq!(all.remarks.len(), 3, "{:?}", all.remarks);
        let nameless = of(json!({ "nodes": [{ "devices": [{ "name": "sdb" }] }] }));
        assert_eq!(nameless.devices, BTreeMap::new());
        assert!(nameless.remarks[0].contains("no name"));
    }
}
