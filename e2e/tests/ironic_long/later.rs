//! Releases of which `stagger` has no table, by what their own code lists: named to named over one that is skipped, named to
//! intermediate, intermediate to named.

use anyhow::{Result, ensure};
use stagger_e2e::command::say;
use stagger_e2e::ironic::{IronicSpec, Release};
use stagger_e2e::stagger::{IronicSetup, Machine};

use super::{hasty, loaded_on, run};

/// From 29.0 over 32.0 to 35.0 (SLURP), on to 36.0, which forgets itself in its own list, and to 39.0.
#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn from_29_over_35_and_36_to_39() -> Result<()> {
    let spec = IronicSpec {
        release: Release::Epoxy,
        releases: &Release::LATER,
        ..IronicSpec::default()
    };
    loaded_on(
        "from_29_over_35_and_36_to_39",
        spec,
        &["D1"],
        |cluster, phases| {
            let machine = Machine::new(cluster, "anna", &IronicSetup { ..hasty() })?;
            let too_far = machine.call(&["plan", "upgrade", "--to", "39.0.0"])?.expect(1)?;
            ensure!(
                too_far
                    .said
                    .contains("named releases lie between; first to 2026.1"),
                "{}",
                too_far.said
            );
            let missing = machine.call(&["plan", "upgrade", "--to", "38.0.0"])?.expect(1)?;
            ensure!(
                missing.said.contains("no release '38.0.0' here"),
                "{}",
                missing.said
            );
            phases.lap("refused");
            for to in [Release::Gazpacho, Release::Intermediate, Release::Hibiscus] {
                run(&machine, to, 0)?;
                phases.lap(format!("on {to}"));
                cluster.ensure_upgraded(to)?;
            }
            let versions = machine.call(&["versions"])?.expect(0)?.out;
            say(&versions);
            ensure!(
                versions.contains("39.0.0") && versions.contains("1.115"),
                "{versions}"
            );
            Ok(())
        },
    )
}
