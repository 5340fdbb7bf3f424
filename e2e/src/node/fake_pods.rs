//! Pods of images that are only played: no process, only what the API server is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;

use super::status::{ContainerState, status, time};
use super::{Image, Shared};

/// The last words of a pod that is only played, if it is.
pub(super) fn is_fake<'a>(images: &'a BTreeMap<String, Image>, pod: &Pod) -> Option<&'a str> {
    let first = pod.spec.as_ref()?.containers.first()?;
    images.get(first.image.as_ref()?)?.played.as_deref()
}

/// Does what the pod as it was seen asks for: it becomes ready, it ends, or it goes.
pub(super) async fn serve(shared: Arc<Shared>, pod: Pod, words: String) {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let name = pod.metadata.name.clone().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(shared.client.clone(), &namespace);
    // Whoever changed the pod meanwhile has it seen once more.
    if pod.metadata.deletion_timestamp.is_some() {
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: pod.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        api.delete(&name, &params).await.ok();
        return;
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase != Some("Pending") {
        return;
    }
    let now = Timestamp::now();
    let status = told(&pod, now, &words);
    let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": status });
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .ok();
}

/// The status of such a pod.
fn told(pod: &Pod, now: Timestamp, words: &str) -> serde_json::Value {
    let spec = pod.spec.clone().unwrap_or_default();
    let ended = json!({ "terminated": {
        "exitCode": 0, "reason": "Completed", "message": words, "startedAt": time(now), "finishedAt": time(now),
    } });
    let runs = json!({ "running": { "startedAt": time(now) } });
    let ends = spec.restart_policy.as_deref() == Some("Never");
    let inits: Vec<_> = spec
        .init_containers
        .iter()
        .flatten()
        .map(|one| ContainerState {
            state: ended.clone(),
            ready: true,
            ..ContainerState::waiting(one, "")
        })
        .collect();
    let containers: Vec<_> = spec
        .containers
        .iter()
        .map(|one| ContainerState {
            state: if ends { ended.clone() } else { runs.clone() },
            ready: !ends,
            started: !ends,
            ..ContainerState::waiting(one, "")
        })
        .collect();
    status(pod, now, &inits, &containers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(policy: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "p", "uid": "u" },
            "spec": {
                "restartPolicy": policy,
                "initContainers": [{ "name": "first", "image": "i" }],
                "containers": [{ "name": "osd", "image": "i" }, { "name": "logs", "image": "j" }],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_is_played_if_its_first_container_is() {
        let image = Image {
            played: Some("18".to_owned()),
            ..Image::default()
        };
        let images = BTreeMap::from([("i".to_owned(), image), ("j".to_owned(), Image::default())]);
        assert_eq!(is_fake(&images, &pod("Always")), Some("18"));
        assert_eq!(is_fake(&BTreeMap::new(), &pod("Always")), None);
    }

    #[test]
    fn it_serves_or_has_ended() {
        let serves = told(&pod("Always"), Timestamp::UNIX_EPOCH, "18");
        assert_eq!(serves["phase"], "Running");
        assert_eq!(serves["conditions"][3]["status"], "True");
        let ended = told(&pod("Never"), Timestamp::UNIX_EPOCH, "18");
        assert_eq!(ended["phase"], "Succeeded");
        let state = &ended["containerStatuses"][0]["state"];
        assert_eq!(state["terminated"]["message"], "18");
    }
}
