//! The goal of a run, from a CephMaintenance and its CephCluster. If they change later, the run is
//! interrupted between two waves, and another one continues from there.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use stagger_ceph::target::PgGate;
use stagger_ceph::translate::HealthPolicy;
use stagger_core::model::Policy;

use crate::api::maintenance::Desired;
use crate::api::pod::Fields;
use crate::api::pod_revision::PodRevision;
use crate::api::settings::PolicySettings;

/// Who ended a run, as its journal has it, where a spec asks for something else.
pub const SUPERSEDED: &str = "something else is asked for now";
/// The same in journals of before there was a CephMaintenance.
const SUPERSEDED_BEFORE: &str = "the CephCluster now asks for something else";

/// Whether a run was ended as something else was asked for, by who asked for that.
pub fn is_superseded(by: &str) -> bool {
    by.starts_with(SUPERSEDED) || by.starts_with(SUPERSEDED_BEFORE)
}

/// The goal of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// The image with Ceph.
    pub image: String,
    /// What else pods should have, by kind of daemon.
    pub pods: BTreeMap<String, Fields>,
    /// Whether it is another release of Ceph, rather than a new revision of the one that runs.
    pub release_changes: bool,
    /// How bold to be.
    pub policy: Policy,
    /// Neither prerequisites nor gates, and one OSD at a time.
    pub skip_checks: bool,
    /// Codes of health that are taken for healthy.
    pub accepted: BTreeSet<String>,
    /// When placement groups are well enough to go on; in journals from before there was a choice, when they are clean.
    #[serde(default)]
    pub groups: PgGate,
}

impl Goal {
    /// What is asked for; nothing, as long as no image is named.
    pub fn of(desired: &Desired, release_changes: bool) -> Option<Self> {
        let image = desired.image()?.clone();
        let settings = PolicySettings::read(desired, release_changes);
        Some(Self {
            image,
            pods: settings.pods,
            release_changes,
            policy: settings.policy,
            skip_checks: settings.skip_checks,
            accepted: settings.accepted.into_iter().collect(),
            groups: settings.groups,
        })
    }

    /// What is asked for now that this is not, in the words of the fields. A pause, and a new OSD, are no other wish.
    pub fn differs(&self, desired: &Desired) -> Option<String> {
        let Some(now) = Self::of(desired, self.release_changes) else {
            return Some("no image is named any more".to_owned());
        };
        if now.image != self.image {
            return Some(format!("the image is {} now", now.image));
        }
        let fields = [
            (
                now.pods != self.pods,
                "resources, priorityClassNames or annotations",
            ),
            (
                now.skip_checks != self.skip_checks,
                "updatePolicy.skipUpgradeChecks",
            ),
            (now.accepted != self.accepted, "updatePolicy.healthErrorsToIgnore"),
            (now.groups != self.groups, "disruptionManagement.pgHealthyRegex"),
            (now.policy != self.policy, "updatePolicy"),
        ];
        fields
            .into_iter()
            .find_map(|(differs, field)| differs.then(|| format!("spec: {field} was changed")))
    }

    /// What is thought of Ceph's complaints.
    pub fn health(&self) -> HealthPolicy {
        HealthPolicy {
            accept: self.accepted.clone(),
            block: BTreeSet::new(),
        }
    }

    /// What a daemon of that kind is to be made of, where the image holds that release.
    pub fn pod_revision(&self, kind: &str, release: &str) -> PodRevision {
        PodRevision {
            image: self.image.clone(),
            release: release.to_owned(),
            fields: self.pods.get(kind).cloned().unwrap_or_default(),
        }
    }

    /// What is wanted of pods, in a word: it is given up by this name.
    pub fn name(&self) -> String {
        if self.pods.is_empty() {
            return self.image.clone();
        }
        let pods: Vec<String> = self
            .pods
            .iter()
            .flat_map(|(kind, fields)| {
                fields
                    .iter()
                    .map(move |(field, value)| format!("{kind}/{field}={value}"))
            })
            .collect();
        format!("{} with {}", self.image, pods.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::maintenance::desired;

    fn spec(update_policy: &Value, more: &Value) -> Desired {
        let mut spec = json!({ "cephVersion": { "image": "ceph:20" } });
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        desired(
            spec,
            json!({ "manage": ["updates", "provisioning"], "updatePolicy": update_policy }),
        )
    }

    #[test]
    fn each_field_of_ours_is_another_wish_and_others_are_none() {
        let before = spec(&json!({ "osds": { "grow": true } }), &json!({}));
        for release_changes in [true, false] {
            let wish = Goal::of(&before, release_changes).unwrap();
            let same = |policy: Value, more: Value| assert_eq!(wish.differs(&spec(&policy, &more)), None);
            same(json!({}), json!({}));
            same(json!({ "pause": true, "onSpecChange": "lock" }), json!({}));
            same(
                json!({}),
                json!({ "storage": { "nodes": [{ "name": "host1" }] } }),
            );
            same(json!({}), json!({ "mon": { "count": 5 } }));
            let other = |policy: Value, more: Value, word: &str| {
                let why = wish.differs(&spec(&policy, &more)).unwrap_or_default();
                assert!(why.contains(word), "{word}: {why:?}");
            };
            other(json!({ "osds": { "grow": false } }), json!({}), "updatePolicy");
            other(
                json!({ "skipUpgradeChecks": true }),
                json!({}),
                "skipUpgradeChecks",
            );
            other(
                json!({}),
                json!({ "skipUpgradeChecks": true }),
                "skipUpgradeChecks",
            );
            other(
                json!({ "healthErrorsToIgnore": ["A"] }),
                json!({}),
                "healthErrorsToIgnore",
            );
            other(
                json!({}),
                json!({ "priorityClassNames": { "osd": "high" } }),
                "priorityClassNames",
            );
            other(
                json!({}),
                json!({ "cephVersion": { "image": "ceph:21" } }),
                "ceph:21",
            );
            other(json!({ "interruptions": ["mon"] }), json!({}), "updatePolicy");
            let moving = json!({ "disruptionManagement": { "pgHealthyRegex": "^active\\+remapped" } });
            other(json!({}), moving, "pgHealthyRegex");
            other(json!({}), json!({ "cephVersion": {} }), "no image");
        }
    }

    /// Rook brings these to pods by itself, and both would write.
    #[test]
    fn what_else_pods_are_made_of_is_rooks_unless_osds_are_provisioned_here() {
        let cluster =
            json!({ "cephVersion": { "image": "ceph:20" }, "priorityClassNames": { "all": "high" } });
        let of =
            |manage: Value| Goal::of(&desired(cluster.clone(), json!({ "manage": manage })), true).unwrap();
        assert_eq!(of(json!(["updates", "drains"])).pods, BTreeMap::new());
        assert!(!of(json!(["provisioning"])).pods.is_empty());
    }

    /// That of the CephMaintenance counts.
    #[test]
    fn the_image_is_that_of_the_maintenance_or_else_of_the_cluster() {
        let of = |image: Value| {
            desired(
                json!({ "cephVersion": { "image": "ceph:19" } }),
                json!({ "image": image }),
            )
        };
        assert_eq!(of(json!("ceph:20")).image().unwrap(), "ceph:20");
        assert_eq!(of(Value::Null).image().unwrap(), "ceph:19");
        assert_eq!(desired(json!({}), json!({})).image(), None);
    }

    #[test]
    fn a_wish_is_read_back_from_the_journal() {
        let wish = Goal::of(
            &spec(&json!({}), &json!({ "priorityClassNames": { "all": "high" } })),
            true,
        )
        .unwrap();
        let written = serde_json::to_value(&wish).unwrap();
        assert_eq!(serde_json::from_value::<Goal>(written).unwrap(), wish);
        assert!(
            wish.name()
                .starts_with("ceph:20 with mgr/priorityClassName=high, "),
            "{}",
            wish.name()
        );
    }
}
