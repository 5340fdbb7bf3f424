//! Drains as an administrator does them, and what they leave.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{LaidOut, NAMESPACE, deployments};
use crate::ceph::Kind;
use crate::roots::Release;

impl LaidOut {
    /// `kubectl drain`, for at most so many seconds.
    ///
    /// # Errors
    /// It was not finished by then.
    pub fn drain(&self, node: &str, seconds: u32) -> Result<()> {
        let timeout = format!("--timeout={seconds}s");
        let words = [
            "drain",
            node,
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            &timeout,
        ];
        self.plane.ask(&words).map(|_| ())
    }

    /// Takes pods again.
    ///
    /// # Errors
    /// There is no such node.
    pub fn uncordon(&self, node: &str) -> Result<()> {
        self.plane.ask(&["uncordon", node]).map(|_| ())
    }

    /// The pod of an OSD that is not about to go.
    ///
    /// # Errors
    /// There is none now.
    pub fn pod_of_osd(&self, osd: u64) -> Result<Value> {
        let id = osd.to_string();
        self.all("pods")?
            .into_iter()
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .find(|pod| pod["metadata"]["labels"]["ceph-osd-id"] == id.as_str())
            .with_context(|| format!("osd.{osd} has no pod"))
    }

    /// Asks for the eviction of a pod, as `kubectl drain` does; gives the server's words where it refuses.
    ///
    /// # Errors
    /// The server does not answer, or there is no such pod.
    pub fn evict(&self, pod: &str) -> Result<Option<String>> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction");
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "name": pod, "namespace": NAMESPACE },
        });
        let words = ["create", "--raw", &path, "-f", "-"];
        let out = self.plane.kubectl_reading(&words, &eviction.to_string())?;
        if out.status.success() {
            return Ok(None);
        }
        let why = String::from_utf8_lossy(&out.stderr).into_owned();
        ensure!(why.contains("disruption budget"), "evicting {pod}: {why}");
        Ok(Some(why))
    }

    /// How many OSDs each budget over OSDs lets go, by its name.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn osd_budgets(&self) -> Result<BTreeMap<String, u64>> {
        let all = self.all("poddisruptionbudgets")?;
        Ok(all
            .iter()
            .filter_map(|one| {
                let name = one["metadata"]["name"].as_str()?;
                let lets_go = one["spec"]["maxUnavailable"].as_u64()?;
                name.starts_with("rook-ceph-osd")
                    .then(|| (name.to_owned(), lets_go))
            })
            .collect())
    }

    /// Gives a drained node empty disks for its OSDs.
    ///
    /// # Errors
    /// One of them runs, or Ceph does not answer.
    pub fn replace_disks(&self, node: &str, release: Release) -> Result<()> {
        for daemon in self.ceph.spec().all_daemons() {
            if daemon.kind == Kind::Osd && deployments::place(&self.ceph, &daemon) == node {
                let words = ["empty", "osd", &daemon.id, &release.major().to_string()];
                self.ceph.daemonctl(&words)?;
            }
        }
        Ok(())
    }

    /// The CRUSH nodes that have flags.
    ///
    /// # Errors
    /// Ceph does not answer.
    pub fn crush_flags(&self) -> Result<Value> {
        Ok(self.ceph.rados().mon("osd dump")?["crush_node_flags"].clone())
    }

    /// Whether no drain has left anything.
    ///
    /// # Errors
    /// Somebody does not answer.
    pub fn is_at_rest(&self, status: &Value) -> Result<bool> {
        let default = BTreeMap::from([("rook-ceph-osd".to_owned(), 1)]);
        Ok(status["drains"].is_null() && self.osd_budgets()? == default && self.crush_flags()? == json!({}))
    }

    /// Asserts what there is while a node with OSDs is drained and no other.
    ///
    /// # Errors
    /// A budget lets others go, or `noout` is not there.
    pub fn ensure_only_this_drains(&self, node: &str, status: &Value) -> Result<()> {
        let there = self.osd_budgets()?;
        let closed = BTreeMap::from([("rook-ceph-osd".to_owned(), 0)]);
        ensure!(there == closed, "the budgets are {there:?}");
        let hosts = self.ceph.spec().racks * self.ceph.spec().hosts_per_rack;
        let blocked = status["drains"]["blockedCount"].as_u64();
        ensure!(blocked == Some(u64::from(hosts) - 1), "{status:#}");
        ensure!(status["drains"]["noout"][node].is_string(), "{status:#}");
        let flags = self.crush_flags()?;
        ensure!(flags == json!({ node: ["noout"] }), "the flags are {flags}");
        Ok(())
    }
}
