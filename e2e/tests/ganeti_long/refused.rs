//! A remote API that is of no use: nothing begins, and it says why.

use std::fs;

use anyhow::{Context as _, Result};
use stagger_e2e::case::Phases;
use stagger_e2e::command::say;
use stagger_e2e::ganeti::{Cluster, Made, OPERATOR, READER, Release};
use stagger_e2e::stagger::{GanetiSetup, Machine};

use super::{LIMIT, case, case_of};

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn answers_of_the_remote_api_that_are_of_no_use() -> Result<()> {
    case(
        2,
        "answers_of_the_remote_api_that_are_of_no_use",
        |cluster, phases| {
            cluster.make(&[Made::mirrored("mail", "node1", "node2")])?;
            let before = cluster.state()?;
            phases.lap("instance made");
            let default = GanetiSetup::default();
            let of = |name: &str, setup: GanetiSetup| Machine::new(cluster, name, &setup);
            let forgetful = of(
                "forgetful",
                GanetiSetup {
                    user: (OPERATOR.0.to_owned(), "wrong".to_owned()),
                    ..default.clone()
                },
            )?;
            let reader = of(
                "reader",
                GanetiSetup {
                    user: (READER.0.to_owned(), READER.1.to_owned()),
                    ..default.clone()
                },
            )?;
            let distrustful = of(
                "distrustful",
                GanetiSetup {
                    trusts_another: true,
                    ..default.clone()
                },
            )?;
            let nobody = of(
                "nobody",
                GanetiSetup {
                    address: "198.51.100.1:5099".to_owned(),
                    ..default
                },
            )?;
            let run = ["run", "reboot", "--nodes", "node2"];
            // Who may read sees what there is, and begins nothing.
            reader.call(&["observe"])?.expect(0)?;
            reader.call(&["plan", "reboot", "--nodes", "node2"])?.expect(0)?;
            for (machine, code, said) in [
                (&forgetful, 2, ["401", "password_file"]),
                (&reader, 2, ["403", "write"]),
                (&distrustful, 4, ["certificate", "ca"]),
                (&nobody, 4, ["cannot be reached", "5099"]),
            ] {
                machine.call(&run)?.expect(code)?.expect_said(&said)?;
            }
            phases.lap("four of no use");
            cluster.ensure_rebooted(&before, &[])
        },
    )
}

/// `gnt-cluster upgrade` drains the queue while it brings the cluster to another release, and admins do it by hand.
#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn a_queue_that_is_drained() -> Result<()> {
    case(2, "a_queue_that_is_drained", drained)
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn a_queue_that_is_drained_on_ganeti_3_1() -> Result<()> {
    case_of(Release::V3_1, 2, "a_queue_that_is_drained_on_ganeti_3_1", drained)
}

fn drained(cluster: &Cluster, phases: &mut Phases) -> Result<()> {
    cluster.make(&[Made::mirrored("mail", "node1", "node2")])?;
    let before = cluster.state()?;
    let machine = Machine::new(cluster, "anna", &GanetiSetup::default())?;
    let reboot = ["run", "reboot", "--nodes", "node2"];
    let drain = ["gnt-cluster", "queue", "drain"];
    cluster.gnt(&drain)?;
    let refused = machine.call(&reboot)?.expect(1)?;
    refused.expect_said(&["not started", "Queue drained", "`gnt-cluster upgrade`"])?;
    cluster.gnt(&["gnt-cluster", "queue", "undrain"])?;
    cluster.ensure_rebooted(&before, &[])?;
    phases.lap("with a drained queue nothing begins");

    let run = machine.start(&reboot)?;
    machine.stop_when(&run, "node2 down", LIMIT, |journal| {
        let down = journal.in_phase("change");
        Ok(down.iter().any(|(node, _)| node == "node2") && !cluster.is_up("node2"))
    })?;
    cluster.gnt(&drain)?;
    run.signal("CONT")?;
    let log = cluster.dir().join("node1/var/log/ganeti/luxi-daemon.log");
    let refused = || Ok::<_, anyhow::Error>(fs::read_to_string(&log)?.matches("Queue drained").count());
    let so_far = refused()?;
    cluster.wait_for("three more jobs that the queue did not take", LIMIT, |_| {
        Ok(refused()? >= so_far + 3)
    })?;
    phases.lap("drained in mid-wave");
    cluster.gnt(&["gnt-cluster", "queue", "undrain"])?;
    let ended = run.end(LIMIT)?.expect(0);
    say(&ended.with_context(|| machine.history_tail(40))?.said);
    phases.lap("it went on by itself");
    cluster.ensure_rebooted(&before, &["node2"])
}
