//! Conductors in two groups: one of each goes, both together.

use anyhow::{Result, ensure};
use stagger_e2e::ironic::{IronicSpec, Release};
use stagger_e2e::stagger::{IronicSetup, Journal, Machine, says};

use super::{LIMIT, loaded_on};

/// The units of the waves of a stage that passed.
fn waves(journal: &Journal, stage: &str) -> Vec<Vec<String>> {
    journal.passed(stage).into_iter().map(|wave| wave.units).collect()
}

/// Killed with a conductor of each group in its change, and once more in the unpin.
#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn one_conductor_of_each_group_goes_at_a_time() -> Result<()> {
    let spec = IronicSpec {
        release: Release::Dalmatian,
        has_groups: true,
        ..IronicSpec::default()
    };
    let name = "one_conductor_of_each_group_goes_at_a_time";
    loaded_on(name, spec, &[], |cluster, phases| {
        let setup = IronicSetup {
            max_in_parallel: "100%",
            lock_expires: 10,
            ..IronicSetup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let mut going = machine.start(&["run", "upgrade", "--to", "29.0.6"])?;
        for stage in ["conductors", "unpin-conductors"] {
            machine.stop_when(&going, stage, LIMIT, |journal| {
                Ok(journal.stage() == Some(stage) && journal.in_phase("change").len() == 2)
            })?;
            going.kill()?;
            phases.lap(format!("killed in {stage}"));
            going = machine.start(&["resume"])?;
            going.until("the lease", LIMIT, |line| says(line, "lease", "token"))?;
        }
        going.end(LIMIT)?.expect(0)?;
        phases.lap("to the end");
        let journal = machine.journal()?;
        journal.both_judges_agreed()?;
        let pairs = [["conductor.c1", "conductor.c3"], ["conductor.c2", "conductor.c4"]];
        for stage in ["conductors", "unpin-conductors"] {
            let waves = waves(&journal, stage);
            ensure!(waves == pairs, "{stage}: {waves:?}");
        }
        cluster.ensure_upgraded(Release::Epoxy)
    })
}
