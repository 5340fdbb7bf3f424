//! New OSDs on new disks, and OSDs that go.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stagger_e2e::ceph_in_pods::{CephInPods, NAMESPACE, Operator};
use stagger_e2e::rados::Target;
use stagger_e2e::roots::Release;

use crate::{from_18_to_20, on_18, wait_for_osds};

/// Asks for OSDs on these disks of these nodes.
fn ask_for_disks(cluster: &CephInPods, disks: &[(&str, &[&str])]) -> Result<()> {
    let nodes: Vec<Value> = disks
        .iter()
        .map(|(node, disks)| {
            let devices: Vec<Value> = disks.iter().map(|disk| json!({ "name": disk })).collect();
            json!({ "name": node, "devices": devices })
        })
        .collect();
    cluster.patch_cluster(&json!({ "spec": {
        "storage": { "useAllNodes": false, "useAllDevices": false, "nodes": nodes },
    } }))
}

/// The OSDs that are up, by number.
fn up(cluster: &CephInPods) -> Result<BTreeSet<u64>> {
    let dump = cluster.ceph.rados().mon("osd dump")?;
    let osds = dump["osds"].as_array().context("no osds")?;
    let up = osds.iter().filter(|osd| osd["up"] == 1);
    Ok(up.filter_map(|osd| osd["osd"].as_u64()).collect())
}

fn wait_up(cluster: &CephInPods, count: usize, limit: Duration) -> Result<BTreeSet<u64>> {
    cluster.wait_told(&format!("{count} OSDs are up"), limit, |_| {
        Ok(up(cluster)?.len() == count)
    })?;
    up(cluster)
}

/// No Job, no report is left.
fn is_settled(cluster: &CephInPods) -> Result<bool> {
    let reports = cluster.all("configmaps")?;
    let reports = reports
        .iter()
        .filter(|map| map["metadata"]["labels"]["status"] == "provisioning");
    Ok(cluster.all("jobs")?.is_empty() && reports.count() == 0)
}

/// Where an OSD is in the CRUSH map.
fn host_of(cluster: &CephInPods, osd: u64) -> Result<String> {
    let tree = cluster.ceph.rados().mon("osd tree")?;
    let nodes = tree["nodes"].as_array().context("no tree")?;
    let host = nodes.iter().find(|node| {
        node["children"]
            .as_array()
            .is_some_and(|all| all.contains(&json!(osd)))
    });
    Ok(host.context("the OSD is nowhere")?["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

/// Two new disks become OSDs; one with something on it is not touched, and said; an operator that comes later
/// makes nothing a second time.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn new_osds() -> Result<()> {
    on_18("new_osds", |cluster, operator, phases| {
        let before = up(cluster)?;
        let one = cluster.new_disk("host1", "one.img")?;
        let two = cluster.new_disk("host7", "two.img")?;
        let used = cluster.new_disk("host7", "used.img")?;
        let precious = cluster.disk("host7", "used.img");
        fs::File::options()
            .write(true)
            .open(&precious)?
            .write_all(b"precious")?;
        ask_for_disks(cluster, &[("host1", &[&one]), ("host7", &[&two, &used])])?;
        let after = wait_up(cluster, before.len() + 2, Duration::from_mins(3))?;
        phases.lap("two new OSDs are up");
        let new: Vec<u64> = after.difference(&before).copied().collect();
        let hosts: BTreeSet<String> = new
            .iter()
            .map(|osd| host_of(cluster, *osd))
            .collect::<Result<_>>()?;
        ensure!(
            hosts == BTreeSet::from(["host1".to_owned(), "host7".to_owned()]),
            "{hosts:?}"
        );
        for osd in &new {
            let made = cluster.get("deployment", &format!("rook-ceph-osd-{osd}"))?;
            let owner = &made["metadata"]["ownerReferences"][0];
            ensure!(
                owner["kind"] == "CephCluster" && owner["controller"] == true,
                "{owner}"
            );
            let labels = &made["spec"]["template"]["metadata"]["labels"];
            let host = host_of(cluster, *osd)?;
            ensure!(labels["topology-location-host"] == host.as_str(), "{labels}");
            ensure!(labels["topology-location-rack"].is_string(), "{labels}");
        }
        let status = cluster.wait_told("the used disk is named", Duration::from_mins(1), |status| {
            let remarks = &status["provisioning"]["remarks"];
            Ok(remarks[0]["reason"] == "PrepareFailed" && remarks[0]["node"] == "host7")
        })?;
        let told = status["provisioning"]["remarks"][0]["message"]
            .as_str()
            .unwrap_or_default();
        ensure!(told.contains(&used) && told.contains("not empty"), "{told}");
        let mut start = [0; 8];
        start.copy_from_slice(&fs::read(&precious)?[..8]);
        ensure!(
            &start == b"precious",
            "a disk with something on it was written to"
        );
        phases.lap("a used disk is left alone, and told");
        ask_for_disks(cluster, &[("host1", &[&one]), ("host7", &[&two])])?;
        cluster.wait_told("nothing is left to do", Duration::from_mins(3), |status| {
            Ok(status["provisioning"].is_null() && is_settled(cluster)?)
        })?;
        cluster
            .ceph
            .wait_clean_of(after.len() as u64, Duration::from_mins(3))?;
        phases.lap("data has settled");
        operator.kill()?;
        let _next = Operator::start(cluster, "next", Release::Reef)?;
        let generation = |osd: u64| -> Result<Value> {
            Ok(cluster.get("deployment", &format!("rook-ceph-osd-{osd}"))?["metadata"]["generation"].clone())
        };
        let versions: Vec<Value> = new.iter().map(|osd| generation(*osd)).collect::<Result<_>>()?;
        // A word of the new one: it has looked.
        cluster
            .patch_cluster(&json!({ "spec": { "disruptionManagement": { "osdMaintenanceTimeout": 31 } } }))?;
        std::thread::sleep(Duration::from_secs(20));
        ensure!(is_settled(cluster)?, "devices that are OSDs are prepared again");
        let again: Vec<Value> = new.iter().map(|osd| generation(*osd)).collect::<Result<_>>()?;
        ensure!(versions == again && up(cluster)? == after);
        phases.lap("another operator makes nothing twice");
        Ok(())
    })
}

/// A disk that comes while an upgrade is at its OSDs: it is an OSD before the upgrade is over, and in the end
/// all have one image.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn new_osds_in_mid_upgrade() -> Result<()> {
    from_18_to_20("new_osds_in_mid_upgrade", |cluster, _operator, image, phases| {
        let before = up(cluster)?;
        let disk = cluster.new_disk("host3", "new.img")?;
        wait_for_osds(cluster)?;
        phases.lap("the OSDs' turn");
        ask_for_disks(cluster, &[("host3", &[&disk])])?;
        let created = cluster.wait_told("its Deployment is there", Duration::from_mins(2), |_| {
            let all = cluster.all("deployments")?;
            let osds = all
                .iter()
                .filter(|one| one["metadata"]["labels"]["app"] == "rook-ceph-osd");
            Ok(osds.count() > before.len())
        })?;
        ensure!(
            created["run"]["waves_left"].as_u64() > Some(0) && created["phase"] == "Progressing",
            "the upgrade did not go on meanwhile: {created:#}"
        );
        phases.lap("created beside the waves");
        cluster.wait_ready(image, Duration::from_mins(8))?;
        let after = wait_up(cluster, before.len() + 1, Duration::from_mins(1))?;
        ensure!(after.len() == before.len() + 1);
        let versions = cluster.ceph.rados().mon("versions")?;
        let all = versions["overall"].as_object().context("no versions")?;
        ensure!(
            all.len() == 1 && all.keys().all(|version| version.contains(" 20.")),
            "{versions}"
        );
        phases.lap("18 to 20");
        Ok(())
    })
}

/// The pod of a prepare Job hangs: it is named, and neither another node's disk nor a drain waits for it.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn a_prepare_job_that_never_finishes() -> Result<()> {
    on_18(
        "a_prepare_job_that_never_finishes",
        |cluster, operator, phases| {
            operator.kill()?;
            let _operator =
                Operator::start_with(cluster, "two", Release::Reef, &["--prepare-timeout", "20"])?;
            let before = up(cluster)?;
            // Nothing lets this pod begin: what it mounts is missing.
            cluster
                .plane
                .ask(&["delete", "serviceaccount", "stagger-osd-prepare", "-n", NAMESPACE])?;
            let hangs = cluster.new_disk("host2", "hangs.img")?;
            ask_for_disks(cluster, &[("host2", &[&hangs])])?;
            let status = cluster.wait_told("the Job is named", Duration::from_mins(2), |status| {
                Ok(status["provisioning"]["remarks"][0]["reason"] == "PrepareStuck")
            })?;
            let told = status["provisioning"]["remarks"][0]["message"]
                .as_str()
                .unwrap_or_default();
            ensure!(told.contains("rook-ceph-osd-prepare-host2"), "{told}");
            phases.lap("a Job that does not go on is named");
            cluster.drain("host5", 120)?;
            cluster.uncordon("host5")?;
            cluster.wait_told("nothing is left of the drain", Duration::from_mins(2), |status| {
                cluster.is_at_rest(status)
            })?;
            phases.lap("a node drained meanwhile");
            Operator::rights(cluster)?;
            let good = cluster.new_disk("host8", "good.img")?;
            ask_for_disks(cluster, &[("host2", &[&hangs]), ("host8", &[&good])])?;
            wait_up(cluster, before.len() + 2, Duration::from_mins(4))?;
            phases.lap("both are OSDs once it may");
            Ok(())
        },
    )
}

fn set_flag(cluster: &CephInPods, flag: &str, set: bool) -> Result<()> {
    let prefix = if set { "osd set" } else { "osd unset" };
    let set = cluster
        .ceph
        .rados()
        .command(Target::Mon, prefix, json!({ "key": flag }));
    set.map(|_| ())
}

/// An OSD that is down and out goes once its data is elsewhere, not before; one that is only down stays.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn osds_that_are_out_go_when_that_is_safe() -> Result<()> {
    on_18(
        "osds_that_are_out_go_when_that_is_safe",
        |cluster, _operator, phases| {
            let scale = |osd: u32, replicas: u32| {
                let name = format!("deployment/rook-ceph-osd-{osd}");
                let replicas = format!("--replicas={replicas}");
                cluster.plane.ask(&["scale", &name, &replicas, "-n", NAMESPACE])
            };
            let exists = |osd: u64| -> Result<bool> {
                let dump = cluster.ceph.rados().mon("osd dump")?;
                let osds = dump["osds"].as_array().context("no osds")?.clone();
                Ok(osds.iter().any(|one| one["osd"] == osd))
            };
            let before = up(cluster)?.len();
            cluster.patch_cluster(&json!({ "spec": {
            "updatePolicy": { "osds": { "removeIfOutAndSafeToDestroy": true } },
        } }))?;
            // Data must stay where it is at first, so that there is a time at which it is not safe.
            set_flag(cluster, "norebalance", true)?;
            set_flag(cluster, "nobackfill", true)?;
            set_flag(cluster, "norecover", true)?;
            scale(3, 0)?;
            wait_up(cluster, before - 1, Duration::from_mins(1))?;
            cluster
                .ceph
                .rados()
                .command(Target::Mon, "osd out", json!({ "ids": ["3"] }))?;
            cluster.wait_told("why it stays", Duration::from_mins(2), |status| {
                Ok(status["removal"]
                    .as_str()
                    .is_some_and(|why| why.contains("osd.3 stays")))
            })?;
            ensure!(exists(3)?);
            phases.lap("not while its data is nowhere else");
            for flag in ["norebalance", "nobackfill", "norecover"] {
                set_flag(cluster, flag, false)?;
            }
            cluster.wait_told("it is gone", Duration::from_mins(4), |_| {
                let there = cluster.all("deployments")?;
                let there = there
                    .iter()
                    .any(|one| one["metadata"]["name"] == "rook-ceph-osd-3");
                Ok(!there && !exists(3)?)
            })?;
            phases.lap("gone once its data is elsewhere");
            scale(11, 0)?;
            wait_up(cluster, before - 2, Duration::from_mins(1))?;
            std::thread::sleep(Duration::from_secs(35));
            ensure!(exists(11)?, "an OSD that is not out was removed");
            scale(11, 1)?;
            wait_up(cluster, before - 1, Duration::from_mins(2))?;
            cluster
                .ceph
                .wait_clean_of(before as u64 - 1, Duration::from_mins(3))?;
            phases.lap("one that is only down stays");
            Ok(())
        },
    )
}

/// A class of volumes that are there already, and are bound once a pod needs one.
const CLASS: &str = "disks";

/// Puts a new disk into a node, as a volume that a claim may have.
fn new_volume(cluster: &CephInPods, node: &str, name: &str) -> Result<()> {
    let path = cluster.new_disk(node, name)?;
    let on_node = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] });
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("{node}-{name}") },
        "spec": {
            "capacity": { "storage": "1Gi" }, "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": CLASS, "local": { "path": path },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [on_node] }] } },
        },
    });
    cluster.apply("admin", &[volume])
}

/// Asks for sets of OSDs: each with its name, how many, and whether they may move.
fn ask_for_sets(cluster: &CephInPods, sets: &[(&str, u32, bool)]) -> Result<()> {
    let spec = json!({
        "storageClassName": CLASS, "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } },
    });
    let set = |(name, count, portable): &(&str, u32, bool)| {
        json!({
            "name": name, "count": count, "portable": portable,
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": spec }],
        })
    };
    let sets: Vec<Value> = sets.iter().map(set).collect();
    cluster.patch_cluster(&json!({ "spec": {
        "storage": { "useAllNodes": false, "useAllDevices": false, "storageClassDeviceSets": sets },
    } }))
}

/// The Deployments of OSDs on claims, by OSD.
fn on_claims(cluster: &CephInPods) -> Result<BTreeMap<u64, Value>> {
    let on_claim = |one: Value| {
        let labels = &one["metadata"]["labels"];
        labels["ceph.rook.io/pvc"].as_str()?;
        let osd = labels["ceph-osd-id"].as_str()?.parse().ok()?;
        Some((osd, one))
    };
    Ok(cluster
        .all("deployments")?
        .into_iter()
        .filter_map(on_claim)
        .collect())
}

/// Waits until that many OSDs are up and nothing is left to do, and looks at those on claims.
fn wait_settled(cluster: &CephInPods, osds: usize, on: usize) -> Result<BTreeMap<u64, Value>> {
    wait_up(cluster, osds, Duration::from_mins(4))?;
    cluster.wait_told("nothing is left to do", Duration::from_mins(2), |status| {
        Ok(status["provisioning"].is_null() && is_settled(cluster)?)
    })?;
    let dump = cluster.ceph.rados().mon("osd dump")?;
    let all = dump["osds"].as_array().context("no osds")?;
    ensure!(all.iter().all(|osd| osd["in"] == 1), "an OSD is out: {all:?}");
    let claims = cluster.all("persistentvolumeclaims")?;
    let bound = claims
        .iter()
        .filter(|claim| claim["status"]["phase"] == "Bound")
        .count();
    ensure!((claims.len(), bound) == (on, on), "{claims:#?}");
    let made = on_claims(cluster)?;
    ensure!(made.len() == on, "{:?}", made.keys());
    Ok(made)
}

/// Volumes that claims ask for become OSDs: as many as a set counts, on the nodes that have them, and each only
/// once. One that may move has a host of its own in the CRUSH map.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn osds_on_claims() -> Result<()> {
    on_18("osds_on_claims", |cluster, _operator, phases| {
        let before = up(cluster)?.len();
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": CLASS },
            "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
        });
        cluster.apply("admin", &[class])?;
        new_volume(cluster, "host1", "one.img")?;
        new_volume(cluster, "host6", "two.img")?;
        ask_for_sets(cluster, &[("set1", 2, false)])?;
        let two = wait_settled(cluster, before + 2, 2)?;
        let mut hosts = BTreeSet::new();
        for (osd, made) in &two {
            let labels = &made["spec"]["template"]["metadata"]["labels"];
            let host = host_of(cluster, *osd)?;
            ensure!(
                labels["portable"] == "false" && labels["failure-domain"] == host.as_str(),
                "{labels}"
            );
            ensure!(labels["topology-location-rack"].is_string(), "{labels}");
            hosts.insert(host);
        }
        ensure!(
            hosts == BTreeSet::from(["host1".to_owned(), "host6".to_owned()]),
            "{hosts:?}"
        );
        phases.lap("two volumes are OSDs");
        new_volume(cluster, "host9", "three.img")?;
        ask_for_sets(cluster, &[("set1", 3, false)])?;
        let three = wait_settled(cluster, before + 3, 3)?;
        ensure!(
            two.iter()
                .all(|(osd, made)| three[osd]["metadata"]["uid"] == made["metadata"]["uid"])
        );
        phases.lap("a third one");
        new_volume(cluster, "host4", "four.img")?;
        ask_for_sets(cluster, &[("set1", 3, false), ("moving", 1, true)])?;
        let four = wait_settled(cluster, before + 4, 4)?;
        let (osd, made) = four
            .iter()
            .find(|(osd, _)| !three.contains_key(osd))
            .context("no new OSD")?;
        let labels = &made["spec"]["template"]["metadata"]["labels"];
        let claim = labels["ceph.rook.io/pvc"].as_str().context("no claim")?;
        ensure!(
            host_of(cluster, *osd)? == claim && labels["failure-domain"] == claim,
            "{labels}"
        );
        let selector = &made["spec"]["template"]["spec"]["nodeSelector"];
        let rack = &labels["topology-location-rack"];
        ensure!(
            *selector == json!({ "topology.rook.io/rack": rack }) && rack.is_string(),
            "{selector}"
        );
        phases.lap("one that may move");
        // The report once more, as if nobody had read it.
        let uuid = made["spec"]["template"]["spec"]["containers"][0]["env"]
            .as_array()
            .and_then(|all| all.iter().find(|one| one["name"] == "ROOK_OSD_UUID"))
            .context("no UUID")?["value"]
            .clone();
        let report = json!({
            "status": "completed", "pvc-backed-osd": true, "message": "",
            "osds": [{ "id": osd, "uuid": uuid, "lv-path": format!("/mnt/{claim}"), "pvcName": claim }],
        });
        let name = format!("rook-ceph-osd-{claim}-status");
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": NAMESPACE,
                "labels": { "app": "rook-ceph-osd", "status": "provisioning", "node": claim } },
            "data": { "status": report.to_string() },
        });
        cluster.apply("admin", &[map])?;
        cluster.wait_told("it is read and gone", Duration::from_mins(1), |_| {
            is_settled(cluster)
        })?;
        let again = wait_settled(cluster, before + 4, 4)?;
        let generation = |made: &Value| {
            (
                made["metadata"]["uid"].clone(),
                made["metadata"]["generation"].clone(),
            )
        };
        ensure!(
            again
                .iter()
                .all(|(osd, made)| generation(made) == generation(&four[osd]))
        );
        // Fewer are wanted: nothing goes.
        ask_for_sets(cluster, &[("set1", 1, false), ("moving", 0, true)])?;
        cluster
            .ceph
            .wait_clean_of(before as u64 + 4, Duration::from_mins(4))?;
        wait_settled(cluster, before + 4, 4)?;
        phases.lap("nothing twice, and nothing goes");
        Ok(())
    })
}
