//! Going back by a person's word.

use anyhow::{Result, ensure};
use stagger_e2e::ironic::Release;
use stagger_e2e::stagger::{Doors, IronicSetup, Machine};

use super::{loaded, resume, run};

/// Up to the unpin every service can go back to the old code, which works on the new schema; API services first, as an
/// API asks no conductor that is older than itself.
#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn back_from_the_door_of_the_unpin_and_forth_again() -> Result<()> {
    let name = "back_from_the_door_of_the_unpin_and_forth_again";
    loaded(name, Release::Dalmatian, &[], |cluster, phases| {
        let setup = IronicSetup {
            doors: Doors::Ask,
            ..IronicSetup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        run(&machine, Release::Epoxy, 3)?;
        machine.call(&["approve", "schema"])?.expect(0)?;
        resume(&machine, 3)?;
        cluster.ensure_runs(Release::Epoxy, Some(Release::Dalmatian))?;
        phases.lap("at the door of the unpin");

        // Nothing carries the run out: rollback does it itself.
        machine.call(&["rollback"])?.expect(1)?;
        let journal = machine.journal()?;
        let back: Vec<String> = journal
            .actions("go-back")
            .into_iter()
            .map(|(unit, _)| unit)
            .collect();
        ensure!(
            back.len() == 4 && back[..2].iter().all(|unit| unit.starts_with("api.")),
            "{back:?} went back, in that order"
        );
        cluster.ensure_runs(Release::Dalmatian, Some(Release::Dalmatian))?;
        cluster.ensure_let_go()?;
        phases.lap("all of them are on the old code");

        let setup = IronicSetup {
            doors: Doors::AutoAfter(1),
            ..setup
        };
        machine.configure(cluster, &setup)?;
        run(&machine, Release::Epoxy, 0)?;
        phases.lap("and forth again");
        cluster.ensure_upgraded(Release::Epoxy)
    })
}
