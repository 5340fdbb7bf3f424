//! What must be so after a run.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::ceph::Cluster;
use crate::rados::Target;
use crate::roots::Release;
use crate::stagger::Machine;

/// The version that `ceph versions` shows for a release.
pub fn version(cluster: &Cluster, release: Release) -> Result<String> {
    Ok(cluster.root(release)?.ceph_version().to_owned())
}

/// How many daemons of each kind run which version: `osd 18.2.7` → 24.
pub fn running(cluster: &Cluster) -> Result<BTreeMap<String, u64>> {
    let versions = cluster.rados().mon("versions")?;
    let kinds = versions.as_object().context("`versions` is no object")?;
    let mut found = BTreeMap::new();
    for (kind, list) in kinds.iter().filter(|(kind, _)| *kind != "overall") {
        for (text, count) in list.as_object().context("a kind is no object")? {
            // "ceph version 18.2.7 (…) reef (stable)"
            let version = text.split_whitespace().nth(2).unwrap_or(text);
            let entry = found.entry(format!("{kind} {version}")).or_insert(0);
            *entry += count.as_u64().unwrap_or(0);
        }
    }
    Ok(found)
}

/// Every daemon runs that release, the cluster demands it, and planning again finds nothing to do.
pub fn is_on(cluster: &Cluster, machine: &Machine, release: Release) -> Result<()> {
    let version = version(cluster, release)?;
    let spec = cluster.spec();
    let mut expected = BTreeMap::new();
    for (kind, count) in [
        ("mon", spec.mons),
        ("mgr", spec.mgrs),
        ("osd", spec.osds),
        ("mds", spec.mdss),
        ("rgw", spec.rgws),
    ] {
        if count > 0 {
            expected.insert(format!("{kind} {version}"), u64::from(count));
        }
    }
    let found = running(cluster)?;
    ensure!(found == expected, "running: {found:?}, not {expected:?}");
    let dump = cluster.rados().mon("osd dump")?;
    ensure!(
        dump["require_osd_release"] == release.name(),
        "require_osd_release is {}",
        dump["require_osd_release"]
    );
    let plan = machine.json(&["plan", "upgrade", "--to", &version])?;
    ensure!(
        plan["parts"].as_array().is_some_and(Vec::is_empty),
        "planning again gives a plan: {plan}"
    );
    machine
        .call(&["run", "upgrade", "--to", &version])?
        .expect(0)
        .and_then(|ended| {
            ensure!(
                ended.out.contains("Nothing to do"),
                "running again said {}",
                ended.out
            );
            Ok(())
        })
}

/// No guard and no lock is left in the cluster.
pub fn nothing_is_left(cluster: &Cluster) -> Result<()> {
    let dump = cluster.rados().mon("osd dump")?;
    ensure!(
        !dump.to_string().contains("noout"),
        "a noout is left: {} {} {}",
        dump["flags"],
        dump["crush_node_flags"],
        dump["osds"]
    );
    let left = keys(cluster)?;
    ensure!(left.is_empty(), "left in config-key: {left:?}");
    Ok(())
}

/// The guards and locks that stand in `config-key`.
pub fn keys(cluster: &Cluster) -> Result<Vec<String>> {
    let dump = cluster
        .rados()
        .command(Target::Mon, "config-key dump", json!({ "key": "stagger/" }))?;
    let all = dump.as_object().context("`config-key dump` is no object")?;
    Ok(all
        .keys()
        .filter(|key| key.starts_with("stagger/guard") || key.starts_with("stagger/lock/"))
        .cloned()
        .collect())
}

/// The cluster is whole, its health has no complaint but those that cannot be avoided.
pub fn is_healthy(cluster: &Cluster) -> Result<()> {
    cluster.wait_clean(Duration::from_mins(2))?;
    let mut allowed = Release::Tentacle.unavoidable_health_codes().to_vec();
    // Where a run ended half-way: several versions run. And monitors on 18 take OSDs on 16 for new ones.
    allowed.extend(["DAEMON_OLD_VERSION", "OSD_UPGRADE_FINISHED"]);
    cluster.wait_for("no complaint", Duration::from_mins(1), |rados| {
        let health = rados.mon("health")?;
        let checks = health.get("checks").and_then(Value::as_object);
        Ok(checks.is_some_and(|checks| checks.keys().all(|code| allowed.contains(&code.as_str()))))
    })?;
    Ok(())
}

/// How often each daemon was restarted or made anew; fails if two did it to one daemon at once.
pub fn visits(cluster: &Cluster) -> Result<BTreeMap<String, u32>> {
    let path = cluster.dir().join("visits");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let mut at: BTreeMap<String, i32> = BTreeMap::new();
    let mut count = BTreeMap::new();
    for line in text.lines() {
        let (word, unit) = line.split_once(' ').unwrap_or((line, ""));
        let now = at.entry(unit.to_owned()).or_insert(0);
        if word == "begin" {
            *now += 1;
            ensure!(*now == 1, "{unit} was visited twice at once:\n{text}");
            *count.entry(unit.to_owned()).or_insert(0) += 1;
        } else {
            *now -= 1;
        }
    }
    Ok(count)
}

/// Each daemon of the cluster was restarted so many times, and none more.
pub fn visited_each(cluster: &Cluster, times: u32) -> Result<()> {
    let visits = visits(cluster)?;
    for daemon in cluster.spec().all_daemons() {
        let count = visits.get(&daemon.to_string()).copied().unwrap_or(0);
        ensure!(
            count == times,
            "{daemon} was visited {count} times, not {times}: {visits:?}"
        );
    }
    Ok(())
}
