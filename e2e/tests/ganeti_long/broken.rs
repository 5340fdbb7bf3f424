//! A node that does not come back.

use anyhow::{Context as _, Result, ensure};
use stagger_e2e::command::say;
use stagger_e2e::ganeti::Made;
use stagger_e2e::stagger::{GanetiSetup, Machine};

use super::{LIMIT, case, reboot};

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn a_node_that_never_comes_back() -> Result<()> {
    case(3, "a_node_that_never_comes_back", |cluster, phases| {
        cluster.make(&[
            Made::mirrored("mail", "node2", "node3"),
            Made::on("wiki", "sharedfile", "node2"),
        ])?;
        let before = cluster.state()?;
        phases.lap("instances made");
        let setup = GanetiSetup {
            reboot_timeout: 20,
            gate_timeout: 20,
            on_failure: "rollback",
            ..GanetiSetup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        cluster.set_stays_down("node2", true)?;
        let held = reboot(&machine, &["-O", "node1"], 3)?;
        held.expect_said(&["NEEDS YOU", "node2", "resume"])?;
        // How somebody passes who cannot wait for a person.
        held.expect_said(&["--reason=stagger-emergency", "stagger ganeti guards --drop"])?;
        machine.call(&["status"])?.expect(3)?;
        phases.lap("held");

        ensure!(!cluster.is_up("node2"), "node2 is up");
        let now = cluster.state()?;
        ensure!(now.roles["node2"] == "D", "node2 is {}", now.roles["node2"]);
        for (name, placed) in &now.instances {
            ensure!(
                placed.status == "running" && placed.primary != "node2",
                "{name} is {placed:?}"
            );
        }
        ensure!(
            cluster.reboots("node2")? == 1 && cluster.reboots("node1")? == 0,
            "{:?}",
            now.reboots
        );
        phases.lap("it stays out, and what ran runs elsewhere");

        // In the wave it would wait. While a person is waited for nobody's jobs do.
        let job = cluster.submit("POST", "/2/instances/wiki/reboot?type=hard", None)?;
        let job = cluster.ended(job, LIMIT)?;
        ensure!(job["status"] == "success", "{job}");
        let guards = machine.call(&["ganeti", "guards"])?.expect(0)?;
        ensure!(guards.out.contains("No guard is held"), "{}", guards.out);
        phases.lap("a job of an admin has run meanwhile");

        cluster.set_stays_down("node2", false)?;
        cluster.start("node2")?;
        let ended = machine.resume_to_the_end(LIMIT)?.expect(0);
        let ended = ended.with_context(|| machine.history_tail(40))?;
        ended.expect_said(&["every instance that ran before is on its original primary (2 compared)"])?;
        phases.lap("started, and resumed to the end");
        cluster.ensure_rebooted(&before, &["node2", "node3"])
    })
}

/// Seen: the run was aborted while a node was dead, and nothing gave back what it had taken from the node.
#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn aborted_with_a_dead_node_that_returns() -> Result<()> {
    case(3, "aborted_with_a_dead_node_that_returns", |cluster, phases| {
        cluster.make(&[
            Made::mirrored("mail", "node2", "node3"),
            Made::on("wiki", "sharedfile", "node2"),
        ])?;
        let before = cluster.state()?;
        phases.lap("instances made");
        let setup = GanetiSetup {
            reboot_timeout: 20,
            gate_timeout: 20,
            ..GanetiSetup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        cluster.set_stays_down("node2", true)?;
        reboot(&machine, &["--nodes", "node2"], 3)?;
        // Over, and not as it was before.
        let ended = machine.call(&["abort"])?.expect(1)?;
        say(&ended.said);
        ended.expect_said(&["node2", "stagger ganeti recover"])?;
        ended.expect_said(&[
            "NOT ON ITS ORIGINAL PRIMARY  mail is on node3, and was on node2",
            "; wiki is on ",
        ])?;
        let report = machine.call(&["report"])?.expect(0)?;
        report.expect_said(&["mail is on node3, and was on node2"])?;
        phases.lap("held and aborted");

        let plan = machine.call(&["plan", "reboot", "--nodes", "node2"])?;
        say(&plan.out);
        ensure!(
            [&plan.out, &plan.said]
                .iter()
                .any(|text| text.contains("recover")),
            "{plan:?}"
        );
        let refused = machine.call(&["ganeti", "recover", "--yes"])?;
        say(&refused.said);
        ensure!(refused.code == Some(3), "{refused:?}");
        phases.lap("while it is dead it is named");

        cluster.set_stays_down("node2", false)?;
        cluster.start("node2")?;
        cluster.wait_for("all of it is given back", LIMIT, |_| {
            let ended = machine.start(&["ganeti", "recover", "--yes"])?.end(LIMIT)?;
            say(&ended.said);
            Ok(ended.code == Some(0))
        })?;
        phases.lap("started, and given back");
        cluster.ensure_rebooted(&before, &["node2"])
    })
}
