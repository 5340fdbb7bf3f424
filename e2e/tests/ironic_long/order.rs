//! The wrong order, by hand.

use anyhow::{Result, ensure};
use stagger_e2e::command::say;
use stagger_e2e::ironic::{Release, Service};
use stagger_e2e::stagger::{Doors, IronicSetup, Machine};

use super::{LIMIT, case, resume, run};

/// Somebody unpins an API at the door of the unpin, with all conductors still pinned (D3): nothing goes on while it is so.
/// And who asks for the old release when all is done is refused.
#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn what_others_do_out_of_order_is_seen_and_nothing_goes_on() -> Result<()> {
    let name = "what_others_do_out_of_order_is_seen_and_nothing_goes_on";
    case(name, Release::Dalmatian, |cluster, phases| {
        let setup = IronicSetup {
            doors: Doors::Ask,
            gate_timeout: 10,
            ..IronicSetup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        run(&machine, Release::Epoxy, 3)?;
        machine.call(&["approve", "schema"])?.expect(0)?;
        resume(&machine, 3)?;
        cluster.ensure_runs(Release::Epoxy, Some(Release::Dalmatian))?;
        phases.lap("at the door of the unpin");

        let api = Service::Api1;
        cluster.service(api, "pin", &[])?;
        cluster.service(api, "restart", &[])?;
        let versions = machine.call(&["versions"])?.expect(0)?;
        say(&versions.out);
        ensure!(
            versions.out.contains("others have changed it"),
            "{}",
            versions.out
        );
        machine.call(&["approve", "unpin"])?.expect(0)?;
        let going = machine.start(&["resume"])?;
        machine.stop_when(&going, "a hold", LIMIT, |journal| {
            Ok(journal.held().last().is_some_and(|slug| slug == "gates-shut"))
        })?;
        let status = machine.call(&["status"])?;
        say(&status.out);
        ensure!(status.out.contains("others have changed it"), "{}", status.out);
        for conductor in [Service::Conductor1, Service::Conductor2] {
            let runs = cluster.runs(conductor)?;
            ensure!(runs == ("29.0.6".to_owned(), Some("26.1".to_owned())), "{runs:?}");
        }
        phases.lap("an API that others have unpinned is seen, and nothing goes on");

        cluster.service(api, "pin", &["26.1"])?;
        cluster.service(api, "restart", &[])?;
        going.signal("CONT")?;
        let ended = going.end(LIMIT)?;
        say(&ended.said);
        // With the lock lost, by being stopped for too long, another goes on.
        if ended.code != Some(0) {
            resume(&machine, 0)?;
        }
        phases.lap("put right, and to the end");
        cluster.ensure_upgraded(Release::Epoxy)?;

        // Whoever asks for the older release then is refused.
        let refused = machine.call(&["run", "upgrade", "--to", "26.1.6"])?.expect(1)?;
        refused.expect_said(&["upgrade-not-supported", "data is not converted back"])?;
        phases.lap("the way back is refused");
        Ok(())
    })
}
