//! Fields of a daemon's pod that the spec of a CephCluster sets, beside the image. A change of one is a new
//! revision, and rolls out in the same waves.
//!
//! | spec | pod |
//! |---|---|
//! | `resources.KIND.limits`, `.requests` | `resources` of the daemon's own container |
//! | `priorityClassNames.KIND`, else `.all` | `priorityClassName` |
//! | `annotations.KIND` over `.all` | annotations |
//!
//! KIND is `mon`, `mgr` or `osd`. Fields that a spec does not set, or no longer sets, stay as they are.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_quantity::ParsedQuantity;
use serde_json::{Map, Value, json};

use crate::api::cluster::{CephClusterSpec, Free};
use crate::api::objects::{PodSpec, PodTemplateSpec};
use crate::api::policy::FieldWarning;

/// Values by what they are of: `limits/memory`, `requests/cpu`, `priorityClassName`, `annotations/NAME`. A
/// quantity is in the same words always, so that `1Gi` and `1073741824` are the same. Empty: there is none.
pub type Fields = BTreeMap<String, String>;

/// The kinds of daemons that a CephCluster has fields for.
const KINDS: [&str; 3] = ["mon", "mgr", "osd"];
const PRIORITY: &str = "priorityClassName";
const ANNOTATIONS: &str = "annotations/";
/// In the order of the API.
const RESOURCES: [&str; 2] = ["limits", "requests"];

/// What a spec names, by kind of daemon. What cannot be read is as if it were not named, and a remark says so.
pub fn requested_fields(spec: &CephClusterSpec, remarks: &mut Vec<FieldWarning>) -> BTreeMap<String, Fields> {
    let mut wished = BTreeMap::new();
    for kind in KINDS {
        let mut fields = Fields::new();
        resources(spec, kind, &mut fields, remarks);
        let classes = spec.priority_class_names.as_ref();
        let class = with_defaults(classes, kind)
            .last()
            .and_then(|class| class.as_str());
        fields.extend(class.map(|class| (PRIORITY.to_owned(), class.to_owned())));
        for notes in with_defaults(spec.annotations.as_ref(), kind) {
            let notes = notes.as_object().into_iter().flatten();
            let texts = notes.filter_map(|(name, value)| Some((name, value.as_str()?)));
            fields.extend(texts.map(|(name, text)| (format!("{ANNOTATIONS}{name}"), text.to_owned())));
        }
        if !fields.is_empty() {
            wished.insert(kind.to_owned(), fields);
        }
    }
    wished
}

/// What stands at `all`, then what stands at the kind.
fn with_defaults<'a>(map: Option<&'a Free>, kind: &str) -> impl Iterator<Item = &'a Value> {
    let at = |key: &str| map.and_then(|map| map.0.get(key));
    at("all").into_iter().chain(at(kind))
}

fn resources(spec: &CephClusterSpec, kind: &str, fields: &mut Fields, remarks: &mut Vec<FieldWarning>) {
    let Some(of_kind) = spec.resources.as_ref().and_then(|all| all.0.get(kind)) else {
        return;
    };
    let sets = spec.storage.storage_class_device_sets.iter().flatten();
    if kind == "osd" && sets.into_iter().any(|set| set.resources.is_some()) {
        remarks.push(FieldWarning {
            field: "spec.resources.osd".to_owned(),
            what: "a storageClassDeviceSet has resources of its own; OSDs keep those that they have"
                .to_owned(),
        });
        return;
    }
    for part in RESOURCES {
        for (name, value) in of_kind[part].as_object().into_iter().flatten() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            match normalized_quantity(&Quantity(text.clone())) {
                Some(number) => drop(fields.insert(format!("{part}/{name}"), number)),
                None => remarks.push(FieldWarning {
                    field: format!("spec.resources.{kind}.{part}.{name}"),
                    what: format!("{text:?} is no quantity; it is taken as not set"),
                }),
            }
        }
    }
}

/// What a quantity comes to, always in the same words: `1536Mi`, `2`, `500m`. Nothing is measured more finely
/// than in thousandths in a pod.
fn normalized_quantity(quantity: &Quantity) -> Option<String> {
    let number = ParsedQuantity::try_from(quantity).ok()?.to_bytes_f64()?;
    if number.fract() != 0.0 {
        return Some(format!("{:.0}m", number * 1000.0));
    }
    let (mut number, mut suffix) = (number, "");
    for next in ["Ki", "Mi", "Gi", "Ti"] {
        if number == 0.0 || number % 1024.0 != 0.0 {
            break;
        }
        (number, suffix) = (number / 1024.0, next);
    }
    Some(format!("{number:.0}{suffix}"))
}

/// What a pod has of those fields that are `wanted`; `kind` is also the name of its daemon's container.
pub fn pod_fields(
    annotations: Option<&BTreeMap<String, String>>,
    spec: &PodSpec,
    kind: &str,
    wanted: Option<&Fields>,
) -> Fields {
    let container = spec.containers.iter().find(|container| container.name == kind);
    let resources = container.and_then(|container| container.resources.as_ref());
    let value = |field: &str| -> Option<String> {
        if field == PRIORITY {
            return spec.priority_class_name.clone();
        }
        if let Some(name) = field.strip_prefix(ANNOTATIONS) {
            return annotations?.get(name).cloned();
        }
        let (part, name) = field.split_once('/')?;
        let resources = resources?;
        let amounts = match part {
            "limits" => resources.limits.as_ref(),
            _ => resources.requests.as_ref(),
        };
        normalized_quantity(amounts?.get(name)?)
    };
    let names = wanted.into_iter().flat_map(BTreeMap::keys);
    names
        .map(|field| (field.clone(), value(field).unwrap_or_default()))
        .collect()
}

/// The same of a Deployment's template.
pub fn template_fields(template: &PodTemplateSpec, kind: &str, wanted: Option<&Fields>) -> Fields {
    let spec = template.spec.as_ref();
    let annotations = template
        .metadata
        .as_ref()
        .and_then(|meta| meta.annotations.as_ref());
    spec.map(|spec| pod_fields(annotations, spec, kind, wanted))
        .unwrap_or_default()
}

/// The fields of a pod's template that these are, as an apply has them; without those of its container.
pub fn template(fields: &Fields) -> Value {
    let mut template = json!({});
    for (field, value) in present(fields) {
        if field == PRIORITY {
            template["spec"][PRIORITY] = json!(value);
        } else if let Some(name) = field.strip_prefix(ANNOTATIONS) {
            template["metadata"]["annotations"][name] = json!(value);
        }
    }
    template
}

/// The resources of the daemon's container that these are, if they name any.
pub fn container_resources(fields: &Fields) -> Option<Value> {
    let mut resources = Map::new();
    for (field, value) in present(fields) {
        if let Some((part, name)) = field.split_once('/')
            && RESOURCES.contains(&part)
        {
            resources.entry(part).or_insert_with(|| json!({}))[name] = json!(value);
        }
    }
    (!resources.is_empty()).then_some(Value::Object(resources))
}

/// Those that have a value.
fn present(fields: &Fields) -> impl Iterator<Item = (&String, &String)> {
    fields.iter().filter(|(_, value)| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: Value) -> (BTreeMap<String, Fields>, Vec<FieldWarning>) {
        let mut remarks = Vec::new();
        let spec: CephClusterSpec = serde_json::from_value(spec).unwrap();
        (requested_fields(&spec, &mut remarks), remarks)
    }

    fn pod(value: Value) -> PodTemplateSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_is_named_for_all_is_overridden_for_a_kind() {
        let (wished, remarks) = read(json!({
            "resources": { "osd": { "limits": { "memory": "4Gi" }, "requests": { "cpu": "500m" } }, "mgr-sidecar": {} },
            "priorityClassNames": { "all": "high", "mon": "higher" },
            "annotations": { "all": { "a": "1", "b": "1" }, "osd": { "b": "2" }, "mgr": null },
        }));
        assert_eq!(remarks, []);
        let fields = |pairs: &[(&str, &str)]| -> Fields {
            pairs
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect()
        };
        let both = [("annotations/a", "1"), ("annotations/b", "1")];
        let mut mon = fields(&both);
        mon.insert(PRIORITY.to_owned(), "higher".to_owned());
        assert_eq!(wished["mon"], mon);
        mon.insert(PRIORITY.to_owned(), "high".to_owned());
        assert_eq!(wished["mgr"], mon);
        let osd = [
            ("annotations/a", "1"),
            ("annotations/b", "2"),
            ("limits/memory", "4Gi"),
            ("priorityClassName", "high"),
            ("requests/cpu", "500m"),
        ];
        assert_eq!(wished["osd"], fields(&osd));
        assert_eq!(read(json!({})).0, BTreeMap::new());
    }

    #[test]
    fn quantities_are_compared_as_numbers() {
        for (one, other) in [
            ("1Gi", "1073741824"),
            ("1024Mi", "1Gi"),
            ("300m", "0.3"),
            ("2", "2000m"),
            ("1e3", "1k"),
            ("16Ti", "17592186044416"),
            ("1500Mi", "1572864000"),
            ("0", "0Gi"),
        ] {
            let number = |text: &str| normalized_quantity(&Quantity(text.to_owned()));
            assert!(number(one).is_some(), "{one}");
            assert_eq!(number(one), number(other), "{one} {other}");
        }
        let (wished, remarks) = read(json!({ "resources": { "osd": { "limits": { "memory": "much" } } } }));
        assert_eq!(wished, BTreeMap::new());
        assert_eq!(remarks[0].field, "spec.resources.osd.limits.memory");
    }

    #[test]
    fn a_device_set_with_resources_keeps_its_osds_as_they_are() {
        let (wished, remarks) = read(json!({
            "resources": { "osd": { "limits": { "memory": "4Gi" } } },
            "storage": { "storageClassDeviceSets": [{ "name": "a", "resources": {} }] },
        }));
        assert_eq!(wished, BTreeMap::new());
        assert_eq!(remarks.len(), 1);
    }

    /// What is applied is what is seen then, and nothing that is not named.
    #[test]
    fn a_template_shows_what_was_written_into_it() {
        let (wished, _) = read(json!({
            "resources": { "osd": { "limits": { "memory": "4Gi" }, "requests": { "memory": "2Gi" } } },
            "priorityClassNames": { "osd": "high" },
            "annotations": { "osd": { "team": "storage" } },
        }));
        let wanted = &wished["osd"];
        let before = pod(json!({ "spec": { "containers": [
            { "name": "osd", "resources": { "limits": { "memory": "1Gi", "cpu": "1" } } },
        ] } }));
        let seen_before = template_fields(&before, "osd", Some(wanted));
        assert_eq!(seen_before["limits/memory"], "1Gi");
        assert_eq!(seen_before["requests/memory"], "");
        assert!(!seen_before.contains_key("limits/cpu"));
        let mut after = template(wanted);
        after["spec"]["containers"] = json!([{ "name": "osd", "resources": container_resources(wanted) }]);
        let after = pod(after);
        assert_eq!(&template_fields(&after, "osd", Some(wanted)), wanted);
        // Back to what was: what was not there is not written.
        assert_eq!(template(&seen_before), json!({}));
        let back = json!({ "limits": { "memory": "1Gi" } });
        assert_eq!(container_resources(&seen_before), Some(back));
        assert_eq!(container_resources(&Fields::new()), None);
        assert_eq!(template_fields(&before, "osd", None), Fields::new());
    }
}
