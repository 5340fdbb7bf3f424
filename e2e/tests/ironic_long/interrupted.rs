//! SIGKILL to `stagger` in each phase; a database that goes away; a run that a person ends.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use stagger_e2e::case::ironic_loaded;
use stagger_e2e::ironic::{Cluster, Release};
use stagger_e2e::stagger::{IronicSetup, Journal, Machine, says};

use super::{LIMIT, case, hasty, loaded, resume, run};

/// A moment: what it is called, and whether it is now.
type Moment = (&'static str, fn(&Journal) -> bool);

const MOMENTS: [Moment; 7] = [
    ("the schema upgrade", |journal| journal.in_step("schema")),
    ("the writing of the pins", |journal| journal.in_step("pin")),
    ("a conductor's change", |journal| changes(journal, "conductors")),
    ("an API's change", |journal| changes(journal, "apis")),
    ("a conductor's unpin", |journal| {
        changes(journal, "unpin-conductors")
    }),
    ("an API's unpin", |journal| changes(journal, "unpin-apis")),
    ("the migration of rows", |journal| journal.in_step("migrate")),
];

fn changes(journal: &Journal, stage: &str) -> bool {
    journal.stage() == Some(stage) && !journal.in_phase("change").is_empty()
}

#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn killed_in_each_phase_of_an_upgrade() -> Result<()> {
    let name = "killed_in_each_phase_of_an_upgrade";
    loaded(name, Release::Epoxy, &["D1"], |cluster, phases| {
        let machine = Machine::new(cluster, "anna", &hasty())?;
        let mut going = machine.start(&["run", "upgrade", "--to", "32.0.1"])?;
        for (what, is_now) in MOMENTS {
            machine.stop_when(&going, what, LIMIT, |journal| Ok(is_now(journal)))?;
            going.kill()?;
            phases.lap(format!("killed at {what}"));
            going = machine.start(&["resume"])?;
            going.until("the lease", LIMIT, |line| says(line, "lease", "token"))?;
            phases.lap("another goes on");
        }
        going.end(LIMIT)?.expect(0)?;
        phases.lap("to the end");
        machine.journal()?.both_judges_agreed()?;
        cluster.ensure_upgraded(Release::Flamingo)
    })
}

/// `online_data_migrations` ends then with the code by which it says that there is more to do.
#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn the_database_goes_away_in_the_midst_of_the_migration() -> Result<()> {
    let name = "the_database_goes_away_in_the_midst_of_the_migration";
    case(name, Release::Epoxy, |cluster, phases| {
        ironic_loaded(cluster, phases, |_, _| {
            thread::sleep(Duration::from_secs(15));
            Ok(())
        })?;
        let before = content(cluster)?;
        let setup = IronicSetup {
            batch: 5,
            lock_expires: 60,
            ..IronicSetup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let going = machine.start(&["run", "upgrade", "--to", "32.0.1"])?;
        machine.stop_when(&going, "the migration", LIMIT, |journal| {
            Ok(journal.in_step("migrate"))
        })?;
        let left = |cluster: &Cluster| {
            let old = Some("1.11".to_owned());
            Ok::<_, anyhow::Error>(cluster.row_versions("ports")?.get(&old).copied().unwrap_or(0))
        };
        let all = left(cluster)?;
        ensure!(all > 10, "only {all} ports are to be migrated");
        going.signal("CONT")?;
        cluster.wait_for("the first rows are migrated", LIMIT, |cluster| {
            Ok(left(cluster)? < all)
        })?;
        cluster.database("stop")?;
        phases.lap("the database is away, with some rows migrated");
        thread::sleep(Duration::from_secs(12));
        cluster.database("start")?;
        phases.lap("and there again");
        ensure!(left(cluster)? > 0, "all rows were migrated before");
        let ended = going.end(LIMIT)?;
        let ended = if ended.code == Some(0) {
            ended
        } else {
            resume(&machine, 0)?
        };
        stagger_e2e::command::say(&ended.said);
        phases.lap("to the end");
        cluster.ensure_upgraded(Release::Flamingo)?;
        cluster.ensure_let_go()?;
        let after = content(cluster)?;
        ensure!(before == after, "rows were\n{before:#?}\nand are\n{after:#?}");
        Ok(())
    })
}

/// What users have in the tables.
fn content(cluster: &Cluster) -> Result<Vec<String>> {
    let nodes = cluster
        .sql("select uuid, name, extra, provision_state, power_state, driver from nodes order by uuid")?;
    let ports = cluster.sql("select uuid, address, extra from ports order by uuid")?;
    ensure!(!nodes.is_empty() && !ports.is_empty());
    Ok([nodes, ports].concat())
}

#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn aborted_after_a_kill_with_a_conductor_drained() -> Result<()> {
    let name = "aborted_after_a_kill_with_a_conductor_drained";
    loaded(name, Release::Dalmatian, &[], |cluster, phases| {
        let before = cluster.servers()?;
        let machine = Machine::new(cluster, "anna", &hasty())?;
        let mut going = machine.start(&["run", "upgrade", "--to", "29.0.6"])?;
        machine.stop_when(&going, "a conductor's change", LIMIT, |journal| {
            Ok(changes(journal, "conductors"))
        })?;
        going.kill()?;
        let drained = cluster.servers()?;
        ensure!(drained != before, "nothing is drained: {drained:?}");
        phases.lap("killed in a conductor's change");
        let ended = machine.call(&["abort"])?.expect(1)?;
        ended.expect_said(&["abort"])?;
        let after = cluster.servers()?;
        ensure!(after == before, "the balancer has {after:?}");
        cluster.ensure_let_go()?;
        let changed = cluster.spec().services().filter(|service| {
            cluster
                .runs(*service)
                .is_ok_and(|(release, _)| release == "29.0.6")
        });
        ensure!(changed.count() == 1, "not one service was changed");
        phases.lap("aborted: what was drained is given back, and one conductor is on the new code");
        // The next begins where that one ended.
        run(&machine, Release::Epoxy, 0)?;
        phases.lap("a second run, to the end");
        cluster.ensure_upgraded(Release::Epoxy)
    })
}
