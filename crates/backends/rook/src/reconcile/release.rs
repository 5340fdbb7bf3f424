//! Which release of Ceph an image holds: a Job asks it, as Rook does.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use stagger_ceph::facts::release::Version;
use stagger_engine::cluster::BackendError;
use tokio::time::{Instant, sleep};

use crate::api::failed;

/// How long it may take until the image has been fetched and has answered.
const LONGEST: Duration = Duration::from_mins(10);

/// The release in an image: `18.2.7`.
///
/// # Errors
/// The Job cannot be made, or does not answer, or its answer is not understood.
pub(crate) async fn of(client: &Client, namespace: &str, image: &str) -> Result<Version, BackendError> {
    let tried = format!("ask the image {image} which Ceph it holds");
    let sum = Sha256::digest(format!("{namespace} {image}"));
    let [a, b, c, d, ..] = sum.0;
    let name = format!("stagger-detect-version-{a:02x}{b:02x}{c:02x}{d:02x}");
    let message = format!("/tmp/{name}");
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": "stagger-detect-version" } },
        "spec": {
            "backoffLimit": 3,
            "ttlSecondsAfterFinished": 600,
            "template": {
                "metadata": { "labels": { "app": "stagger-detect-version" } },
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": false,
                    "containers": [{
                        "name": "ceph", "image": image,
                        "command": ["sh", "-c", format!("ceph --version >{message}")],
                        "terminationMessagePath": message,
                    }],
                },
            },
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
            match said(pod) {
                Said::Version(version) => {
                    jobs.delete(&name, &DeleteParams::background()).await.ok();
                    return Ok(version);
                }
                Said::Nothing(why) => {
                    jobs.delete(&name, &DeleteParams::background()).await.ok();
                    return Err(BackendError::transient(tried, why).hint("is it an image of Ceph?"));
                }
                Said::Not(why) => last = why,
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
    jobs.delete(&name, &DeleteParams::background()).await.ok();
    Err(BackendError::transient(tried, last).hint("is the image's name right, and can the nodes fetch it?"))
}

enum Said {
    Version(Version),
    /// It has ended well, and there is no release in what it said.
    Nothing(String),
    /// Not yet, or not this time.
    Not(String),
}

fn said(pod: &Pod) -> Said {
    let status = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    let state = status
        .and_then(|all| all.first())
        .and_then(|one| one.state.as_ref());
    let Some(state) = state else {
        return Said::Not("its pod has not been started".to_owned());
    };
    if let Some(waiting) = &state.waiting {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        return Said::Not(format!(
            "its pod waits: {} {}",
            text(&waiting.reason),
            text(&waiting.message)
        ));
    }
    let Some(ended) = &state.terminated else {
        return Said::Not("its pod runs".to_owned());
    };
    let message = ended.message.clone().unwrap_or_default();
    let why = format!("it ended with {} and said {message:?}", ended.exit_code);
    match Version::parse_long(message.trim()) {
        _ if ended.exit_code != 0 => Said::Not(why),
        Some(version) => Said::Version(version),
        None => Said::Nothing(why),
    }
}
