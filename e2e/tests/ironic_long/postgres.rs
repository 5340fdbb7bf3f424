//! An Ironic whose tables are in PostgreSQL, and ours beside them.

use anyhow::Result;
use stagger_e2e::ironic::{Database, IronicSpec, Release};
use stagger_e2e::stagger::{IronicSetup, Machine};

use super::{loaded_on, run};

#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn from_26_to_29_and_on_to_32_on_postgresql() -> Result<()> {
    let name = "from_26_to_29_and_on_to_32_on_postgresql";
    let spec = IronicSpec {
        release: Release::Dalmatian,
        database: Database::Postgres,
        ..IronicSpec::default()
    };
    loaded_on(name, spec, &["D1"], |cluster, phases| {
        let machine = Machine::new(cluster, "anna", &IronicSetup::default())?;
        for to in [Release::Epoxy, Release::Flamingo] {
            run(&machine, to, 0)?;
            machine.journal()?.both_judges_agreed()?;
            phases.lap(format!("to {to}"));
        }
        cluster.ensure_upgraded(Release::Flamingo)
    })
}
