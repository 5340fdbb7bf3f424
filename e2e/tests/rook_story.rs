//! What an administrator of a cluster that Rook laid out sees, on a real Kubernetes with real Ceph daemons
//! in its pods: one story that folds several cases.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stagger_e2e::case::{Phases, case};
use stagger_e2e::ceph::CephSpec;
use stagger_e2e::command::say;
use stagger_e2e::laid_out::{LaidOut, NAMESPACE, Operator};
use stagger_e2e::load::Load;
use stagger_e2e::roots::Release;

const AGENT: &str = env!("CARGO_BIN_EXE_node-agent");

#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test runs it"]
fn an_upgrade_by_the_operator() -> Result<()> {
    case("an_upgrade_by_the_operator", || {
        let mut phases = Phases::begin();
        let cluster = LaidOut::start(
            Release::Reef,
            CephSpec::default(),
            &[Release::Reef, Release::Tentacle],
            Path::new(AGENT),
        )?;
        phases.lap("Ceph in pods");
        let result = story(&cluster, &mut phases);
        if result.is_err() {
            say(cluster.ceph.logs_tail());
            say(cluster
                .plane
                .ask(&["get", "pods", "-n", NAMESPACE, "-o", "wide"])?);
        }
        phases.print();
        result
    })
}

/// The part with the drains alone.
#[test]
#[ignore = "needs root, Go and Ceph; cargo xtask test --long runs it"]
fn two_nodes_are_drained() -> Result<()> {
    case("two_nodes_are_drained", || {
        let mut phases = Phases::begin();
        let releases = [Release::Reef];
        let cluster = LaidOut::start(Release::Reef, CephSpec::default(), &releases, Path::new(AGENT))?;
        phases.lap("Ceph in pods");
        let mut load = Load::start(&cluster.ceph)?;
        let operator = Operator::start(&cluster, "one", Release::Reef)?;
        wait(
            &cluster,
            &operator,
            "it has nothing to do",
            Duration::from_mins(1),
            |status| Ok(status["phase"] == "Ready"),
        )?;
        let result = drained(&cluster, &operator, &mut phases);
        let failed: Vec<String> = load.failures().iter().map(ToString::to_string).collect();
        result.with_context(|| format!("operations that failed by then: {failed:?}\n{}", operator.log()))?;
        let report = load.stop()?;
        phases.print();
        ensure!(
            report.failures().is_empty(),
            "operations failed: {:?}",
            report.failures()
        );
        Ok(())
    })
}

fn story(cluster: &LaidOut, phases: &mut Phases) -> Result<()> {
    let mut load = Load::start(&cluster.ceph)?;
    phases.lap("load on all clients");
    let operator = Operator::start(cluster, "one", Release::Tentacle)?;
    let told = upgraded(cluster, &operator, phases).and_then(|()| drained(cluster, &operator, phases));
    let failed: Vec<String> = load.failures().iter().map(ToString::to_string).collect();
    told.with_context(|| format!("operations that failed by then: {failed:?}\n{}", operator.log()))?;
    let report = load.stop()?;
    say(format!("{report}"));
    ensure!(
        report.failures().is_empty(),
        "operations failed: {:?}",
        report.failures()
    );
    Ok(())
}

fn upgraded(cluster: &LaidOut, operator: &Operator, phases: &mut Phases) -> Result<()> {
    wait(
        cluster,
        operator,
        "it has nothing to do",
        Duration::from_mins(1),
        |status| Ok(status["phase"] == "Ready"),
    )?;
    phases.lap("an equal revision costs nothing");
    let image = cluster.image(Release::Tentacle)?;
    cluster.patch_cluster(&json!({ "spec": {
        "cephVersion": { "image": image },
        "updatePolicy": {
            "doorsOpenAfterMinutes": 0,
            "osds": { "maxInParallelPerCluster": "100%", "soakSeconds": 1 },
        },
    } }))?;
    wait(
        cluster,
        operator,
        "the upgrade is done",
        Duration::from_mins(9),
        |status| {
            if status["phase"] == "Blocked" {
                bail!("it is blocked: {status}");
            }
            Ok(status["phase"] == "Ready" && status["upgrade"]["run"]["verdict"] == "done")
        },
    )?;
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
    Ok(())
}

/// Two nodes are drained at once by `kubectl drain`, and given back.
fn drained(cluster: &LaidOut, operator: &Operator, phases: &mut Phases) -> Result<()> {
    let budgets = || -> Result<BTreeSet<String>> {
        let all = cluster.all("poddisruptionbudgets")?;
        Ok(all
            .iter()
            .filter_map(|one| one["metadata"]["name"].as_str().map(str::to_owned))
            .filter(|name| name.starts_with("rook-ceph-osd"))
            .collect())
    };
    ensure!(
        budgets()? == BTreeSet::from(["rook-ceph-osd".to_owned()]),
        "{:?}",
        budgets()?
    );
    let drain = |node: &str, timeout: &str| {
        cluster.plane.ask(&[
            "drain",
            node,
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            timeout,
        ])
    };
    drain("host2", "--timeout=120s")?;
    phases.lap("a node drained, both of its OSDs");
    let status = wait(
        cluster,
        operator,
        "the drain is told",
        Duration::from_secs(30),
        |status| Ok(status["drains"]["draining"] == json!(["host2"])),
    )?;
    let now = budgets()?;
    ensure!(now.len() == 11, "{now:?}");
    ensure!(
        !now.contains("rook-ceph-osd") && !now.contains("rook-ceph-osd-host-host2"),
        "{now:?}"
    );
    ensure!(status["drains"]["noout"]["host2"].is_string(), "{status}");
    let flags = cluster.ceph.rados().mon("osd dump")?["crush_node_flags"].clone();
    ensure!(flags["host2"] == json!(["noout"]), "{flags}");
    // The next one, in another rack: it is told no for as long as the first one lasts.
    let second = drain("host6", "--timeout=10s");
    ensure!(
        second.is_err(),
        "a second node was drained beside the first: {second:?}"
    );
    phases.lap("a second one refused");
    cluster.plane.ask(&["uncordon", "host2"])?;
    drain("host6", "--timeout=120s").context("the second node, once the first is back")?;
    cluster.plane.ask(&["uncordon", "host6"])?;
    phases.lap("the second one drained after it");
    wait(
        cluster,
        operator,
        "all is as before",
        Duration::from_mins(2),
        |status| Ok(status["drains"].is_null() && budgets()? == BTreeSet::from(["rook-ceph-osd".to_owned()])),
    )?;
    let flags = cluster.ceph.rados().mon("osd dump")?["crush_node_flags"].clone();
    ensure!(flags == json!({}), "noout is left behind: {flags}");
    phases.lap("nothing left behind");
    Ok(())
}

/// Waits until the CephCluster's status says so; a new message is printed.
fn wait(
    cluster: &LaidOut,
    operator: &Operator,
    what: &str,
    limit: Duration,
    done: impl Fn(&Value) -> Result<bool>,
) -> Result<Value> {
    let begun = Instant::now();
    let mut last = String::new();
    loop {
        let status = cluster.get("cephcluster", NAMESPACE)?["status"].clone();
        let message = format!("{} {}", status["phase"], status["message"]);
        if message != last {
            say(format!("   {:6.1} s  {message}", begun.elapsed().as_secs_f64()));
            last = message;
        }
        if done(&status)? {
            return Ok(status);
        }
        if begun.elapsed() > limit {
            bail!(
                "not within {} s: {what}: {status}\n{}",
                limit.as_secs(),
                operator.log()
            );
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
