//! What a CephCluster asks for, changed while a run is under way; and what is asked for without checks.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stagger_e2e::ceph_in_pods::{CephInPods, NAMESPACE, Operator, in_pods};
use stagger_e2e::rados::Target;
use stagger_e2e::roots::Release;

use crate::{AGENT, ask_for, on_18};

/// The memory limit of each daemon's pod, and the pod's own number.
fn limits(cluster: &CephInPods, app: &str) -> Result<BTreeMap<String, Value>> {
    let pods = cluster.all("pods")?;
    let of_app = pods.iter().filter(|pod| pod["metadata"]["labels"]["app"] == app);
    of_app
        .map(|pod| {
            let uid = pod["metadata"]["uid"].as_str().context("a pod without a uid")?;
            let limit = pod["spec"]["containers"][0]["resources"]["limits"]["memory"].clone();
            Ok((uid.to_owned(), limit))
        })
        .collect()
}

fn memory(limit: &str, most: &str) -> Value {
    json!({ "spec": {
        "resources": { "osd": { "limits": { "memory": limit } } },
        "updatePolicy": {
            "doorsOpenAfterMinutes": 0,
            "osds": { "maxInParallelPerCluster": most, "soakSeconds": 0 },
        },
    } })
}

/// The run that is told of now.
fn run(status: &Value) -> &Value {
    &status["run"]["run"]
}

/// Another memory limit of OSDs is a revision: they go by waves, and nothing else does. In the midst of it the
/// policy is changed: the wave is finished, another run goes on by the new policy. A pause is no change. While
/// the wish is locked, the API server refuses another one.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn a_spec_changed_in_mid_run() -> Result<()> {
    on_18("a_spec_changed_in_mid_run", |cluster, _operator, phases| {
        let mons = limits(cluster, "rook-ceph-mon")?;
        cluster.patch_cluster(&memory("1500Mi", "1%"))?;
        let status = cluster.wait_told("a wave of OSDs is open", Duration::from_mins(3), |status| {
            Ok(status["run"]["current"]["stage"] == "osd")
        })?;
        let first = run(&status).clone();
        let pause = |is: bool| cluster.patch_cluster(&json!({ "spec": { "updatePolicy": { "pause": is } } }));
        pause(true)?;
        let status = cluster.wait_told("it is paused", Duration::from_mins(2), |status| {
            let why = status["run"]["why"].as_str().unwrap_or_default();
            Ok(why.contains("paused"))
        })?;
        ensure!(*run(&status) == first, "a pause began another run: {status:#}");
        phases.lap("paused in the midst of it");
        pause(false)?;
        cluster.patch_cluster(&memory("1500Mi", "100%"))?;
        cluster.wait_told("another run has begun", Duration::from_mins(2), |status| {
            Ok(*run(status) != first && status["run"]["verdict"] == "running")
        })?;
        phases.lap("another policy, another run");
        cluster.patch_cluster(&json!({ "spec": { "updatePolicy": { "onSpecChange": "lock" } } }))?;
        // What is in the CephCluster is not ours to lock.
        let refused = cluster.patch_cluster(&memory("1500Mi", "50%"));
        let why = refused.err().context("a locked wish was changed")?;
        ensure!(format!("{why:#}").contains("onSpecChange is lock"), "{why:#}");
        let ready = cluster.wait_told("all OSDs have it", Duration::from_mins(6), |status| {
            if status["phase"] == "Blocked" {
                bail!("it is blocked: {status:#}");
            }
            Ok(status["phase"] == "Ready" && status["underWay"] == false)
        })?;
        phases.lap("every OSD has the new limit");
        let osds = limits(cluster, "rook-ceph-osd")?;
        ensure!(osds.values().all(|limit| limit == "1500Mi"), "{osds:?}");
        ensure!(
            limits(cluster, "rook-ceph-mon")? == mons,
            "monitors were restarted"
        );

        // The same in other words is the same.
        cluster.patch_cluster(&memory("1572864000", "100%"))?;
        // By a change that asks for nothing else it is seen that all before it was looked at.
        cluster.patch_cluster(&json!({ "spec": { "updatePolicy": { "partial": false } } }))?;
        let generation = cluster.get("cephmaintenance", NAMESPACE)?["metadata"]["generation"].clone();
        let status = cluster.wait_told("the spec was looked at", Duration::from_secs(30), |status| {
            Ok(status["observedGeneration"] == generation && status["phase"] == "Ready")
        })?;
        ensure!(
            run(&status) == run(&ready),
            "the same limit began a run: {status:#}"
        );
        ensure!(
            limits(cluster, "rook-ceph-osd")? == osds,
            "OSDs were restarted for nothing"
        );
        phases.lap("the same limit in other words");
        Ok(())
    })
}

/// A run that a person ends stays ended, until a person has it tried again.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn an_ended_run_stays_ended() -> Result<()> {
    on_18("an_ended_run_stays_ended", |cluster, operator, phases| {
        let command = |word: &str| {
            let annotations = json!({ "stagger.dev/command": word });
            cluster.patch_cluster(&json!({ "metadata": { "annotations": annotations } }))
        };
        cluster.patch_cluster(&memory("1500Mi", "1%"))?;
        cluster.wait_told("a wave of OSDs is open", Duration::from_mins(3), |status| {
            Ok(status["run"]["current"]["stage"] == "osd")
        })?;
        command("abort#1")?;
        let ended = cluster.wait_told("it has ended", Duration::from_mins(2), |status| {
            Ok(status["gaveUp"].is_string() && status["phase"] == "Blocked")
        })?;
        phases.lap("ended by a person");
        std::thread::sleep(Duration::from_secs(15));
        let status = cluster.wait_told("it is still ended", Duration::from_secs(5), |_| Ok(true))?;
        ensure!(
            run(&status) == run(&ended) && status["phase"] == "Blocked",
            "{status:#}"
        );

        // An operator that was killed before it told anything of that.
        operator.kill()?;
        let nothing = json!([{ "op": "remove", "path": "/status" }]).to_string();
        let lose = [
            "patch",
            "cephmaintenance",
            NAMESPACE,
            "-n",
            NAMESPACE,
            "--subresource=status",
        ];
        cluster
            .plane
            .ask(&[&lose[..], &["--type=json", "-p", &nothing]].concat())?;
        let _operator = Operator::start(cluster, "two", Release::Reef)?;
        cluster.wait_told("it stays ended", Duration::from_mins(1), |status| {
            ensure!(status["phase"] != "Progressing", "it was begun again: {status:#}");
            Ok(status["phase"] == "Blocked" && status["gaveUp"].is_string())
        })?;
        phases.lap("another operator, and the status lost");
        command("retry#2")?;
        cluster.wait_told("another run is under way", Duration::from_mins(1), |status| {
            Ok(status["phase"] == "Progressing" && run(status) != run(&ended))
        })?;
        cluster.patch_cluster(&memory("1500Mi", "100%"))?;
        cluster.wait_told("another run has brought it", Duration::from_mins(5), |status| {
            Ok(status["phase"] == "Ready" && run(status) != run(&ended))
        })?;
        phases.lap("tried again");
        Ok(())
    })
}

/// Of a pool whose every placement group needs all of its copies no OSD may ever stop, and Ceph complains of a
/// flag. Unchecked the OSDs go all the same, one at a time, and each is told. The clients wait as long as an OSD
/// restarts, and no longer.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn unchecked_one_osd_at_a_time() -> Result<()> {
    let releases = [Release::Reef];
    in_pods(
        "unchecked_one_osd_at_a_time",
        AGENT,
        Release::Reef,
        &releases,
        |cluster, phases| {
            let _operator = Operator::start(cluster, "one", Release::Reef)?;
            let old = cluster.image(Release::Reef)?;
            cluster.wait_ready(&old, Duration::from_mins(1))?;
            let ask = |prefix: &str, fields: Value| cluster.ceph.rados().command(Target::Mon, prefix, fields);
            let min_size = |val: &str| {
                let pool =
                    json!({ "pool": stagger_e2e::ceph::spec::HOST_POOL, "var": "min_size", "val": val });
                ask("osd pool set", pool).map(drop)
            };
            ask("osd set", json!({ "key": "nodeep-scrub" }))?;
            min_size("3")?;
            let image = format!("{old}-again");
            ask_for(cluster, &image)?;
            cluster.wait_told("it is refused", Duration::from_mins(2), |status| {
                let message = status["message"].as_str().unwrap_or_default();
                Ok(status["phase"] == "Blocked" && message.contains("OSDMAP_FLAGS"))
            })?;
            phases.lap("refused with checks");
            cluster.patch_cluster(&json!({ "spec": { "updatePolicy": { "skipUpgradeChecks": true } } }))?;
            let mut most = 0;
            cluster.wait_told("every daemon has the image", Duration::from_mins(10), |status| {
                let current = &status["run"]["current"];
                if current["stage"] == "osd" {
                    let units = current["units"].as_object().into_iter().flatten();
                    let wave: usize = units.filter_map(|(_, all)| Some(all.as_array()?.len())).sum();
                    most = most.max(wave);
                }
                let message = status["message"].as_str().unwrap_or_default();
                Ok(status["phase"] == "Ready" && message.ends_with(&image))
            })?;
            phases.lap("unchecked");
            ensure!(most == 1, "{most} OSDs in a wave");
            let events = cluster.all("events")?;
            let told = |text: &str| {
                events
                    .iter()
                    .filter(|event| event["reason"] == "ChecksSkipped")
                    .filter(|event| event["message"].as_str().unwrap_or_default().contains(text))
                    .count()
            };
            let osds = cluster.ceph.spec().daemons(stagger_e2e::ceph::Kind::Osd).len();
            ensure!(
                told("OSDMAP_FLAGS") == 1 && told("is stopped without checks") == osds,
                "{} of {osds}",
                told("is stopped")
            );
            ask("osd unset", json!({ "key": "nodeep-scrub" }))?;
            min_size("2")
        },
    )
}
