//! Tags for htools that stagger's plans ignore: reported, so that they are not mistaken for respected.

use crate::model::GanetiCluster;

/// Tags of the cluster that ask for something, by their beginning, and what that is. Exclusion tags (`htools:iextags:`) are heeded.
const UNHEEDED: [(&str, &str); 4] = [
    (
        "htools:migration:",
        "not every node may migrate instances to every other: say with -O or --nodes which nodes go, or Ganeti's own `hbal` moves",
    ),
    (
        "htools:allowmigration:",
        "some migrations between kinds of nodes are permitted all the same",
    ),
    (
        "htools:nlocation:",
        "the two copies of an instance, and instances alike, are to be in different locations: only --full-evacuation makes new copies",
    ),
    (
        "htools:desiredlocation:",
        "instances are wanted in certain locations: while nodes reboot, they may run elsewhere, and come back",
    ),
];

/// A sentence for each kind of tag that is not heeded.
pub fn ignored_tags(cluster: &GanetiCluster) -> Vec<String> {
    let of_kind = |prefix: &str| -> Vec<&str> {
        let tags = cluster.tags.iter().map(String::as_str);
        tags.filter(|tag| tag.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()))
            .collect()
    };
    UNHEEDED
        .iter()
        .filter_map(|(prefix, what)| {
            let tags = of_kind(prefix);
            (!tags.is_empty())
                .then(|| format!("plans do not heed the cluster's tag {}: {what}", tags.join(", ")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_tag_is_named_once_with_its_tags() {
        let tags = [
            "htools:iextags:service",
            "htools:nlocation:power",
            "htools:nlocation:room",
            "htools:migration:",
            "x",
        ];
        let cluster = GanetiCluster {
            tags: tags.map(str::to_owned).to_vec(),
            ..GanetiCluster::default()
        };
        let named = ignored_tags(&cluster);
        assert_eq!(named.len(), 1, "{named:?}");
        assert!(
            named[0].contains("htools:nlocation:power, htools:nlocation:room"),
            "{named:?}"
        );
    }
}
