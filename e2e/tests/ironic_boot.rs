//! The harness of Ironic itself: a cluster comes up and serves under load; what goes wrong is seen, and what goes right
//! too; nothing is left.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use stagger_e2e::case::{ironic_loaded, on_ironic};
use stagger_e2e::command::say;
use stagger_e2e::ironic::{Cluster, Hand, IronicSpec, Release, Report, Service};

/// Clients notice within that time that nobody does anything.
const SOON: Duration = Duration::from_secs(30);

#[test]
#[ignore = "needs root and Ironic; cargo xtask test --long runs it"]
fn an_ironic_serves_under_load() -> Result<()> {
    on_ironic("ironic-serves", IronicSpec::default(), |cluster, phases| {
        say(format!("memory {} MB", cluster.memory()? >> 20));
        what_is_seen_from_outside(cluster)?;
        phases.lap("looked at");
        let report = ironic_loaded(cluster, phases, |_, phases| {
            thread::sleep(Duration::from_secs(20));
            phases.lap("20 s of load");
            Ok(())
        })?;
        no_failures(&report)?;
        ensure!(report.requests() > 200, "{} requests in 20 s", report.requests());
        what_is_written(cluster)
    })
}

#[test]
#[ignore = "needs root and Ironic; cargo xtask test --long runs it"]
fn a_drained_conductor_is_restarted_without_a_failed_request() -> Result<()> {
    on_ironic("ironic-drained", IronicSpec::default(), |cluster, phases| {
        let report = ironic_loaded(cluster, phases, |load, phases| {
            let mut hand = Hand::new(cluster);
            for service in cluster.spec().services() {
                hand.restart(service, "drained", |_| Ok(()))?;
                phases.lap(format!("{service} restarted"));
            }
            ensure!(load.failures().is_empty(), "{:?}", load.failures());
            // Had nothing been able to fail, that would be no news.
            for conductor in [Service::Conductor1, Service::Conductor2] {
                cluster.service(conductor, "kill", &[])?;
            }
            cluster.wait_for("requests fail without conductors", SOON, |_| {
                Ok(!load.failures().is_empty())
            })?;
            for conductor in [Service::Conductor1, Service::Conductor2] {
                cluster.service(conductor, "start", &[])?;
            }
            phases.lap("both conductors crashed and started");
            Ok(())
        })?;
        // What was acknowledged is there even so. And it is no known defect of an upgrade.
        let log = cluster.log()?;
        let judged = report.judge(&log);
        ensure!(judged.of_ironic.is_empty(), "{:?}", judged.of_ironic);
        ensure!(!judged.ours.is_empty(), "{report}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root and Ironic; cargo xtask test --long runs it"]
fn what_does_not_start_is_told_and_gone() -> Result<()> {
    let cluster = Cluster::boot(IronicSpec::default())?;
    let dir = cluster.dir().to_owned();
    let result = a_conductor_that_does_not_start(&cluster);
    if result.is_err() {
        say(cluster.logs_tail());
    }
    // As a test that fails leaves it.
    drop(cluster);
    result?;
    ensure!(!dir.exists(), "{} is left", dir.display());
    Ok(())
}

fn a_conductor_that_does_not_start(cluster: &Cluster) -> Result<()> {
    let [c1, c2] = [Service::Conductor1, Service::Conductor2];
    let told = |result: Result<String>, part: &str| {
        let error = match result {
            Ok(said) => bail!("it succeeded, and should have told {part:?}: {said}"),
            Err(error) => format!("{error:#}"),
        };
        ensure!(error.contains(part), "{error}");
        Ok(())
    };
    let fault = cluster.dir().join("fault/c2");
    fs::write(&fault, "32.0.1 fail\n").context("writing the fault")?;
    cluster.service(c2, "drain", &[])?;
    cluster.service(c2, "stop", &[])?;
    told(
        cluster.service(c2, "install", &["31.0.0"]),
        "no release '31.0.0' here",
    )?;
    cluster.service(c2, "install", &["32.0.1"])?;
    told(cluster.service(c2, "start", &[]), "c2 on 32.0.1: made to fail")?;
    told(cluster.service(c2, "status", &[]), "stopped")?;
    told(cluster.service(c1, "drain", &[]), "c2 is not up at the balancer")?;
    // A pin that no release knows.
    cluster.service(c2, "install", &["29.0.6"])?;
    cluster.service(c2, "pin", &["28.5"])?;
    told(cluster.service(c2, "start", &[]), "c2 does not serve: it ended")?;
    cluster.service(c2, "pin", &["26.1"])?;
    cluster.service(c2, "start", &[])?;
    ensure!(cluster.service(c2, "pinned", &[])?.trim() == "26.1");
    cluster.service(c2, "give-back", &[])?;
    cluster.service(c1, "drain", &[])?;
    cluster.service(c1, "give-back", &[])?;
    // The database goes away, and what was told to it is still there when it comes back.
    let nodes = || cluster.api("GET", "/v1/nodes", None);
    let made = cluster.api("POST", "/v1/nodes", Some(&json!({ "driver": "fake-hardware" })))?;
    ensure!(made.status == 201, "{made:?}");
    cluster.database("kill")?;
    ensure!(
        cluster.sql("select 1").is_err(),
        "a database that was killed answers"
    );
    cluster.database("start")?;
    cluster.wait_for("the API has its database again", Duration::from_mins(2), |_| {
        Ok(nodes().is_ok_and(|reply| {
            reply.status == 200 && reply.body["nodes"].as_array().is_some_and(|all| all.len() == 1)
        }))
    })?;
    Ok(())
}

/// Release, microversion, conductors, the balancer's view, versions in the database, and programs of another release.
fn what_is_seen_from_outside(cluster: &Cluster) -> Result<()> {
    let release = cluster.spec().release;
    for service in cluster.spec().services() {
        let status = cluster.service(service, "status", &[])?;
        ensure!(
            status.starts_with(&format!("running {release} ")),
            "{service}: {status}"
        );
        ensure!(
            cluster.service(service, "pinned", &[])?.is_empty(),
            "{service} is pinned"
        );
    }
    for api in Service::APIS {
        let reply = cluster.api_of(api, "GET", "/")?;
        ensure!(
            reply.newest.as_deref() == Some(release.microversion()),
            "{reply:?}"
        );
    }
    let conductors = cluster.conductors()?;
    for name in cluster
        .spec()
        .conductors()
        .iter()
        .filter_map(|conductor| cluster.spec().registered(*conductor))
    {
        ensure!(conductors.get(name) == Some(&true), "{conductors:?}");
    }
    let servers = cluster.balancer(&["show", "stat"])?;
    for server in ["api,a1", "api,a2", "rpc1,c1", "rpc1,c2", "rpc2,c1", "rpc2,c2"] {
        let line = servers.lines().find(|line| line.starts_with(server));
        ensure!(
            line.is_some_and(|line| line.contains(",UP,")),
            "{server}: {servers}"
        );
    }
    let (code, said) = cluster.code(release, "ironic-dbsync", &["version"])?;
    ensure!(code == 0 && !said.trim().is_empty(), "exit code {code}: {said}");
    // Before the schema of that release, as it is asked for.
    let (code, said) = cluster.code(Release::Flamingo, "ironic-status", &["upgrade", "check"])?;
    ensure!(code == 0, "upgrade check of 32.0.1, exit code {code}: {said}");
    Ok(())
}

/// What the load has left in the database.
fn what_is_written(cluster: &Cluster) -> Result<()> {
    let nodes = cluster.row_versions("nodes")?;
    let version = cluster.spec().release.node_version().to_owned();
    ensure!(nodes == [(Some(version), 15)].into(), "{nodes:?}");
    let ports = cluster.row_versions("ports")?;
    ensure!(
        ports.len() == 1 && ports.values().all(|&count| count >= 15),
        "{ports:?}"
    );
    Ok(())
}

fn no_failures(report: &Report) -> Result<()> {
    let failures = report.failures();
    ensure!(
        failures.is_empty(),
        "{} requests failed: {}",
        failures.len(),
        failures[0]
    );
    Ok(())
}
