//! Where an OSD is in the CRUSH map, from the labels of its node.

use std::collections::BTreeMap;

use crate::names::LEVELS;

/// The levels above `osd`, with the names that a node's labels give them, from the host up; the root is Ceph's
/// own.
///
/// Rook's labels `topology.rook.io/<level>` count, and Kubernetes' own for zone and region. A dot in a host's
/// name becomes a dash, as with Rook.
pub fn location(node: &str, labels: &BTreeMap<String, String>) -> Vec<(&'static str, String)> {
    let host = labels.get("kubernetes.io/hostname").map_or(node, String::as_str);
    let mut found = vec![("host", host.replace('.', "-"))];
    for level in LEVELS {
        if matches!(level, "osd" | "host") {
            continue;
        }
        let own = labels.get(&format!("topology.rook.io/{level}"));
        let of_kubernetes = matches!(level, "zone" | "region")
            .then(|| labels.get(&format!("topology.kubernetes.io/{level}")))
            .flatten();
        if let Some(name) = of_kubernetes.or(own).filter(|name| !name.is_empty()) {
            found.push((level, name.clone()));
        }
    }
    found
}

/// As Ceph's `crush_location` takes it.
pub(super) fn words(location: &[(&str, String)]) -> String {
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
        assert_eq!(words(&place), "root=default host=n1-example-com rack=r1 zone=z1");
        assert_eq!(words(&location("n2", &BTreeMap::new())), "root=default host=n2");
    }
}
