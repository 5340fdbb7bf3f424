//! Hosts of a cluster that cephadm manages, rebooted by stagger.

use std::time::Duration;

use anyhow::{Result, ensure};
use stagger_e2e::case::{Phases, case};
use stagger_e2e::cephadm_hosts::Cluster;
use stagger_e2e::command::say;
use stagger_e2e::hosts::host::Host;
use stagger_e2e::stagger::{CephadmSetup, Machine};

/// On a busy machine: containers start one after another.
const LIMIT: Duration = Duration::from_mins(15);

#[test]
#[ignore = "long; needs root and Debian's packages; cargo xtask test --long runs it"]
fn hosts_of_cephadm_are_rebooted_and_their_daemons_restarted() -> Result<()> {
    case("cephadm_reboot", || {
        let mut cluster = Cluster::boot()?;
        let mut phases = Phases::begin();
        let result = story(&mut cluster, &mut phases);
        phases.print();
        result?;
        cluster.stop()
    })
}

fn story(cluster: &mut Cluster, phases: &mut Phases) -> Result<()> {
    let machine = Machine::new(cluster, "anna", &CephadmSetup)?;
    let boots =
        |cluster: &Cluster| -> Result<Vec<String>> { cluster.hosts().iter().map(Host::boot_id).collect() };
    let before = boots(cluster)?;
    let load = cluster.load()?;
    let run = machine.start(&["run", "reboot"])?;
    machine.stop_in_visit(&run, "host", LIMIT)?;
    let mut run = run;
    run.kill()?;
    phases.lap("killed while a host reboots");
    machine.resume_to_the_end(LIMIT)?.expect(0)?;
    phases.lap("all hosts rebooted");
    let after = boots(cluster)?;
    ensure!(
        before.iter().zip(&after).all(|(before, after)| before != after),
        "{before:?} and {after:?}"
    );
    cluster.wait_clean(LIMIT)?;
    let report = load.stop()?;
    say(format!("{report}"));
    ensure!(
        report.failures().is_empty(),
        "operations failed: {:?}",
        report.failures()
    );
    let status = cluster.ceph_json(&["orch", "status"])?;
    ensure!(status["paused"] == false, "cephadm is left paused: {status}");

    let containers = cluster.containers()?;
    machine
        .start(&["run", "restart", "--daemons", "osd"])?
        .end(LIMIT)?
        .expect(0)?;
    phases.lap("OSDs restarted");
    for (name, now) in cluster.containers()? {
        let is_new = containers.get(&name) != Some(&now);
        ensure!(is_new == name.starts_with("osd."), "{name}: {now:?}");
    }
    cluster.wait_clean(LIMIT)
}
