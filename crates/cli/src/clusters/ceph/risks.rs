//! Which known risks a Ceph meets: what conditions ask is asked, and no more.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use stagger_ceph::api::{CephApi, Whom};
use stagger_risks::{Cluster, Finding, Known, Questions, Risk, System, Way, ceph, judge};

use super::ObservedCeph;

/// The question for the monitors' configuration.
pub(super) const CONFIGURATION: &str = "config dump";

impl ObservedCeph {
    /// What is found of each risk on the way to that release, or to any.
    pub(super) async fn risks(
        &self,
        known: &[Risk],
        to: Option<&str>,
        accepted: &BTreeSet<String>,
    ) -> Vec<Finding> {
        let running = self.snapshot.units().iter();
        let way = Way {
            system: System::Ceph,
            running: running
                .map(|unit| {
                    unit.revision
                        .as_ref()
                        .map(|revision| revision.as_str().to_owned())
                })
                .collect(),
            to: to.map(str::to_owned),
        };
        let cluster = self.answers(&Questions::of(known, &way)).await;
        judge(known, &way, &cluster, accepted)
    }

    async fn answers(&self, asked: &Questions) -> Cluster {
        let mut daemons: BTreeMap<String, usize> = BTreeMap::new();
        let units = self.snapshot.units().iter().map(|unit| unit.kind.as_str());
        let others = self.facts.others.iter().map(|daemon| daemon.kind.as_str());
        for kind in units.chain(others) {
            *daemons.entry(kind.to_owned()).or_default() += 1;
        }
        let mut metadata = BTreeMap::new();
        for kind in &asked.metadata {
            let answer = self.ask(&format!("{kind} metadata")).await;
            let read = answer.map_or_else(Known::No, |answer| ceph::metadata(kind, &answer));
            metadata.insert(kind.clone(), read);
        }
        Cluster {
            daemons: Known::Yes(daemons),
            health: Known::Yes(self.facts.health.checks.keys().cloned().collect()),
            pools: if asked.pools {
                let answer = self.ask("osd dump").await;
                answer.map_or_else(Known::No, |answer| ceph::pools(&answer))
            } else {
                Known::No("pools were not asked for".to_owned())
            },
            settings: if asked.options.is_empty() {
                Known::No("settings were not asked for".to_owned())
            } else {
                let answer = self.ask(CONFIGURATION).await;
                answer.map_or_else(Known::No, |answer| ceph::settings(&answer))
            },
            metadata,
        }
    }

    /// The answer, or why there is none.
    async fn ask(&self, question: &str) -> Result<Vec<u8>, String> {
        let answer = self.api.ask(Whom::Mon, json!({ "prefix": question })).await;
        answer.map_err(|error| error.to_string())
    }
}

/// What is kept of the configuration, for risks to be judged by later; `None`: nobody may look at it.
pub(super) async fn configuration_kept(api: &dyn CephApi, known: &[Risk]) -> Option<Value> {
    let options = Questions::options_of(known, System::Ceph);
    if options.is_empty() {
        return None;
    }
    let answer = api
        .ask(Whom::Mon, json!({ "prefix": CONFIGURATION }))
        .await
        .ok()?;
    ceph::settings_kept(&answer, &options)
}
