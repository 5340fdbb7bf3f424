//! Nodes that stay empty until a person says that they are done.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use stagger_e2e::command::say;
use stagger_e2e::ganeti::{Cluster, Made};
use stagger_e2e::stagger::{GanetiSetup, Machine};

use super::{LIMIT, case};

/// The node that waits for a person, other than those that did.
fn waits(cluster: &Cluster, but: &BTreeSet<String>) -> Result<Option<String>> {
    let tags = cluster.state()?.tags;
    let mut waiting = tags.into_iter().filter(|(node, tags)| {
        !but.contains(node) && tags.iter().any(|tag| tag.starts_with("stagger:waits:"))
    });
    Ok(waiting.next().map(|(node, _)| node))
}

/// An admin works on one node after another; jobs run meanwhile, and the machine that carries the run out is killed each time.
#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn each_node_waits_for_a_person() -> Result<()> {
    case(3, "each_node_waits_for_a_person", |cluster, phases| {
        cluster.make(&[
            Made::mirrored("mail", "node2", "node3"),
            Made::on("wiki", "sharedfile", "node3"),
        ])?;
        let mut before = cluster.state()?;
        phases.lap("instances made");
        // A process that is killed on its own machine is followed at once, however long its lock lasts.
        let setup = GanetiSetup {
            failover_timeout: 60,
            lock_expires: 150,
            ..GanetiSetup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let other = Machine::new(cluster, "bert", &setup)?;
        let mut run = machine.start(&["run", "exec", "--hold", "-O", "node1"])?;
        let mut done = BTreeSet::new();
        for turn in 1..=2 {
            let mut node = None;
            cluster.wait_for("a node that waits", LIMIT, |cluster| {
                node = waits(cluster, &done)?;
                Ok(node.is_some())
            })?;
            let node = node.context("no node waits")?;
            let state = cluster.state()?;
            ensure!(state.roles[&node] == "D", "{:?}", state.roles);
            let there = state.instances.iter().find(|(_, placed)| placed.primary == node);
            ensure!(there.is_none(), "{there:?} is on {node}");
            phases.lap(format!("{node} is empty and waits"));
            let job = cluster.submit("PUT", &format!("/2/instances/wiki/tags?tag=turn{turn}"), None)?;
            let job = cluster.ended(job, LIMIT)?;
            ensure!(job["status"] == "success", "{job}");
            let refused = other.call(&["ganeti", "done", "node1"])?.expect(1)?;
            refused.expect_said(&["no run waits for node1", &node])?;
            run.kill()?;
            // From whatever machine, and while nobody carries the run out.
            let told = other.call(&["ganeti", "done", &node])?.expect(0)?;
            told.expect_said(&[&node, "is done"])?;
            phases.lap("a job ran meanwhile, the run is killed, and the node is said to be done");
            done.insert(node);
            run = machine.start(&["resume"])?;
        }
        let ended = run.end(LIMIT)?.expect(0);
        let ended = ended.with_context(|| machine.history_tail(40))?;
        say(&ended.said);
        ensure!(done.len() == 2, "{done:?}");
        // That each had its turn stays noted.
        let now = cluster.state()?;
        for (node, tags) in &now.tags {
            let ours: Vec<&String> = tags.iter().filter(|tag| tag.starts_with("stagger:")).collect();
            let wanted = usize::from(done.contains(node));
            ensure!(
                ours.len() == wanted && ours.iter().all(|tag| tag.starts_with("stagger:done:")),
                "{node}: {ours:?}"
            );
        }
        before.tags = now.tags;
        cluster.ensure_rebooted(&before, &[])
    })
}
