//! Whether a Deployment has rolled out what it should run, by its status and its pods.

use std::sync::Arc;
use std::time::Duration;

use crate::api::objects::{Container, ContainerStatus, Deployment, Pod};

/// After so many restarts a container is in a crash loop.
const CRASHES: i32 = 2;

/// A rollout that is neither done nor failed after this time has failed, where policy does not let it take longer.
const LONGEST: Duration = Duration::from_mins(10);
/// The same where the major release is another: the first start on it may convert what the daemon has.
const LONGEST_OF_MAJOR: Duration = Duration::from_mins(30);

/// How long a daemon may take to start: as it is `said`, else as long as its gates may be shut and no less than is usual. Both in
/// seconds. `majors`: the release that it ran before the run, and the one that it is to run, as far as they are known.
pub fn start_limit(said: Option<u32>, gates: u32, majors: (Option<u32>, Option<u32>)) -> Duration {
    if let Some(said) = said {
        return Duration::from_secs(said.into());
    }
    let usual = match majors {
        (Some(before), Some(wanted)) if before == wanted => LONGEST,
        _ => LONGEST_OF_MAJOR,
    };
    usual.max(Duration::from_secs(gates.into()))
}

/// The major number of a release: 20 of `20.2.4`.
pub fn major(release: &str) -> Option<u32> {
    release.split('.').next()?.parse().ok()
}

/// How far a Deployment has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rollout {
    /// Its pods are those that it asks for, and all are ready.
    Serves,
    /// They are not yet.
    Waiting(String),
    /// They will not be.
    Failed(String),
}

/// Whether each pod of a Deployment is made of its template, by the word of its controller, whether or not they are ready. What is written
/// in a pod may be another: an admission webhook puts a mirror of the registry into the image, or defaults into resources.
pub fn is_rolled_out(deployment: &Deployment) -> bool {
    let Some(status) = &deployment.status else {
        return false;
    };
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let count = |number: Option<i32>| number.unwrap_or(0);
    status.observed_generation.unwrap_or(0) >= deployment.metadata.generation.unwrap_or(0)
        && wanted > 0
        && count(status.updated_replicas) == wanted
        && count(status.replicas) == wanted
}

/// How far it has come. `pods`: those of the Deployment, of all its revisions.
pub fn rollout(deployment: &Deployment, pods: &[Arc<Pod>]) -> Rollout {
    let generation = deployment.metadata.generation.unwrap_or(0);
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let Some(status) = &deployment.status else {
        return Rollout::Waiting("its controller has not looked at it yet".to_owned());
    };
    if status.observed_generation.unwrap_or(0) < generation {
        return Rollout::Waiting("its controller has not seen the change yet".to_owned());
    }
    let count = |number: Option<i32>| number.unwrap_or(0);
    if count(status.updated_replicas) == wanted
        && count(status.ready_replicas) == wanted
        && count(status.replicas) == wanted
    {
        return Rollout::Serves;
    }
    // Those of before may have crashed as often as they like.
    let is_new = |pod: &&Arc<Pod>| is_from_template(deployment, pod);
    for pod in pods.iter().filter(is_new) {
        if let Some(why) = broken(pod) {
            return Rollout::Failed(why);
        }
    }
    // By default Kubernetes gives it up after ten minutes, and goes on with it all the same. How long a start may take
    // is policy: the first one on a new release may convert much.
    let slow = status.conditions.iter().flatten().find(|condition| {
        condition.type_ == "Progressing"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("ProgressDeadlineExceeded")
    });
    let why = slow.and_then(|condition| condition.message.as_deref());
    Rollout::Waiting(format!(
        "{} of {wanted} pods are new, {} are ready{}{}",
        count(status.updated_replicas),
        count(status.ready_replicas),
        if why.is_some() { ": " } else { "" },
        why.unwrap_or_default()
    ))
}

/// Whether a pod is made of a Deployment's template: it has its annotations, and each of its images; where all pods are of the template by
/// the word of their controller, these may be from another registry.
fn is_from_template(deployment: &Deployment, pod: &Pod) -> bool {
    let template = &deployment.spec.template;
    let may_be_mirrored = is_rolled_out(deployment);
    let wanted = template
        .metadata
        .as_ref()
        .and_then(|meta| meta.annotations.as_ref());
    let there = pod.metadata.annotations.as_ref();
    let annotated = wanted
        .into_iter()
        .flatten()
        .all(|(key, value)| there.and_then(|there| there.get(key)) == Some(value));
    let of_template = template.spec.iter().flat_map(|spec| &spec.containers);
    let mut of_pod = of_template.map(|container| {
        let mut same = pod.spec.iter().flat_map(|spec| &spec.containers);
        same.any(|own| {
            own.name == container.name
                && (own.image == container.image
                    || may_be_mirrored && without_registry(own) == without_registry(container))
        })
    });
    annotated && of_pod.all(|same| same)
}

/// `ceph:v20.2.5` of `mirror.local/proxied/ceph/ceph:v20.2.5`.
fn without_registry(container: &Container) -> Option<&str> {
    container.image.as_deref()?.rsplit('/').next()
}

/// Why a pod will not be ready, if it will not.
fn broken(pod: &Pod) -> Option<String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let status = pod.status.as_ref()?;
    let all = status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten());
    for container in all {
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        let reason = waiting
            .and_then(|waiting| waiting.reason.as_deref())
            .unwrap_or_default();
        let no_image = matches!(
            reason,
            "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "CreateContainerConfigError"
        );
        if no_image || container.restart_count >= CRASHES {
            let why = waiting
                .and_then(|waiting| waiting.message.clone())
                .unwrap_or_default();
            return Some(format!(
                "container {} of {name}: {reason} {why}{}",
                container.name,
                termination_text(container)
            ));
        }
    }
    None
}

fn termination_text(container: &ContainerStatus) -> String {
    let ended = container
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    match ended {
        Some(ended) => format!(
            "; restarted {} times, it ended with {} {}",
            container.restart_count,
            ended.exit_code,
            ended.message.as_deref().unwrap_or_default()
        ),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_first_start_on_another_major_release_may_take_longer_and_policy_says_how_long() {
        let minutes = |said: Option<u32>, gates: u32, before: &str, wanted: &str| {
            let limit = start_limit(said, gates * 60, (major(before), major(wanted)));
            limit.as_secs() / 60
        };
        assert_eq!(minutes(None, 5, "20.2.4-a1", "20.2.5"), 10);
        assert_eq!(minutes(None, 20, "20.2.4-a1", "20.2.5"), 20);
        assert_eq!(minutes(None, 20, "19.2.3-a1", "20.2.5"), 30);
        assert_eq!(minutes(None, 40, "19.2.3-a1", "20.2.5"), 40);
        // What it ran is not known.
        assert_eq!(minutes(None, 5, "", "20.2.5"), 30);
        assert_eq!(minutes(Some(3 * 60), 20, "19.2.3-a1", "20.2.5"), 3);
        assert_eq!(minutes(Some(120 * 60), 20, "20.2.4-a1", "20.2.5"), 120);
    }

    fn deployment(generation: i64, status: &Value) -> Deployment {
        serde_json::from_value(json!({
            "metadata": { "name": "rook-ceph-osd-3", "generation": generation },
            "spec": { "replicas": 1, "selector": {}, "template": {
                "metadata": { "annotations": { "restarted": "r1-7" } },
                "spec": { "containers": [{ "name": "osd", "image": "new" }] },
            } },
            "status": status,
        }))
        .unwrap()
    }

    fn pod(name: &str, image: &str, restarted: &str, status: &Value) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": { "name": name, "annotations": { "restarted": restarted } },
                "spec": { "containers": [{ "name": "osd", "image": image }] },
                "status": { "containerStatuses": [status] },
            }))
            .unwrap(),
        )
    }

    fn container(restarts: u32, state: &Value) -> Value {
        json!({
            "name": "osd", "image": "i", "imageID": "", "ready": false, "restartCount": restarts, "state": state,
            "lastState": { "terminated": { "exitCode": 1, "reason": "Error", "message": "no such store" } },
        })
    }

    fn is_waiting(rollout: &Rollout) -> bool {
        matches!(rollout, Rollout::Waiting(_))
    }

    const WHOLE: &str =
        r#"{"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}"#;

    #[test]
    fn what_its_controller_has_not_seen_is_waited_for() {
        let whole: Value = serde_json::from_str(WHOLE).unwrap();
        assert_eq!(rollout(&deployment(2, &whole), &[]), Rollout::Serves);
        assert!(is_waiting(&rollout(&deployment(3, &whole), &[])));
        assert!(is_waiting(&rollout(&deployment(2, &json!(null)), &[])));
        // The old pod is still ready, and the new one is not there.
        let half = json!({ "observedGeneration": 2, "replicas": 1, "readyReplicas": 1 });
        assert!(is_waiting(&rollout(&deployment(2, &half), &[])));
    }

    #[test]
    fn pods_are_of_the_template_once_their_controller_says_so_ready_or_not() {
        let of = |generation, status: &str| {
            let status: Value = serde_json::from_str(status).unwrap();
            is_rolled_out(&deployment(generation, &status))
        };
        assert!(of(2, WHOLE));
        assert!(!of(3, WHOLE));
        assert!(of(
            2,
            r#"{"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1}"#
        ));
        for not_yet in [
            "null",
            r#"{"observedGeneration": 2, "replicas": 1}"#,
            r#"{"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1}"#,
        ] {
            assert!(!of(2, not_yet), "{not_yet}");
        }
    }

    /// As Kubernetes' own rolling update goes on, with one pod more than wanted meanwhile.
    #[test]
    fn of_several_pods_all_are_new_and_ready_and_none_is_left_of_before() {
        let of_three = |replicas: i32, updated: i32, ready: i32| {
            let mut of_three = deployment(
                2,
                &json!({
                    "observedGeneration": 2, "replicas": replicas, "updatedReplicas": updated,
                    "readyReplicas": ready,
                }),
            );
            of_three.spec.replicas = Some(3);
            rollout(&of_three, &[])
        };
        for (replicas, updated, ready) in [(4, 1, 3), (4, 1, 4), (4, 3, 4), (3, 3, 2), (3, 2, 3)] {
            let found = of_three(replicas, updated, ready);
            assert!(is_waiting(&found), "{replicas} {updated} {ready}: {found:?}");
        }
        assert_eq!(of_three(3, 3, 3), Rollout::Serves);
    }

    #[test]
    fn a_crash_loop_of_the_new_pod_is_a_failure_and_of_the_old_one_is_none() {
        let none = json!({ "observedGeneration": 2, "replicas": 1, "updatedReplicas": 1 });
        let looping = json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 20s" } });
        let crashed = container(7, &looping);
        let before = [
            pod("of the image before", "old", "r1-7", &crashed),
            pod("of before the restart", "new", "r1-6", &crashed),
        ];
        for one in before {
            assert!(is_waiting(&rollout(&deployment(2, &none), &[one])));
        }
        let new = |restarts| pod("new", "new", "r1-7", &container(restarts, &looping));
        assert!(is_waiting(&rollout(&deployment(2, &none), &[new(1)])));
        let failed = rollout(&deployment(2, &none), &[new(2)]);
        let Rollout::Failed(why) = failed else {
            panic!("{failed:?}")
        };
        assert!(why.contains("new") && why.contains("no such store"), "{why}");
        // An admission webhook has put a mirror in the place of the registry.
        let mirrored = |status: &Value| {
            rollout(
                &deployment(2, status),
                &[pod("m", "mirror.local/new", "r1-7", &crashed)],
            )
        };
        let of_template = json!({ "observedGeneration": 2, "replicas": 1, "updatedReplicas": 1 });
        assert!(matches!(mirrored(&of_template), Rollout::Failed(_)));
        let not_yet = json!({ "observedGeneration": 2, "replicas": 1 });
        assert!(is_waiting(&mirrored(&not_yet)));
    }

    #[test]
    fn an_image_that_is_not_there_is_a_failure_and_the_deadline_of_kubernetes_is_none() {
        let none = json!({ "observedGeneration": 2, "replicas": 1, "updatedReplicas": 1 });
        let missing = json!({ "waiting": { "reason": "ErrImagePull", "message": "not found" } });
        let new = pod("new", "new", "r1-7", &container(0, &missing));
        let failed = rollout(&deployment(2, &none), &[new]);
        assert!(
            matches!(&failed, Rollout::Failed(why) if why.contains("not found")),
            "{failed:?}"
        );
        let late = json!({
            "observedGeneration": 2, "replicas": 1, "updatedReplicas": 1,
            "conditions": [{
                "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too late",
            }],
        });
        assert_eq!(
            rollout(&deployment(2, &late), &[]),
            Rollout::Waiting("1 of 1 pods are new, 0 are ready: too late".to_owned())
        );
    }
}
