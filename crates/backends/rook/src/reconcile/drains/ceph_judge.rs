//! Ceph's own state during drains, and the check that uses it.

use std::collections::BTreeSet;

use serde::Deserialize;
use stagger_ceph::facts::pg_state::PgState;
use stagger_core::model::{ConditionName, Down, Ix, Snapshot, UnitId, UnitState, Verdict};
use stagger_engine::cluster::BackendError;

use crate::disruption::drains::eviction::Recovery;
use crate::disruption::drains::{Groups, Judge};

/// What `status` says, as far as it is asked.
#[derive(Deserialize)]
pub(super) struct DrainCephStatus {
    osdmap: OsdMap,
    pgmap: PgMap,
    /// The monitors that are in the quorum.
    pub(super) quorum_names: BTreeSet<String>,
}

#[derive(Deserialize)]
struct OsdMap {
    epoch: u64,
    num_osds: u32,
    num_up_osds: u32,
}

#[derive(Deserialize)]
struct PgMap {
    pgs_by_state: Vec<InState>,
    /// Copies of objects that are missing, and how many come back in a second; both are left out where they are 0.
    #[serde(default)]
    degraded_objects: u64,
    #[serde(default)]
    recovering_objects_per_sec: u64,
}

#[derive(Deserialize)]
struct InState {
    state_name: String,
}

impl DrainCephStatus {
    /// The epoch of the map of OSDs, if all of them are up and all placement groups are clean.
    pub(super) fn healthy_epoch(&self) -> Option<u64> {
        let mut states = self.pgmap.pgs_by_state.iter();
        let is_well = self.osdmap.num_osds == self.osdmap.num_up_osds
            && states.all(|state| PgState::parse(&state.state_name).clean());
        is_well.then_some(self.osdmap.epoch)
    }

    /// How far recovery is, if copies are missing.
    pub(super) fn recovery(&self) -> Option<Recovery> {
        let missing = self.pgmap.degraded_objects;
        (missing > 0).then_some(Recovery {
            missing,
            per_second: self.pgmap.recovering_objects_per_sec,
        })
    }
}

/// Nothing is asked of Ceph: it is as it was when each OSD was proven to be one that may go.
pub(super) struct AsProven;

impl Judge for AsProven {
    fn may_go(&self, _: &BTreeSet<u32>, _: &BTreeSet<u32>) -> Result<(), String> {
        Err("only one at a time was proven".to_owned())
    }

    fn any_one_may_go(&self, _: &BTreeSet<u32>, _: &BTreeSet<u32>) -> Result<(), String> {
        Ok(())
    }
}

/// What was just seen of Ceph.
pub(super) struct CephJudge(pub(super) Snapshot);

impl CephJudge {
    fn unit(&self, osd: u32) -> Option<Ix> {
        let id = UnitId::new(format!("osd.{osd}")).ok()?;
        self.0.find(&id)
    }

    /// These as units. What Ceph does not know, or has destroyed, or has down and out, is none, and nobody misses it: its
    /// Deployment may wait for the disk that takes its place.
    fn units(&self, osds: &BTreeSet<u32>) -> Result<Vec<Ix>, String> {
        let known = osds.iter().filter_map(|osd| Some((osd, self.unit(*osd)?)));
        let units = known.map(|(osd, unit)| match self.0.unit(unit).state {
            UnitState::Unknown => Err(format!("it is not known whether osd.{osd} serves")),
            UnitState::Serving | UnitState::Down => Ok(unit),
        });
        units.collect()
    }

    /// What is down, and what is as good as that; what Ceph does not know nobody misses.
    fn down(&self, gone: &BTreeSet<u32>) -> Down {
        let gone: Vec<Ix> = gone.iter().filter_map(|osd| self.unit(*osd)).collect();
        self.0.down().with(&gone)
    }
}

impl Judge for CephJudge {
    fn may_go(&self, gone: &BTreeSet<u32>, set: &BTreeSet<u32>) -> Result<(), String> {
        let budgets = self.0.budgets();
        let permitted = budgets.permit(&self.down(gone), &self.units(set)?);
        permitted.map_err(|found| self.0.describe_violation(budgets, &found))
    }

    fn any_one_may_go(&self, gone: &BTreeSet<u32>, set: &BTreeSet<u32>) -> Result<(), String> {
        let budgets = self.0.budgets();
        let each: Vec<Vec<Ix>> = self.units(set)?.into_iter().map(|unit| vec![unit]).collect();
        let mut permitted = budgets.permit_each(&self.down(gone), &each).into_iter();
        let refused = permitted.find_map(Result::err);
        refused.map_or(Ok(()), |found| Err(self.0.describe_violation(budgets, &found)))
    }
}

/// Whether all placement groups have all their copies.
pub(super) fn groups(seen: &Snapshot) -> Result<Groups, BackendError> {
    for name in ["pgs-known", "pg-stats-fresh", "pgs-clean"] {
        let name = ConditionName::new(name)
            .map_err(|error| BackendError::permanent("name a condition", error.to_string()))?;
        let condition = seen.condition(&name);
        if condition.verdict != Verdict::Yes {
            return Ok(Groups::NotClean {
                why: format!("{name}: {}", condition.why),
            });
        }
    }
    Ok(Groups::Clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its Deployment waits for the disk that takes its place, and all others would wait with it.
    #[test]
    fn who_is_no_unit_keeps_nobody_from_going() {
        let cluster = stagger_core::model::ClusterName::new("c").unwrap();
        let seen = Snapshot::new(
            cluster,
            jiff::Timestamp::UNIX_EPOCH,
            String::new(),
            Vec::new(),
            stagger_core::model::Budgets::default(),
            Vec::new(),
            std::collections::BTreeMap::new(),
        );
        let judge = CephJudge(seen.unwrap());
        let (nobody, destroyed) = (BTreeSet::new(), BTreeSet::from([7]));
        assert_eq!(judge.may_go(&nobody, &destroyed), Ok(()));
        assert_eq!(judge.any_one_may_go(&nobody, &destroyed), Ok(()));
    }

    #[test]
    fn the_status_of_a_real_cluster_is_read() {
        for release in ["16.2.15", "18.2.7", "20.2.4"] {
            let file = format!(
                "{}/../ceph/tests/fixtures/{release}/status.json",
                env!("CARGO_MANIFEST_DIR")
            );
            let text = std::fs::read_to_string(&file).unwrap();
            let status: DrainCephStatus = serde_json::from_str(&text).unwrap();
            assert!(status.healthy_epoch().is_some(), "{file}");
            assert_eq!(status.quorum_names.len(), 3, "{file}");
            let down = text.replacen("\"num_up_osds\":", "\"num_up_osds\":1", 1);
            let status: DrainCephStatus = serde_json::from_str(&down).unwrap();
            assert_eq!(status.healthy_epoch(), None, "{file}");
            let degraded = text.replacen("active+clean", "active+undersized+degraded", 1);
            let status: DrainCephStatus = serde_json::from_str(&degraded).unwrap();
            assert_eq!(status.healthy_epoch(), None, "{file}");
        }
    }
}
