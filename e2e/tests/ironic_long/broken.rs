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
        let ended = machine.start(&["run", "upgrade", "--to", "29.0.6"])?.end(LIMIT)?;
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

/// A run is aborted while it waits for a conductor that does not start. Nobody knows then what that one runs, so nothing is
/// begun until a person has brought it back and says so; what cannot be is refused.
#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn what_an_aborted_run_has_left_is_written_down_by_hand() -> Result<()> {
    let name = "what_an_aborted_run_has_left_is_written_down_by_hand";
    loaded(name, Release::Dalmatian, &[], |cluster, phases| {
        let setup = IronicSetup {
            doors: Doors::Ask,
            ..impatient()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        run(&machine, Release::Epoxy, 3)?;
        machine.call(&["approve", "schema"])?.expect(0)?;
        resume(&machine, 3)?;
        let broken = Service::Conductor2;
        breaks(cluster, broken, Release::Epoxy)?;
        machine.call(&["approve", "unpin"])?.expect(0)?;
        resume(&machine, 3)?;
        machine.call(&["abort"])?.expect(1)?;
        phases.lap("aborted with c2 away");
        let refused = machine.call(&["plan", "upgrade", "--to", "29.0.6"])?;
        ensure!(refused.code != Some(0), "{refused:?}");
        refused.expect_said(&["change-under-way", "c2"])?;
        let said = &["ironic", "record", "c2", "--release", "29.0.6"];
        machine
            .call(said)?
            .expect(2)?
            .expect_said(&["it does not serve"])?;
        mend(cluster, broken)?;
        cluster.service(broken, "start", &[])?;
        for server in cluster.servers()?.keys().filter(|server| server.ends_with("/c2")) {
            cluster.balancer(&["set", "server", server, "state", "ready"])?;
        }
        let others = cluster.runs(Service::Conductor1)?;
        ensure!(others == ("29.0.6".to_owned(), None), "c1 runs {others:?}");
        cluster.wait_for("c2 to serve", LIMIT, |cluster| {
            let all_up = cluster.servers()?.values().all(|status| status == "UP");
            let alive = cluster.conductors()?.values().all(|alive| *alive);
            Ok(all_up && alive)
        })?;
        phases.lap("started by hand");
        let pinned = [said.as_slice(), &["--pin", "26.1"]].concat();
        machine
            .call(&pinned)?
            .expect(2)?
            .expect_said(&["its next start reads the pin none"])?;
        let versions = machine.call(said)?.expect(0)?.out;
        let told = versions.lines().find(|line| line.starts_with("c2"));
        let told = told.unwrap_or_default();
        ensure!(told.contains("29.0.6") && told.contains("serving"), "{versions}");
        phases.lap("written down");
        // The door of the unpin was passed before.
        run(&machine, Release::Epoxy, 0)?;
        phases.lap("a second run, to the end");
        cluster.ensure_upgraded(Release::Epoxy)
    })
}
