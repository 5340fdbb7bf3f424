//! The commands of whoever runs the cluster around a host's reboot.

use stagger_ceph::config::Reboot;
use stagger_ceph::reboot::{HostTask, MAINTAINED, REBOOTED};
use stagger_core::model::{Kind, Phase};
use stagger_core::run::Action;
use stagger_engine::cluster::{Call, Executor as _};
use stagger_engine::hosts::Hosts;

use crate::cluster::call;
use crate::reboots::{Machines, change, process_that, unit, visit, world};

/// Writes a word down where reboots are written down.
fn says(machines: &Machines, word: &str) -> String {
    format!("echo {word} {{host}} >>{}/reboots", machines.path().display())
}

/// Another call: these hosts share a folder, so that they would take the same one for done.
fn nth(seq: u64) -> Call {
    Call { seq, ..call() }
}

/// The change of a host that is emptied for a task other than a reboot.
fn maintain(host: &str) -> Action {
    visit(host, Phase::Change, MAINTAINED)
}

#[tokio::test]
async fn a_host_is_prepared_emptied_patched_rebooted_and_looked_at_in_that_order() {
    let (world, machines) = (world(&["x0", "x1"]), Machines::new());
    let reboot = Reboot {
        prepare: Some(says(&machines, "prepare")),
        before: Some(says(&machines, "before")),
        patch: Some(says(&machines, "patch")),
        after: Some(says(&machines, "after")),
        ..machines.reboot(&machines.boots())
    };
    let backend = process_that(&world, &reboot, &machines, HostTask::Patch);
    let prepare = visit("host.host3", Phase::Prepare, REBOOTED);
    backend.perform(&call(), &prepare).await.unwrap();
    assert_eq!(
        machines.reboots(),
        ["prepare host3"],
        "nothing else is done ahead"
    );
    backend.perform(&call(), &change("host.host3")).await.unwrap();
    assert_eq!(
        machines.reboots(),
        [
            "prepare host3",
            "before host3",
            "patch host3",
            "host3",
            "after host3"
        ]
    );
    // Without `patch` nothing is installed.
    let backend = process_that(&world, &reboot, &machines, HostTask::Reboot);
    backend.perform(&nth(2), &change("host.host4")).await.unwrap();
    assert_eq!(machines.reboots()[5..], ["before host4", "host4", "after host4"]);
}

#[tokio::test]
async fn a_host_that_cannot_be_emptied_or_patched_is_not_rebooted() {
    let (world, machines) = (world(&["x0", "x1"]), Machines::new());
    let full = Some("echo No space left on device >&2; exit 28".to_owned());
    let usual = machines.reboot(&machines.boots());
    for (key, reboot) in [
        (
            "before",
            Reboot {
                before: full.clone(),
                ..usual.clone()
            },
        ),
        ("patch", Reboot { patch: full, ..usual }),
    ] {
        let backend = process_that(&world, &reboot, &machines, HostTask::Patch);
        let error = backend.perform(&call(), &change("host.host3")).await.unwrap_err();
        let why = format!("`{key}` ended with 28 there, so it was not rebooted: No space left on device");
        assert_eq!(error.why, why);
        assert!(
            error
                .hint
                .is_some_and(|hint| hint.contains(&format!("[reboot] {key} runs again")))
        );
    }
    assert_eq!(machines.reboots(), [""; 0]);
}

/// A kernel that panicked: the host is back with the one of before. It is asked until it is as wanted, and by whoever carries the
/// run on.
#[tokio::test]
async fn a_host_that_is_back_otherwise_than_wanted_holds_its_wave() {
    let (world, machines) = (world(&["x0", "x1"]), Machines::new());
    let folder = machines.path().display();
    let reboot = Reboot {
        after: Some(format!(
            "test -e {folder}/{{host}}.new || {{ echo it runs 6.1.0-1; exit 1; }}"
        )),
        ..machines.reboot(&machines.boots())
    };
    let backend = process_that(&world, &reboot, &machines, HostTask::Reboot);
    let error = backend.perform(&call(), &change("host.host3")).await.unwrap_err();
    assert_eq!(
        error.why,
        "host3 has booted, but is not in the wanted state: `after` ends with 1: it runs 6.1.0-1"
    );
    // It serves, and its turn is not over.
    let all = backend.observe().await.unwrap();
    assert_eq!(all.unit(all.find(&unit("host.host3")).unwrap()).revision, None);
    let again = Action::Restart {
        unit: unit("host.host3"),
    };
    backend.perform(&nth(2), &again).await.unwrap_err();
    std::fs::write(machines.path().join("host3.new"), "").unwrap();
    let told = backend.perform(&nth(3), &again).await.unwrap();
    assert_eq!(told, "it has booted already");
    assert_eq!(machines.reboots(), ["host3"]);
    let all = backend.observe().await.unwrap();
    let found = all.unit(all.find(&unit("host.host3")).unwrap());
    assert_eq!(found.revision.as_ref().unwrap().as_str(), "rebooted");
}

#[tokio::test]
async fn the_power_of_a_host_that_stays_away_is_cut_once() {
    let (world, machines) = (world(&["x0", "x1"]), Machines::new());
    let folder = machines.path().display();
    let away = machines.reboot(&format!("rm {folder}/{{host}}.boot"));
    let dead = Reboot {
        power: Some(says(&machines, "power")),
        ..away.clone()
    };
    let backend = process_that(&world, &dead, &machines, HostTask::Reboot);
    let error = backend.perform(&call(), &change("host.host3")).await.unwrap_err();
    assert!(error.why.contains("once its power was cut"), "{error}");
    assert_eq!(machines.reboots(), ["host3", "power host3"]);

    let helps = Reboot {
        power: Some(format!("echo b2 >{folder}/{{host}}.boot")),
        ..away.clone()
    };
    let backend = process_that(&world, &helps, &machines, HostTask::Reboot);
    let told = backend.perform(&nth(2), &change("host.host4")).await.unwrap();
    assert!(told.ends_with("once its power was cut"), "{told}");

    // One that answers with the boot of before has not taken the command: it is not cut off.
    let deaf = Reboot {
        power: Some(says(&machines, "power")),
        ..machines.reboot("true")
    };
    let backend = process_that(&world, &deaf, &machines, HostTask::Reboot);
    let error = backend.perform(&nth(3), &change("host.host5")).await.unwrap_err();
    assert!(error.why.contains("it still has its old boot id"), "{error}");
    assert!(!machines.reboots().contains(&"power host5".to_owned()));

    let fails = Reboot {
        power: Some("echo no route to {host}-ipmi >&2; exit 1".to_owned()),
        ..away
    };
    let backend = process_that(&world, &fails, &machines, HostTask::Reboot);
    let error = backend.perform(&nth(4), &change("host.host2")).await.unwrap_err();
    assert_eq!(error.tried, "power host2 off and on");
    assert!(error.why.contains("no route to host2-ipmi"), "{error}");
}

/// A command is run once on each host, wherever whoever asked for it ends; one that failed is run again.
#[tokio::test]
async fn a_command_in_a_host_s_turn_is_run_until_it_ends_well_and_then_never_again() {
    let (world, machines) = (world(&["x1", "x0"]), Machines::new());
    let folder = machines.path().display();
    let command = format!(
        "echo flash {{host}} >>{folder}/reboots; test -e {folder}/{{host}}.good || {{ echo bad image; exit 7; }}"
    );
    let task = HostTask::Command {
        command: command.clone(),
        token: "t1".to_owned(),
    };
    let reboot = Reboot {
        after: Some(says(&machines, "after")),
        ..machines.reboot("exit 99")
    };
    let backend = process_that(&world, &reboot, &machines, task.clone());
    let error = backend
        .perform(&call(), &maintain("host.host1"))
        .await
        .unwrap_err();
    assert_eq!(
        error.why,
        format!("`{command}` for host1 ended with 7: bad image")
    );
    assert_eq!(error.tried, "run a command on host1");
    std::fs::write(machines.path().join("host1.good"), "").unwrap();
    let told = backend.perform(&nth(2), &maintain("host.host1")).await.unwrap();
    assert!(told.starts_with("done after"), "{told}");
    let all = backend.observe().await.unwrap();
    let found = all.unit(all.find(&unit("host.host1")).unwrap());
    assert_eq!(found.revision.as_ref().unwrap().as_str(), "maintained");
    drop(backend);
    let second = process_that(&world, &reboot, &machines, task);
    let told = second.perform(&nth(3), &maintain("host.host1")).await.unwrap();
    assert_eq!(told, "it was done already");
    assert_eq!(
        machines.reboots(),
        ["flash host1", "flash host1", "after host1", "after host1"]
    );
    // Another task with the same command is another one.
    let other = HostTask::Command {
        command,
        token: "t2".to_owned(),
    };
    let backend = process_that(&world, &reboot, &machines, other);
    backend.perform(&nth(4), &maintain("host.host1")).await.unwrap();
    assert_eq!(machines.reboots().len(), 6);
}

/// A host's daemons are restarted by their own commands, once; those that another run asks for are restarted again.
#[tokio::test]
async fn the_daemons_of_a_host_are_restarted_once_in_its_turn() {
    let (world, machines) = (world(&["x1", "x0"]), Machines::new());
    let reboot = machines.reboot("exit 99");
    let with = |token: &str| {
        let task = HostTask::Restart {
            kinds: vec![Kind::new("osd").unwrap()],
            token: token.to_owned(),
        };
        process_that(&world, &reboot, &machines, task)
    };
    let first = with("t1");
    let told = first.perform(&call(), &maintain("host.host1")).await.unwrap();
    assert!(told.starts_with("done after"), "{told}");
    let once = machines.reboots();
    assert!(
        !once.is_empty()
            && once
                .iter()
                .all(|line| line.starts_with("osd.") && line.ends_with(" on host1")),
        "{once:?}"
    );
    drop(first);
    let second = with("t1");
    let told = second.perform(&nth(2), &maintain("host.host1")).await.unwrap();
    assert_eq!(told, "it was done already");
    assert_eq!(machines.reboots(), once);
    let other = with("t2");
    other.perform(&nth(3), &maintain("host.host1")).await.unwrap();
    assert_eq!(machines.reboots().len(), 2 * once.len());
}

#[test]
fn what_is_installed_and_laid_out_where_nothing_is_given() {
    let here = Hosts::default();
    let there = Hosts {
        shell: vec!["ssh".to_owned(), "{host}".to_owned(), "sh".to_owned()],
        ..Hosts::default()
    };
    let usual = Reboot::default();
    let patch = usual.patch(&there);
    assert!(
        patch.starts_with("apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y ")
            && patch.ends_with(" dist-upgrade"),
        "{patch}"
    );
    assert_eq!(
        usual.patch(&here),
        format!("ssh -oBatchMode=yes {{host}} '{patch}'")
    );
    let ahead = usual.prepare(&there, true).unwrap();
    assert!(ahead.ends_with(" --download-only dist-upgrade"), "{ahead}");
    assert_eq!(usual.prepare(&there, false), None);
    // Whoever installs otherwise lays out otherwise.
    let own = Reboot {
        patch: Some("dnf -y upgrade".to_owned()),
        ..Reboot::default()
    };
    assert_eq!(own.prepare(&there, true), None);
    // Power is cut from here, so that the host has to be named.
    let power = Reboot {
        power: Some("ipmitool chassis power cycle".to_owned()),
        ..Reboot::default()
    };
    let why = power.verify(&there).unwrap_err();
    assert!(
        why.starts_with("[reboot] power would run on this machine"),
        "{why}"
    );
}
