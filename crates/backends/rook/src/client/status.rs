//! An operator's status of a cluster, read back from its CephMaintenance: the counterpart of
//! [`operator`](crate::operator)'s status.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stagger_core::releases::document;
use stagger_core::run::Command;
use stagger_core::view::RunView;

use crate::api::maintenance::{CephMaintenance, Manage};
use crate::api::names::COMMAND;

/// What is known of a cluster and its upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaintenanceStatus {
    /// The namespace of the CephMaintenance.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The CephCluster that it manages.
    pub cluster: String,
    /// What stagger manages: `drains`, `updates`, `provisioning`; if empty: it only observes.
    pub manages: Vec<String>,
    /// The target image.
    pub image: Option<String>,
    /// `Ready`, `Progressing`, `Blocked`; absent: no operator has reported yet.
    pub phase: Option<String>,
    /// The machine-readable reason.
    pub reason: Option<String>,
    /// A sentence for people.
    pub message: Option<String>,
    /// As Kubernetes' tools know them.
    pub conditions: Vec<MaintenanceCondition>,
    /// Whether all this is about the spec as it is now.
    pub about_this_spec: bool,
    /// The command in the annotation.
    pub command: Option<String>,
    /// The last command that was processed.
    pub heard: Option<String>,
    /// The image that was rolled back or aborted: it is not tried again by itself.
    pub gave_up: Option<String>,
    /// What drains block.
    pub drains: Option<Drains>,
    /// The run, or the last one.
    pub run: Option<RunView>,
    /// Why the run cannot be shown, if it cannot.
    pub unreadable: Option<String>,
    /// Whether there is an operator.
    pub leader: Leader,
}

/// A condition of the CephMaintenance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Condition")]
pub struct MaintenanceCondition {
    /// `UpToDate`, `Progressing`, `Blocked`, `Available`, `Degraded`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False`.
    pub status: String,
    /// The machine-readable reason.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// Since when it is so.
    pub last_transition_time: Option<Timestamp>,
}

/// `status.drains`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all(deserialize = "camelCase"))]
#[schemars(deny_unknown_fields)]
pub struct Drains {
    /// The failure domains from which nothing may be evicted; at most 20.
    pub blocked: Vec<String>,
    /// How many they are.
    pub blocked_count: usize,
    /// Why.
    pub why: String,
    /// The failure domains that are being drained.
    pub draining: Vec<String>,
    /// Those with a cordoned node from which nothing may be evicted.
    pub waiting: Vec<String>,
    /// Those with `noout`, and until when.
    pub noout: BTreeMap<String, Timestamp>,
}

/// Whether an operator leads, by its Lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Leader {
    /// One does.
    Leads {
        /// Who.
        holder: String,
        /// When it last said so.
        renewed: Timestamp,
    },
    /// One did, and has not renewed its Lease in time.
    Expired {
        /// Who.
        holder: String,
        /// When it last said so.
        renewed: Timestamp,
    },
    /// There is no Lease, or it is not held.
    Nobody,
    /// The Lease cannot be read.
    Unknown {
        /// Why.
        why: String,
    },
}

impl Leader {
    /// What a Lease says at a time.
    pub fn of(lease: Option<&Lease>, now: Timestamp) -> Self {
        let Some(spec) = lease.and_then(|lease| lease.spec.as_ref()) else {
            return Self::Nobody;
        };
        let (Some(holder), Some(renewed)) = (&spec.holder_identity, &spec.renew_time) else {
            return Self::Nobody;
        };
        let (holder, renewed) = (holder.clone(), renewed.0);
        let lasts = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(0).into());
        if now.duration_since(renewed) > lasts {
            Self::Expired { holder, renewed }
        } else {
            Self::Leads { holder, renewed }
        }
    }

    /// Whether nobody would hear a command.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Expired { .. } | Self::Nobody => true,
            Self::Leads { .. } | Self::Unknown { .. } => false,
        }
    }
}

impl MaintenanceStatus {
    /// What a CephMaintenance says.
    pub fn of(maintenance: &CephMaintenance, leader: Leader) -> Self {
        let status = maintenance.status.clone().unwrap_or_default();
        let conditions: Vec<MaintenanceCondition> = status
            .conditions
            .into_iter()
            .map(|one| MaintenanceCondition {
                kind: one.kind,
                status: one.status,
                reason: one.reason,
                message: one.message,
                last_transition_time: one.last_transition_time.and_then(|at| at.parse().ok()),
            })
            .collect();
        let (run, unreadable) = match &status.run {
            Some(run) => match read(&run.0) {
                Ok(run) => (Some(run), None),
                Err(why) => (None, Some(why)),
            },
            None => (None, None),
        };
        let spec = &maintenance.spec;
        let word = |what: &Manage| serde_json::to_value(what).ok()?.as_str().map(str::to_owned);
        Self {
            namespace: maintenance.namespace().unwrap_or_default(),
            name: maintenance.name_any(),
            cluster: spec.ceph_cluster.clone(),
            manages: spec.manage.iter().filter_map(word).collect(),
            image: status.image.or_else(|| spec.image.clone()),
            phase: status.phase.filter(|phase| !phase.is_empty()),
            reason: conditions.first().map(|condition| condition.reason.clone()),
            message: status.message.filter(|message| !message.is_empty()),
            conditions,
            about_this_spec: status.observed_generation == maintenance.metadata.generation,
            command: maintenance.annotations().get(COMMAND).cloned(),
            heard: status.heard,
            gave_up: status.gave_up,
            drains: status
                .drains
                .and_then(|drains| serde_json::from_value(drains.0.into()).ok()),
            run,
            unreadable,
            leader,
        }
    }

    /// The run that is under way.
    pub fn current_run(&self) -> Option<&RunView> {
        self.run.as_ref().filter(|run| run.ending.is_none())
    }
}

/// The run, in the version in which the operator told it.
fn read(fields: &Map<String, Value>) -> Result<RunView, String> {
    let number = fields
        .get("schema")
        .and_then(|schema| schema.get("version")?.as_u64())
        .map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    document(number, fields.clone()).map_err(|why| why.to_string())
}

/// A command in the words of the annotation.
pub fn command_text(command: &Command) -> String {
    match command {
        Command::Resume => "resume".to_owned(),
        Command::Pause => "pause".to_owned(),
        Command::Abort => "abort".to_owned(),
        Command::Rollback => "rollback".to_owned(),
        Command::Approve { door } => format!("approve {door}"),
        Command::Confirm { host, .. } => format!("confirm {host} is-off"),
        Command::Settle { intent, done } => {
            format!("settle {intent} {}", if *done { "done" } else { "failed" })
        }
    }
}

/// A command as it is written so that it counts as a new one: with a number behind it that neither the one
/// that stands there nor the one that was heard last has.
pub fn unique_command(command: &str, stands: Option<&str>, heard: Option<&str>) -> String {
    let number = |text: &str| text.rsplit_once('#')?.1.trim().parse::<u64>().ok();
    let last = [stands, heard].into_iter().flatten().filter_map(number).max();
    format!("{command}#{}", last.unwrap_or(0).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_command_is_never_the_one_that_stands_there() {
        assert_eq!(unique_command("resume", None, None), "resume#1");
        assert_eq!(
            unique_command("resume", Some("resume"), Some("resume")),
            "resume#1"
        );
        assert_eq!(
            unique_command("pause", Some("resume#2"), Some("resume#1")),
            "pause#3"
        );
        assert_eq!(unique_command("abort", Some("abort"), Some("abort#7")), "abort#8");
        assert_eq!(
            unique_command("approve last-mon", Some("retry#x"), None),
            "approve last-mon#1"
        );
    }

    #[test]
    fn a_lease_says_who_leads() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let lease: Lease = serde_json::from_value(json!({ "spec": {
            "holderIdentity": "a", "leaseDurationSeconds": 30, "renewTime": "2026-11-03T10:00:00.000000Z",
        } }))
        .unwrap();
        let renewed = at("2026-11-03T10:00:00Z");
        let holder = "a".to_owned();
        assert_eq!(
            Leader::of(Some(&lease), at("2026-11-03T10:00:30Z")),
            Leader::Leads {
                holder: holder.clone(),
                renewed
            }
        );
        assert_eq!(
            Leader::of(Some(&lease), at("2026-11-03T10:00:31Z")),
            Leader::Expired { holder, renewed }
        );
        // As it is when an operator has given it back.
        let free: Lease = serde_json::from_value(json!({ "spec": {} })).unwrap();
        assert_eq!(Leader::of(Some(&free), renewed), Leader::Nobody);
        assert_eq!(Leader::of(None, renewed), Leader::Nobody);
    }

    #[test]
    fn nobody_has_told_anything_yet() {
        let maintenance: CephMaintenance = serde_json::from_value(json!({
            "apiVersion": "stagger.dev/v1alpha1", "kind": "CephMaintenance",
            "metadata": { "name": "c", "namespace": "n", "generation": 3 },
            "spec": { "cephCluster": "c", "manage": ["drains", "updates"] },
        }))
        .unwrap();
        let told = MaintenanceStatus::of(&maintenance, Leader::Nobody);
        assert_eq!(told.manages, ["drains", "updates"]);
        assert!(told.phase.is_none() && !told.about_this_spec && told.reason.is_none() && told.run.is_none());
    }
}
