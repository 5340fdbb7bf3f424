//! `stagger osd prepare`: creates OSDs on devices of its node, and reports them.
//!
//! BlueStore on the raw device, or on a file in its place. Only an empty device is used. The OSD's UUID
//! derives from cluster, node and device, or from cluster and claim, so that a restart after a kill finds
//! what was started. [`verdict`](mod@verdict), a pure function, decides about each device.

pub(crate) mod device;
mod verdict;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};
use stagger_ceph::api::exec::Exec;
use stagger_ceph::api::{CephApi as _, CephApiError, QueryTarget};
use stagger_engine::secrets;
use tokio::process::Command;

use crate::api::access::{AccessError, Programs, files, mon_host};
use crate::provision::{JobTarget, NodeReport, OsdInfo, Stage, status_map};
use verdict::{ClusterOsd, DeviceVerdict, uuid_of, verdict};

const MANAGER: &str = "stagger-osd-prepare";
/// Where Ceph looks for an OSD's own folder.
const FOLDERS: &str = "/var/lib/ceph/osd";
/// The configuration for all daemons, which Rook keeps.
const CONF: &str = "/etc/ceph/ceph.conf";

/// What is wished.
#[derive(Debug, Clone)]
pub struct PrepareOptions {
    /// The cluster's namespace.
    pub namespace: String,
    /// The node.
    pub node: String,
    /// The claim whose volume the device is, if it is none of the node's own.
    pub claim: Option<String>,
    /// Where it is in the CRUSH map.
    pub location: String,
    /// The devices.
    pub devices: Vec<String>,
    /// The monitors, as in Rook's ConfigMap.
    pub endpoints: String,
    /// The user that may make OSDs, `client.admin`, and its key.
    pub user: String,
    /// Its key.
    pub key: String,
    /// The cluster's identity.
    pub fsid: String,
}

impl PrepareOptions {
    fn at(&self) -> JobTarget {
        match &self.claim {
            Some(claim) => JobTarget::Claim(claim.clone()),
            None => JobTarget::Node(self.node.clone()),
        }
    }
}

/// Why nothing could be reported, or a device not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The monitors' addresses, or a file.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Ceph.
    #[error(transparent)]
    Ceph(#[from] CephApiError),
    /// Ceph answers what is not understood.
    #[error("Ceph's answer to {asked} is not understood: {source}")]
    Answer {
        /// What was asked.
        asked: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The device cannot be used.
    #[error("{0}")]
    Device(String),
    /// A program of Ceph's failed.
    #[error("{program} failed: {said}")]
    Program {
        /// Which.
        program: String,
        /// What it said.
        said: String,
    },
    /// A file or folder.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The report cannot be written.
    #[error("the report of {at} cannot be written: {source}")]
    Report {
        /// Of what.
        at: JobTarget,
        /// Why.
        #[source]
        source: kube::Error,
    },
}

/// Makes OSDs on all devices on which that is possible, and reports them with what went wrong.
///
/// # Errors
/// Nothing could be reported: it should be started again.
pub async fn prepare(client: &Client, wish: &PrepareOptions) -> Result<NodeReport, PrepareError> {
    let hosts = mon_host(&wish.endpoints)?;
    let folder = std::env::temp_dir().join("stagger-osd-prepare");
    let mut access = files(&folder, &hosts, &wish.user, &wish.key, &Programs::default())?;
    access.timeout = Duration::from_mins(2);
    let at = Work {
        ceph: Exec::new(access),
        hosts,
        folder,
        wish,
    };
    let mut status = NodeReport {
        status: Stage::Starting.word().to_owned(),
        pvc_backed_osd: wish.claim.is_some(),
        ..NodeReport::default()
    };
    report(client, wish, &status).await?;
    Stage::Orchestrating.word().clone_into(&mut status.status);
    let mut wrong = Vec::new();
    for device in &wish.devices {
        match at.device_info(device).await {
            Ok(osd) => status.osds.push(osd),
            Err(error) => wrong.push(format!("{device}: {error}")),
        }
        status.message = wrong.join("; ");
        report(client, wish, &status).await?;
    }
    let stage = if wrong.is_empty() {
        Stage::Completed
    } else {
        Stage::Failed
    };
    stage.word().clone_into(&mut status.status);
    report(client, wish, &status).await?;
    Ok(status)
}

async fn report(client: &Client, wish: &PrepareOptions, status: &NodeReport) -> Result<(), PrepareError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &wish.namespace);
    let map = status_map(&wish.namespace, &wish.at(), status);
    let name = map["metadata"]["name"].as_str().unwrap_or_default();
    let params = PatchParams::apply(MANAGER).force();
    let written = maps.patch(name, &params, &Patch::Apply(&map)).await;
    written.map(drop).map_err(|source| PrepareError::Report {
        at: wish.at(),
        source,
    })
}

/// Which OSDs there are, from `osd dump`.
#[derive(Deserialize)]
struct Dump {
    osds: Vec<Dumped>,
}

#[derive(Deserialize)]
struct Dumped {
    osd: u32,
    uuid: String,
    #[serde(default)]
    state: Vec<String>,
}

#[derive(Deserialize)]
struct NewOsd {
    osdid: u32,
}

#[derive(Deserialize)]
struct Key {
    key: String,
}

struct Work<'a> {
    ceph: Exec,
    hosts: String,
    folder: PathBuf,
    wish: &'a PrepareOptions,
}

impl Work<'_> {
    async fn device_info(&self, device: &str) -> Result<OsdInfo, PrepareError> {
        let path = Path::new(device);
        let content = device::read_exclusive(path).map_err(|why| PrepareError::Device(why.to_string()))?;
        let label = match content {
            device::Content::BlueStore => Some(device::label(path).await.map_err(PrepareError::Device)?),
            device::Content::Empty | device::Content::Other => None,
        };
        let uuid = uuid_of(&self.wish.fsid, &self.wish.at(), device);
        let known = self.cluster_osds().await?;
        match verdict(content, label.as_ref(), &self.wish.fsid, &uuid, &known) {
            DeviceVerdict::There { id, uuid } => Ok(self.info(id, uuid, device)),
            DeviceVerdict::Make => {
                let id = self.make(path, &uuid).await?;
                Ok(self.info(id, uuid, device))
            }
            DeviceVerdict::Refuse(why) => Err(PrepareError::Device(why)),
        }
    }

    async fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        asked: &'static str,
        question: Value,
    ) -> Result<T, PrepareError> {
        let answer = self.ceph.ask(QueryTarget::Mon, question).await?;
        serde_json::from_slice(&answer).map_err(|source| PrepareError::Answer { asked, source })
    }

    async fn cluster_osds(&self) -> Result<BTreeMap<String, ClusterOsd>, PrepareError> {
        let dump: Dump = self.ask("osd dump", json!({ "prefix": "osd dump" })).await?;
        let known = dump.osds.into_iter().map(|osd| {
            let never_ran = osd.state.iter().any(|state| state == "new");
            (
                osd.uuid,
                ClusterOsd {
                    id: osd.osd,
                    never_ran,
                },
            )
        });
        Ok(known.collect())
    }

    /// A number, a key, and BlueStore on the device. Each step may be repeated.
    async fn make(&self, device: &Path, uuid: &str) -> Result<u32, PrepareError> {
        let question = json!({ "prefix": "osd new", "uuid": uuid });
        let NewOsd { osdid: id } = self.ask("osd new", question).await?;
        let caps = [
            "mon",
            "allow profile osd",
            "mgr",
            "allow profile osd",
            "osd",
            "allow *",
        ];
        let question = json!({
            "prefix": "auth get-or-create", "entity": format!("osd.{id}"), "caps": caps,
        });
        let keys: Vec<Key> = self.ask("auth get-or-create", question).await?;
        let key = keys.into_iter().next().map(|key| key.key).unwrap_or_default();
        let file = |path: &Path| {
            let path = path.display().to_string();
            move |source| PrepareError::File { path, source }
        };
        let keyfile = self.folder.join(format!("osd.{id}.key"));
        secrets::write(&keyfile, key.as_bytes()).map_err(file(&keyfile))?;
        let place = Path::new(FOLDERS).join(format!("ceph-{id}"));
        fs::create_dir_all(&place).map_err(file(&place))?;
        let block = place.join("block");
        fs::remove_file(&block).ok();
        symlink(device, &block).map_err(file(&block))?;
        run(Command::new("chown")
            .args(["-RL", "ceph:ceph"])
            .arg(&place)
            .arg(&keyfile))
        .await?;
        // The file stays readable for the user that the OSD runs as, and its folder for nobody else.
        run(Command::new("chown").arg("ceph:ceph").arg(&self.folder)).await?;
        let mut mkfs = Command::new("ceph-osd");
        if Path::new(CONF).exists() {
            mkfs.args(["-c", CONF]);
        } else {
            mkfs.args(["-c", "/dev/null"]);
        }
        mkfs.args(["-m", &self.hosts, "--fsid", &self.wish.fsid])
            .args(["--mkfs", "-i", &id.to_string(), "--osd-uuid", uuid])
            .args(["--osd-objectstore", "bluestore", "--osd-data"])
            .arg(&place)
            .arg("--keyfile")
            .arg(&keyfile)
            .args(["--setuser", "ceph", "--setgroup", "ceph", "--no-mon-config"])
            .args(["--log-file=", "--admin-socket=", "--run-dir"])
            .arg(&self.folder);
        run(&mut mkfs).await?;
        fs::remove_file(&keyfile).map_err(file(&keyfile))?;
        Ok(id)
    }

    fn info(&self, id: u32, uuid: String, device: &str) -> OsdInfo {
        OsdInfo {
            id,
            cluster: "ceph".to_owned(),
            uuid,
            device_class: String::new(),
            device: device.to_owned(),
            location: self.wish.location.clone(),
            mode: "raw".to_owned(),
            store: "bluestore".to_owned(),
            node: self.wish.node.clone(),
            claim: self.wish.claim.clone().unwrap_or_default(),
        }
    }
}

async fn run(command: &mut Command) -> Result<String, PrepareError> {
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let failed = |said: String| PrepareError::Program {
        program: program.clone(),
        said,
    };
    let output = command
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(relevant_lines(&String::from_utf8_lossy(&output.stderr))))
}

/// The lines that tell what a program of Ceph's died of: before a trace of calls stands why, elsewhere it is
/// at the end.
fn relevant_lines(said: &str) -> String {
    let lines = || said.lines().filter(|line| !line.trim().is_empty());
    let thrown: Vec<&str> = lines().filter(|line| line.contains("what():")).collect();
    let told = if thrown.is_empty() {
        let errors: Vec<&str> = lines().filter(|line| line.contains(" -1 ")).collect();
        if errors.is_empty() {
            lines().collect()
        } else {
            errors
        }
    } else {
        thrown
    };
    told[told.len().saturating_sub(3)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::relevant_lines;

    #[test]
    fn of_a_trace_the_reason_is_told() {
        let said = "terminate called\n  what():  no such folder\n*** Caught signal (Aborted) **\n 1: main()\n NOTE: a copy";
        assert_eq!(relevant_lines(said), "  what():  no such folder");
        let said = "x\n2026 7f -1 bluestore(/dev/sdb) no room\n2026 7f -1 mkfs failed\nend\n\n";
        assert!(relevant_lines(said).contains("no room | 2026 7f -1 mkfs failed"));
        assert_eq!(relevant_lines("one\ntwo\n"), "one | two");
        assert_eq!(relevant_lines(""), "");
    }
}
