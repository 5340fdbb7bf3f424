//! `stagger agent`: the agent on each node, beside an operator.
//!
//! It lists the node's block [`devices`] in a ConfigMap, and keeps the [`logs`] of containers that have
//! ended. All its state is on the node, so it continues after any restart.

pub mod daemon_set;
mod devices;
mod logs;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};

use crate::agent::daemon_set::NAME;
use crate::api::names;
use devices::Device;
use logs::Keeper;
pub use logs::{Bounds, Logs};

/// Between two rounds.
const ROUND: Duration = Duration::from_secs(10);
/// Between two looks at the devices.
const LOOK: Duration = Duration::from_mins(1);
/// What has not changed is written again after so long: somebody may have removed it.
const AGAIN: Duration = Duration::from_mins(10);
/// A device that does not answer for so long is not waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// A round that ended well no longer ago than this makes it ready.
const FRESH: Duration = Duration::from_mins(2);
/// The keys of the devices and of the node in their ConfigMap.
const DEVICES: &str = "devices.json";
const NODE: &str = "node";

/// What is wished.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The namespace of the ConfigMap.
    pub namespace: String,
    /// The name of this node.
    pub node: String,
    /// Which logs are kept, and where.
    pub logs: Logs,
    /// The file that says that all is well.
    pub ready: PathBuf,
}

/// Why a round did not end well. The next one may.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The logs.
    #[error("logs of ended containers cannot be kept: {0}")]
    Logs(#[source] std::io::Error),
    /// The devices.
    #[error("block devices cannot be listed: {0}")]
    Devices(#[source] std::io::Error),
    /// The ConfigMap.
    #[error("ConfigMap {name} cannot be written: {source}")]
    Report {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: kube::Error,
    },
    /// The file that says that all is well.
    #[error("{path} cannot be written: {source}")]
    Ready {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A bug.
    #[error("a task ended: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Goes its rounds until `stop` is over.
pub async fn run(client: Client, wish: AgentOptions, stop: impl Future<Output = ()>) {
    // One of an earlier container of this pod says nothing of this one.
    std::fs::remove_file(&wish.ready).ok();
    let mut rounds = Rounds {
        keeper: Some(Keeper::new(wish.logs.clone())),
        devices: Devices::default(),
        client,
        wish,
    };
    tokio::pin!(stop);
    loop {
        tokio::select! {
            round = rounds.round() => if let Err(error) = round {
                tracing::warn!(%error, "a round did not end well");
            },
            () = &mut stop => return,
        }
        tokio::select! {
            () = sleep(ROUND) => {}
            () = &mut stop => return,
        }
    }
}

/// Whether an agent that leaves its word there is well at that time.
pub fn is_ready(word: &Path, now: SystemTime) -> bool {
    let left = std::fs::metadata(word).and_then(|file| file.modified());
    left.is_ok_and(|left| now.duration_since(left).is_ok_and(|ago| ago < FRESH))
}

struct Rounds {
    client: Client,
    wish: AgentOptions,
    /// Away while it is at work.
    keeper: Option<Keeper>,
    devices: Devices,
}

/// What is known of the devices.
#[derive(Default)]
struct Devices {
    /// A look that is under way: a device that hangs must not hold up the rest.
    look: Option<JoinHandle<std::io::Result<Vec<Device>>>>,
    looked: Option<Instant>,
    /// What was written, and when.
    written: Option<(Value, Instant)>,
}

impl Rounds {
    async fn round(&mut self) -> Result<(), AgentError> {
        // The one that is away belongs to a round that was stopped, and with it the program.
        if let Some(mut keeper) = self.keeper.take() {
            let (keeper, kept) = spawn_blocking(move || {
                let kept = keeper.round(SystemTime::now());
                (keeper, kept)
            })
            .await?;
            self.keeper = Some(keeper);
            let kept = kept.map_err(AgentError::Logs)?;
            if kept != logs::LogRound::default() {
                tracing::info!(copied = kept.copied, removed = kept.removed, "logs");
            }
        }
        if self.devices.looked.is_none_or(|at| at.elapsed() >= LOOK)
            && let Some(found) = self.list_devices().await?
        {
            self.publish(&found).await?;
            self.devices.looked = Some(Instant::now());
        }
        let word = &self.wish.ready;
        std::fs::write(word, "").map_err(|source| AgentError::Ready {
            path: word.display().to_string(),
            source,
        })
    }

    /// The devices; none, if one of them does not answer in time.
    async fn list_devices(&mut self) -> Result<Option<Vec<Device>>, AgentError> {
        let look = self.devices.look.get_or_insert_with(|| {
            spawn_blocking(|| devices::list(Path::new("/sys/block"), Path::new("/dev")))
        });
        if let Ok(found) = timeout(PATIENCE, look).await {
            self.devices.look = None;
            return found?.map(Some).map_err(AgentError::Devices);
        }
        tracing::warn!(
            "a block device does not answer; what is known of all of them stays as it was (`dmesg` may name it)"
        );
        Ok(None)
    }

    /// Writes down the devices, if they are others than those that are written down.
    async fn publish(&mut self, found: &[Device]) -> Result<(), AgentError> {
        let map = report(&self.wish.namespace, &self.wish.node, found);
        let same = |(known, at): &(Value, Instant)| *known == map && at.elapsed() < AGAIN;
        if self.devices.written.as_ref().is_some_and(same) {
            return Ok(());
        }
        let name = map["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.wish.namespace);
        let params = PatchParams::apply(NAME).force();
        match maps.patch(&name, &params, &Patch::Apply(&map)).await {
            Ok(_) => {
                self.devices.written = Some((map, Instant::now()));
                Ok(())
            }
            Err(source) => Err(AgentError::Report { name, source }),
        }
    }
}

/// The ConfigMap with a node's devices.
fn report(namespace: &str, node: &str, found: &[Device]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            // An admission policy lets the agent of this node write just this one.
            "name": format!("stagger-devices-{node}"), "namespace": namespace,
            "labels": { names::APP: NAME },
        },
        "data": { NODE: node, DEVICES: serde_json::to_string_pretty(found).unwrap_or_default() },
    })
}

/// The node whose devices a ConfigMap lists.
pub(crate) fn node_of(map: &ConfigMap) -> Option<&String> {
    map.data.as_ref()?.get(NODE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_who_left_word_lately() {
        let word = tempfile::NamedTempFile::new().unwrap();
        let left = word.as_file().metadata().unwrap().modified().unwrap();
        assert!(is_ready(word.path(), left + Duration::from_mins(1)));
        assert!(!is_ready(word.path(), left + FRESH));
        // A clock that was set back tells nothing.
        assert!(!is_ready(word.path(), left - Duration::from_secs(1)));
        assert!(!is_ready(Path::new("/nowhere/ready"), left));
    }

    /// By the rule of the admission policy in deploy/provisioning.
    #[test]
    fn a_report_has_the_name_of_its_node() {
        for node in [
            "host1",
            "ip-10-0-12-34.eu-central-1.compute.internal.with.a.long.domain.example.com",
        ] {
            let map: ConfigMap = serde_json::from_value(report("n", node, &[])).unwrap();
            assert_eq!(
                map.metadata.name.as_deref(),
                Some(&*format!("stagger-devices-{node}"))
            );
            assert_eq!(node_of(&map).map(String::as_str), Some(node));
        }
        assert_eq!(report("n", "a", &[])["data"][DEVICES], "[]");
    }
}
