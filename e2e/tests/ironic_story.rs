//! One story for every change: a real Ironic from 26.1 to 29.0 and on to 32.0 under load, `stagger` killed on each way.
//! No acknowledged write is lost, and no request fails but by Ironic's own defect.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use stagger_e2e::case::{Phases, ironic_loaded, on_ironic};
use stagger_e2e::command::say;
use stagger_e2e::ironic::{Cluster, IronicSpec, Release, Report};
use stagger_e2e::stagger::{Doors, Ended, IronicSetup, Machine, Planted, says};

/// Mistakes in the configuration.
const PLANTED: &[Planted<'_>] = &[
    Planted {
        good: "database = \"",
        bad: "databse = \"",
        says: "did you mean `database`?",
    },
    Planted {
        good: " install {release}",
        bad: " install {relaese}",
        says: "did you mean {release}?",
    },
    Planted {
        good: "endpoint = \"http://127.0.0.1:",
        bad: "endpoint = \"http://127.0.0.1:1",
        says: "conductors",
    },
    Planted {
        good: "ours = \"mysql://",
        bad: "ours = \"mysql://x",
        says: "our own database",
    },
    Planted {
        good: "ours = \"mysql://stagger:",
        bad: "ours = \"mysql://reader:",
        says: "INSERT command denied",
    },
    Planted {
        good: "show = \"",
        bad: "show = \"no-such-program ",
        says: "there is no program no-such-program",
    },
    Planted {
        good: "start = \"",
        bad: "start = \"echo 'open; ",
        says: "its shell cannot read",
    },
    Planted {
        good: "install = \"",
        bad: "versions = \"echo 26.1.6\"\ninstall = \"",
        says: "its repositories do not have 29.0.6",
    },
    Planted {
        good: "stop = \"",
        bad: "# stop = \"",
        says: "command-missing",
    },
    Planted {
        good: "installed = \"26.1.6\"",
        bad: "installed = \"25.0.0\"",
        says: "25.0.0",
    },
];
const LIMIT: Duration = Duration::from_mins(6);

#[test]
#[ignore = "needs root and Ironic; cargo xtask test runs it"]
fn from_26_to_29_and_on_to_32_under_load_while_stagger_is_killed() -> Result<()> {
    let spec = IronicSpec {
        release: Release::Dalmatian,
        ..IronicSpec::default()
    };
    on_ironic("ironic_story", spec, |cluster, phases| {
        let before = cluster.servers()?;
        let mut second = SystemTime::now();
        let report = ironic_loaded(cluster, phases, |_, phases| {
            first_way(cluster, phases)?;
            second = SystemTime::now();
            second_way(cluster, phases)
        })?;
        whose_failures(cluster, &report, second)?;
        cluster.ensure_upgraded(Release::Flamingo)?;
        cluster.ensure_let_go()?;
        let after = cluster.servers()?;
        ensure!(
            after == before,
            "the balancer had {before:?}, and now has {after:?}"
        );
        phases.lap("all is as it should be");
        Ok(())
    })
}

/// Doors as said, and a lock that is soon free again.
fn machine(cluster: &Cluster, doors: Doors) -> Result<Machine> {
    let setup = IronicSetup {
        doors,
        lock_expires: 10,
        ..IronicSetup::default()
    };
    Machine::new(cluster, "anna", &setup)
}

/// From 26.1 to 29.0 by a person's word, and killed with a conductor drained, stopping or starting.
fn first_way(cluster: &Cluster, phases: &mut Phases) -> Result<()> {
    let machine = machine(cluster, Doors::Ask)?;
    say(machine.call(&["versions"])?.expect(0)?.out);
    say(machine
        .call(&["plan", "upgrade", "--to", "29.0.6"])?
        .expect(0)?
        .out);
    phases.lap("planned");
    machine.plans_from_an_inventory(&["upgrade", "--to", "29.0.6"], "conductors")?;
    machine.finds_planted(&["--to", "29.0.6"], PLANTED)?;
    phases.lap("mistakes in the configuration");
    let told = || machine.history_tail(40);

    at_the_door(
        &machine,
        machine.start(&["run", "upgrade", "--to", "29.0.6"])?.end(LIMIT)?,
        "schema",
    )
    .with_context(told)?;
    phases.lap("before the schema");
    machine.call(&["approve", "schema"])?.expect(0)?;
    let mut run = machine.start(&["resume"])?;
    machine.stop_when(&run, "a conductor's change", LIMIT, |journal| {
        Ok(journal.stage() == Some("conductors") && !journal.in_phase("change").is_empty())
    })?;
    run.kill()?;
    let servers = cluster.servers()?;
    ensure!(
        servers.values().any(|status| status != "UP"),
        "nothing is drained: {servers:?}"
    );
    phases.lap("schema, pins; killed in a conductor's change");
    let mut run = machine.start(&["resume"])?;
    run.until("the lease", LIMIT, |line| says(line, "lease", "token"))?;
    phases.lap("resumed");
    at_the_door(&machine, run.end(LIMIT)?, "unpin").with_context(told)?;
    cluster.ensure_runs(Release::Epoxy, Some(Release::Dalmatian))?;
    phases.lap("all services of 29.0.6, held to 26.1");
    machine.call(&["approve", "unpin"])?.expect(0)?;
    let ended = machine.resume_to_the_end(LIMIT)?.expect(0).with_context(told)?;
    say(&ended.said);
    machine.journal()?.both_judges_agreed()?;
    cluster.ensure_upgraded(Release::Epoxy)?;
    phases.lap("29.0.6 to its end");
    Ok(())
}

/// From 29.0 to 32.0 by itself, and killed while rows are migrated.
fn second_way(cluster: &Cluster, phases: &mut Phases) -> Result<()> {
    let machine = machine(cluster, Doors::AutoAfter(1))?;
    let told = || machine.history_tail(40);
    let mut run = machine.start(&["run", "upgrade", "--to", "32.0.1"])?;
    machine.stop_when(&run, "the migration", LIMIT, |journal| {
        Ok(journal.in_step("migrate"))
    })?;
    run.kill()?;
    phases.lap("32.0.1 but for its rows; killed while they are migrated");
    let ended = machine.resume_to_the_end(LIMIT)?.expect(0).with_context(told)?;
    say(&ended.said);
    machine.journal()?.both_judges_agreed()?;
    say(machine.call(&["versions"])?.expect(0)?.out);
    phases.lap("32.0.1 to its end");
    Ok(())
}

/// The run holds at that door, and says how it is passed.
fn at_the_door(machine: &Machine, ended: Ended, door: &str) -> Result<()> {
    let ended = ended.expect(3)?;
    say(&ended.said);
    ended.expect_said(&["NEEDS YOU", door, "approve"])?;
    let held = machine.journal()?.held();
    ensure!(held.last().is_some_and(|slug| slug == "one-way-door"), "{held:?}");
    Ok(())
}

/// None is ours, and Ironic's own are those that are known between 29.0 and 32.0: after that moment.
fn whose_failures(cluster: &Cluster, report: &Report, second: SystemTime) -> Result<()> {
    let log = cluster.log()?;
    let judged = report.judge(&log);
    say(format!(
        "{} requests, Ironic's own failures: {:?}",
        report.requests(),
        judged.defects()
    ));
    judged.ensure_only(&["D1"])?;
    let second = second.duration_since(UNIX_EPOCH)?.as_secs_f64();
    let before = judged.of_ironic.iter().find(|(failure, _)| failure.at < second);
    ensure!(before.is_none(), "on the first way: {before:?}");
    Ok(())
}
