//! Known risks of a Ceph cluster: queries only what the conditions need.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use stagger_core::model::{Revision, Snapshot};
use stagger_risks::{
    ClusterAnswer, Questions, Risk, RiskFacts, RiskFinding, System, UpgradePath, ceph, judge,
};

use crate::api::{CephApi, QueryTarget};
use crate::facts::CephFacts;

/// The question for the monitors' configuration.
pub const CONFIGURATION: &str = "config dump";

/// What is found of each risk on the way to that release, or to any. `release`: that of a revision.
pub async fn findings(
    api: &dyn CephApi,
    facts: &CephFacts,
    snapshot: &Snapshot,
    known: &[Risk],
    to: Option<&str>,
    accepted: &BTreeSet<String>,
    release: fn(&Revision) -> String,
) -> Vec<RiskFinding> {
    let running = snapshot.units().iter();
    let way = UpgradePath {
        system: System::Ceph,
        running: running.map(|unit| unit.revision.as_ref().map(release)).collect(),
        to: to.map(str::to_owned),
    };
    let cluster = answers(api, facts, snapshot, &Questions::of(known, &way)).await;
    judge(known, &way, &cluster, accepted)
}

async fn answers(api: &dyn CephApi, facts: &CephFacts, snapshot: &Snapshot, asked: &Questions) -> RiskFacts {
    let mut daemons: BTreeMap<String, usize> = BTreeMap::new();
    let units = snapshot.units().iter().map(|unit| unit.kind.as_str());
    let others = facts.others.iter().map(|daemon| daemon.kind.as_str());
    for kind in units.chain(others) {
        *daemons.entry(kind.to_owned()).or_default() += 1;
    }
    let mut metadata = BTreeMap::new();
    for kind in &asked.metadata {
        let answer = ask(api, &format!("{kind} metadata")).await;
        let read = answer.map_or_else(ClusterAnswer::No, |answer| ceph::metadata(kind, &answer));
        metadata.insert(kind.clone(), read);
    }
    RiskFacts {
        daemons: ClusterAnswer::Yes(daemons),
        health: ClusterAnswer::Yes(facts.health.checks.keys().cloned().collect()),
        pools: if asked.pools {
            let answer = ask(api, "osd dump").await;
            answer.map_or_else(ClusterAnswer::No, |answer| ceph::pools(&answer))
        } else {
            ClusterAnswer::No("pools were not asked for".to_owned())
        },
        settings: if asked.options.is_empty() {
            ClusterAnswer::No("settings were not asked for".to_owned())
        } else {
            let answer = ask(api, CONFIGURATION).await;
            answer.map_or_else(ClusterAnswer::No, |answer| ceph::settings(&answer))
        },
        metadata,
    }
}

/// The answer, or why there is none.
async fn ask(api: &dyn CephApi, question: &str) -> Result<Vec<u8>, String> {
    let answer = api.ask(QueryTarget::Mon, json!({ "prefix": question })).await;
    answer.map_err(|error| error.to_string())
}
