//! The daemons of a cluster, as Kubernetes shows them.

use std::collections::BTreeSet;

use kube::ResourceExt as _;

use crate::api::cache::ObjectCache;
use crate::api::daemons::{self, osd_of};
use crate::api::names;
use crate::disruption::drains::{Osd, fixed};

/// The OSDs, with their failure domains of a level.
pub(super) fn osds(watched: &ObjectCache, level: Option<&str>) -> Vec<Osd> {
    let label = names::topology(level.unwrap_or("host"));
    let (found, _) = watched.daemons();
    let mut osds = Vec::new();
    for (unit, deployment) in found {
        let Some(id) = osd_of(&unit) else {
            continue;
        };
        let pods = watched.pods_of(&deployment);
        let leaving = pods.iter().any(|pod| {
            let status = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            let evicted = status
                .into_iter()
                .flatten()
                .any(|one| one.type_ == "DisruptionTarget" && one.status == "True");
            pod.metadata.deletion_timestamp.is_some() || evicted
        });
        let template = deployment.spec.template.spec.as_ref();
        let pinned = template
            .and_then(|spec| spec.node_selector.as_ref())
            .and_then(|selector| selector.hostname.clone());
        let bound = pods
            .iter()
            .find_map(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
        osds.push(Osd {
            id,
            domain: deployment.labels().get(&label).cloned(),
            serves: daemons::serves(&deployment),
            leaving,
            // Until Ceph is asked.
            up: true,
            cordoned: bound.or(pinned).filter(|node| watched.is_cordoned(node)),
            replaced: daemons::is_being_replaced(&deployment),
        });
    }
    osds
}

/// All other daemons.
pub(super) fn others(watched: &ObjectCache, quorum: &BTreeSet<String>) -> Vec<fixed::Daemon> {
    watched
        .deployments()
        .iter()
        .filter_map(|deployment| {
            let labels = deployment.labels();
            let group = ["rook_file_system", "rook_object_store"]
                .into_iter()
                .find_map(|label| Some((label.to_owned(), labels.get(label)?.clone())));
            let app = labels.get(names::APP)?.clone();
            // Rook's monitors have no readiness probe: their pods are ready, whatever they do.
            let id = labels.get(daemons::ID);
            let is_out = app == names::MON_APP && !id.is_some_and(|id| quorum.contains(id));
            // With no quorum none is known to be out of it.
            let out = id.filter(|_| is_out && !quorum.is_empty()).cloned();
            let ready = deployment
                .status
                .as_ref()
                .and_then(|status| status.ready_replicas)
                .filter(|_| !is_out);
            let number = |count: Option<i32>, default: u32| {
                count
                    .and_then(|count| u32::try_from(count).ok())
                    .unwrap_or(default)
            };
            Some(fixed::Daemon {
                app,
                group,
                count: number(deployment.spec.replicas, 1),
                ready: number(ready, 0),
                out,
            })
        })
        .collect()
}
