//! Services that do not come back.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use stagger_e2e::ironic::{Cluster, Release, Service};
use stagger_e2e::stagger::{Doors, IronicSetup, Machine};

use super::{LIMIT, loaded, resume, run};

fn impatient() -> IronicSetup {
    IronicSetup {
        ready_timeout: 15,
        gate_timeout: 20,
        ..IronicSetup::default()
    }
}

/// From now on each start of that service on that release fails.
fn breaks(cluster: &Cluster, service: Service, release: Release) -> Result<()> {
    let path = cluster.dir().join("fault").join(service.name());
    fs::write(&path, format!("{release} fail\n")).with_context(|| format!("writing {}", path.display()))
}

fn mend(cluster: &Cluster, service: Service) -> Result<()> {
    let path = cluster.dir().join("fault").join(service.name());
    fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
}

/// The second of a kind does not start on the new code: it goes back to the old, and the first stays.
fn goes_back(name: &str, broken: Service) -> Result<()> {
    loaded(name, Release::Dalmatian, &[], |cluster, phases| {
        let before = cluster.servers()?;
        let machine = Machine::new(cluster, "anna", &impatient())?;
        breaks(cluster, broken, Release::Epoxy)?;
        let ended = machine.start(&["run", "--to", "29.0.6"])?.end(LIMIT)?;
        stagger_e2e::command::say(&ended.said);
        ensure!(ended.code != Some(0), "{ended:?}");
        ended.expect_said(&[broken.name()])?;
        phases.lap(format!("ended with {:?}", ended.code));
        let pin = Some("26.1".to_owned());
        let runs = cluster.runs(broken)?;
        ensure!(
            runs == ("26.1.6".to_owned(), pin.clone()),
            "{broken} runs {runs:?}"
        );
        let after = cluster.servers()?;
        ensure!(after == before, "the balancer has {after:?}");
        let back = machine.journal()?.actions("go-back").len();
        ensure!(back == 1, "{back} services went back");
        ensure!(
            machine.journal()?.passed("unpin-conductors").is_empty(),
            "pins were taken away"
        );
        phases.lap("it serves on the old code");
        mend(cluster, broken)?;
        run(&machine, Release::Epoxy, 0)?;
        phases.lap("mended, and to the end");
        cluster.ensure_upgraded(Release::Epoxy)
    })
}

#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn a_conductor_that_does_not_start_on_the_new_release_goes_back() -> Result<()> {
    goes_back(
        "a_conductor_that_does_not_start_on_the_new_release_goes_back",
        Service::Conductor2,
    )
}

#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn an_api_that_does_not_start_on_the_new_release_goes_back() -> Result<()> {
    goes_back(
        "an_api_that_does_not_start_on_the_new_release_goes_back",
        Service::Api1,
    )
}

/// Behind the unpin there is no old code to go back to: it holds, and says so.
#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn a_conductor_that_does_not_start_without_its_pin_is_held() -> Result<()> {
    let name = "a_conductor_that_does_not_start_without_its_pin_is_held";
    loaded(name, Release::Dalmatian, &[], |cluster, phases| {
        let setup = IronicSetup {
            doors: Doors::Ask,
            ..impatient()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        run(&machine, Release::Epoxy, 3)?;
        machine.call(&["approve", "schema"])?.expect(0)?;
        resume(&machine, 3)?;
        phases.lap("at the door of the unpin");
        let broken = Service::Conductor2;
        breaks(cluster, broken, Release::Epoxy)?;
        machine.call(&["approve", "unpin"])?.expect(0)?;
        let held = resume(&machine, 3)?;
        held.expect_said(&["NEEDS YOU", "c2"])?;
        ensure!(machine.journal()?.actions("go-back").is_empty(), "it went back");
        ensure!(cluster.runs(broken).is_err(), "it runs");
        phases.lap("held");
        mend(cluster, broken)?;
        resume(&machine, 0)?;
        phases.lap("mended, and to the end");
        cluster.ensure_upgraded(Release::Epoxy)
    })
}
