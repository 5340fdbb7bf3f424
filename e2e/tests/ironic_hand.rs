//! The upgrade by hand, as carefully as it can be done: what fails then is Ironic's own, and what it costs is what
//! `stagger` is measured against.

use anyhow::Result;
use stagger_e2e::case::{ironic_loaded, on_ironic};
use stagger_e2e::command::say;
use stagger_e2e::ironic::{Hand, IronicSpec, Release};

#[test]
#[ignore = "takes minutes; cargo xtask test --long runs it"]
fn from_26_to_29_by_hand() -> Result<()> {
    by_hand("ironic-hand-29", Release::Dalmatian, Release::Epoxy, &[])
}

#[test]
#[ignore = "takes minutes; cargo xtask test --long runs it"]
fn from_29_to_32_by_hand() -> Result<()> {
    by_hand("ironic-hand-32", Release::Epoxy, Release::Flamingo, &["D1"])
}

/// Under load from end to end. Only these defects of Ironic's own may show, and no acknowledged write may be lost.
fn by_hand(name: &str, from: Release, to: Release, defects: &[&str]) -> Result<()> {
    let spec = IronicSpec {
        release: from,
        ..IronicSpec::default()
    };
    on_ironic(name, spec, |cluster, phases| {
        let mut hand = Hand::new(cluster);
        let report = ironic_loaded(cluster, phases, |_, phases| {
            hand.upgrade(from, to)?;
            phases.lap(format!("{from} to {to} by hand"));
            Ok(())
        })?;
        let log = cluster.log()?;
        let judged = report.judge(&log);
        say(hand.table(&judged));
        say(format!(
            "{} requests, Ironic's own failures: {:?}",
            report.requests(),
            judged.defects()
        ));
        judged.ensure_only(defects)?;
        cluster.ensure_upgraded(to)
    })
}
