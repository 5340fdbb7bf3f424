//! The fields of a Deployment that are ours, and no others.

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::made::{image_of, with_image};

/// The annotation with the newest fencing token that a Deployment has seen.
pub const FENCE: &str = "stagger.dev/fence";
/// The annotation of a pod that was restarted, with the effect that did it.
pub(crate) const RESTARTED: &str = "stagger.dev/restarted";
/// The label with Ceph's release, as Rook writes it.
pub(crate) const VERSION: &str = "ceph-version";

/// The fields of a Deployment that are ours, with that image; all of them, for what an apply leaves out it
/// takes away.
pub(crate) fn fields(deployment: &Deployment, kind: &str, image: &str, release: Option<&str>) -> Value {
    let template = &deployment.spec.template;
    let now = template_image(deployment, kind).unwrap_or_default();
    let (inits, containers) = template
        .spec
        .as_ref()
        .map(|spec| with_image(spec, now))
        .unwrap_or_default();
    let all = |names: Vec<String>| -> Vec<Value> {
        names
            .into_iter()
            .map(|name| json!({ "name": name, "image": image }))
            .collect()
    };
    let mut patch = json!({
        "spec": { "template": { "spec": { "containers": all(containers) } } },
    });
    let inits = all(inits);
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
    patch
}

/// The fields that are ours as they are.
pub(crate) fn as_they_are(deployment: &Deployment, kind: &str) -> Value {
    let image = template_image(deployment, kind).unwrap_or_default().to_owned();
    fields(deployment, kind, &image, None)
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
        let patch = fields(&osd(), "osd", "ceph:v20", Some("20.2.4"));
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

    #[test]
    fn a_deployment_that_has_seen_no_token_takes_the_first() {
        let mut osd = osd();
        assert_eq!(fence_of(&osd), 0);
        osd.annotations_mut().insert(FENCE.to_owned(), "41".to_owned());
        assert_eq!(fence_of(&osd), 41);
    }
}
