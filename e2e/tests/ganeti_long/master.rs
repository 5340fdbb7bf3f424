//! `stagger` on the very node that is the master.

use anyhow::{Context as _, Result, ensure};
use stagger_e2e::command::say;
use stagger_e2e::ganeti::Made;
use stagger_e2e::stagger::{GanetiSetup, Machine};

use super::{LIMIT, case};

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn on_the_master_it_goes_on_on_the_successor() -> Result<()> {
    case(
        3,
        "on_the_master_it_goes_on_on_the_successor",
        |cluster, phases| {
            cluster.make(&[
                Made::mirrored("mail", "node1", "node2"),
                Made::on("wiki", "sharedfile", "node1"),
            ])?;
            let before = cluster.state()?;
            phases.lap("instances made");
            let setup = |node: &str| GanetiSetup {
                on: Some(node.to_owned()),
                failover_timeout: 45,
                lock_expires: 100,
                ..GanetiSetup::with_failover()
            };
            let first = Machine::new(cluster, "node1", &setup("node1"))?;
            let others = [
                Machine::new(cluster, "node2", &setup("node2"))?,
                Machine::new(cluster, "node3", &setup("node3"))?,
            ];
            let left = first.start(&["run", "reboot", "--nodes", "node1"])?.end(LIMIT)?;
            say(&left.said);
            // The lock was lost, or the journal was moved on: not done, and no bug.
            ensure!(
                matches!(left.code, Some(1 | 3 | 4)),
                "it ended with {:?}:\n{}",
                left.code,
                first.history_tail(40)
            );
            let master = cluster.master()?;
            ensure!(master != "node1", "node1 is still the master");
            ensure!(
                cluster.reboots("node1")? == 0,
                "it rebooted the node that it runs on"
            );
            left.expect_said(&["goes on on", &master])?;
            phases.lap(format!("it went on to {master}"));

            let refused = first.call(&["resume"])?;
            say(format!("{:?}: {}", refused.code, refused.said));
            ensure!(
                refused.code != Some(0),
                "the journal that stayed behind was taken up"
            );
            refused.expect_said(&["handed over", &master])?;
            phases.lap("the journal that stayed behind is refused");

            let there = if master == "node2" { &others[0] } else { &others[1] };
            let ended = there.resume_to_the_end(LIMIT)?.expect(0);
            let ended = ended.with_context(|| there.history_tail(40))?;
            say(&ended.said);
            phases.lap("the successor went on to the end");
            cluster.ensure_rebooted(&before, &["node1"])
        },
    )
}

/// The successor was drained and down when the job was written, so Ganeti did not send it there.
#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn a_job_that_waits_outlives_the_change_of_the_master() -> Result<()> {
    case(
        3,
        "a_job_that_waits_outlives_the_change_of_the_master",
        |cluster, phases| {
            cluster.make(&[Made::on("wiki", "sharedfile", "node3")])?;
            let before = cluster.state()?;
            phases.lap("instance made");
            // The first wave is small, and the master's is the last.
            let setup = GanetiSetup {
                growth: true,
                ..GanetiSetup::with_failover()
            };
            let machine = Machine::new(cluster, "anna", &setup)?;
            let run = machine.start(&["run", "reboot", "--nodes", "node1,node2"])?;
            machine.stop_when(&run, "node2 down", LIMIT, |journal| {
                let down = journal.in_phase("change");
                Ok(down.iter().any(|(node, _)| node == "node2") && !cluster.is_up("node2"))
            })?;
            let job = cluster.submit("PUT", "/2/instances/wiki/tags?tag=theirs", None)?;
            run.signal("CONT")?;
            phases.lap("a job of others while node2 is down");
            let ended = run
                .end(LIMIT)?
                .expect(0)
                .with_context(|| machine.history_tail(40))?;
            say(&ended.said);
            ensure!(
                cluster.master()? == "node2",
                "the master is {}",
                cluster.master()?
            );
            phases.lap("rebooted");
            let job = cluster.ended(job, LIMIT)?;
            ensure!(job["status"] == "success", "{job}");
            cluster.ensure_rebooted(&before, &["node1", "node2"])
        },
    )
}
