//! What is done with instances while their nodes are away: each way that there is.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use stagger_e2e::ganeti::{Cluster, Made};
use stagger_e2e::stagger::{GanetiSetup, Machine};

use super::{case, ensure_none_powercycled, reboot};

/// What was done by jobs of `stagger` that begin so, in order.
fn done(cluster: &Cluster, begins: &str) -> Result<Vec<String>> {
    let jobs = cluster.jobs()?;
    let done = jobs.iter().filter(|job| job.status == "success");
    Ok(done
        .map(|job| job.what().to_owned())
        .filter(|what| what.starts_with(begins))
        .collect())
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn second_copies_leave_the_node_too() -> Result<()> {
    case(4, "second_copies_leave_the_node_too", |cluster, phases| {
        cluster.make(&[
            Made::mirrored("mail", "node2", "node3"),
            Made::mirrored("web", "node3", "node2"),
        ])?;
        let before = cluster.state()?;
        phases.lap("instances made");
        let machine = Machine::new(cluster, "anna", &GanetiSetup::default())?;
        let words = ["--nodes", "node2", "--full-evacuation", "--degraded-meanwhile"];
        reboot(&machine, &words, 0)?;
        phases.lap("rebooted");
        for name in ["mail", "web"] {
            let copies = done(cluster, &format!("copy-{name}-to-"))?;
            ensure!(
                copies.len() == 2 && copies[0] != copies[1] && copies[1] == format!("copy-{name}-to-node2"),
                "the second copy of {name} went: {copies:?}"
            );
        }
        let moves = done(cluster, "migrate-")?;
        ensure!(
            moves == ["migrate-mail-to-node3", "migrate-mail-to-node2"],
            "{moves:?}"
        );
        cluster.ensure_rebooted(&before, &["node2"])
    })
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn instances_on_shared_storage_in_three_ways() -> Result<()> {
    case(
        4,
        "instances_on_shared_storage_in_three_ways",
        |cluster, phases| {
            cluster.make(&[
                Made::on("wiki", "sharedfile", "node2"),
                Made::on("shop", "rbd", "node3"),
                Made::on("probe", "diskless", "node4"),
            ])?;
            phases.lap("instances made");
            let machine = Machine::new(cluster, "anna", &GanetiSetup::default())?;
            for way in ["one", "rolling", "sets"] {
                let before = cluster.state()?;
                reboot(&machine, &["--non-drbd", way, "-O", "node1"], 0)?;
                cluster.ensure_rebooted(&before, &["node2", "node3", "node4"])?;
                let waves = machine.journal()?.passed("reboot");
                let most = waves
                    .iter()
                    .map(|wave| wave.units.len())
                    .max()
                    .context("no wave")?;
                ensure!(way != "one" || most == 1, "{way}: {waves:?}");
                ensure!(way != "sets" || most > 1, "{way}: {waves:?}");
                phases.lap(format!("{way}: {} waves, {most} nodes at most", waves.len()));
            }
            Ok(())
        },
    )
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn what_is_on_one_node_only_is_moved_with_its_disks() -> Result<()> {
    case(
        3,
        "what_is_on_one_node_only_is_moved_with_its_disks",
        |cluster, phases| {
            cluster.make(&[Made::on("log", "plain", "node2")])?;
            let before = cluster.state()?;
            phases.lap("instance made");
            let setup = GanetiSetup::default();
            let machine = Machine::new(cluster, "anna", &setup)?;
            let words = ["--nodes", "node2", "--move-non-redundant"];
            let refused = reboot(&machine, &words, 2)?;
            refused.expect_said(&["relocate"])?;
            machine.configure(
                cluster,
                &GanetiSetup {
                    relocate: true,
                    ..setup
                },
            )?;
            reboot(&machine, &words, 0)?;
            phases.lap("rebooted");
            let jobs = cluster.jobs()?;
            let moves = jobs.iter().filter(|job| job.summary.starts_with("INSTANCE_MOVE"));
            ensure!(moves.count() == 2, "{jobs:?}");
            cluster.ensure_rebooted(&before, &["node2"])
        },
    )
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn a_hook_that_says_no_holds_its_node_back() -> Result<()> {
    case(3, "a_hook_that_says_no_holds_its_node_back", |cluster, phases| {
        cluster.make(&[Made::on("shop", "rbd", "node2")])?;
        let before = cluster.state()?;
        phases.lap("instance made");
        let told = cluster.dir().join("told");
        let blocked = cluster.dir().join("blocked");
        fs::write(&blocked, "node3\n").with_context(|| format!("writing {}", blocked.display()))?;
        let setup = GanetiSetup {
            hooks: [
                Some(format!(
                    "if grep -qx {{node}} {}; then echo its pool is not whole; exit 1; fi",
                    blocked.display()
                )),
                Some(format!("echo enter {{node}} >>{}", told.display())),
                Some(format!("echo leave {{node}} >>{}", told.display())),
            ],
            ..GanetiSetup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        // The pool is on the nodes' own disks.
        let pool = ["--local-storage", "rbd"];
        let ended = reboot(&machine, &[&["-O", "node1"], &pool[..]].concat(), 1)?;
        ended.expect_said(&["node3", "its pool is not whole"])?;
        ensure!(
            machine
                .journal()?
                .waves()
                .iter()
                .all(|wave| wave.units.len() == 1),
            "two nodes of the pool at once"
        );
        cluster.ensure_rebooted(&before, &["node2"])?;
        phases.lap("one node held back");
        fs::write(&blocked, "").with_context(|| format!("writing {}", blocked.display()))?;
        let before = cluster.state()?;
        reboot(&machine, &[&["--nodes", "node3"], &pool[..]].concat(), 0)?;
        cluster.ensure_rebooted(&before, &["node3"])?;
        phases.lap("then it went");
        let said = fs::read_to_string(&told).with_context(|| format!("reading {}", told.display()))?;
        ensure!(
            said == "enter node2\nleave node2\nenter node3\nleave node3\n",
            "the hooks were called so:\n{said}"
        );
        let journal = machine.journal()?;
        let asked = journal.waves();
        ensure!(
            asked
                .iter()
                .all(|wave| wave.judged == Some(("yes".to_owned(), "yes".to_owned()))),
            "the hook is the second judge: {asked:?}"
        );
        Ok(())
    })
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn without_barriers_a_node_joins_while_another_boots() -> Result<()> {
    case(
        5,
        "without_barriers_a_node_joins_while_another_boots",
        |cluster, phases| {
            // Of each pair one goes at a time, and one pair boots slowly.
            cluster.make(&[
                Made::mirrored("mail", "node2", "node3"),
                Made::mirrored("shop", "node4", "node5"),
            ])?;
            for slow in ["node4", "node5"] {
                cluster.set_boot_seconds(slow, 60)?;
            }
            let before = cluster.state()?;
            phases.lap("instances made");
            let machine = Machine::new(cluster, "anna", &GanetiSetup::default())?;
            reboot(&machine, &["--no-barriers", "-O", "node1"], 0)?;
            phases.lap("rebooted");
            cluster.ensure_rebooted(&before, &["node2", "node3", "node4", "node5"])?;
            let journal = machine.journal()?;
            let joined = journal.of("wave-joined").count();
            ensure!(joined > 0, "nobody joined: {:?}", journal.waves());
            phases.lap(format!("joined {joined} times"));
            Ok(())
        },
    )
}

/// Everything on the node is shut down for its reboot and started again; the reboot is a command, which ends as ssh does
/// when its connection is gone.
#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn as_if_all_were_down_and_by_a_command() -> Result<()> {
    case(3, "as_if_all_were_down_and_by_a_command", |cluster, phases| {
        cluster.make(&[
            Made::mirrored("mail", "node2", "node3"),
            Made::on("log", "plain", "node2"),
        ])?;
        let before = cluster.state()?;
        phases.lap("instances made");
        let setup = GanetiSetup {
            reboot: true,
            ..GanetiSetup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let words = ["--nodes", "node2", "--assume-down", "--accept-non-redundant"];
        reboot(&machine, &words, 0)?;
        phases.lap("rebooted");
        cluster.ensure_rebooted(&before, &["node2"])?;
        let (moved, mut stopped) = (done(cluster, "migrate-")?, done(cluster, "shutdown-")?);
        stopped.sort();
        ensure!(
            moved.is_empty() && stopped == ["shutdown-log", "shutdown-mail"],
            "{moved:?} {stopped:?}"
        );
        ensure_none_powercycled(cluster)
    })
}
