//! The snapshot of a Rook cluster: Ceph's facts and the daemons' Deployments together.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use stagger_ceph::facts::CephFacts;
use stagger_ceph::facts::rgw::Gateway;
use stagger_ceph::translate::{
    Baseline, HealthPolicy, Permitted, absent, budgets, conditions, interruptions, units, with_recovered,
};
use stagger_core::model::{ClusterName, IdError, Reason, Revision, Snapshot, Unit, UnitId};
use stagger_engine::cluster::BackendError;

use crate::api::cache::ObjectCache;
use crate::api::daemons::{kind_of, wants_replicas};
use crate::api::names::DO_NOT_RECONCILE;
use crate::api::objects::{Deployment, Pod};
use crate::api::pod::{self, Fields};
use crate::api::pod_revision::{PodRevision, image_of};
use crate::executor::beside::{self, RookProgress};
use crate::executor::goal::Goal;
use crate::executor::memory::RookMemory;
use crate::executor::rollout::is_rolled_out;
use crate::executor::{managed_fields, migrations, skip_checks};

/// A snapshot of these facts and of what Kubernetes shows. `memory`: of the run that it is for; `permitted`: the interruptions
/// that a person permits; `rook`: what it has done of its part, for a run beside it.
///
/// # Errors
/// Facts that make no snapshot.
pub fn snapshot(
    cluster: &ClusterName,
    facts: &CephFacts,
    memory: Option<&RookMemory>,
    permitted: &Permitted,
    watched: &ObjectCache,
    rook: Option<&RookProgress>,
) -> Result<Snapshot, BackendError> {
    let tried = "make sense of the cluster's facts";
    let baseline = memory.map(|memory| &memory.baseline);
    let health = memory.map_or_else(HealthPolicy::default, |memory| memory.wish.health());
    let none = BTreeMap::new();
    let named = memory.map_or(&none, |memory| &memory.wish.pods);
    let units = units_of(facts, baseline, watched, named)?;
    let places: BTreeMap<&str, u32> = units
        .iter()
        .enumerate()
        .map(|(at, unit)| (unit.id.as_str(), at as u32))
        .collect();
    let baseline = baseline.map(|baseline| with_wanted_standbys(baseline, watched));
    let absent = absent(facts, baseline.as_ref())
        .map_err(|error| BackendError::permanent(tried, error.to_string()))?;
    let mut conditions = conditions(facts, &units, &health, baseline.as_ref())
        .map_err(|error| BackendError::transient(tried, error.to_string()))?;
    let facts = if memory.is_some_and(|memory| memory.wish.skip_checks) {
        skip_checks::apply(&mut conditions);
        &skip_checks::without_groups(facts)
    } else {
        facts
    };
    let budgets = budgets(facts, &places, permitted);
    let interruptions = interruptions(facts, &places, permitted)
        .map_err(|error| BackendError::permanent(tried, error.to_string()))?;
    let left = migrations::conditions(&watched.deployments())
        .map_err(|error| BackendError::permanent(tried, error.to_string()))?;
    conditions.extend(left);
    if let Some((memory, rook)) = memory.filter(|memory| memory.beside.is_some()).zip(rook) {
        let (daemons, _) = watched.daemons();
        let steps = beside::conditions(memory.changes(), &daemons, rook)
            .map_err(|error| BackendError::permanent(tried, error.to_string()))?;
        conditions.extend(steps);
    }
    Snapshot::new(
        cluster.clone(),
        facts.collected_at,
        format!("osdmap {}", facts.osds.epoch),
        units,
        budgets,
        conditions,
        BTreeMap::new(),
    )
    .and_then(|snapshot| {
        let snapshot = snapshot.with_absent(absent).with_interruptions(interruptions);
        with_recovered(snapshot, facts, permitted)
    })
    .map_err(|error| BackendError::transient(tried, error.to_string()))
}

/// The daemons as units, with the revisions of their pods: the release is what Ceph says that runs, the
/// rest what the youngest pod is made of, as far as it is `named`, or its Deployment where that is rolled out.
///
/// # Errors
/// A name that cannot be used.
pub fn units_of(
    facts: &CephFacts,
    baseline: Option<&Baseline>,
    watched: &ObjectCache,
    named: &BTreeMap<String, Fields>,
) -> Result<Vec<Unit>, BackendError> {
    let failed = |error: IdError| BackendError::permanent("name the cluster's daemons", error.to_string());
    let there: BTreeSet<UnitId> = units(facts, None)
        .map_err(failed)?
        .into_iter()
        .map(|unit| unit.id)
        .collect();
    let mut units = units(facts, baseline).map_err(failed)?;
    let (daemons, _) = watched.daemons();
    // What its owner has taken away or scaled to nothing meanwhile is not missing.
    units.retain(|unit| {
        there.contains(&unit.id)
            || daemons
                .get(&unit.id)
                .is_some_and(|deployment| wants_replicas(deployment))
    });
    for unit in &mut units {
        let Some(deployment) = daemons.get(&unit.id) else {
            unit.untouchable = Some(Reason::of_backend(
                "no-deployment",
                "no Deployment in the cluster's namespace has its labels",
            ));
            continue;
        };
        if let Some(node) = watched.closed_node(deployment) {
            unit.untouchable = Some(Reason::of_backend(
                "node-cordoned",
                format!("its node {node} takes no new pods; it continues when the node is uncordoned"),
            ));
        }
        if deployment.labels().contains_key(DO_NOT_RECONCILE) && managed_fields::holder(deployment).is_none()
        {
            unit.untouchable = Some(Reason::of_backend(
                "left-alone-by-label",
                format!("its Deployment has the label {DO_NOT_RECONCILE}"),
            ));
        }
        // What is only known from before the run has its revision from then.
        if let Some(release) = unit.revision.take_if(|_| there.contains(&unit.id)) {
            let pods = watched.pods_of(deployment);
            let youngest = pods
                .iter()
                .filter(|pod| pod.metadata.deletion_timestamp.is_none())
                .max_by_key(|pod| pod.metadata.creation_timestamp.clone());
            let kind = kind_of(&unit.id);
            let made =
                youngest.and_then(|pod| pod_revision(deployment, pod, kind, &release, named.get(kind)));
            unit.revision = made.map(|made| made.revision()).transpose().map_err(failed)?;
        }
    }
    Ok(units)
}

/// What a Deployment's youngest pod is made of: where all of its pods are of its template, what that says, for in a pod another may have
/// written another registry, and no plan would ever be done with it.
fn pod_revision(
    deployment: &Deployment,
    youngest: &Pod,
    kind: &str,
    release: &Revision,
    named: Option<&Fields>,
) -> Option<PodRevision> {
    let template = &deployment.spec.template;
    let (spec, fields) = if let Some(spec) = template.spec.as_ref().filter(|_| is_rolled_out(deployment)) {
        (spec, pod::template_fields(template, kind, named))
    } else {
        let spec = youngest.spec.as_ref()?;
        let annotations = youngest.metadata.annotations.as_ref();
        (spec, pod::pod_fields(annotations, spec, kind, named))
    };
    Some(PodRevision {
        image: image_of(spec, kind)?.to_owned(),
        release: release.as_str().to_owned(),
        fields,
    })
}

/// A gateway's pod that moves to another node is still the same gateway, and the service map shows it twice
/// for a while: the later one counts.
pub fn drop_moved_gateways(facts: &mut CephFacts) {
    let mut latest: BTreeMap<String, Gateway> = BTreeMap::new();
    for mut gateway in std::mem::take(&mut facts.gateways) {
        if let Some((name, _)) = gateway.name.split_once('@') {
            gateway.name.truncate(name.len());
        }
        match latest.get(&gateway.name) {
            Some(known) if known.gid > gateway.gid => {}
            Some(_) | None => drop(latest.insert(gateway.name.clone(), gateway)),
        }
    }
    facts.gateways = latest.into_values().collect();
}

/// A manager whose Deployment has gone or was scaled to nothing need not stand by.
fn with_wanted_standbys(baseline: &Baseline, watched: &ObjectCache) -> Baseline {
    let (daemons, _) = watched.daemons();
    let managers = daemons
        .iter()
        .filter(|(unit, deployment)| kind_of(unit) == "mgr" && wants_replicas(deployment))
        .count();
    let standbys = u32::try_from(managers.saturating_sub(1)).unwrap_or(u32::MAX);
    Baseline {
        mgr_standbys: baseline.mgr_standbys.min(standbys),
        ..baseline.clone()
    }
}

/// The interruptions that a wish permits, by their names or their sorts.
///
/// Rook itself upgrades a manager, a metadata server or a gateway that is alone, and whoever lays a cluster out so says as
/// much. Who skips all checks asks for nobody's word.
pub fn permitted_interruptions(wish: Option<&Goal>) -> impl Iterator<Item = String> {
    let unchecked = wish.is_some_and(|wish| wish.skip_checks);
    let sorts = if unchecked { &["mon", "pool"][..] } else { &[] };
    let named = wish
        .into_iter()
        .flat_map(|wish| wish.policy.interruptions.clone());
    let sorts = ["mgr", "mds", "rgw"].iter().chain(sorts);
    sorts.map(|sort| (*sort).to_owned()).chain(named)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn osd(image: &str, status: &Value) -> Deployment {
        serde_json::from_value(json!({
            "metadata": { "name": "rook-ceph-osd-3", "generation": 2 },
            "spec": { "selector": {}, "template": { "spec": { "containers": [{ "name": "osd", "image": image }] } } },
            "status": status,
        }))
        .unwrap()
    }

    /// Where an admission webhook puts a mirror in the place of each registry.
    #[test]
    fn a_pod_whose_image_was_rewritten_is_made_of_its_deployments_template() {
        let (old, new) = ("quay.io/ceph/ceph:v20.2.4", "quay.io/ceph/ceph:v20.2.5");
        let mirrored = "mirror.local/ceph/ceph:v20.2.4";
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "rook-ceph-osd-3-x" },
            "spec": { "containers": [{ "name": "osd", "image": mirrored }] },
        }))
        .unwrap();
        let release = Revision::new("20.2.4").unwrap();
        let made = |deployment: &Deployment| {
            pod_revision(deployment, &pod, "osd", &release, None)
                .unwrap()
                .image
        };
        let done =
            json!({ "observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1 });
        assert_eq!(made(&osd(old, &done)), old);
        // Another image was written, and the pod is still the one of before.
        let before =
            json!({ "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1 });
        assert_eq!(made(&osd(new, &before)), mirrored);
        let begun = json!({ "observedGeneration": 2, "replicas": 1, "readyReplicas": 1 });
        assert_eq!(made(&osd(new, &begun)), mirrored);
    }
}
