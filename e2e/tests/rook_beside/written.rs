//! What Rook writes of each kind of daemon, beside how the harness imitates it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stagger_e2e::ceph::{Daemon, Kind};
use stagger_e2e::ceph_in_pods;
use stagger_e2e::command::say;
use stagger_e2e::rook_cluster::{NAMESPACE, RookCluster, RookSpec, beside_rook};

use crate::AGENT;

/// Where the imitation differs from Rook, by kind and part: what only Rook has, with a `+`, and what only the imitation
/// has, with a `-`. An entry that is no longer true fails the test.
const DIFFERENCES: &str = include_str!("differences.json");

#[test]
#[ignore = "needs root, Go, Ceph and Rook; cargo xtask test --long runs it"]
fn what_rook_writes() -> Result<()> {
    let spec = RookSpec {
        nodes: 3,
        file_system: true,
        object_store: true,
        ..RookSpec::default()
    };
    beside_rook("what_rook_writes", AGENT, spec, |cluster, phases| {
        let written = written(cluster)?;
        for one in cluster.plane.objects(NAMESPACE, "deployments")? {
            let (name, labels) = (&one["metadata"]["name"], &one["metadata"]["labels"]);
            say(format!("{name} {labels} strategy {}", one["spec"]["strategy"]));
        }
        let shown: BTreeMap<_, _> = written
            .iter()
            .map(|(kind, one)| (kind.to_string(), one))
            .collect();
        say(format!("{:#}", json!(shown)));
        phases.lap("told what Rook writes");
        let mut differences = BTreeMap::new();
        for (kind, one) in &written {
            let imitated = ceph_in_pods::imitation(&daemon(*kind)?);
            differences.insert(kind.to_string(), differs(one, &imitated));
        }
        let known: Value = serde_json::from_str(DIFFERENCES).context("reading the known differences")?;
        ensure!(
            json!(differences) == known,
            "the imitation differs from Rook in other ways than {known:#}\nin these: {:#}",
            json!(differences)
        );
        Ok(())
    })
}

/// The first daemon of a kind, as both name it.
fn daemon(kind: Kind) -> Result<Daemon> {
    let spec = stagger_e2e::ceph::CephSpec::default();
    let mut daemons = spec.daemons(kind);
    ensure!(!daemons.is_empty(), "no {kind} in the usual cluster");
    Ok(daemons.remove(0))
}

/// A Deployment of each kind, by what there is to compare.
fn written(cluster: &RookCluster) -> Result<BTreeMap<Kind, Value>> {
    let deployments = cluster.plane.objects(NAMESPACE, "deployments")?;
    let mut written = BTreeMap::new();
    for kind in [Kind::Mon, Kind::Mgr, Kind::Osd, Kind::Mds, Kind::Rgw] {
        let app = format!("rook-ceph-{kind}");
        let found = deployments
            .iter()
            .find(|one| one["metadata"]["labels"]["app"] == app)
            .with_context(|| format!("Rook has written no {app}"))?;
        written.insert(kind, ceph_in_pods::told_of(found));
    }
    Ok(written)
}

/// What only the first has, with a `+`, and what only the other has, with a `-`; for each part.
fn differs(rook: &Value, imitated: &Value) -> BTreeMap<String, Vec<String>> {
    let all = |value: &Value| -> BTreeSet<String> {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(|one| one.as_str().map(str::to_owned)).collect()
    };
    let mut differences = BTreeMap::new();
    for part in rook.as_object().into_iter().flatten().map(|(part, _)| part) {
        let (theirs, ours) = (all(&rook[part]), all(&imitated[part]));
        let more = theirs.difference(&ours).map(|one| format!("+{one}"));
        let less = ours.difference(&theirs).map(|one| format!("-{one}"));
        let all: Vec<String> = more.chain(less).collect();
        if !all.is_empty() {
            differences.insert(part.clone(), all);
        }
    }
    differences
}
