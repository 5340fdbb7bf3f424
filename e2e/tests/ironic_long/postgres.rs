//! An Ironic whose tables are in PostgreSQL, and ours beside them.

use anyhow::Result;
use stagger_e2e::ironic::{Database, IronicSpec, Release};
use stagger_e2e::stagger::{IronicSetup, Machine};

use super::{loaded_on, run};

#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn from_29_to_32_on_postgresql() -> Result<()> {
    let spec = IronicSpec {
        release: Release::Epoxy,
        database: Database::Postgres,
        ..IronicSpec::default()
    };
    loaded_on("from_29_to_32_on_postgresql", spec, &["D1"], |cluster, phases| {
        let machine = Machine::new(cluster, "anna", &IronicSetup::default())?;
        run(&machine, Release::Flamingo, 0)?;
        phases.lap("from 29.0.6 to 32.0.1");
        machine.journal()?.both_judges_agreed()?;
        cluster.ensure_upgraded(Release::Flamingo)
    })
}
