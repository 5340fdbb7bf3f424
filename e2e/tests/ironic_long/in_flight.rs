//! Nodes that Ironic is working on while its services are changed: none is lost.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use stagger_e2e::case::on_ironic;
use stagger_e2e::command::say;
use stagger_e2e::ironic::{Cluster, IronicSpec, Release};
use stagger_e2e::stagger::{IronicSetup, Machine};

use super::{LIMIT, resume, run};

fn state(cluster: &Cluster, node: &str) -> Result<String> {
    let found = cluster.sql(&format!(
        "select provision_state from nodes where name = '{node}'"
    ))?;
    found.into_iter().next().context("there is no such node")
}

fn until(cluster: &Cluster, node: &str, wanted: &str) -> Result<()> {
    let waited = cluster.wait_for(&format!("{node} is {wanted}"), LIMIT, |cluster| {
        let now = state(cluster, node)?;
        ensure!(!now.contains("fail"), "{node} is {now}");
        Ok(now == wanted)
    });
    waited.map(drop)
}

fn ask(cluster: &Cluster, node: &str, target: &str) -> Result<()> {
    let path = format!("/v1/nodes/{node}/states/provision");
    let answer = cluster.api("PUT", &path, Some(&json!({ "target": target })))?;
    ensure!(answer.status == 202, "{target} of {node}: {answer:?}");
    Ok(())
}

fn make(cluster: &Cluster, node: &str) -> Result<()> {
    let made = cluster.api(
        "POST",
        "/v1/nodes",
        Some(&json!({ "name": node, "driver": "fake-hardware" })),
    )?;
    ensure!(made.status == 201, "{made:?}");
    for (verb, then) in [("manage", "manageable"), ("provide", "available")] {
        ask(cluster, node, verb)?;
        until(cluster, node, then)?;
    }
    Ok(())
}

/// As if the agent on the node had not called yet.
fn waits_for_its_agent(cluster: &Cluster, node: &str) -> Result<()> {
    let now = "provision_state = 'wait call-back', provision_updated_at = utc_timestamp()";
    cluster
        .sql(&format!("update nodes set {now} where name = '{node}'"))
        .map(drop)
}

/// Refused, waited for by name, deployed to its end before its conductor stops; and, accepted, a node that waits for its
/// agent is as it was after every conductor was restarted twice.
#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn nodes_in_flight_are_refused_waited_for_or_accepted() -> Result<()> {
    let spec = IronicSpec {
        release: Release::Dalmatian,
        deploy_seconds: 12,
        ..IronicSpec::default()
    };
    on_ironic("nodes_in_flight", spec, |cluster, phases| {
        for node in ["late", "slow"] {
            make(cluster, node)?;
        }
        waits_for_its_agent(cluster, "late")?;
        let setup = |nodes: &'static str, seconds| IronicSetup {
            in_flight: (nodes, seconds),
            lock_expires: 10,
            // A hold begins with the longest of a step's gates.
            gate_timeout: 30,
            ..IronicSetup::default()
        };
        let refusing = Machine::new(cluster, "bert", &setup("refuse", 5))?;
        let refused = run(&refusing, Release::Epoxy, 1)?;
        refused.expect_said(&["nodes-in-flight", "late: wait call-back since"])?;
        phases.lap("refused");

        let machine = Machine::new(cluster, "anna", &setup("wait", 5))?;
        let mut going = machine.start(&["run", "upgrade", "--to", "29.0.6"])?;
        going.until("the hold", LIMIT, |line| {
            line.contains("HELD") && line.contains("nodes in flight: late: wait call-back since")
        })?;
        say(machine.call(&["status"])?.expect(0)?.out);
        phases.lap("held");
        cluster.sql("update nodes set provision_state = 'available' where name = 'late'")?;

        // A deployment of 24 seconds or more begins as the pins are written.
        machine.stop_when(&going, "the pins", LIMIT, |journal| Ok(journal.in_step("pin")))?;
        ask(cluster, "slow", "active")?;
        until(cluster, "slow", "deploying")?;
        going.signal("CONT")?;
        let ended = going.end(LIMIT)?;
        if ended.code == Some(0) {
            say(&ended.said);
        } else {
            // The conductor that worked on it was set aside after five seconds, and has its turn later.
            resume(&machine, 0)?;
        }
        until(cluster, "slow", "active")?;
        cluster.ensure_upgraded(Release::Epoxy)?;
        phases.lap("29.0.6, with a deployment under way");

        waits_for_its_agent(cluster, "late")?;
        let accepting = Machine::new(cluster, "carl", &setup("accept", 5))?;
        run(&accepting, Release::Flamingo, 0)?;
        // The timeouts of deployments are looked for once a minute; a restart finds what it takes for stuck at once.
        thread::sleep(Duration::from_secs(2));
        let now = state(cluster, "late")?;
        ensure!(now == "wait call-back", "late is {now}");
        cluster.ensure_upgraded(Release::Flamingo)?;
        phases.lap("32.0.1, with a node that waits for its agent");
        cluster.ensure_let_go()
    })
}
