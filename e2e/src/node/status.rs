//! What is told of a pod.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

/// A container's states, now and before, as the API has them.
#[derive(Debug, Clone)]
pub(super) struct ContainerState {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) state: Value,
    pub(super) last: Value,
    pub(super) ready: bool,
    pub(super) started: bool,
    pub(super) restarts: u32,
}

impl ContainerState {
    pub(super) fn waiting(container: &Container, reason: &str) -> Self {
        Self {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            state: json!({ "waiting": { "reason": reason } }),
            last: json!({}),
            ready: false,
            started: false,
            restarts: 0,
        }
    }

    fn json(&self, uid: &str) -> Value {
        json!({
            "name": self.name,
            "image": self.image,
            "imageID": format!("processes://{}", self.image),
            "containerID": format!("processes://{uid}/{}/{}", self.name, self.restarts),
            "state": self.state,
            "lastState": self.last,
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restarts,
        })
    }

    pub(super) fn has_ended_well(&self) -> bool {
        self.state["terminated"]["exitCode"] == 0
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state["terminated"].is_object()
    }
}

/// A time as the API has it.
pub(super) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The whole status of a pod.
pub(super) fn status(
    pod: &Pod,
    started: Timestamp,
    inits: &[ContainerState],
    containers: &[ContainerState],
) -> Value {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let initialized = inits.iter().all(ContainerState::has_ended_well);
    let over = initialized && containers.iter().all(ContainerState::has_ended);
    let phase = if inits
        .iter()
        .any(|init| init.has_ended() && !init.has_ended_well())
    {
        "Failed"
    } else if over && containers.iter().all(ContainerState::has_ended_well) {
        "Succeeded"
    } else if over {
        "Failed"
    } else if initialized
        && containers
            .iter()
            .any(|one| one.state["running"].is_object() || one.restarts > 0)
    {
        "Running"
    } else {
        "Pending"
    };
    let ready = initialized && containers.iter().all(|one| one.ready);
    let since = time(Timestamp::now());
    let before = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let condition = |kind: &str, holds: bool| {
        let status = if holds { "True" } else { "False" };
        let same = before
            .into_iter()
            .flatten()
            .find(|old| old.type_ == kind && old.status == status)
            .and_then(|old| serde_json::to_value(old.last_transition_time.as_ref()?).ok());
        json!({ "type": kind, "status": status, "lastTransitionTime": same.unwrap_or_else(|| json!(since)) })
    };
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
    let of_host = pod.status.as_ref().and_then(|status| status.host_ip.as_deref());
    let all = |states: &[ContainerState]| states.iter().map(|one| one.json(uid)).collect::<Vec<_>>();
    json!({
        "phase": phase,
        "startTime": time(started),
        "hostIP": of_host, "hostIPs": [{ "ip": of_host }],
        "podIP": address, "podIPs": [{ "ip": address }],
        "conditions": [
            condition("PodScheduled", true),
            condition("Initialized", initialized),
            condition("ContainersReady", ready),
            condition("Ready", ready),
        ],
        "initContainerStatuses": all(inits),
        "containerStatuses": all(containers),
    })
}
