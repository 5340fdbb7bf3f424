//! The executor has the laws of every executor: with daemons on hosts, and with hosts.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use stagger_ceph::api::CephApi;
use stagger_ceph::api::recorded::Recorded;
use stagger_ceph::backend::CephBackend;
use stagger_ceph::config::{CephSettings, Reboot};
use stagger_ceph::planner::CephPlanner;
use stagger_ceph::reboot::HostTask;
use stagger_ceph::target::PgGate;
use stagger_conformance::executor::{an_older_holder_is_refused, performed_twice_is_performed_once};
use stagger_core::model::{Phase, Policy};
use stagger_core::run::Action;
use stagger_engine::cluster::Call;

use crate::cluster::{call, fixture};
use crate::hosts::{on_hosts, settings};
use crate::reboots::{Machines, change, process_that, unit, visit, world};

/// Whoever took the lock then.
fn newer() -> Call {
    Call { fence: 2, ..call() }
}

/// x1, the active manager, is on host1.
#[tokio::test]
async fn a_turn_of_a_host_has_the_laws_of_every_executor() {
    let reboot = |machines: &Machines| machines.reboot(&machines.boots());
    let (ceph, machines) = (world(&["x1", "x0"]), Machines::new());
    let process = || process_that(&ceph, &reboot(&machines), &machines, HostTask::Reboot);
    let now = async || (ceph.told(), machines.reboots());
    let turn = change("host.host1");
    let said = performed_twice_is_performed_once([&process(), &process()], &call(), &turn, now).await;
    assert_eq!(said, "it has booted already");
    assert_eq!(ceph.told().0, ["x0", "x1"], "what is active was handed over");

    let (ceph, machines) = (world(&["x1", "x0"]), Machines::new());
    let process = process_that(&ceph, &reboot(&machines), &machines, HostTask::Reboot);
    let now = async || (ceph.told(), machines.reboots());
    an_older_holder_is_refused(&process, &call(), &newer(), &turn, now).await;
}

/// A process that changes daemons by commands which leave a line in a file.
fn on_daemons(folder: &Path) -> CephBackend {
    let made = std::thread::spawn(|| {
        let settings = settings(Reboot::default());
        let memory = CephPlanner::new(settings.clone(), PgGate::Clean)
            .memory(&on_hosts("18.2.7"), &Policy::default())
            .unwrap();
        (settings, memory)
    });
    let (mut settings, memory): (CephSettings, _) = made.join().unwrap();
    let says = |word: &str| {
        format!(
            "echo {word} {{kind}}.{{id}} {{release}} >>{}/done",
            folder.display()
        )
    };
    settings.software = serde_json::from_value(json!({
        "all": { "upgrade": says("upgrade"), "restart": says("restart") },
    }))
    .unwrap();
    settings.hosts.folder = folder.join("stagger");
    settings.hosts.timeout = 20;
    let api: Arc<dyn CephApi> = Arc::new(Recorded::new(fixture("18.2.7")));
    CephBackend::new(api, settings, Some(memory))
}

#[tokio::test]
async fn a_visit_of_a_daemon_has_the_laws_of_every_executor() {
    let visit = |phase| visit("osd.1", phase, "18.2.8");
    let restart = Action::Restart { unit: unit("osd.1") };
    for action in [visit(Phase::Prepare), visit(Phase::Change), restart] {
        let folder = tempfile::tempdir().unwrap();
        let done = async || std::fs::read_to_string(folder.path().join("done")).unwrap_or_default();
        let both = [on_daemons(folder.path()), on_daemons(folder.path())];
        let said = performed_twice_is_performed_once([&both[0], &both[1]], &call(), &action, done).await;
        assert!(said.contains(" on host"), "{said}");

        let folder = tempfile::tempdir().unwrap();
        let done = async || std::fs::read_to_string(folder.path().join("done")).unwrap_or_default();
        an_older_holder_is_refused(&on_daemons(folder.path()), &call(), &newer(), &action, done).await;
    }
}
