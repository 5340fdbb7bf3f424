//! The ways of stopping a conductor, each with what it costs: where its port does not stand behind the balancer it is
//! muted, with the user's word, or all requests wait.

use anyhow::{Result, ensure};
use stagger_e2e::case::{ironic_loaded, on_ironic};
use stagger_e2e::command::say;
use stagger_e2e::ironic::{Calls, Cluster, IronicSpec, Release};
use stagger_e2e::stagger::{IronicSetup, Machine, Way};

use super::run;

/// From 26.1 to 29.0 in that way, under load. Gives the longest that a request took, in seconds.
fn in_that_way(
    name: &str,
    spec: IronicSpec,
    setup: &IronicSetup,
    before: impl FnOnce(&Cluster) -> Result<()>,
    most: f64,
) -> Result<()> {
    on_ironic(name, spec, |cluster, phases| {
        before(cluster)?;
        let machine = Machine::new(cluster, "anna", setup)?;
        let report = ironic_loaded(cluster, phases, |_, phases| {
            say(machine
                .call(&["plan", "upgrade", "--to", "29.0.6"])?
                .expect(0)?
                .out);
            run(&machine, Release::Epoxy, 0)?;
            phases.lap("from 26.1.6 to 29.0.6");
            Ok(())
        })?;
        let log = cluster.log()?;
        report.judge(&log).ensure_only(&[])?;
        say(format!(
            "{} requests, the longest took {:.1} s",
            report.requests(),
            report.worst()
        ));
        ensure!(
            report.worst() < most,
            "a request took {:.1} s, and no more than {most} s were to be expected",
            report.worst()
        );
        cluster.ensure_upgraded(Release::Epoxy)?;
        cluster.ensure_let_go()
    })
}

fn behind(is_balanced: bool) -> IronicSpec {
    IronicSpec {
        release: Release::Dalmatian,
        calls: if is_balanced {
            Calls::Balanced
        } else {
            Calls::Direct
        },
        ..IronicSpec::default()
    }
}

#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn conductors_are_drained_at_the_balancer() -> Result<()> {
    let name = "conductors_are_drained_at_the_balancer";
    in_that_way(name, behind(true), &IronicSetup::default(), |_| Ok(()), 8.0)
}

#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn conductors_are_muted_with_the_user_s_word() -> Result<()> {
    let name = "conductors_are_muted_with_the_user_s_word";
    let muted = IronicSetup {
        way: Way::Mute,
        writes_into_ironic: true,
        ..IronicSetup::default()
    };
    let without_word = IronicSetup {
        writes_into_ironic: false,
        ..muted.clone()
    };
    let refused = |cluster: &Cluster| {
        for (setup, slug) in [
            (&without_word, "mute-not-permitted"),
            // Nothing is behind the balancer here.
            (&IronicSetup::default(), "not-prepared"),
        ] {
            let machine = Machine::new(cluster, "bert", setup)?;
            machine
                .call(&["run", "upgrade", "--to", "29.0.6"])?
                .expect(1)?
                .expect_said(&[slug])?;
        }
        Ok(())
    };
    in_that_way(name, behind(false), &muted, refused, 8.0)
}

#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn all_requests_are_held_at_the_door_of_the_api() -> Result<()> {
    let name = "all_requests_are_held_at_the_door_of_the_api";
    let held = IronicSetup {
        way: Way::Hold,
        ..IronicSetup::default()
    };
    // As long as a conductor of 26.1 takes to stop and one to start.
    in_that_way(name, behind(false), &held, |_| Ok(()), 45.0)
}
