//! What is kept of objects that are watched.
//!
//! Of a large cluster's Deployments and pods most is volumes, probes and variables that nobody here asks for. What
//! is gathered of a failure is asked for anew.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::provision::BLOCK_PATH;

pub(super) fn deployment(deployment: &mut Deployment) {
    // Rook keeps all of a Deployment in an annotation of it.
    if let Some(annotations) = &mut deployment.metadata.annotations {
        annotations.retain(|name, _| name.starts_with("stagger.dev/"));
    }
    if let Some(template) = &mut deployment.spec.template.spec {
        spec(template);
    }
}

pub(super) fn pod(pod: &mut Pod) {
    if let Some(of_pod) = &mut pod.spec {
        spec(of_pod);
        of_pod.tolerations = None;
    }
    // The ranges of addresses, and what each probe said, are nobody's business here.
    if let Some(status) = &mut pod.status {
        status.pod_ips = None;
        status.host_ips = None;
    }
}

fn spec(spec: &mut PodSpec) {
    spec.volumes = None;
    spec.affinity = None;
    spec.topology_spread_constraints = None;
    let inits = spec.init_containers.iter_mut().flatten();
    for one in spec.containers.iter_mut().chain(inits) {
        *one = Container {
            name: std::mem::take(&mut one.name),
            image: one.image.take(),
            resources: one.resources.take(),
            env: one.env.take().map(|env| {
                let path = env.into_iter().filter(|env| env.name == BLOCK_PATH);
                path.collect()
            }),
            ..Container::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::provision::devices_of;

    #[test]
    fn what_is_looked_at_is_kept() {
        let mut osd: Deployment = serde_json::from_value(json!({
            "metadata": { "name": "rook-ceph-osd-3" },
            "spec": { "selector": {}, "template": { "spec": {
                "hostNetwork": true, "nodeSelector": { "kubernetes.io/hostname": "n1" },
                "tolerations": [{ "operator": "Exists" }],
                "volumes": [{ "name": "x", "emptyDir": {} }],
                "initContainers": [{ "name": "activate", "image": "ceph:v18", "command": ["sh"] }],
                "containers": [{
                    "name": "osd", "image": "ceph:v18", "args": ["--foreground"],
                    "env": [{ "name": "A", "value": "b" }, { "name": "ROOK_BLOCK_PATH", "value": "/dev/sdb" }],
                    "resources": { "limits": { "memory": "4Gi" } },
                }],
            } } },
        }))
        .unwrap();
        let notes = ["stagger.dev/fence", "banzaicloud.com/last-applied"];
        osd.metadata.annotations = Some(notes.map(|name| (name.to_owned(), "7".to_owned())).into());
        deployment(&mut osd);
        assert_eq!(crate::ours::fence_of(&osd), 7);
        assert_eq!(osd.metadata.annotations.as_ref().unwrap().len(), 1);
        assert_eq!(devices_of(&osd), ["/dev/sdb".to_owned()].into());
        let left = serde_json::to_value(&osd).unwrap();
        assert_eq!(
            left["spec"]["template"]["spec"],
            json!({
                "hostNetwork": true, "nodeSelector": { "kubernetes.io/hostname": "n1" },
                "tolerations": [{ "operator": "Exists" }],
                "initContainers": [{ "name": "activate", "image": "ceph:v18" }],
                "containers": [{
                    "name": "osd", "image": "ceph:v18",
                    "env": [{ "name": "ROOK_BLOCK_PATH", "value": "/dev/sdb" }],
                    "resources": { "limits": { "memory": "4Gi" } },
                }],
            })
        );
    }
}
