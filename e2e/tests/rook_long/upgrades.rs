//! Upgrades by the operator, and what may come in between.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};
use stagger_e2e::ceph::CephSpec;
use stagger_e2e::ceph_in_pods::{
    CephInPods, NAMESPACE, Operator, in_pods, in_pods_of, maintenance, rights_in,
};
use stagger_e2e::rados::Target;
use stagger_e2e::roots::Release;

use crate::{AGENT, ask_for, from_18_to_20, images, images_of, on_18, wait_for_osds};

fn waves_passed(status: &Value) -> u64 {
    status["run"]["waves_passed"].as_u64().unwrap_or(0)
}

#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn leader_killed_three_times() -> Result<()> {
    from_18_to_20("leader_killed_three_times", |cluster, first, image, phases| {
        let start = |name: &str| Operator::start(cluster, name, Release::Tentacle);
        let mut operators = vec![first, start("two")?];
        for (nth, after) in [1, 6, 10].into_iter().enumerate() {
            cluster.wait_told("some waves more", Duration::from_mins(5), |status| {
                if status["phase"] == "Blocked" {
                    bail!("it is blocked: {status:#}");
                }
                Ok(waves_passed(status) >= after && status["run"]["current"].is_object())
            })?;
            let leader = Operator::leader(cluster, &operators)?;
            operators.remove(leader).kill()?;
            operators.push(start(&format!("next-{nth}"))?);
            phases.lap(format!("the leader killed after {after} waves"));
        }
        let mut leader = Err(anyhow!("nobody was asked"));
        cluster.wait_told("one of the others leads", Duration::from_mins(1), |_| {
            leader = Operator::leader(cluster, &operators);
            Ok(leader.is_ok())
        })?;
        ensure_it_ends_without_lease(cluster, operators.remove(leader?))?;
        phases.lap("the Lease taken from the leader");
        cluster.wait_ready(image, Duration::from_mins(8))?;
        phases.lap("18 to 20");
        ensure!(images(cluster)? == BTreeSet::from([image.to_owned()]));
        Ok(())
    })
}

/// A leader whose Lease goes to somebody else ends itself, in the midst of a run: its Deployment starts it again.
fn ensure_it_ends_without_lease(cluster: &CephInPods, mut leader: Operator) -> Result<()> {
    let somebody = json!({ "spec": { "holderIdentity": "somebody" } }).to_string();
    let patch = [
        "patch",
        "lease",
        "stagger-operator",
        "-n",
        NAMESPACE,
        "--type=merge",
        "-p",
    ];
    cluster.plane.ask(&[&patch[..], &[&somebody]].concat())?;
    let since = Instant::now();
    while leader.runs()? {
        ensure!(
            since.elapsed() < Duration::from_secs(40),
            "it goes on: {}",
            leader.log()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    ensure!(
        leader.log().contains("another operator leads now"),
        "{}",
        leader.log()
    );
    Ok(())
}

/// The daemons of a kind whose containers were started more than once, by their ids.
fn restarted(cluster: &CephInPods, kind: &str) -> Result<BTreeSet<String>> {
    let pods = cluster.all("pods")?;
    let of_kind = pods
        .iter()
        .filter(|pod| pod["metadata"]["labels"]["ceph_daemon_type"] == kind)
        .filter(|pod| pod["status"]["containerStatuses"][0]["restartCount"].as_u64() > Some(0))
        .filter_map(|pod| {
            pod["metadata"]["labels"]["ceph_daemon_id"]
                .as_str()
                .map(str::to_owned)
        });
    Ok(of_kind.collect())
}

/// What tells later what happened to an OSD was kept: its objects before and after, what its pods said and why they
/// ended.
fn ensure_it_is_documented(operator: &Operator, osd: &str) -> Result<()> {
    let kept = operator.artifacts()?;
    let find = |name: &str| {
        let text = kept
            .iter()
            .find(|(path, _)| path.contains(name))
            .map(|(_, text)| text);
        text.with_context(|| format!("no {name} among {:?}", kept.keys()))
    };
    let sets: Vec<Value> = serde_json::from_str(find(&format!("osd.{osd}-replicasets.json"))?)?;
    ensure!(sets.len() >= 2, "before and after: {sets:#?}");
    for name in [
        &format!("osd.{osd}-deployment.json"),
        &format!("osd.{osd}-pods.json"),
        "poddisruptionbudgets.json",
        "daemonsets.json",
        "health",
        "-events.json",
    ] {
        let text = find(name)?;
        ensure!(!text.contains("forbidden"), "{name}: {text}");
    }
    let pods = find(&format!("osd.{osd}-pods.json"))?;
    ensure!(pods.contains("exitCode"), "how it ended is not told: {pods}");
    find("-previous.log").map(drop)
}

/// A new image of the release that runs: a revision, no upgrade. Its OSDs end at their start. One OSD is hit,
/// and comes back to the image before.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn new_image_crash_loops_at_osds() -> Result<()> {
    on_18("new_image_crash_loops_at_osds", |cluster, operator, phases| {
        let old = cluster.image(Release::Reef)?;
        // Of itself a revision of one release goes on without the unit that failed.
        cluster.patch_cluster(&json!({ "spec": { "updatePolicy": { "onFailure": "rollback" } } }))?;
        ask_for(cluster, &format!("{old}-ceph-osd-fails"))?;
        let mut hit = BTreeSet::new();
        let status = cluster.wait_told("it was taken back", Duration::from_mins(12), |status| {
            hit.extend(restarted(cluster, "osd")?);
            Ok(status["gaveUp"].is_string())
        })?;
        phases.lap("taken back");
        ensure!(hit.len() == 1, "the OSDs that were hit: {hit:?}");
        ensure_it_is_documented(&operator, hit.first().context("none was hit")?)?;
        ensure!(status["run"]["ending"]["ending"] == "rolled-back", "{status:#}");
        // What serves on the new image stays: the monitors and managers before it. No OSD is left on it.
        let of_osds = images_of(cluster, |labels| labels["app"] == "rook-ceph-osd")?;
        ensure!(of_osds == BTreeSet::from([old.clone()]), "{of_osds:?}");
        // It is not tried again by itself, and says so.
        let status = cluster.wait_told("it says why", Duration::from_secs(30), |status| {
            Ok(status["phase"] == "Blocked")
        })?;
        let message = status["message"].as_str().context("no message")?;
        ensure!(message.contains("was rolled back"), "{message}");
        cluster.ceph.wait_clean(Duration::from_mins(2))?;
        ask_for(cluster, &old)?;
        wait_ready_again(cluster, &old)?;
        let now = images(cluster)?;
        ensure!(now == BTreeSet::from([old]), "{now:?}");
        phases.lap("the old image wanted again");
        Ok(())
    })
}

/// The monitors of a new image end at their start, of another release and of the same: one is hit and comes
/// back, and the quorum is kept all the time.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn new_image_crash_loops_at_mons() -> Result<()> {
    let releases = [Release::Reef, Release::Tentacle];
    in_pods(
        "new_image_crash_loops_at_mons",
        AGENT,
        Release::Reef,
        &releases,
        |cluster, phases| {
            let _operator = Operator::start(cluster, "one", Release::Tentacle)?;
            let old = cluster.image(Release::Reef)?;
            cluster.wait_ready(&old, Duration::from_mins(1))?;
            let other = format!("{}-ceph-mon-fails", cluster.image(Release::Tentacle)?);
            let same = format!("{old}-ceph-mon-fails");
            for (image, on_failure) in [(&other, Value::Null), (&same, json!("rollback"))] {
                // Of itself a revision of one release goes on to the next monitor.
                cluster.patch_cluster(&json!({ "spec": { "updatePolicy": { "onFailure": on_failure } } }))?;
                let status = ensure_one_mon_is_hit(cluster, image)?;
                ensure!(status["run"]["ending"]["ending"] == "rolled-back", "{status:#}");
                let of_mons = images_of(cluster, |labels| labels["app"] == "rook-ceph-mon")?;
                ensure!(of_mons == BTreeSet::from([old.clone()]), "{of_mons:?}");
                phases.lap(format!("taken back from {image}"));
                ask_for(cluster, &old)?;
                wait_ready_again(cluster, &old)?;
            }
            let now = images(cluster)?;
            ensure!(now == BTreeSet::from([old]), "{now:?}");
            phases.lap("the old image wanted again");
            Ok(())
        },
    )
}

/// Asks for an image and waits until it was given up; meanwhile one monitor at most is away.
fn ensure_one_mon_is_hit(cluster: &CephInPods, image: &str) -> Result<Value> {
    ask_for(cluster, image)?;
    let mut hit = BTreeSet::new();
    let status = cluster.wait_told("it was given up", Duration::from_mins(10), |status| {
        hit.extend(restarted(cluster, "mon")?);
        let quorum = cluster.ceph.rados().mon("quorum_status")?["quorum"].clone();
        let inside = quorum.as_array().map_or(0, Vec::len);
        ensure!(inside >= 2, "{inside} monitors in quorum, and {hit:?} were hit");
        // It is not tried again by itself, and says so.
        let message = status["message"].as_str().unwrap_or_default();
        Ok(status["gaveUp"] == image && message.contains("try again"))
    })?;
    ensure!(hit.len() == 1, "the monitors that were hit: {hit:?}");
    Ok(status)
}

/// The same as at first, when it was blocked before.
fn wait_ready_again(cluster: &CephInPods, image: &str) -> Result<()> {
    cluster.wait_told("all are on that image again", Duration::from_mins(5), |status| {
        let message = status["message"].as_str().unwrap_or_default();
        Ok(status["phase"] == "Ready" && message.ends_with(image))
    })?;
    Ok(())
}

/// Another image is wanted while OSDs are in the midst of it: the open wave is finished, and the rest goes to
/// that one.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn another_image_in_mid_upgrade() -> Result<()> {
    from_18_to_20(
        "another_image_in_mid_upgrade",
        |cluster, _operator, first, phases| {
            let run = wait_for_osds(cluster)?["run"].clone();
            let second = format!("{first}-again");
            ask_for(cluster, &second)?;
            cluster.wait_told("another run has begun", Duration::from_mins(3), |status| {
                let now = &status["run"];
                Ok(now["run"] != run && now["verdict"] == "running")
            })?;
            phases.lap("another run has begun");
            cluster.wait_ready(&second, Duration::from_mins(8))?;
            phases.lap("all on the other image");
            let now = images(cluster)?;
            ensure!(now == BTreeSet::from([second]), "{now:?}");
            let required = cluster.ceph.rados().mon("osd dump")?["require_osd_release"].clone();
            ensure!(required == "tentacle", "{required}");
            Ok(())
        },
    )
}

/// The OSDs of the only placement group of a pool.
fn osds_of(cluster: &CephInPods, pool: &str) -> Result<BTreeSet<String>> {
    let answer = cluster
        .ceph
        .rados()
        .command(Target::Mgr, "pg ls-by-pool", json!({ "poolstr": pool }))?;
    let acting = answer["pg_stats"][0]["acting"].as_array().context("no group")?;
    Ok(acting.iter().map(ToString::to_string).collect())
}

/// A pool that can spare none of its two copies: nothing is begun without a word. Where what can be done is asked for, its
/// OSDs are named and left, and all others are done. Once it has a third copy they go too, by themselves.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn an_osd_never_ok_to_stop() -> Result<()> {
    on_18("an_osd_never_ok_to_stop", |cluster, _operator, phases| {
        let old = cluster.image(Release::Reef)?;
        let new = format!("{old}-again");
        let ask = |prefix: &str, fields: Value| cluster.ceph.rados().command(Target::Mon, prefix, fields);
        let set = |what: &str, to: &str| {
            ask(
                "osd pool set",
                json!({ "pool": "brittle", "var": what, "val": to }),
            )
        };
        ask(
            "osd pool create",
            json!({ "pool": "brittle", "pg_num": 1, "pgp_num": 1, "rule": "by-host", "size": 2 }),
        )?;
        set("min_size", "2")?;
        ask(
            "osd pool application enable",
            json!({ "pool": "brittle", "app": "test" }),
        )?;
        let mut stuck = BTreeSet::new();
        // A group that has just been made is not reported yet.
        cluster.wait_told(
            "both copies of the pool are known",
            Duration::from_mins(1),
            |_| {
                stuck = osds_of(cluster, "brittle").unwrap_or_default();
                Ok(stuck.len() == 2)
            },
        )?;
        cluster.ceph.wait_clean(Duration::from_mins(1))?;
        let is_stuck = |labels: &Value| {
            let id = labels["ceph-osd-id"].as_str();
            id.is_some_and(|id| stuck.contains(id))
        };
        ask_for(cluster, &new)?;
        let blocked = |status: &Value, reason: &str| status["conditions"][2]["reason"] == reason;
        let status = cluster.wait_told("nothing is begun", Duration::from_mins(2), |status| {
            Ok(blocked(status, "TargetOutOfReach"))
        })?;
        let message = status["message"].as_str().unwrap_or_default();
        ensure!(
            message.contains("`spec.updatePolicy.interruptions: pool.brittle` permits it"),
            "{message}"
        );
        let untouched = images(cluster)?;
        ensure!(untouched == BTreeSet::from([old.clone()]), "{untouched:?}");
        cluster.patch_cluster(&json!({ "spec": { "updatePolicy": { "partial": true } } }))?;
        let status = cluster.wait_told("all others are done", Duration::from_mins(8), |status| {
            Ok(blocked(status, "UnitsLeft"))
        })?;
        let message = status["message"].as_str().unwrap_or_default();
        for osd in &stuck {
            ensure!(
                message.contains(&format!("osd.{osd} (interruption-not-permitted")),
                "{message}"
            );
        }
        // What comes after the OSDs waits until none of them is left behind.
        let is_after =
            |labels: &Value| matches!(labels["app"].as_str(), Some("rook-ceph-mds" | "rook-ceph-rgw"));
        let others = images_of(cluster, |labels| !is_stuck(labels) && !is_after(labels))?;
        ensure!(others == BTreeSet::from([new.clone()]), "{others:?}");
        let waits = images_of(cluster, is_after)?;
        ensure!(waits == BTreeSet::from([old.clone()]), "{waits:?}");
        let left = images_of(cluster, is_stuck)?;
        ensure!(left == BTreeSet::from([old]), "{left:?}");
        phases.lap(format!("all but {stuck:?}"));
        set("size", "3")?;
        cluster.ceph.wait_clean(Duration::from_mins(2))?;
        wait_ready_again(cluster, &new)?;
        let now = images(cluster)?;
        ensure!(now == BTreeSet::from([new]), "{now:?}");
        phases.lap("these too, once there is a third copy");
        Ok(())
    })
}

/// While OSDs are updated a monitor goes and a store's gateways become one: budgets follow, and the run ends
/// without them. The gateway that comes back gets the image then.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn rgw_and_mon_count_changed_in_mid_upgrade() -> Result<()> {
    let spec = CephSpec {
        mons: 5,
        ..CephSpec::default()
    };
    in_pods_of(
        spec,
        "rgw_and_mon_count_changed_in_mid_upgrade",
        AGENT,
        Release::Reef,
        &[Release::Reef],
        |cluster, phases| {
            let _operator = Operator::start(cluster, "one", Release::Reef)?;
            let old = cluster.image(Release::Reef)?;
            cluster.wait_ready(&old, Duration::from_mins(1))?;
            cluster.wait_told("two monitors of five may go", Duration::from_secs(30), |_| {
                Ok(may_go(cluster, "rook-ceph-mon-pdb", "maxUnavailable")? == Some(2))
            })?;
            let new = format!("{old}-again");
            ask_for(cluster, &new)?;
            wait_for_osds(cluster)?;
            scale_gateway(cluster, 0)?;
            without_monitor_e(cluster)?;
            let status = cluster.wait_told("the budgets follow", Duration::from_mins(1), |_| {
                let gateways = may_go(cluster, "rook-ceph-rgw-store", "minAvailable")?;
                Ok(gateways.is_none() && may_go(cluster, "rook-ceph-mon-pdb", "maxUnavailable")? == Some(1))
            })?;
            ensure!(
                status["run"]["current"]["stage"] == "osd" || status["run"]["waves_left"].as_u64() > Some(2),
                "the run did not go on meanwhile: {status:#}"
            );
            phases.lap("one gateway and four monitors, in the midst of OSDs");
            let status = cluster.wait_ready(&new, Duration::from_mins(8))?;
            ensure!(status["run"]["verdict"] == "done", "{status:#}");
            phases.lap("the run's end");
            scale_gateway(cluster, 1)?;
            cluster.wait_told(
                "the gateway has the image too",
                Duration::from_mins(3),
                |status| {
                    let now = images_of(cluster, |labels| labels["app"] == "rook-ceph-rgw")?;
                    let all = cluster.all("pods")?;
                    let gateways = all
                        .iter()
                        .filter(|pod| pod["metadata"]["labels"]["app"] == "rook-ceph-rgw");
                    Ok(status["phase"] == "Ready"
                        && gateways.count() == 2
                        && now == BTreeSet::from([new.clone()])
                        && may_go(cluster, "rook-ceph-rgw-store", "minAvailable")? == Some(1))
                },
            )?;
            phases.lap("a gateway more");
            Ok(())
        },
    )
}

/// What a budget says; `None`: there is no such budget.
fn may_go(cluster: &CephInPods, name: &str, field: &str) -> Result<Option<u64>> {
    let all = cluster.all("poddisruptionbudgets")?;
    let found = all.iter().find(|one| one["metadata"]["name"] == name);
    Ok(found.and_then(|found| found["spec"][field].as_u64()))
}

/// As Rook does where a store has other `instances`.
fn scale_gateway(cluster: &CephInPods, replicas: u32) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    let name = "deployment/rook-ceph-rgw-store-b";
    cluster
        .plane
        .ask(&["scale", name, "-n", NAMESPACE, &replicas])
        .map(drop)
}

/// As Rook does where a cluster has fewer monitors.
fn without_monitor_e(cluster: &CephInPods) -> Result<()> {
    let map = cluster.get("configmap", "rook-ceph-mon-endpoints")?;
    let all = map["data"]["data"].as_str().context("no endpoints")?;
    let fewer: Vec<&str> = all.split(',').filter(|one| !one.starts_with("e=")).collect();
    let patch = json!({ "data": { "data": fewer.join(",") } }).to_string();
    let patched = [
        "patch",
        "configmap",
        "rook-ceph-mon-endpoints",
        "-n",
        NAMESPACE,
        "-p",
    ];
    cluster.plane.ask(&[&patched[..], &[&patch]].concat())?;
    let remove = json!({ "name": "e" });
    cluster.ceph.rados().command(Target::Mon, "mon remove", remove)?;
    let delete = ["delete", "deployment", "rook-ceph-mon-e", "-n", NAMESPACE];
    cluster.plane.ask(&delete).map(drop)
}

/// A second CephCluster in a namespace of its own, whose Ceph does not answer: it says so, nothing of it is
/// touched, and the first one is upgraded as if it were alone.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn two_ceph_clusters() -> Result<()> {
    on_18("two_ceph_clusters", |cluster, operator, phases| {
        let old = cluster.image(Release::Reef)?;
        let new = format!("{old}-again");
        operator.kill()?;
        silent_cluster(cluster, &old, &new)?;
        let both = format!("{NAMESPACE},{SILENT}");
        let _operator = Operator::start_with(cluster, "two", Release::Reef, &["--watch-namespace", &both])?;
        ask_for(cluster, &new)?;
        let other = |path: &str| {
            let path = format!("jsonpath={path}");
            let words = ["get", "cephmaintenance", SILENT, "-n", SILENT, "-o", &path];
            cluster.plane.ask(&words)
        };
        let status = cluster.wait_ready(&new, Duration::from_mins(8))?;
        ensure!(status["run"]["verdict"] == "done", "{status:#}");
        let now = images(cluster)?;
        ensure!(now == BTreeSet::from([new]), "{now:?}");
        phases.lap("the one that answers has the image");
        let (phase, message) = (other("{.status.phase}")?, other("{.status.message}")?);
        ensure!(phase == "Blocked", "{phase}: {message}");
        ensure!(
            message.contains("rook-silent") && message.contains("no connection in"),
            "{message}"
        );
        let away = other(r#"{.status.conditions[?(@.type=="Available")].reason}"#)?;
        ensure!(away == "DrainsNotSeenTo", "{away}");
        let generations = ["get", "deployments", "-n", SILENT, "-o"];
        let generations = [&generations[..], &["jsonpath={.items[*].metadata.generation}"]].concat();
        let generations = cluster.plane.ask(&generations)?;
        ensure!(generations == "1 1 1", "{generations}");
        ensure!(cluster.is_at_rest(&status)?, "{status:#}");
        phases.lap("the other one says that its Ceph does not answer");
        Ok(())
    })
}

const SILENT: &str = "rook-silent";

/// A cluster with a monitor and two OSDs that are none, and nobody at the monitors' address.
fn silent_cluster(cluster: &CephInPods, old: &str, new: &str) -> Result<()> {
    let meta = |name: &str| json!({ "name": name, "namespace": SILENT });
    let daemon = |kind: &str, id: &str| {
        let labels = json!({
            "app": format!("rook-ceph-{kind}"), "rook_cluster": SILENT, "ceph_daemon_type": kind,
            "ceph_daemon_id": id, "topology-location-host": "host0",
        });
        let name = format!("rook-ceph-{kind}-{id}");
        let mut metadata = meta(&name);
        metadata["labels"] = labels.clone();
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "selector": { "matchLabels": { "ceph_daemon_id": id } },
                "template": { "metadata": { "labels": labels }, "spec": {
                    "automountServiceAccountToken": false,
                    "containers": [{ "name": kind, "image": old, "command": ["sleep", "86400"] }],
                } },
            },
        })
    };
    cluster.apply(
        "rook",
        &[json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SILENT } })],
    )?;
    cluster.apply(
        "rook",
        &[
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("rook-ceph-mon-endpoints"),
                "data": { "data": "a=127.0.0.1:3", "maxMonId": "0", "mapping": "{}" },
            }),
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": meta("rook-ceph-mon"),
                "stringData": {
                    "fsid": "00000000-0000-0000-0000-000000000000", "ceph-username": "client.admin",
                    "ceph-secret": "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==",
                },
            }),
            daemon("mon", "a"),
            daemon("osd", "0"),
            daemon("osd", "1"),
            json!({
                "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "metadata": meta(SILENT),
                "spec": {
                    "cephVersion": { "image": new }, "dataDirHostPath": "/var/lib/rook",
                    "disruptionManagement": { "managePodBudgets": true },
                },
            }),
            maintenance(SILENT, &json!(["drains", "updates", "provisioning"])),
        ],
    )?;
    rights_in(&cluster.plane, SILENT)
}
