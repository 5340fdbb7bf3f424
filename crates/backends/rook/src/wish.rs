//! What the spec of a CephCluster asks of a run. Where it asks for something else later, the run is interrupted
//! between two waves, and another one goes on from there.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use stagger_ceph::translate::HealthPolicy;
use stagger_core::model::Policy;

use crate::cluster::CephClusterSpec;
use crate::made::Made;
use crate::pod::Fields;
use crate::policy::Settings;

/// What is asked of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
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
}

impl Wish {
    /// What a spec asks for; nothing, as long as it names no image.
    pub fn of(spec: &CephClusterSpec, release_changes: bool) -> Option<Self> {
        let image = spec
            .ceph_version
            .image
            .clone()
            .filter(|image| !image.is_empty())?;
        let settings = Settings::read(spec, release_changes);
        Some(Self {
            image,
            pods: settings.pods,
            release_changes,
            policy: settings.policy,
            skip_checks: settings.skip_checks,
            accepted: settings.accepted.into_iter().collect(),
        })
    }

    /// What this spec asks for that this is not, in the words of its fields. A pause, and a new OSD, are no
    /// other wish.
    pub fn differs(&self, spec: &CephClusterSpec) -> Option<String> {
        let Some(now) = Self::of(spec, self.release_changes) else {
            return Some("spec.cephVersion.image is not set any more".to_owned());
        };
        if now.image != self.image {
            return Some(format!("spec.cephVersion.image is {} now", now.image));
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
    pub fn made(&self, kind: &str, release: &str) -> Made {
        Made {
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

    fn spec(update_policy: &Value, more: &Value) -> CephClusterSpec {
        let mut spec = json!({ "cephVersion": { "image": "ceph:20" }, "updatePolicy": update_policy });
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn each_field_of_ours_is_another_wish_and_others_are_none() {
        let before = spec(&json!({ "osds": { "grow": true } }), &json!({}));
        for release_changes in [true, false] {
            let wish = Wish::of(&before, release_changes).unwrap();
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
            other(json!({}), json!({ "cephVersion": {} }), "not set");
        }
    }

    #[test]
    fn a_wish_is_read_back_from_the_journal() {
        let wish = Wish::of(
            &spec(&json!({}), &json!({ "priorityClassNames": { "all": "high" } })),
            true,
        )
        .unwrap();
        let written = serde_json::to_value(&wish).unwrap();
        assert_eq!(serde_json::from_value::<Wish>(written).unwrap(), wish);
        assert!(
            wish.name()
                .starts_with("ceph:20 with mgr/priorityClassName=high, "),
            "{}",
            wish.name()
        );
    }
}
