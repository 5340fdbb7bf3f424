//! OSDs on volumes: the PersistentVolumeClaims that the resource's sets want, and those that want an OSD.
//!
//! Claims and labels follow Rook's conventions, so that Rook recognises them as its own. A claim that Rook
//! made counts as one made here. None is ever removed.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::api::cluster::{DeviceSet, Free};
use crate::api::names::{self, SET};

/// The label with a claim's number in its set.
const INDEX: &str = "ceph.rook.io/setIndex";
/// The label with set, template and number.
const ID: &str = "ceph.rook.io/DeviceSetPVCId";
/// The label of what belongs to a claim, with its name.
pub const PVC: &str = "ceph.rook.io/pvc";
/// The template of the only volume that an OSD has here.
const DATA: &str = "data";
/// So many claims of a set are made at once; when they are seen, so many more.
const AT_ONCE: usize = 100;

/// Whose claims they are.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// The cluster's namespace.
    pub namespace: &'a str,
    /// The CephCluster's identity.
    pub uid: &'a str,
}

/// What the sets come to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claimed<'a> {
    /// The claims that are to be made, by name.
    pub make: BTreeMap<String, Value>,
    /// The claims that are to get an OSD.
    pub wished: BTreeSet<String>,
    /// The set of each claim that is there.
    pub sets: BTreeMap<String, &'a DeviceSet>,
    /// What is not obeyed, each in a sentence.
    pub remarks: Vec<String>,
}

/// The path of a claim's volume in the pods that have it, as with Rook.
pub fn path(claim: &str) -> String {
    format!("/mnt/{claim}")
}

/// What is to be done about the sets, with the claims that are there and those that have an OSD.
pub fn claimed<'a>(
    sets: &'a [DeviceSet],
    there: &[impl AsRef<PersistentVolumeClaim>],
    with_osd: &BTreeSet<String>,
    owner: Owner<'_>,
) -> Claimed<'a> {
    let mut claimed = Claimed::default();
    let mut known = BTreeSet::new();
    for set in sets {
        let template = match Template::of(set) {
            Ok(template) if known.insert(template.set) => template,
            Ok(template) => {
                let why = "a set before it has the same name; it is skipped";
                claimed.remarks.push(claim_warning(template.set, why));
                continue;
            }
            Err(why) => {
                claimed.remarks.push(why);
                continue;
            }
        };
        claimed.remarks.extend(ignored(set, &template));
        let own: BTreeMap<u64, &PersistentVolumeClaim> = there
            .iter()
            .filter_map(|claim| Some((template.index_of(claim.as_ref())?, claim.as_ref())))
            .collect();
        let count = usize::try_from(set.count.unwrap_or(0)).unwrap_or(0);
        let served = |claim: &&PersistentVolumeClaim| with_osd.contains(&claim.name_any());
        let missing = count.saturating_sub(own.values().copied().filter(served).count());
        let waiting = own.values().copied().filter(|claim| {
            // One that is being deleted takes no new pod.
            !served(claim) && claim.metadata.deletion_timestamp.is_none()
        });
        let waiting = waiting.take(missing).map(ResourceExt::name_any);
        claimed.wished.extend(waiting);
        claimed
            .sets
            .extend(own.values().map(|claim| (claim.name_any(), set)));
        let next = own
            .keys()
            .next_back()
            .map_or(0, |highest| highest.saturating_add(1));
        let new = (next..)
            .map(|index| (template.name_of(index, owner.uid), index))
            // The claim of an OSD that is gone: its name would stand for a volume that has another OSD.
            .filter(|(name, _)| !with_osd.contains(name))
            .take(count.saturating_sub(own.len()).min(AT_ONCE));
        for (name, index) in new {
            let claim = template.claim(&name, index, owner.namespace);
            claimed.make.insert(name, claim);
        }
    }
    claimed
}

/// What the claims of a set are made of.
struct Template<'a> {
    set: &'a str,
    name: &'a str,
    metadata: &'a Value,
    spec: &'a Value,
}

impl<'a> Template<'a> {
    /// Of a set that can be obeyed; else why it is left alone.
    fn of(set: &'a DeviceSet) -> Result<Self, String> {
        let name = set.name.as_deref().unwrap_or_default();
        if name.is_empty() {
            return Err("a set in spec.storage.storageClassDeviceSets has no name: give it one".to_owned());
        }
        if set.encrypted == Some(true) {
            return Err(claim_warning(
                name,
                "it is encrypted, which is not supported here; it is skipped: have Rook prepare it",
            ));
        }
        let templates = set.volume_claim_templates.as_deref().unwrap_or_default();
        let [Free(template)] = templates else {
            return Err(claim_warning(
                name,
                "it does not have exactly one volumeClaimTemplate, and an OSD has one volume here, without another for \
                 metadata or a log; it is skipped: have Rook prepare it",
            ));
        };
        let (metadata, spec) = (&template.get("metadata"), &template.get("spec"));
        let metadata = metadata.unwrap_or(&Value::Null);
        let spec = spec.unwrap_or(&Value::Null);
        if spec["volumeMode"] != "Block" {
            return Err(claim_warning(
                name,
                "its volumeClaimTemplate does not ask for volumeMode Block; it is skipped: set that",
            ));
        }
        let own = metadata["name"].as_str().filter(|name| !name.is_empty());
        Ok(Self {
            set: name,
            name: own.unwrap_or(DATA),
            metadata,
            spec,
        })
    }

    fn id(&self, index: u64) -> String {
        let (set, name) = (self.set.replace('.', "-"), self.name.replace(' ', "-"));
        format!("{set}-{name}-{index}")
    }

    /// The number of a claim that is one of these.
    fn index_of(&self, claim: &PersistentVolumeClaim) -> Option<u64> {
        let labels = claim.labels();
        let index = labels.get(INDEX)?.parse().ok()?;
        let id = labels.get(ID)?;
        // Before Rook's release 1.3 there was no template in it.
        let is_own = *id == self.id(index) || *id == format!("{}-{index}", self.set);
        (labels.get(SET)? == self.set && is_own).then_some(index)
    }

    /// The name of a claim. It is always the same, so that one that is not seen yet is not made twice.
    fn name_of(&self, index: u64, uid: &str) -> String {
        let [a, b, c, ..] = Sha256::digest(format!("{uid}\n{}\n{index}", self.set)).0;
        names::short(&format!("{}-{a:02x}{b:02x}{c:02x}", self.id(index)))
    }

    fn claim(&self, name: &str, index: u64, namespace: &str) -> Value {
        let mut labels = self.metadata["labels"].clone();
        if !labels.is_object() {
            labels = Value::Object(Map::new());
        }
        let own = json!({ SET: self.set, INDEX: index.to_string(), ID: self.id(index) });
        names::add(&mut labels, &own);
        // No owner: with a CephCluster that somebody deletes, its data would go.
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name, "namespace": namespace, "labels": labels,
                "annotations": self.metadata["annotations"],
            },
            "spec": self.spec,
        })
    }
}

/// What is not obeyed of a set that is, else.
fn ignored(set: &DeviceSet, template: &Template<'_>) -> Vec<String> {
    let of_crush = ["crushDeviceClass", "crushInitialWeight", "crushPrimaryAffinity"];
    let annotations = of_crush
        .into_iter()
        .filter(|field| !template.metadata["annotations"][*field].is_null());
    let tuned = [
        (set.tune_device_class, "tuneDeviceClass"),
        (set.tune_fast_device_class, "tuneFastDeviceClass"),
    ];
    let tuned = tuned.into_iter().filter(|(is_set, _)| *is_set == Some(true));
    tuned
        .map(|(_, field)| field)
        .chain(annotations)
        .map(|field| claim_warning(template.set, &format!("{field} is set; OSDs are made without it")))
        .collect()
}

fn claim_warning(set: &str, what: &str) -> String {
    format!("set {set} in spec.storage.storageClassDeviceSets: {what}")
}

/// What a set says of its pods, as fields of a pod: `placement` is one of its two.
pub(super) fn of_pods(set: &DeviceSet, placement: Option<&Free>) -> Value {
    let mut fields = Map::new();
    let mut affinity = Map::new();
    for (field, value) in placement.iter().flat_map(|placement| &placement.0) {
        let of_affinity = ["nodeAffinity", "podAffinity", "podAntiAffinity"].contains(&field.as_str());
        let of_pod = ["tolerations", "topologySpreadConstraints"].contains(&field.as_str());
        if of_affinity {
            affinity.insert(field.clone(), value.clone());
        } else if of_pod {
            fields.insert(field.clone(), value.clone());
        }
    }
    if !affinity.is_empty() {
        fields.insert("affinity".to_owned(), Value::Object(affinity));
    }
    if let Some(name) = &set.scheduler_name {
        fields.insert("schedulerName".to_owned(), json!(name));
    }
    Value::Object(fields)
}

/// A claim as a volume of a pod, and what makes it seen in a container.
pub(super) fn volume(claim: &str) -> (Value, Value) {
    (
        json!({ "name": "block", "persistentVolumeClaim": { "claimName": claim } }),
        json!({ "name": "block", "devicePath": path(claim) }),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const OWNER: Owner<'_> = Owner {
        namespace: "rook-ceph",
        uid: "u",
    };

    fn sets(sets: Value) -> Vec<DeviceSet> {
        serde_json::from_value(sets).unwrap()
    }

    fn one(count: i64) -> Vec<DeviceSet> {
        sets(
            json!([{ "name": "set1", "count": count, "volumeClaimTemplates": [{
            "metadata": { "name": "data", "labels": { "team": "storage", SET: "forged" } },
            "spec": {
                "storageClassName": "disks", "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } },
            },
        }] }]),
        )
    }

    fn seen(object: &Value) -> Arc<PersistentVolumeClaim> {
        Arc::new(serde_json::from_value(object.clone()).unwrap())
    }

    fn rooks(name: &str, id: &str, index: &str) -> Arc<PersistentVolumeClaim> {
        seen(&json!({ "metadata": { "name": name, "labels": { SET: "set1", INDEX: index, ID: id } } }))
    }

    fn names_of(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn as_many_claims_as_a_set_counts_are_made_and_prepared_once() {
        let (two, three, none) = (one(2), one(3), BTreeSet::new());
        let nothing: [Arc<PersistentVolumeClaim>; 0] = [];
        let first = claimed(&two, &nothing, &none, OWNER);
        assert_eq!((first.make.len(), first.wished.len()), (2, 0));
        let made = first.make.values().next().unwrap();
        assert_eq!(made["metadata"]["labels"]["team"], "storage");
        assert_eq!(made["metadata"]["labels"][SET], "set1");
        assert_eq!(made["metadata"]["labels"][ID], "set1-data-0");
        assert_eq!(
            made["spec"],
            two[0].volume_claim_templates.as_ref().unwrap()[0].0["spec"]
        );
        // Not seen yet: the same names, so that no more are made.
        assert_eq!(claimed(&two, &nothing, &none, OWNER).make, first.make);
        let there: Vec<_> = first.make.values().map(seen).collect();
        let second = claimed(&two, &there, &none, OWNER);
        assert_eq!(second.make, BTreeMap::new());
        let names: BTreeSet<String> = first.make.keys().cloned().collect();
        assert_eq!(second.wished, names);
        // Both have OSDs: a larger count makes one more, a smaller one removes nothing.
        assert_eq!(claimed(&two, &there, &names, OWNER).wished, none);
        let more = claimed(&three, &there, &names, OWNER);
        assert_eq!((more.make.len(), more.wished), (1, none.clone()));
        let less = one(1);
        let less = claimed(&less, &there, &names, OWNER);
        assert_eq!((less.make.len(), less.wished.len(), less.sets.len()), (0, 0, 2));
    }

    #[test]
    fn claims_of_rooks_count_and_those_that_nobody_wants_any_more_get_no_osd() {
        let two = one(2);
        let there = [
            rooks("set1-data-0x", "set1-data-0", "0"),
            rooks("set1-4y", "set1-4", "4"),
            rooks("set1-metadata-7z", "set1-metadata-7", "7"),
            rooks("odd", "set1-data-none", "none"),
        ];
        let with_osd = names_of(&["set1-data-0x"]);
        let claims = claimed(&two, &there, &with_osd, OWNER);
        assert_eq!(claims.make, BTreeMap::new());
        assert_eq!(claims.wished, names_of(&["set1-4y"]));
        assert_eq!(claimed(&one(1), &there, &with_osd, OWNER).wished, BTreeSet::new());
        let three = one(3);
        let make = claimed(&three, &there, &with_osd, OWNER).make;
        let index = make.values().map(|claim| &claim["metadata"]["labels"][INDEX]);
        assert_eq!(index.collect::<Vec<_>>(), ["5"]);
        // The claim of an OSD was deleted: the next one has another name.
        let with_osd = make.keys().cloned().collect();
        let make = claimed(&three, &there[..2], &with_osd, OWNER).make;
        let index = make.values().map(|claim| &claim["metadata"]["labels"][INDEX]);
        assert_eq!(index.collect::<Vec<_>>(), ["6"]);
        let mut going = PersistentVolumeClaim::clone(&there[1]);
        going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-21T10:00:00Z")).unwrap();
        let claims = claimed(
            &two,
            &[Arc::clone(&there[0]), Arc::new(going)],
            &BTreeSet::new(),
            OWNER,
        );
        assert_eq!(
            (claims.make.len(), claims.wished),
            (0, names_of(&["set1-data-0x"]))
        );
    }

    #[test]
    fn sets_that_cannot_be_obeyed_are_left_alone_and_said() {
        let spec = json!({ "volumeMode": "Block" });
        let template = json!({ "metadata": { "name": "data" }, "spec": spec });
        let wal = json!({ "metadata": { "name": "wal" }, "spec": spec });
        let files = json!({ "spec": { "volumeMode": "Filesystem" } });
        for (set, why) in [
            (json!({ "volumeClaimTemplates": [template] }), "no name"),
            (
                json!({ "name": "a", "encrypted": true, "volumeClaimTemplates": [template] }),
                "encrypted",
            ),
            (json!({ "name": "a" }), "not have exactly one volumeClaimTemplate"),
            (
                json!({ "name": "a", "volumeClaimTemplates": [template, wal] }),
                "a log",
            ),
            (
                json!({ "name": "a", "volumeClaimTemplates": [files] }),
                "volumeMode Block",
            ),
        ] {
            let mut set = set;
            set["count"] = json!(3);
            let all = sets(json!([set]));
            let nothing: [Arc<PersistentVolumeClaim>; 0] = [];
            let claims = claimed(&all, &nothing, &BTreeSet::new(), OWNER);
            assert_eq!(claims.make, BTreeMap::new(), "{why}");
            assert!(claims.remarks[0].contains(why), "{:?}", claims.remarks);
        }
        let noted = json!({ "metadata": { "annotations": { "crushDeviceClass": "ssd" } }, "spec": spec });
        let all = sets(json!([
            { "name": "a", "count": 1, "tuneFastDeviceClass": true, "volumeClaimTemplates": [noted] },
            { "name": "a", "count": 9, "volumeClaimTemplates": [template] },
            { "name": "b", "count": i64::MAX, "volumeClaimTemplates": [template] },
        ]));
        let nothing: [Arc<PersistentVolumeClaim>; 0] = [];
        let claims = claimed(&all, &nothing, &BTreeSet::new(), OWNER);
        assert_eq!(
            (claims.make.len(), claims.remarks.len()),
            (1 + AT_ONCE, 3),
            "{:?}",
            claims.remarks
        );
    }
}
