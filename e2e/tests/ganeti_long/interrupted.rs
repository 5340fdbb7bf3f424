//! SIGKILL to `stagger` at several kinds of moments.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use stagger_e2e::command::say;
use stagger_e2e::ganeti::{Cluster, Made};
use stagger_e2e::stagger::{GanetiSetup, Journal, Machine, is_failing_over, says};

use super::{LIMIT, case};

/// A moment: what it is called, and whether it is now.
type Moment = (&'static str, fn(&Cluster, &Journal) -> Result<bool>);

const MOMENTS: [Moment; 3] = [
    ("an instance that migrates", migrates),
    ("a node that is down", is_down),
    ("disks that are copied", is_copied),
];

fn migrates(cluster: &Cluster, journal: &Journal) -> Result<bool> {
    let entering = journal.in_phase("enter");
    if entering.is_empty() {
        return Ok(false);
    }
    Ok(cluster
        .jobs()?
        .iter()
        .any(|job| job.is_at_work() && job.what().starts_with("migrate-")))
}

#[expect(clippy::unnecessary_wraps, reason = "as every moment of the table")]
fn is_down(cluster: &Cluster, journal: &Journal) -> Result<bool> {
    Ok(journal
        .in_phase("change")
        .iter()
        .any(|(node, _)| !cluster.is_up(node)))
}

/// After the disks of a visit were made active, and before anything came back by it.
fn is_copied(cluster: &Cluster, journal: &Journal) -> Result<bool> {
    let leaving = journal.in_phase("leave");
    if leaving.is_empty() {
        return Ok(false);
    }
    let jobs = cluster.jobs()?;
    Ok(leaving.iter().any(|(_, key)| {
        let of_it = |begins: &str| {
            jobs.iter().any(|job| {
                job.ours.as_ref().is_some_and(|(of, _)| of.starts_with(key))
                    && job.status == "success"
                    && job.what().starts_with(begins)
            })
        };
        of_it("activate-disks-") && !of_it("migrate-")
    }))
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn killed_while_instances_migrate_nodes_are_down_and_disks_are_copied() -> Result<()> {
    let name = "killed_while_instances_migrate_nodes_are_down_and_disks_are_copied";
    case(3, name, |cluster, phases| {
        cluster.make(&[
            Made::mirrored("mail", "node2", "node3"),
            Made::mirrored("web", "node3", "node2"),
            Made::on("wiki", "sharedfile", "node2"),
        ])?;
        // A reboot leaves 20 MiB to be copied.
        cluster.set_sync_rate(2)?;
        let before = cluster.state()?;
        phases.lap("instances made");
        let setup = GanetiSetup {
            failover_timeout: 5,
            lock_expires: 20,
            ..GanetiSetup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let mut run = machine.start(&["run", "reboot", "-O", "node1"])?;
        for (what, is_now) in MOMENTS {
            machine.stop_when(&run, what, LIMIT, |journal| is_now(cluster, journal))?;
            run.kill()?;
            phases.lap(format!("killed at {what}"));
            run = machine.start(&["resume"])?;
            run.until("the lease", LIMIT, |line| says(line, "lease", "token"))?;
            phases.lap("another goes on");
        }
        let ended = run
            .end(LIMIT)?
            .expect(0)
            .with_context(|| machine.history_tail(40))?;
        say(&ended.said);
        phases.lap("to the end");
        cluster.ensure_rebooted(&before, &["node2", "node3"])?;
        machine.journal()?.both_judges_agreed()
    })
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn killed_while_the_master_changes() -> Result<()> {
    case(3, "killed_while_the_master_changes", |cluster, phases| {
        cluster.make(&[
            Made::mirrored("mail", "node1", "node2"),
            Made::on("wiki", "sharedfile", "node1"),
        ])?;
        let before = cluster.state()?;
        phases.lap("instances made");
        let setup = GanetiSetup {
            failover: true,
            successor: Some("node3"),
            ..GanetiSetup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let mut run = machine.start(&["run", "reboot", "--nodes", "node1"])?;
        machine.stop_when(&run, "the change of the master", LIMIT, |_| {
            Ok(is_failing_over(cluster))
        })?;
        run.kill()?;
        phases.lap("killed while the master changes");
        let whole = GanetiSetup {
            successor: Some("node3"),
            ..GanetiSetup::with_failover()
        };
        machine.configure(cluster, &whole)?;
        let ended = machine.resume_to_the_end(LIMIT)?.expect(0);
        ended.with_context(|| machine.history_tail(40))?;
        phases.lap("resumed to the end");
        ensure!(
            cluster.master()? == "node3",
            "the master is {}",
            cluster.master()?
        );
        cluster.ensure_rebooted(&before, &["node1"])
    })
}

/// Ganeti has no job filter that ends by itself, nor is there anybody left who would take it away.
#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn guards_go_at_their_expiry_though_nobody_resumes() -> Result<()> {
    let name = "guards_go_at_their_expiry_though_nobody_resumes";
    case(3, name, |cluster, phases| {
        cluster.make(&[Made::mirrored("mail", "node2", "node3")])?;
        let before = cluster.state()?;
        phases.lap("instance made");
        let setup = GanetiSetup {
            watcher: true,
            guards_expire: 40,
            ..GanetiSetup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let mut run = machine.start(&["run", "reboot", "--nodes", "node2"])?;
        machine.stop_when(&run, "a node that is down", LIMIT, |journal| {
            is_down(cluster, journal)
        })?;
        let job = cluster.submit("PUT", "/2/instances/mail/activate-disks", None)?;
        run.kill()?;
        let held = machine.call(&["ganeti", "guards"])?.expect(0)?;
        ensure!(
            held.out.contains("drain, run") && held.out.contains("watcher-pause, run"),
            "{}",
            held.out
        );
        phases.lap("killed with a node down, guards are held");

        let limit = Duration::from_mins(2);
        let done = cluster.ended(job, limit)?;
        ensure!(done["status"] == "success", "{done}");
        phases.lap("a job of others ran when the drain had gone by itself");
        cluster.wait_for("no guard is held", limit, |_| {
            Ok(machine.json(&["ganeti", "guards"])?["guards"] == serde_json::json!([]))
        })?;
        phases.lap("no guard is held");

        let ended = machine.resume_to_the_end(LIMIT)?.expect(0);
        ended.with_context(|| machine.history_tail(40))?;
        cluster.ensure_rebooted(&before, &["node2"])
    })
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn aborted_after_a_kill_it_gives_everything_back() -> Result<()> {
    case(
        3,
        "aborted_after_a_kill_it_gives_everything_back",
        |cluster, phases| {
            // Two waves, since its two nodes do not go together.
            cluster.make(&[Made::mirrored("mail", "node2", "node3")])?;
            let before = cluster.state()?;
            phases.lap("instance made");
            let setup = GanetiSetup {
                watcher: true,
                failover_timeout: 5,
                lock_expires: 20,
                ..GanetiSetup::default()
            };
            let machine = Machine::new(cluster, "anna", &setup)?;
            let mut run = machine.start(&["run", "reboot", "-O", "node1"])?;
            let seen = machine.stop_when(&run, "a node that is down", LIMIT, |journal| {
                is_down(cluster, journal)
            })?;
            run.kill()?;
            let visited = seen.in_phase("change");
            let [(first, _)] = &visited[..] else {
                anyhow::bail!("in their reboot are {visited:?}");
            };
            phases.lap(format!("killed with {first} down"));
            // Nobody carries the run out: abort does it itself.
            let ended = machine.call(&["abort"])?.expect(1);
            let ended = ended.with_context(|| machine.history_tail(40))?;
            say(&ended.said);
            phases.lap("aborted");
            cluster.ensure_rebooted(&before, &[first])?;
            let guards = machine.call(&["ganeti", "guards"])?.expect(0)?;
            ensure!(guards.out.contains("No guard is held"), "{}", guards.out);
            Ok(())
        },
    )
}

/// The machine that carried the run out is lost with its journal: what the cluster itself says is enough.
#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn recovered_after_a_kill_without_the_journal() -> Result<()> {
    case(
        3,
        "recovered_after_a_kill_without_the_journal",
        |cluster, phases| {
            cluster.make(&[
                Made::mirrored("mail", "node2", "node3"),
                Made::mirrored("web", "node3", "node2"),
                Made::on("wiki", "sharedfile", "node2"),
            ])?;
            let before = cluster.state()?;
            phases.lap("instances made");
            let setup = GanetiSetup {
                watcher: true,
                // A process that is killed on its own machine is followed at once, however long its lock lasts.
                failover_timeout: 60,
                lock_expires: 150,
                ..GanetiSetup::default()
            };
            let machine = Machine::new(cluster, "anna", &setup)?;
            let mut run = machine.start(&["run", "reboot", "-O", "node1"])?;
            let seen = machine.stop_when(&run, "a node that is down", LIMIT, |journal| {
                is_down(cluster, journal)
            })?;
            run.kill()?;
            let visited = seen.in_phase("change");
            let [(first, _)] = &visited[..] else {
                anyhow::bail!("in their reboot are {visited:?}");
            };
            std::fs::remove_dir_all(machine.state()).context("losing the journal")?;
            phases.lap(format!("killed with {first} down, and its journal is lost"));
            let left = machine.call(&["ganeti", "recover", "--dry-run"])?.expect(1)?;
            say(&left.out);
            ensure!(
                left.out.contains(&format!("{first}  drained, held by run"))
                    && left.out.contains("guard drain"),
                "{}",
                left.out
            );
            cluster.wait_for("the node is back", LIMIT, |cluster| Ok(cluster.is_up(first)))?;
            // Ganeti's daemon there may take a moment to answer.
            cluster.wait_for("all of it is given back", LIMIT, |_| {
                let ended = machine.start(&["ganeti", "recover", "--yes"])?.end(LIMIT)?;
                say(&ended.said);
                Ok(ended.code == Some(0))
            })?;
            phases.lap("recovered");
            cluster.ensure_rebooted(&before, &[first])?;
            machine.call(&["ganeti", "recover", "--dry-run"])?.expect(0)?;
            // And another run has all nodes to itself.
            let before = cluster.state()?;
            let ended = machine
                .start(&["run", "reboot", "-O", "node1"])?
                .end(LIMIT)?
                .expect(0);
            ended.with_context(|| machine.history_tail(40))?;
            cluster.ensure_rebooted(&before, &["node2", "node3"])
        },
    )
}
