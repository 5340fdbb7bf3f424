//! The fields of a Deployment that are ours, and no others.

use kube::ResourceExt as _;
use serde_json::{Value, json};
use stagger_ceph::facts::release;

use crate::api::names;
use crate::api::names::DO_NOT_RECONCILE;
use crate::api::objects::{Container, Deployment};
use crate::api::pod::{self, Fields};
use crate::api::pod_revision::{PodRevision, image_of};

/// The label that says which CephMaintenance keeps Rook from a daemon.
pub const HELD_BY: &str = "stagger.dev/held-by";

/// The annotation with the newest fencing token that a Deployment has seen.
pub const FENCE: &str = "stagger.dev/fence";
/// The annotation of a pod that was restarted, with the effect that did it.
pub(crate) const RESTARTED: &str = "stagger.dev/restarted";
/// The label with Ceph's release, as Rook writes it.
pub(crate) const VERSION: &str = "ceph-version";

/// The annotation with the fields of the pod, beside the image, that are ours.
const FIELDS: &str = "stagger.dev/fields";

/// The fields of a Deployment that are ours, with that image and what is named beside it; all of them, for what
/// an apply leaves out it takes away.
pub(crate) fn fields(
    deployment: &Deployment,
    kind: &str,
    image: &str,
    named: &Fields,
    release: Option<&str>,
) -> Value {
    let template = &deployment.spec.template;
    let now = template_image(deployment, kind).unwrap_or_default();
    let spec = template.spec.as_ref();
    let all = |containers: Option<&Vec<Container>>| -> Vec<Value> {
        let ours = |one: &Container| container(one, now, image, release);
        containers.into_iter().flatten().filter_map(ours).collect()
    };
    // What was ours before stays as it is, unless it is named now.
    let mut ours = pod::seen_in(template, kind, Some(&before(deployment)));
    ours.extend(named.clone());
    ours.retain(|_, value| !value.is_empty());
    let mut patch = json!({ "spec": { "template": pod::template(&ours) } });
    if !ours.is_empty() {
        let names: Vec<&str> = ours.keys().map(String::as_str).collect();
        patch["metadata"]["annotations"][FIELDS] = json!(names.join(","));
    }
    let mut containers = all(spec.map(|spec| &spec.containers));
    if let Some(resources) = pod::container_resources(&ours)
        && let Some(own) = containers.iter_mut().find(|container| container["name"] == kind)
    {
        own["resources"] = resources;
    }
    patch["spec"]["template"]["spec"]["containers"] = json!(containers);
    let inits = all(spec.and_then(|spec| spec.init_containers.as_ref()));
    if !inits.is_empty() {
        patch["spec"]["template"]["spec"]["initContainers"] = json!(inits);
    }
    if let Some(restarted) = restarted(deployment) {
        patch["spec"]["template"]["metadata"]["annotations"][RESTARTED] = json!(restarted);
    }
    let version = match release {
        Some(release) => Some(format!("{release}-0")),
        None => deployment.labels().get(VERSION).cloned(),
    };
    if let Some(version) = version {
        patch["metadata"]["labels"][VERSION] = json!(version);
    }
    match holder(deployment) {
        Some(holder) => held_by(patch, holder),
        None => patch,
    }
}

/// Who keeps Rook from that daemon, if it is one of ours.
pub fn holder(deployment: &Deployment) -> Option<&str> {
    let labels = deployment.labels();
    let holder = labels.get(HELD_BY).map(String::as_str);
    holder.filter(|_| labels.contains_key(DO_NOT_RECONCILE))
}

/// The labels by which Rook is kept from a daemon.
pub(crate) fn labels(holder: &str) -> Value {
    json!({ DO_NOT_RECONCILE: "true", HELD_BY: holder })
}

/// The same with the labels by which Rook is kept from the daemon.
pub(crate) fn held_by(mut patch: Value, holder: &str) -> Value {
    merge(&mut patch["metadata"]["labels"], labels(holder));
    patch
}

/// A merge patch that takes those labels off a Deployment, just as it was seen or not at all. Nothing of its pods changes.
pub(crate) fn given_back(deployment: &Deployment) -> Value {
    json!({ "metadata": {
        "resourceVersion": deployment.resource_version(),
        "labels": { DO_NOT_RECONCILE: null, HELD_BY: null },
    } })
}

fn merge(labels: &mut Value, more: Value) {
    if let Value::Object(more) = more {
        for (name, value) in more {
            labels[name] = value;
        }
    }
}

/// What is ours of a container: the image, where it runs the daemon's, and the variables by which Rook tells it image and
/// release. With these the template is what Rook would write itself, and Rook restarts nothing when it looks again.
fn container(one: &Container, now: &str, image: &str, release: Option<&str>) -> Option<Value> {
    let mut ours = json!({ "name": one.name });
    let runs_it = one.image.as_deref() == Some(now);
    if runs_it {
        ours["image"] = json!(image);
    }
    let variables: Vec<Value> = one
        .env
        .iter()
        .filter_map(|variable| {
            let before = variable.value.as_ref()?;
            let value = match variable.name.as_str() {
                names::IMAGE if before == now => image.to_owned(),
                names::IMAGE => before.clone(),
                names::RELEASE => release.and_then(version).unwrap_or_else(|| before.clone()),
                _ => return None,
            };
            Some(json!({ "name": variable.name, "value": value }))
        })
        .collect();
    let has_some = !variables.is_empty();
    if has_some {
        ours["env"] = json!(variables);
    }
    (runs_it || has_some).then_some(ours)
}

/// A release as Rook tells it to a container.
fn version(release: &str) -> Option<String> {
    let major = release.split('.').next()?.parse().ok()?;
    Some(format!("ceph version {release}-0 {}", release::name(major)?))
}

/// The fields that are ours as they are.
pub(crate) fn as_they_are(deployment: &Deployment, kind: &str) -> Value {
    let image = template_image(deployment, kind).unwrap_or_default().to_owned();
    fields(deployment, kind, &image, &Fields::new(), None)
}

/// The fields that are ours since an earlier write, without their values.
fn before(deployment: &Deployment) -> Fields {
    let names = deployment.annotations().get(FIELDS);
    let names = names.into_iter().flat_map(|names| names.split(','));
    names.map(|name| (name.to_owned(), String::new())).collect()
}

/// Whether pods that start now are made of that.
pub(crate) fn is_made_of(deployment: &Deployment, kind: &str, made: &PodRevision) -> bool {
    template_image(deployment, kind) == Some(made.image.as_str())
        && pod::seen_in(&deployment.spec.template, kind, Some(&made.fields)) == made.fields
}

/// Which effect restarted a daemon last.
pub(crate) fn restarted(deployment: &Deployment) -> Option<&String> {
    let meta = deployment.spec.template.metadata.as_ref()?;
    meta.annotations.as_ref()?.get(RESTARTED)
}

/// The image of a daemon in its Deployment's template.
pub(crate) fn template_image<'a>(deployment: &'a Deployment, kind: &str) -> Option<&'a str> {
    image_of(deployment.spec.template.spec.as_ref()?, kind)
}

/// The newest fencing token that a Deployment has seen; 0: none.
pub(crate) fn fence_of(deployment: &Deployment) -> u64 {
    let text = deployment.annotations().get(FENCE);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn osd() -> Deployment {
        serde_json::from_value(json!({
            "metadata": { "name": "rook-ceph-osd-3", "labels": { "ceph-version": "18.2.7-0" } },
            "spec": { "selector": {}, "template": {
                "metadata": { "annotations": { "stagger.dev/restarted": "r1-7" } },
                "spec": {
                    "initContainers": [{ "name": "activate", "image": "ceph:v18" }],
                    "containers": [
                        { "name": "osd", "image": "ceph:v18" },
                        { "name": "log-collector", "image": "ceph:v18" },
                        { "name": "sidecar", "image": "other:1" },
                    ],
                },
            } },
        }))
        .unwrap()
    }

    #[test]
    fn only_what_runs_the_daemons_image_gets_the_new_one() {
        let patch = fields(&osd(), "osd", "ceph:v20", &Fields::new(), Some("20.2.4"));
        let spec = &patch["spec"]["template"]["spec"];
        let expected = json!([
            { "name": "osd", "image": "ceph:v20" },
            { "name": "log-collector", "image": "ceph:v20" },
        ]);
        assert_eq!(spec["containers"], expected);
        assert_eq!(
            spec["initContainers"],
            json!([{ "name": "activate", "image": "ceph:v20" }])
        );
        assert_eq!(patch["metadata"]["labels"]["ceph-version"], "20.2.4-0");
    }

    /// Else the pod's template is another than Rook's own, and Rook restarts the daemon when it looks again.
    #[test]
    fn image_and_release_are_told_to_containers_as_rook_does() {
        let mut osd = osd();
        let spec = osd.spec.template.spec.as_mut().unwrap();
        let variable = |name: &str, value: &str| crate::api::objects::EnvVar {
            name: name.to_owned(),
            value: Some(value.to_owned()),
        };
        let release = variable("ROOK_CEPH_VERSION", "ceph version 18.2.7-0 reef");
        spec.containers[0].env = vec![variable("CONTAINER_IMAGE", "ceph:v18"), release.clone()];
        spec.containers[2].env = vec![release.clone()];
        let patch = fields(&osd, "osd", "ceph:v20", &Fields::new(), Some("20.2.4"));
        let told = json!({ "name": "ROOK_CEPH_VERSION", "value": "ceph version 20.2.4-0 tentacle" });
        let expected = json!([
            {
                "name": "osd", "image": "ceph:v20",
                "env": [{ "name": "CONTAINER_IMAGE", "value": "ceph:v20" }, told],
            },
            { "name": "log-collector", "image": "ceph:v20" },
            // Its image is another, and stays so.
            { "name": "sidecar", "env": [told] },
        ]);
        assert_eq!(patch["spec"]["template"]["spec"]["containers"], expected);
        // A later write takes nothing of it away.
        let same = as_they_are(&osd, "osd");
        assert_eq!(
            same["spec"]["template"]["spec"]["containers"][2]["env"][0]["value"],
            "ceph version 18.2.7-0 reef"
        );
    }

    /// What an apply leaves out it takes away: an annotation of the template that went would end the pod.
    #[test]
    fn raising_the_fence_changes_nothing_of_the_template() {
        let osd = osd();
        let patch = as_they_are(&osd, "osd");
        let template = &patch["spec"]["template"];
        assert_eq!(
            template["metadata"]["annotations"],
            json!({ "stagger.dev/restarted": "r1-7" })
        );
        assert_eq!(
            template["spec"]["containers"][0],
            json!({ "name": "osd", "image": "ceph:v18" })
        );
        assert_eq!(template["spec"]["initContainers"][0]["image"], "ceph:v18");
        assert_eq!(patch["metadata"]["labels"]["ceph-version"], "18.2.7-0");
    }

    /// A field that was ours once would go with the next write that does not have it.
    #[test]
    fn what_was_ours_before_stays_as_it_is() {
        let mut osd = osd();
        let memory = Fields::from([("limits/memory".to_owned(), "4Ki".to_owned())]);
        let patch = fields(&osd, "osd", "ceph:v18", &memory, None);
        assert_eq!(patch["metadata"]["annotations"][FIELDS], "limits/memory");
        let written = json!([
            { "name": "osd", "image": "ceph:v18", "resources": { "limits": { "memory": "4Ki" } } },
            { "name": "log-collector", "image": "ceph:v18" },
        ]);
        assert_eq!(patch["spec"]["template"]["spec"]["containers"], written);

        osd.annotations_mut()
            .insert(FIELDS.to_owned(), "limits/memory".to_owned());
        let spec = osd.spec.template.spec.as_mut().unwrap();
        spec.containers[0].resources =
            serde_json::from_value(json!({ "limits": { "memory": "4096" } })).unwrap();
        assert_eq!(
            as_they_are(&osd, "osd")["spec"]["template"]["spec"]["containers"],
            written
        );
        let made = |fields: Fields| PodRevision {
            image: "ceph:v18".to_owned(),
            release: "18.2.7".to_owned(),
            fields,
        };
        assert!(is_made_of(&osd, "osd", &made(memory)));
        assert!(is_made_of(&osd, "osd", &made(Fields::new())));
        let other = Fields::from([("limits/memory".to_owned(), "1".to_owned())]);
        assert!(!is_made_of(&osd, "osd", &made(other)));
    }

    /// An apply that left the label out would give the daemon to Rook in mid-run.
    #[test]
    fn what_is_held_stays_so_in_every_write_until_it_is_given_back() {
        let mut osd = osd();
        let of = |patch: &Value| patch["metadata"]["labels"].clone();
        let expected = json!({
            "ceph-version": "18.2.7-0", "ceph.rook.io/do-not-reconcile": "true", "stagger.dev/held-by": "m",
        });
        assert_eq!(of(&held_by(as_they_are(&osd, "osd"), "m")), expected);
        for name in ["ceph.rook.io/do-not-reconcile", "stagger.dev/held-by"] {
            osd.labels_mut().insert(
                name.to_owned(),
                if name.starts_with("ceph") { "true" } else { "m" }.to_owned(),
            );
        }
        assert_eq!(of(&as_they_are(&osd, "osd")), expected);
        let changed = fields(&osd, "osd", "ceph:v20", &Fields::new(), Some("20.2.4"));
        assert_eq!(of(&changed)["stagger.dev/held-by"], "m");
        assert_eq!(
            of(&given_back(&osd)),
            json!({ "ceph.rook.io/do-not-reconcile": null, "stagger.dev/held-by": null })
        );
        // A person's own is not taken for ours.
        osd.labels_mut().remove("stagger.dev/held-by");
        assert_eq!(
            of(&as_they_are(&osd, "osd")),
            json!({ "ceph-version": "18.2.7-0" })
        );
    }

    #[test]
    fn a_deployment_that_has_seen_no_token_takes_the_first() {
        let mut osd = osd();
        assert_eq!(fence_of(&osd), 0);
        osd.annotations_mut().insert(FENCE.to_owned(), "41".to_owned());
        assert_eq!(fence_of(&osd), 41);
    }
}
