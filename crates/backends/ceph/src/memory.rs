//! The state of a Ceph cluster before a run, kept in the run's journal.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use stagger_core::model::UnitId;

use crate::facts::CephFacts;
use crate::host_task::HostTask;
use crate::translate::Baseline;

/// The state of a Ceph cluster before a run, kept in the run's journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CephMemory {
    /// The cluster's health and daemons.
    pub baseline: Baseline,
    /// On which host each daemon ran.
    pub hosts: BTreeMap<UnitId, String>,
    /// The interruptions that a person has permitted, by their names or their sorts.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub interruptions: BTreeSet<String>,
    /// How hosts had booted, where it is they that are rebooted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot: Option<BootsBefore>,
}

/// The boot ids of hosts before a run, kept in the run's journal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootsBefore {
    /// The boot id of each host that answered.
    pub boots: BTreeMap<String, String>,
    /// The host on which stagger runs, whose turn is the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// What is done to each host.
    #[serde(default, skip_serializing_if = "HostTask::is_reboot")]
    pub task: HostTask,
}

/// On which host each daemon is, as it says itself.
pub fn hosts_of(facts: &CephFacts) -> BTreeMap<UnitId, String> {
    let named = [
        ("mon", &facts.mon_metadata),
        ("mgr", &facts.mgr_metadata),
        ("mds", &facts.mds_metadata),
    ];
    let daemons = named.into_iter().flat_map(|(kind, daemons)| {
        daemons
            .iter()
            .map(move |daemon| (format!("{kind}.{}", daemon.name), daemon.host.clone()))
    });
    let osds = facts
        .osd_metadata
        .iter()
        .map(|osd| (format!("osd.{}", osd.id), osd.host.clone()));
    let gateways = facts
        .gateways
        .iter()
        .map(|rgw| (format!("rgw.{}", rgw.name), rgw.host.clone()));
    daemons
        .chain(osds)
        .chain(gateways)
        .filter_map(|(unit, host)| Some((UnitId::new(unit).ok()?, host?)))
        .collect()
}
