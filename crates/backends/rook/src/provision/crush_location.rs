//! The CRUSH location of an OSD, from the labels of its node; a portable OSD has a host bucket of its own.

use std::collections::BTreeMap;

use crate::api::names::{HOSTNAME, LEVELS};

/// The levels above `osd`, with the names that a node's labels give them, from the host up; the root is Ceph's
/// own.
///
/// Rook's labels `topology.rook.io/<level>` count, and Kubernetes' own for zone and region. A dot in a host's
/// name becomes a dash, as with Rook.
pub fn location(node: &str, labels: &BTreeMap<String, String>) -> Vec<(&'static str, String)> {
    location_of(hostname(node, labels), labels)
}

/// The same with another host than the node.
pub(super) fn location_of(host: &str, labels: &BTreeMap<String, String>) -> Vec<(&'static str, String)> {
    let host = ("host", host.replace('.', "-"));
    let above = above(labels).map(|(level, _, name)| (level, name));
    std::iter::once(host).chain(above).collect()
}

/// The labels that put a node where it is, from the lowest level above the host up.
pub(super) fn topology(labels: &BTreeMap<String, String>) -> Vec<(String, String)> {
    above(labels).map(|(_, label, name)| (label, name)).collect()
}

/// The name by which pods are bound to a node.
pub(super) fn hostname<'a>(node: &'a str, labels: &'a BTreeMap<String, String>) -> &'a str {
    labels.get(HOSTNAME).map_or(node, String::as_str)
}

/// The levels above the host that a node's labels name, each with its label and the name in it.
fn above(labels: &BTreeMap<String, String>) -> impl Iterator<Item = (&'static str, String, String)> {
    let one = |level: &'static str| {
        let rooks = format!("topology.rook.io/{level}");
        let own = format!("topology.kubernetes.io/{level}");
        let is_own = matches!(level, "zone" | "region") && labels.contains_key(&own);
        let label = if is_own { own } else { rooks };
        let name = labels.get(&label).filter(|name| !name.is_empty())?.clone();
        Some((level, label, name))
    };
    let levels = LEVELS
        .into_iter()
        .filter(|level| !matches!(*level, "osd" | "host"));
    levels.filter_map(one)
}

/// As Ceph's `crush_location` takes it.
pub(super) fn crush_arguments(location: &[(&str, String)]) -> String {
    let mut words = "root=default".to_owned();
    for (level, name) in location {
        words.extend([" ", level, "=", name]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_become_a_place() {
        let labels = [
            ("kubernetes.io/hostname", "n1.example.com"),
            ("topology.rook.io/rack", "r1"),
            ("topology.kubernetes.io/zone", "z1"),
            ("topology.rook.io/zone", "other"),
        ];
        let labels = labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let place = location("n1", &labels);
        assert_eq!(
            crush_arguments(&place),
            "root=default host=n1-example-com rack=r1 zone=z1"
        );
        assert_eq!(
            crush_arguments(&location("n2", &BTreeMap::new())),
            "root=default host=n2"
        );
        let place = location_of("set1-data-0", &labels);
        assert_eq!(
            crush_arguments(&place),
            "root=default host=set1-data-0 rack=r1 zone=z1"
        );
        let bound = topology(&labels);
        let bound: Vec<_> = bound
            .iter()
            .map(|(label, name)| (label.as_str(), name.as_str()))
            .collect();
        let expected = [
            ("topology.rook.io/rack", "r1"),
            ("topology.kubernetes.io/zone", "z1"),
        ];
        assert_eq!(bound, expected);
    }
}
