//! The fields of a Deployment that stagger manages, and no others.

use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use stagger_ceph::facts::release::{self, Version};

use crate::api::names;
use crate::api::names::{DO_NOT_RECONCILE, HELD};
use crate::api::objects::{Container, Deployment};
use crate::api::pod::{self, Fields};
use crate::api::pod_revision::{PodRevision, image_of};

/// The label that says which CephMaintenance keeps Rook from a daemon.
pub const HELD_BY: &str = "stagger.dev/held-by";
/// The annotation that says since when.
pub(crate) const HELD_SINCE: &str = "stagger.dev/held-since";

/// The annotation with the newest fencing token that a Deployment has seen.
pub const FENCE: &str = "stagger.dev/fence";
/// The annotation of a pod that was restarted, with the effect that did it.
pub(crate) const RESTARTED: &str = "stagger.dev/restarted";
/// The label with Ceph's release, as Rook writes it.
pub(crate) const VERSION: &str = "ceph-version";

/// The annotation with the fields of the pod, beside the image, that are ours.
const FIELDS: &str = "stagger.dev/fields";

/// The fields of a Deployment that stagger manages, with that image and the requested pod fields; all of
/// them, since an apply removes the fields that it leaves out.
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
    let mut ours = pod::template_fields(template, kind, Some(&before(deployment)));
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
    // What Rook would not understand is not told: the label stays as it is.
    let version = release.and_then(rook_version_label);
    if let Some(version) = version.or_else(|| deployment.labels().get(VERSION).cloned()) {
        patch["metadata"]["labels"][VERSION] = json!(version);
    }
    match holder(deployment) {
        Some(holder) => held_by(patch, deployment, holder, None),
        None => patch,
    }
}

/// Who keeps Rook from that daemon, if it is one of ours.
pub fn holder(deployment: &Deployment) -> Option<&str> {
    let labels = deployment.labels();
    let holder = labels.get(HELD_BY).map(String::as_str);
    holder.filter(|_| labels.contains_key(DO_NOT_RECONCILE))
}

/// The value of the label that keeps Rook from that daemon, where somebody else has set it: it is theirs to take off.
pub(crate) fn skip_label_by_others(deployment: &Deployment) -> Option<&str> {
    let labels = deployment.labels();
    let value = labels.get(DO_NOT_RECONCILE).map(String::as_str);
    value.filter(|value| *value != HELD || !labels.contains_key(HELD_BY))
}

/// The labels by which Rook is kept from a daemon.
#[cfg(test)]
pub(crate) fn labels(holder: &str) -> Value {
    json!({ DO_NOT_RECONCILE: HELD, HELD_BY: holder })
}

/// The same with the labels by which Rook is kept from the daemon, and since when; `None`: as it says already. What somebody else has
/// set stays theirs.
pub(crate) fn held_by(
    mut patch: Value,
    deployment: &Deployment,
    holder: &str,
    since: Option<Timestamp>,
) -> Value {
    let metadata = &mut patch["metadata"];
    metadata["labels"][HELD_BY] = json!(holder);
    if skip_label_by_others(deployment).is_none() {
        metadata["labels"][DO_NOT_RECONCILE] = json!(HELD);
    }
    let said = deployment.annotations().get(HELD_SINCE).cloned();
    let since = said.or_else(|| Some(format!("{:.0}", since?)));
    if let Some(since) = since {
        metadata["annotations"][HELD_SINCE] = json!(since);
    }
    patch
}

/// Since when Rook is kept from a daemon by one of ours, as far as that is known.
pub(crate) fn held_since(deployment: &Deployment) -> Option<Timestamp> {
    holder(deployment)?;
    deployment.annotations().get(HELD_SINCE)?.parse().ok()
}

/// A merge patch that takes those labels off a Deployment, just as it was seen or not at all. Nothing of its pods changes. What
/// somebody else has set stays.
pub(crate) fn release_patch(deployment: &Deployment) -> Value {
    let mut patch = json!({ "metadata": {
        "resourceVersion": deployment.resource_version(),
        "labels": { HELD_BY: null },
        "annotations": { HELD_SINCE: null },
    } });
    if skip_label_by_others(deployment).is_none() {
        patch["metadata"]["labels"][DO_NOT_RECONCILE] = Value::Null;
    }
    patch
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

/// A release as Rook tells it to a container (`CephVersionFormatted` in `pkg/operator/ceph/version/version.go`).
fn version(release: &str) -> Option<String> {
    let major = release.split('.').next()?.parse().ok()?;
    let version = rook_version_label(release)?;
    Some(format!("ceph version {version} {}", release::name(major)?))
}

/// A release as Rook has it in labels: MAJOR.MINOR.EXTRA-BUILD, where BUILD is the number right behind a hyphen, or else 0
/// (`ExtractCephVersion` in `pkg/operator/ceph/version/version.go`, 1.16.9 and 1.20.6). Of `18.2.1-262.el9cp`, as vendors build it,
/// that is `18.2.1-262`. With another number the template of managers and OSDs is not Rook's, and it would restart them once more.
fn rook_version_label(release: &str) -> Option<String> {
    let Version {
        major,
        minor,
        patch,
        rest,
    } = Version::parse(release)?;
    let build = rest.strip_prefix('-').unwrap_or_default();
    let digits = build.bytes().take_while(u8::is_ascii_digit).count();
    let build: u64 = build[..digits].parse().unwrap_or(0);
    Some(format!("{major}.{minor}.{patch}-{build}"))
}

/// The fields that are ours as they are.
pub(crate) fn current_fields(deployment: &Deployment, kind: &str) -> Value {
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
pub(crate) fn has_revision(deployment: &Deployment, kind: &str, made: &PodRevision) -> bool {
    template_image(deployment, kind) == Some(made.image.as_str())
        && pod::template_fields(&deployment.spec.template, kind, Some(&made.fields)) == made.fields
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
        let same = current_fields(&osd, "osd");
        assert_eq!(
            same["spec"]["template"]["spec"]["containers"][2]["env"][0]["value"],
            "ceph version 18.2.7-0 reef"
        );
    }

    /// What an apply leaves out it takes away: an annotation of the template that went would end the pod.
    #[test]
    fn raising_the_fence_changes_nothing_of_the_template() {
        let osd = osd();
        let patch = current_fields(&osd, "osd");
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
            current_fields(&osd, "osd")["spec"]["template"]["spec"]["containers"],
            written
        );
        let made = |fields: Fields| PodRevision {
            image: "ceph:v18".to_owned(),
            release: "18.2.7".to_owned(),
            fields,
        };
        assert!(has_revision(&osd, "osd", &made(memory)));
        assert!(has_revision(&osd, "osd", &made(Fields::new())));
        let other = Fields::from([("limits/memory".to_owned(), "1".to_owned())]);
        assert!(!has_revision(&osd, "osd", &made(other)));
    }

    /// As Rook reads `ceph --version` of images that are built by vendors, and of those that are built between two releases.
    #[test]
    fn the_number_of_a_build_is_told_as_rook_reads_it() {
        for (release, label) in [
            ("20.2.4", "20.2.4-0"),
            ("18.2.1-262.el9cp", "18.2.1-262"),
            ("19.2.0-64", "19.2.0-64"),
            ("20.3.0-1234-gabcdef", "20.3.0-1234"),
            ("20.2.0-rc1", "20.2.0-0"),
        ] {
            let patch = fields(&osd(), "osd", "ceph:new", &Fields::new(), Some(release));
            assert_eq!(patch["metadata"]["labels"]["ceph-version"], label);
        }
        assert_eq!(
            version("18.2.1-262.el9cp").as_deref(),
            Some("ceph version 18.2.1-262 reef")
        );
        let unknown = fields(&osd(), "osd", "ceph:new", &Fields::new(), Some("devel"));
        assert_eq!(unknown["metadata"]["labels"]["ceph-version"], "18.2.7-0");
    }

    /// An apply that left the label out would give the daemon to Rook in mid-run.
    #[test]
    fn what_is_held_stays_so_in_every_write_until_it_is_given_back() {
        let mut osd = osd();
        let of = |patch: &Value| patch["metadata"]["labels"].clone();
        let expected = json!({
            "ceph-version": "18.2.7-0", "ceph.rook.io/do-not-reconcile": "stagger", "stagger.dev/held-by": "m",
        });
        let since = "2026-11-29T10:00:00Z";
        let held = held_by(current_fields(&osd, "osd"), &osd, "m", since.parse().ok());
        assert_eq!(of(&held), expected);
        assert_eq!(held["metadata"]["annotations"][HELD_SINCE], since);
        for (name, value) in [(DO_NOT_RECONCILE, HELD), (HELD_BY, "m")] {
            osd.labels_mut().insert(name.to_owned(), value.to_owned());
        }
        osd.annotations_mut()
            .insert(HELD_SINCE.to_owned(), since.to_owned());
        assert_eq!(of(&current_fields(&osd, "osd")), expected);
        // It is held since the first time, whoever writes it meanwhile.
        let later = held_by(
            current_fields(&osd, "osd"),
            &osd,
            "m",
            "2026-11-29T11:00:00Z".parse().ok(),
        );
        assert_eq!(later["metadata"]["annotations"][HELD_SINCE], since);
        assert_eq!(held_since(&osd), since.parse().ok());
        let changed = fields(&osd, "osd", "ceph:v20", &Fields::new(), Some("20.2.4"));
        assert_eq!(of(&changed)["stagger.dev/held-by"], "m");
        assert_eq!(
            of(&release_patch(&osd)),
            json!({ "ceph.rook.io/do-not-reconcile": null, "stagger.dev/held-by": null })
        );
        assert_eq!(
            release_patch(&osd)["metadata"]["annotations"],
            json!({ HELD_SINCE: null })
        );
        // A person's own is not taken for ours.
        osd.labels_mut().remove("stagger.dev/held-by");
        assert_eq!(
            of(&current_fields(&osd, "osd")),
            json!({ "ceph-version": "18.2.7-0" })
        );
    }

    /// As `kubectl rook-ceph` and people do, in the midst of a run or before it.
    #[test]
    fn a_label_that_somebody_else_has_set_is_neither_written_nor_taken_away() {
        let mut osd = osd();
        let of = |patch: &Value| patch["metadata"]["labels"].clone();
        assert_eq!(skip_label_by_others(&osd), None);
        osd.labels_mut()
            .insert(DO_NOT_RECONCILE.to_owned(), "true".to_owned());
        assert_eq!(skip_label_by_others(&osd), Some("true"));
        let held = held_by(current_fields(&osd, "osd"), &osd, "m", None);
        let ours_alone = json!({ "ceph-version": "18.2.7-0", "stagger.dev/held-by": "m" });
        assert_eq!(of(&held), ours_alone);
        osd.labels_mut().insert(HELD_BY.to_owned(), "m".to_owned());
        assert_eq!(
            (holder(&osd), skip_label_by_others(&osd)),
            (Some("m"), Some("true"))
        );
        assert_eq!(of(&current_fields(&osd, "osd")), ours_alone);
        assert_eq!(of(&release_patch(&osd)), json!({ "stagger.dev/held-by": null }));
    }

    #[test]
    fn a_deployment_that_has_seen_no_token_takes_the_first() {
        let mut osd = osd();
        assert_eq!(fence_of(&osd), 0);
        osd.annotations_mut().insert(FENCE.to_owned(), "41".to_owned());
        assert_eq!(fence_of(&osd), 41);
    }
}
