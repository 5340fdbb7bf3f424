//! One pod: its init containers one after another, then its containers, until it is deleted.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::Shared;
use super::container::Run;
use super::network::OwnNetwork;
use super::pod_logs;
use super::status::{ContainerState, status};
use super::volumes::{VOLUMES, Volumes};

/// How often it is looked whether the node is lost.
const LOOK: Duration = Duration::from_millis(500);

/// A pod under way.
struct Life {
    shared: Arc<Shared>,
    pod: Pod,
    api: Api<Pod>,
    volumes: Arc<Volumes>,
    network: Arc<OwnNetwork>,
    started: Timestamp,
    inits: Vec<ContainerState>,
    containers: Vec<ContainerState>,
    stop: watch::Sender<Option<Duration>>,
    tell: mpsc::UnboundedSender<ContainerState>,
    running: tokio::task::JoinSet<()>,
}

/// Runs a pod from its binding to its deletion; `own`: its address, if it has a network of its own.
pub(super) async fn run(shared: Arc<Shared>, mut seen: watch::Receiver<Pod>, own: Option<Ipv4Addr>) {
    let pod = seen.borrow_and_update().clone();
    let Some(spec) = pod.spec.clone() else { return };
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let node = spec.node_name.clone().unwrap_or_default();
    let lost = shared.settings.folder.join("lost").join(node);
    let states = |containers: &[Container]| {
        containers
            .iter()
            .map(|one| ContainerState::waiting(one, "PodInitializing"))
            .collect()
    };
    let (tell, mut told) = mpsc::unbounded_channel::<ContainerState>();
    let (stop, _) = watch::channel(None);
    let mut life = Life {
        api: Api::namespaced(shared.client.clone(), &namespace),
        inits: states(spec.init_containers.as_deref().unwrap_or_default()),
        containers: states(&spec.containers),
        volumes: Arc::default(),
        network: OwnNetwork::of(own),
        started: Timestamp::now(),
        shared,
        pod,
        stop,
        tell,
        running: tokio::task::JoinSet::new(),
    };
    life.begin_next();
    loop {
        if let Some(grace) = grace(&life.pod) {
            life.stop.send_replace(Some(grace));
            if life.running.is_empty() {
                while let Ok(state) = told.try_recv() {
                    life.take(state);
                }
                return life.leave().await;
            }
        }
        if lost.exists() {
            // A machine without power: nobody says good-bye, and nobody tells.
            life.running.shutdown().await;
            while lost.exists() {
                sleep(LOOK).await;
            }
            life.pod = seen.borrow_and_update().clone();
            while told.try_recv().is_ok() {}
            life.inits = states(spec.init_containers.as_deref().unwrap_or_default());
            life.containers = states(&spec.containers);
            life.volumes = Arc::default();
            life.network = OwnNetwork::of(own);
            if grace(&life.pod).is_none() {
                life.begin_next();
            }
            continue;
        }
        tokio::select! {
            Some(state) = told.recv() => {
                life.take(state);
                while let Ok(state) = told.try_recv() {
                    life.take(state);
                }
                life.report().await;
            }
            // An init container has told its end by now: the next one's turn.
            _ = life.running.join_next(), if !life.running.is_empty() => {
                while let Ok(state) = told.try_recv() {
                    life.take(state);
                }
                life.begin_next();
                life.report().await;
            }
            changed = seen.changed() => {
                if changed.is_err() {
                    return;
                }
                life.pod = seen.borrow_and_update().clone();
            }
            () = sleep(LOOK) => {}
        }
    }
}

/// How long a pod that is being deleted has to end.
fn grace(pod: &Pod) -> Option<Duration> {
    pod.metadata.deletion_timestamp.as_ref()?;
    let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

impl Life {
    fn take(&mut self, state: ContainerState) {
        let all = self.inits.iter_mut().chain(&mut self.containers);
        if let Some(mine) = all.into_iter().find(|one| one.name == state.name) {
            *mine = state;
        }
    }

    /// Starts the next init container, or all containers once those have ended well.
    fn begin_next(&mut self) {
        if !self.running.is_empty() || grace(&self.pod).is_some() {
            return;
        }
        let Some(spec) = self.pod.spec.clone() else { return };
        let next = self.inits.iter().position(|init| !init.has_ended_well());
        if let Some(at) = next {
            if self.inits[at].has_ended() {
                return;
            }
            let policy = match spec.restart_policy.as_deref() {
                Some("Never") => "Never",
                _ => "OnFailure",
            };
            let init = spec.init_containers.as_deref().unwrap_or_default()[at].clone();
            self.start(init, policy);
            return;
        }
        if self
            .containers
            .iter()
            .all(|one| one.state["waiting"]["reason"] == "PodInitializing")
        {
            let policy = spec.restart_policy.as_deref().unwrap_or("Always").to_owned();
            for one in spec.containers {
                self.start(one, &policy);
            }
        }
    }

    fn start(&mut self, spec: Container, policy: &str) {
        let run = Run {
            policy: policy.to_owned(),
            folder: self.shared.folder(&self.pod).join(&spec.name),
            shared: Arc::clone(&self.shared),
            pod: self.pod.clone(),
            volumes: Arc::clone(&self.volumes),
            network: Arc::clone(&self.network),
            stop: self.stop.subscribe(),
            tell: self.tell.clone(),
            spec,
        };
        self.running.spawn(run.until_it_ends());
    }

    /// Tells the API server, until it takes it or the pod is gone.
    async fn report(&self) {
        let name = self.pod.metadata.name.as_deref().unwrap_or_default();
        let status = status(&self.pod, self.started, &self.inits, &self.containers);
        let patch = json!({ "metadata": { "uid": self.pod.metadata.uid }, "status": status });
        for _ in 0..240 {
            match self
                .api
                .patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
            {
                Ok(_) => return,
                Err(kube::Error::Api(answer)) if answer.code == 404 || answer.code == 409 => return,
                Err(_) => sleep(LOOK).await,
            }
        }
    }

    /// The last word, and the object goes; so does what the pod had here.
    async fn leave(&self) {
        self.report().await;
        let name = self.pod.metadata.name.as_deref().unwrap_or_default();
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: self.pod.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        for _ in 0..240 {
            match self.api.delete(name, &params).await {
                Ok(_) => break,
                Err(kube::Error::Api(answer)) if answer.code == 404 || answer.code == 409 => break,
                Err(_) => sleep(LOOK).await,
            }
        }
        // What cannot be removed goes with the sandbox.
        pod_logs::remove(&self.shared.hosts(), &self.pod).ok();
        remove_all_but_logs(&self.shared.folder(&self.pod)).ok();
    }
}

/// Removes what a pod had, except for the logs of its containers.
fn remove_all_but_logs(folder: &Path) -> std::io::Result<()> {
    for part in fs::read_dir(folder)? {
        let part = part?.path();
        if part.file_name().is_some_and(|name| name == VOLUMES) {
            fs::remove_dir_all(&part)?;
            continue;
        }
        for entry in fs::read_dir(&part)? {
            let path = entry?.path();
            if path.is_dir() {
                fs::remove_dir_all(&path)?;
            } else if path.extension().is_none_or(|end| end != "log") {
                fs::remove_file(&path)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_logs_outlive_a_pod() {
        let folder = tempfile::tempdir().unwrap();
        for path in [".volumes/v", "c/upper", "c/scratch/work", "c/root"] {
            fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        for path in [
            ".volumes/v/x.log",
            "c/upper/y.log",
            "c/message",
            "c/0.log",
            "c/1.log",
        ] {
            fs::write(folder.path().join(path), "x").unwrap();
        }
        remove_all_but_logs(folder.path()).unwrap();
        let left = |path: &str| {
            let entries = fs::read_dir(folder.path().join(path)).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(left(""), ["c"]);
        assert_eq!(left("c"), ["0.log", "1.log"]);
    }
}
