//! Drains as an administrator does them, and what they leave.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{CephInPods, NAMESPACE, deployments};
use crate::ceph::Kind;
use crate::rados::Target;
use crate::roots::Release;

impl CephInPods {
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
        let refused = self.plane.evict(NAMESPACE, pod)?;
        if let Some(why) = &refused {
            ensure!(why.contains("disruption budget"), "evicting {pod}: {why}");
        }
        Ok(refused)
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

    /// The node that shares most placement groups with that one, of pools that can spare one copy: beside it, it may not be
    /// drained. It has neither monitors nor managers.
    ///
    /// # Errors
    /// Ceph does not answer, or there is none.
    pub fn neighbour_of(&self, node: &str) -> Result<String> {
        let mut rados = self.ceph.rados();
        let (tree, dump) = (rados.mon("osd tree")?, rados.mon("osd dump")?);
        let groups = rados.command(Target::Mgr, "pg dump", json!({}))?;
        drop(rados);
        let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let host_of: BTreeMap<u64, String> = all(&tree["nodes"])
            .iter()
            .filter(|one| one["type"] == "host")
            .flat_map(|host| {
                let name = host["name"].as_str().unwrap_or_default().to_owned();
                let osds: Vec<u64> = all(&host["children"]).iter().filter_map(Value::as_u64).collect();
                osds.into_iter().map(move |osd| (osd, name.clone()))
            })
            .collect();
        let spares_one = |pool: &Value| {
            let (size, least) = (pool["size"].as_u64()?, pool["min_size"].as_u64()?);
            (size - least <= 1).then(|| pool["pool"].as_u64().map(|id| format!("{id}.")))?
        };
        let pools: Vec<String> = all(&dump["pools"]).iter().filter_map(spares_one).collect();
        let mut shared = BTreeMap::<String, usize>::new();
        for group in all(&groups["pg_map"]["pg_stats"]) {
            let id = group["pgid"].as_str().unwrap_or_default();
            let hosts: BTreeSet<&String> = all(&group["acting"])
                .iter()
                .filter_map(|osd| host_of.get(&osd.as_u64()?))
                .collect();
            if pools.iter().any(|pool| id.starts_with(pool)) && hosts.iter().any(|host| *host == node) {
                for host in hosts {
                    *shared.entry(host.clone()).or_default() += 1;
                }
            }
        }
        for daemon in self.ceph.spec().all_daemons() {
            if matches!(daemon.kind, Kind::Mon | Kind::Mgr) {
                shared.remove(&deployments::place(&self.ceph, &daemon));
            }
        }
        shared.remove(node);
        let most = shared.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(host, _)| host)
            .with_context(|| format!("no node shares a placement group with {node}"))
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
