//! The release of Ceph in an image: a Job reads it, as Rook's does.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Affinity, Pod, PodSpec};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use stagger_ceph::facts::release::Version;
use stagger_engine::cluster::BackendError;
use tokio::time::{Instant, sleep};

use crate::api::failed;
use crate::api::names::HOSTNAME;

/// How long it may take until the image has been fetched and has answered.
const LONGEST: Duration = Duration::from_mins(10);

/// The release in an image: `18.2.7`. Its Job runs where the daemon of the Deployment `like` may run, and fetches the image as that
/// does: where every node is tainted for storage, or the registry is not open to all, it runs nowhere else.
///
/// # Errors
/// The Job cannot be made, or does not answer, or its answer is not understood.
pub(crate) async fn of(
    client: &Client,
    namespace: &str,
    image: &str,
    like: Option<&str>,
) -> Result<Version, BackendError> {
    let tried = format!("ask the image {image} which Ceph it holds");
    let sum = Sha256::digest(format!("{namespace} {image}"));
    let [a, b, c, d, ..] = sum.0;
    let name = format!("stagger-detect-version-{a:02x}{b:02x}{c:02x}{d:02x}");
    let message = format!("/tmp/{name}");
    let mut pod = match like {
        None => json!({}),
        Some(like) => {
            let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
            let found = deployments
                .get_opt(like)
                .await
                .map_err(|error| failed(&tried, &error))?;
            let spec = found.and_then(|found| found.spec.template.spec);
            spec.map_or_else(|| json!({}), as_of)
        }
    };
    pod["restartPolicy"] = json!("Never");
    pod["automountServiceAccountToken"] = json!(false);
    pod["containers"] = json!([{
        "name": "ceph", "image": image,
        "command": ["sh", "-c", format!("ceph --version >{message}")],
        "terminationMessagePath": message,
    }]);
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": "stagger-detect-version" } },
        "spec": {
            "backoffLimit": 3,
            "ttlSecondsAfterFinished": 600,
            "template": { "metadata": { "labels": { "app": "stagger-detect-version" } }, "spec": pod },
        },
    });
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let job: Job =
        serde_json::from_value(job).map_err(|error| BackendError::permanent(&tried, error.to_string()))?;
    match jobs.create(&PostParams::default(), &job).await {
        Ok(_) => {}
        Err(kube::Error::Api(answer)) if answer.code == 409 => {}
        Err(error) => return Err(failed(&tried, &error)),
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
    let begun = Instant::now();
    let mut last = "its pod has not been started".to_owned();
    while begun.elapsed() < LONGEST {
        let found = pods.list(&of_job).await.map_err(|error| failed(&tried, &error))?;
        for pod in &found.items {
            match image_answer(pod) {
                ImageAnswer::Version(version) => {
                    jobs.delete(&name, &DeleteParams::background()).await.ok();
                    return Ok(version);
                }
                ImageAnswer::Nothing(why) => {
                    jobs.delete(&name, &DeleteParams::background()).await.ok();
                    return Err(BackendError::transient(tried, why).hint("is it an image of Ceph?"));
                }
                ImageAnswer::Not(why) => last = why,
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
    jobs.delete(&name, &DeleteParams::background()).await.ok();
    Err(BackendError::transient(tried, last).hint("is the image's name right, and can the nodes fetch it?"))
}

/// What of a daemon's pod says where it may run, and how its image is fetched; not the one node that it is bound to, nor which other
/// pods it keeps away from.
fn as_of(daemon: PodSpec) -> Value {
    let mut nodes = daemon.node_selector;
    if let Some(nodes) = &mut nodes {
        nodes.remove(HOSTNAME);
    }
    let like = PodSpec {
        affinity: daemon.affinity.map(|affinity| Affinity {
            node_affinity: affinity.node_affinity,
            ..Affinity::default()
        }),
        image_pull_secrets: daemon.image_pull_secrets,
        node_selector: nodes,
        service_account_name: daemon.service_account_name,
        tolerations: daemon.tolerations,
        ..PodSpec::default()
    };
    json!(like)
}

enum ImageAnswer {
    Version(Version),
    /// It has ended well, and there is no release in what it said.
    Nothing(String),
    /// Not yet, or not this time.
    Not(String),
}

fn image_answer(pod: &Pod) -> ImageAnswer {
    let status = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    let state = status
        .and_then(|all| all.first())
        .and_then(|one| one.state.as_ref());
    let Some(state) = state else {
        return ImageAnswer::Not("its pod has not been started".to_owned());
    };
    if let Some(waiting) = &state.waiting {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        return ImageAnswer::Not(format!(
            "its pod waits: {} {}",
            text(&waiting.reason),
            text(&waiting.message)
        ));
    }
    let Some(ended) = &state.terminated else {
        return ImageAnswer::Not("its pod runs".to_owned());
    };
    let message = ended.message.clone().unwrap_or_default();
    let why = format!("it ended with {} and said {message:?}", ended.exit_code);
    match Version::parse_long(message.trim()) {
        _ if ended.exit_code != 0 => ImageAnswer::Not(why),
        Some(version) => ImageAnswer::Version(version),
        None => ImageAnswer::Nothing(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_where_a_monitor_may_run_and_fetches_the_image_as_that_does() {
        let nodes = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
            { "matchExpressions": [{ "key": "role", "operator": "In", "values": ["storage"] }] },
        ] } });
        let apart = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": HOSTNAME, "labelSelector": { "matchLabels": { "app": "rook-ceph-mon" } } },
        ] });
        let tolerations = json!([{ "key": "storage", "operator": "Exists" }]);
        let monitor = json!({
            "containers": [{ "name": "mon" }],
            "serviceAccountName": "rook-ceph-default",
            "nodeSelector": { HOSTNAME: "n1", "disk": "fast" },
            "affinity": { "nodeAffinity": nodes, "podAntiAffinity": apart },
            "tolerations": tolerations,
            "imagePullSecrets": [{ "name": "registry" }],
        });
        let mut like = as_of(serde_json::from_value(monitor).unwrap());
        assert_eq!(like["containers"], json!([]));
        like["containers"] = json!([{ "name": "ceph" }]);
        let expected = json!({
            "containers": [{ "name": "ceph" }],
            "serviceAccountName": "rook-ceph-default",
            "nodeSelector": { "disk": "fast" },
            "affinity": { "nodeAffinity": nodes },
            "tolerations": tolerations,
            "imagePullSecrets": [{ "name": "registry" }],
        });
        assert_eq!(like, expected);
    }
}
