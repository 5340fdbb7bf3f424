//! Daemons that a run does not touch.

use std::collections::BTreeMap;

use stagger_core::model::{Bystander, IdError, Kind};

use crate::facts::CephFacts;

/// Daemons of Ceph that are no units: mirrors, NFS gateways, and whatever else enrols, by what they run. `versions`
/// counts those that tell; of the others the map of services knows that they are there. Those that enrol nowhere, as
/// crash collectors and exporters of plain hosts, nobody can tell of.
///
/// # Errors
/// A kind that cannot be a name.
pub fn bystanders(facts: &CephFacts) -> Result<Vec<Bystander>, IdError> {
    const UNITS: [&str; 5] = ["mon", "mgr", "osd", "mds", "rgw"];
    let mut counted: BTreeMap<(&str, Option<&str>), u32> = BTreeMap::new();
    for (kind, versions) in &facts.versions.by_kind {
        if !UNITS.contains(&kind.as_str()) {
            for (version, count) in versions {
                *counted.entry((kind, Some(version))).or_default() += count;
            }
        }
    }
    for other in &facts.others {
        if !facts.versions.by_kind.contains_key(&other.kind) {
            *counted
                .entry((&other.kind, other.version.as_deref()))
                .or_default() += 1;
        }
    }
    counted
        .into_iter()
        .map(|((kind, release), count)| {
            Ok(Bystander {
                kind: Kind::new(kind)?,
                release: release.map(str::to_owned),
                count,
            })
        })
        .collect()
}
