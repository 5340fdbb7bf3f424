//! What an administrator of a cluster that Rook laid out sees, on a real Kubernetes with real Ceph daemons
//! in its pods: one story that folds several cases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use stagger_e2e::case::Phases;
use stagger_e2e::ceph_in_pods::{ASKED_ABOUT_EVICTIONS, CephInPods, NAMESPACE, Operator, in_pods};
use stagger_e2e::command::run;
use stagger_e2e::rados::Target;
use stagger_e2e::roots::Release;
use stagger_e2e::stagger::binary;

const AGENT: &str = env!("CARGO_BIN_EXE_node-agent");

#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test runs it"]
fn an_upgrade_by_the_operator_and_drains() -> Result<()> {
    let releases = [Release::Reef, Release::Tentacle];
    in_pods(
        "an_upgrade_by_the_operator_and_drains",
        AGENT,
        Release::Reef,
        &releases,
        |cluster, phases| {
            let mut operators = vec![
                Operator::start_with(cluster, "one", Release::Tentacle, &ASKED_ABOUT_EVICTIONS)?,
                Operator::start_with(cluster, "two", Release::Tentacle, &ASKED_ABOUT_EVICTIONS)?,
            ];
            upgraded(cluster, &mut operators, phases)?;
            drained(cluster, phases)
        },
    )
}

/// 18 to 20, and the leader is killed while OSDs are down.
fn upgraded(cluster: &CephInPods, operators: &mut Vec<Operator>, phases: &mut Phases) -> Result<()> {
    let image = cluster.image(Release::Reef)?;
    cluster.wait_ready(&image, Duration::from_mins(1))?;
    // Another task makes them, and Kubernetes counts pods in its own time.
    cluster.wait_told("the budgets stand", Duration::from_secs(30), |_| {
        let fixed = [
            ("rook-ceph-mon-pdb", "maxUnavailable", 1),
            ("rook-ceph-mgr-pdb", "maxUnavailable", 1),
            ("rook-ceph-mds-fs", "minAvailable", 1),
            ("rook-ceph-rgw-store", "minAvailable", 1),
        ];
        let stands = |(name, field, count): (&str, &str, i32)| {
            cluster.get("poddisruptionbudget", name).is_ok_and(|budget| {
                budget["spec"][field] == count && budget["status"]["expectedPods"].as_u64() >= Some(2)
            })
        };
        let over_osds = cluster.osd_budgets()? == BTreeMap::from([("rook-ceph-osd".to_owned(), 1)]);
        Ok(over_osds && fixed.into_iter().all(stands))
    })?;
    phases.lap("nothing to do at first");
    let image = cluster.image(Release::Tentacle)?;
    cluster.patch_cluster(&json!({ "spec": {
        "cephVersion": { "image": image },
        "updatePolicy": {
            "doorsOpenAfterMinutes": 0,
            "osds": { "maxInParallelPerCluster": "100%", "soakSeconds": 0 },
        },
    } }))?;
    cluster.wait_told(
        "a wave of several OSDs is open",
        Duration::from_mins(4),
        |status| {
            let current = &status["run"]["current"];
            let units = current["units"].as_object().into_iter().flatten();
            let down: usize = units.filter_map(|(_, all)| Some(all.as_array()?.len())).sum();
            Ok(current["stage"] == "osd" && down > 1)
        },
    )?;
    let run = cluster.get("cephmaintenance", NAMESPACE)?["status"]["run"]["run"].clone();
    let leader = Operator::leader(cluster, operators)?;
    operators.remove(leader).kill()?;
    phases.lap("the leader killed in mid-wave");
    let status = cluster.wait_ready(&image, Duration::from_mins(6))?;
    ensure!(status["run"]["run"] == run, "another run than {run}: {status:#}");
    ensure!(status["run"]["verdict"] == "done", "{status:#}");
    let migrations = &status["migrations"];
    let done = |at: usize, name: &str| migrations[at]["name"] == name && migrations[at]["done"] == true;
    ensure!(
        done(0, "daemon-labels") && done(1, "require-osd-release-20"),
        "{migrations:#}"
    );
    let manager = cluster.get("deployment", "rook-ceph-mgr-a")?;
    ensure!(
        manager["metadata"]["labels"]["ceph_daemon_id"] == "a",
        "{manager:#}"
    );
    phases.lap("18 to 20");
    let versions = cluster.ceph.rados().mon("versions")?;
    let all: Vec<&String> = versions["overall"]
        .as_object()
        .context("no versions")?
        .keys()
        .collect();
    ensure!(
        all.len() == 1 && all[0].contains("ceph version 20."),
        "{versions}"
    );
    let images: BTreeSet<String> = cluster
        .all("pods")?
        .iter()
        .filter(|pod| pod["metadata"]["labels"]["rook_cluster"] == NAMESPACE)
        .filter_map(|pod| pod["spec"]["containers"][0]["image"].as_str().map(str::to_owned))
        .collect();
    ensure!(images == BTreeSet::from([image]), "{images:?}");
    read_from_afar(cluster)?;
    phases.lap("its journal read with a kubeconfig");
    Ok(())
}

/// What whoever has a kubeconfig reads of the run: that the laws held though its leader was killed, each event, and a page.
fn read_from_afar(cluster: &CephInPods) -> Result<()> {
    let said = |words: &[&str]| said_afar(cluster, words);
    let verified = said(&["verify"])?;
    ensure!(verified.starts_with("HOLDS   every law"), "{verified}");
    let told = said(&["watch", "--plain"])?;
    let last = told.lines().last().unwrap_or_default();
    ensure!(last.starts_with("DONE"), "{told}");
    ensure!(
        told.contains("token 2"),
        "the second process took it over: {told}"
    );
    // On which host an OSD is, the journal knows.
    let wave = told
        .lines()
        .find(|line| line.contains(" wave ") && line.contains("osd: "));
    ensure!(wave.is_some_and(|wave| wave.contains("host")), "{told}");
    let page = said(&["report"])?;
    ensure!(
        page.contains("every law held") && page.contains("host2"),
        "{page}"
    );
    Ok(())
}

/// What `stagger` says to whoever has a kubeconfig.
fn said_afar(cluster: &CephInPods, words: &[&str]) -> Result<String> {
    let mut command = cluster.ceph.sandbox().command(binary()?);
    let kubeconfig = cluster.plane.kubeconfig();
    command
        .args(words)
        .args(["-n", NAMESPACE, "--kubeconfig"])
        .arg(kubeconfig);
    run(&mut command)
}

/// A node is drained by `kubectl drain`; another waits for it.
fn drained(cluster: &CephInPods, phases: &mut Phases) -> Result<()> {
    // Once an upgrade is over groups are balanced again, which may put them elsewhere.
    cluster
        .ceph
        .rados()
        .command(Target::Mgr, "balancer off", json!({}))?;
    let other = &cluster.neighbour_of("host2")?;
    cluster.drain("host2", 120)?;
    phases.lap("a node drained, both of its OSDs");
    let status = cluster.wait_told("the drain is told", Duration::from_secs(30), |status| {
        Ok(status["drains"]["draining"] == json!(["host2"]))
    })?;
    cluster.ensure_only_this_drains("host2", &status)?;
    people_hear_of_the_drain(cluster, "host2")?;
    let said = refused(cluster, other, 10).context("beside the first one")?;
    ensure!(said.contains(": osd.4 osd.5 down"), "{said}");
    phases.lap("a second one refused");
    // It comes back with empty disks, and what is recovered to them takes its time.
    cluster.replace_disks("host2", Release::Tentacle)?;
    let flag = |how: &str, flag: &str| {
        let wish = json!({ "key": flag });
        cluster.ceph.rados().command(Target::Mon, how, wish).map(|_| ())
    };
    for held in ["norecover", "nobackfill"] {
        flag("osd set", held)?;
    }
    cluster.uncordon("host2")?;
    cluster.wait_told("its OSDs are up", Duration::from_mins(2), |_| {
        let dump = cluster.ceph.rados().mon("osd dump")?;
        let osds = dump["osds"].as_array().context("no OSDs")?;
        Ok(osds.iter().all(|osd| osd["up"] == 1))
    })?;
    let said = refused(cluster, other, 20).context("before the first one has its data")?;
    let without = format!("without {other}: placement group");
    let waits = [
        without.as_str(),
        " missing copies of objects are back, none of which comes back now",
    ];
    ensure!(waits.iter().all(|words| said.contains(words)), "{said}");
    let status = cluster.wait_told("why it waits", Duration::from_secs(10), |status| {
        Ok(status["drains"]["waiting"] == json!([other]))
    })?;
    let why = status["drains"]["why"].as_str().unwrap_or_default();
    ensure!(why.contains(&without), "{status:#}");
    phases.lap("a second one refused while the first has empty disks");
    for held in ["norecover", "nobackfill"] {
        flag("osd unset", held)?;
    }
    cluster
        .drain(other, 180)
        .context("the second node, once the first has its data")?;
    cluster.uncordon(other)?;
    phases.lap("the second one drained after it");
    cluster.wait_told("nothing is left", Duration::from_mins(2), |status| {
        cluster.is_at_rest(status)
    })?;
    phases.lap("nothing left behind");
    Ok(())
}

/// What a person reads of a drain: an Event of the CephMaintenance, and what `stagger status` prints.
fn people_hear_of_the_drain(cluster: &CephInPods, node: &str) -> Result<()> {
    let began = format!("{node} is being drained; noout is on it until ");
    cluster.wait_told("an Event tells of the drain", Duration::from_secs(30), |_| {
        Ok(cluster.all("events")?.iter().any(|event| {
            let of = &event["involvedObject"];
            let note = event["message"].as_str().unwrap_or_default();
            of["kind"] == "CephMaintenance"
                && of["name"] == NAMESPACE
                && event["reason"] == "DrainBegan"
                && note.starts_with(&began)
        }))
    })?;
    let told = said_afar(cluster, &["status"])?;
    let words = [
        format!("{node} may be drained"),
        format!("noout on {node} until "),
    ];
    ensure!(words.iter().all(|one| told.contains(one)), "{told}");
    Ok(())
}

/// What `kubectl drain` prints of a node whose OSDs may not go: it asks again and again, and is told why not.
fn refused(cluster: &CephInPods, node: &str, seconds: u32) -> Result<String> {
    let Err(error) = cluster.drain(node, seconds) else {
        bail!("{node} was drained");
    };
    let said = format!("{error:#}");
    let told = said.contains("(will retry after 5s)") && said.contains(" may not be evicted now: ");
    ensure!(told, "{said}");
    Ok(said)
}
