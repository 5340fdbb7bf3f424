//! Whether a daemon of a wave's kind that is not in the wave is terminating.

use std::collections::BTreeSet;
use std::sync::Arc;

use stagger_core::model::{UnitId, UnitState};
use stagger_engine::cluster::Executor as _;

use super::RookBackend;
use crate::api::daemons::kind_of;
use crate::api::objects::Pod;

impl RookBackend {
    /// Each of two monitors may stop, as Ceph says of each, and not both: one whose pod is ending is in the quorum until it has.
    pub(super) async fn check_same_kind(&self, units: &[UnitId]) -> Result<(), String> {
        let kinds: BTreeSet<&str> = units.iter().map(kind_of).collect();
        for kind in &kinds {
            if let Some(unit) = self.parts.exposed.evicting_of_kind(kind, units) {
                return Err(format!("the eviction of {unit} was granted just now"));
            }
        }
        let (daemons, _) = self.parts.watched.daemons();
        let leaving: Vec<&UnitId> = daemons
            .iter()
            .filter(|(unit, _)| kinds.contains(kind_of(unit)) && !units.contains(unit))
            .filter(|(_, deployment)| is_terminating(&self.parts.watched.pods_of(deployment)))
            .map(|(unit, _)| unit)
            .collect();
        if leaving.is_empty() {
            return Ok(());
        }
        // On a node that is lost it may be ending for ever: one that Ceph has down counts as down for both judges.
        let seen = self.observe().await.map_err(|error| error.to_string())?;
        let is_up = |unit: &&UnitId| {
            let found = seen.find(unit).map(|unit| seen.unit(unit).state);
            found.is_some_and(|state| state != UnitState::Down)
        };
        match leaving.into_iter().find(is_up) {
            Some(unit) => Err(format!("the pod of {unit} is ending, and Ceph still has it up")),
            None => Ok(()),
        }
    }
}

/// Whether a pod of a daemon ends and none that is ready has taken its place, as after a gateway's update.
fn is_terminating(pods: &[Arc<Pod>]) -> bool {
    let ends = |pod: &&Arc<Pod>| pod.metadata.deletion_timestamp.is_some();
    let is_ready = |pod: &Arc<Pod>| {
        let status = pod.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one.type_ == "Ready" && one.status == "True")
    };
    let (ending, others): (Vec<_>, Vec<_>) = pods.iter().partition(ends);
    !ending.is_empty() && !others.into_iter().any(is_ready)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(ends: bool, ready: bool) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": { "name": "rook-ceph-mon-a-x" },
            "status": { "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] },
        });
        if ends {
            pod["metadata"]["deletionTimestamp"] = json!("2026-11-29T00:00:00Z");
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_daemon_is_on_its_way_out_until_another_pod_of_it_serves() {
        let told = |pods: &[(bool, bool)]| {
            let pods: Vec<_> = pods.iter().map(|(ends, ready)| pod(*ends, *ready)).collect();
            is_terminating(&pods)
        };
        assert!(told(&[(true, true)]));
        assert!(told(&[(true, false), (false, false)]));
        assert!(!told(&[(true, true), (false, true)]));
        assert!(!told(&[(false, true)]) && !told(&[]));
    }
}
