//! Services that call each other over RabbitMQ, with Keystone and TLS before them, as Kolla has it.

use anyhow::{Result, ensure};
use stagger_e2e::command::{run, say};
use stagger_e2e::ironic::{Calls, Cluster, IronicSpec, RABBITMQ, Release};
use stagger_e2e::stagger::{Machine, says};

use super::{LIMIT, hasty, loaded_on};

/// The bindings of the alternate exchange, as RabbitMQ lists them.
fn diverted(cluster: &Cluster) -> Result<String> {
    let (url, user) = RABBITMQ;
    let mut curl = cluster.command("curl");
    curl.args([
        "--silent",
        "--show-error",
        "--noproxy",
        "*",
        "--user",
        &format!("{user}:secret"),
    ]);
    run(curl.arg(format!("{url}/api/exchanges/%2F/stagger.ironic/bindings/source")))
}

/// From 26.1 to 29.0 and on to 32.0 under load, killed with a conductor's calls at another: none is lost.
#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn from_26_to_29_and_on_to_32_over_rabbitmq() -> Result<()> {
    let spec = IronicSpec {
        release: Release::Dalmatian,
        calls: Calls::RabbitMq,
        keystone: true,
        ..IronicSpec::default()
    };
    let name = "from_26_to_29_and_on_to_32_over_rabbitmq";
    loaded_on(name, spec, &["D1"], |cluster, phases| {
        let machine = Machine::new(cluster, "anna", &hasty())?;
        for to in [Release::Epoxy, Release::Flamingo] {
            say(machine
                .call(&["plan", "upgrade", "--to", to.version()])?
                .expect(0)?
                .out);
            let mut going = machine.start(&["run", "upgrade", "--to", to.version()])?;
            for stage in ["conductors", "unpin-conductors"] {
                machine.stop_when(&going, stage, LIMIT, |journal| {
                    Ok(journal.stage() == Some(stage) && !journal.in_phase("change").is_empty())
                })?;
                going.kill()?;
                let bindings = diverted(cluster)?;
                ensure!(bindings.contains("ironic.conductor_manager."), "{bindings}");
                phases.lap(format!("killed in {stage}"));
                going = machine.start(&["resume"])?;
                going.until("the lease", LIMIT, |line| says(line, "lease", "token"))?;
            }
            going.end(LIMIT)?.expect(0)?;
            phases.lap(format!("on {to}"));
            cluster.ensure_upgraded(to)?;
            let left = diverted(cluster)?;
            ensure!(left.trim() == "[]", "{left}");
        }
        Ok(())
    })
}
