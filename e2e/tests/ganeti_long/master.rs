//! `stagger` on the very node that is the master.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use stagger_e2e::command::say;
use stagger_e2e::ganeti::Made;
use stagger_e2e::stagger::{GanetiSetup, Machine};

use super::server::Server;
use super::{LIMIT, case, ensure_none_powercycled};

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
            left.expect_said(&["continues on", &master])?;
            phases.lap(format!("it went on to {master}"));

            let refused = first.call(&["resume"])?;
            say(format!("{:?}: {}", refused.code, refused.said));
            ensure!(
                refused.code != Some(0),
                "the journal that stayed behind was taken up"
            );
            refused.expect_said(&["handed over", &master])?;
            phases.lap("the journal that stayed behind is refused");

            // What the timer starts on every node that may be master: only one of them carries the run on.
            let (there, other) = if master == "node2" {
                (&others[0], &others[1])
            } else {
                (&others[1], &others[0])
            };
            for idle in [&first, other] {
                let ended = idle.call(&["ganeti", "resume"])?.expect(0)?;
                ensure!(
                    ended.said.trim().is_empty() && ended.out.trim().is_empty(),
                    "{ended:?}"
                );
            }
            phases.lap("the units on the others do nothing");
            let mut ended = there.start(&["ganeti", "resume"])?.end(LIMIT)?;
            // RAPI is away for a while, and the timer tries again.
            while ended.code == Some(4) {
                thread::sleep(Duration::from_secs(2));
                ended = there.start(&["ganeti", "resume"])?.end(LIMIT)?;
            }
            let ended = ended.expect(0).with_context(|| there.history_tail(40))?;
            say(&ended.said);
            phases.lap("the unit on the successor went on to the end");
            cluster.ensure_rebooted(&before, &["node1"])?;
            ensure_none_powercycled(cluster)?;
            for machine in [&first, &others[0], &others[1]] {
                machine.call(&["ganeti", "resume"])?.expect(0)?;
            }
            phases.lap("and when it is over none of them does anything");
            cluster.ensure_rebooted(&before, &["node1"])
        },
    )
}

/// The machine is gone, and with it whoever carried the run out. The journal is in a database that outlives it.
#[test]
#[ignore = "long; needs root, Ganeti and PostgreSQL; cargo xtask test --long runs it"]
fn a_master_that_dies_in_mid_wave_is_followed_by_the_unit_on_the_next() -> Result<()> {
    let name = "a_master_that_dies_in_mid_wave_is_followed_by_the_unit_on_the_next";
    case(3, name, |cluster, phases| {
        // It moves to what will be the master: on node1 it would die with it.
        cluster.make(&[Made::mirrored("mail", "node3", "node2")])?;
        let before = cluster.state()?;
        phases.lap("instance made");
        let database = Server::within(cluster.dir(), &["fsync=off"]);
        let machine = |node: &str| {
            let setup = GanetiSetup {
                on: Some(node.to_owned()),
                store: Some(database.url("postgres")),
                failover_timeout: 45,
                lock_expires: 100,
                ..GanetiSetup::with_failover()
            };
            Machine::new(cluster, node, &setup)
        };
        let (first, next, idle) = (machine("node1")?, machine("node2")?, machine("node3")?);
        cluster.wait_for("the database takes a store", LIMIT, |_| {
            Ok(first.call(&["db", "upgrade"])?.code == Some(0))
        })?;
        let run = first.start(&["run", "reboot", "--nodes", "node3"])?;
        first.stop_when(&run, "node3 down", LIMIT, |journal| {
            let down = journal.in_phase("change");
            Ok(down.iter().any(|(node, _)| node == "node3") && !cluster.is_up("node3"))
        })?;
        cluster.crash("node1")?;
        phases.lap("the master is gone, with node3 down");
        // Most nodes have to answer before another is the master.
        cluster.wait_for("node2 is the master", LIMIT, |cluster| {
            Ok(cluster.on("node2", &["gnt-cluster", "master-failover"]).is_ok())
        })?;
        phases.lap("an admin has made node2 the master");
        cluster.wait_for("RAPI answers there", LIMIT, |_| {
            Ok(next.call(&["ganeti", "guards"])?.code == Some(0))
        })?;
        idle.call(&["ganeti", "resume"])?.expect(0)?;
        // It does nothing until whoever had the run has been silent for long enough, and the timer starts it again.
        let begun = Instant::now();
        let unit = loop {
            let mut unit = next.start(&["ganeti", "resume"])?;
            match unit.until("the lease", LIMIT, |line| line.contains("lease")) {
                Ok(_) => break unit,
                Err(error) => ensure!(begun.elapsed() < LIMIT, "{error:#}"),
            }
            thread::sleep(Duration::from_secs(2));
        };
        phases.lap("the unit on the next master goes on");
        // While a node is dead no wave passes: that is a person's.
        cluster.start("node1")?;
        let ended = unit.end(LIMIT)?.expect(0);
        let ended = ended.with_context(|| next.history_tail(40))?;
        say(&ended.said);
        phases.lap("to the end");
        ensure_none_powercycled(cluster)?;
        cluster.ensure_rebooted(&before, &["node1", "node3"])
    })
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
                drain_scope: "cluster",
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
