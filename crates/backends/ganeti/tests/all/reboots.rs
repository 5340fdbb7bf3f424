//! How a node is told to reboot, and what is known of whether it heard.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use stagger_core::model::{Phase, UnitId};
use stagger_core::run::Action;
use stagger_engine::cluster::{BackendError, Call, Executor as _};
use stagger_engine::template::filled;
use stagger_ganeti::backend::GanetiBackend;
use stagger_ganeti::config::CLEAN_REBOOT;

use crate::common::{Setup, call, rebooted, setup};
use crate::double::World;

/// What the default ends with where ssh prints that and ends so.
fn ends_with(folder: &Path, prints: &str, code: i32) -> i32 {
    let ssh = folder.join("ssh");
    let script = format!("#!/bin/sh\ncat <<'EOF'\n{prints}\nEOF\nexit {code}\n");
    std::fs::write(&ssh, script).unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let command = filled(CLEAN_REBOOT, &[("master", "n1"), ("node", "n2")]).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let ran = std::process::Command::new("sh")
        .args(["-c", &command])
        .env("PATH", path)
        .output()
        .unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    assert!(said.contains(prints), "what it said is kept: {said}");
    ran.status.code().unwrap()
}

/// Seen: a host key that is another, between the master and the node, was taken for a reboot that is certain.
#[test]
fn by_default_a_reboot_is_certain_only_where_the_node_took_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let told = |prints: &str, code| ends_with(folder.path(), prints, code);
    let of_node = |code: i32| format!("------\nnode: n2\n\nreturn code = {code}");
    assert_eq!(told(&of_node(0), 0), 0);
    assert_eq!(told(&of_node(255), 0), 255, "the connection ended, or never was");
    assert_eq!(told(&of_node(1), 0), 1, "the node refused");
    assert_eq!(told("Host key verification failed.", 255), 255);
    assert_eq!(told("client_loop: send disconnect: Broken pipe", 255), 255);
    assert_eq!(told("Failure: prerequisites not met for this operation", 1), 1);
    assert_eq!(told("", 0), 255, "nobody knows");
}

async fn emptied(reboot: &str) -> (Setup, GanetiBackend) {
    let mut setup = setup(World::with_nodes(3)).await;
    setup.settings.cluster.visits.reboot =
        Some(reboot.replace("FOLDER", &setup.folder.path().display().to_string()));
    let backend = setup.backend(Some(setup.memory().await));
    visit(&backend, Phase::Enter).await.unwrap();
    (setup, backend)
}

async fn visit(backend: &GanetiBackend, phase: Phase) -> Result<String, BackendError> {
    let action = Action::Visit {
        unit: UnitId::new("n2").unwrap(),
        phase,
        revision: rebooted(),
        moves: Vec::new(),
    };
    let call = Call { seq: 8, ..call(5) };
    backend.perform(&call, &action).await
}

#[tokio::test]
async fn a_reboot_that_did_not_arrive_is_not_waited_for_as_one_that_did() {
    let (setup, backend) = emptied("echo Host key verification failed for {node}; exit 255").await;
    let begun = Instant::now();
    let error = visit(&backend, Phase::Change).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(error.why.contains("it did not arrive"), "{error}");
    assert!(error.why.contains("Host key verification failed"), "{error}");
    assert!(error.hint.unwrap().contains("ssh"));
    assert_eq!(setup.world().now.nodes["n2"].role, "D");
}

/// A node that is gone before it has closed the connection leaves ssh waiting, and what waits is cut off.
#[tokio::test]
async fn a_command_that_was_cut_off_may_have_arrived() {
    let (setup, backend) = emptied("echo {node} > FOLDER/sent; exit 124").await;
    let file = setup.folder.path().join("sent");
    let node = async {
        while !file.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let noted = |tag: &String| tag.starts_with("stagger:sent:boot-1@");
        let mut world = setup.world();
        assert!(world.now.nodes["n2"].tags.iter().any(noted), "it is noted before");
        world.powercycle("n2");
    };
    let (said, ()) = tokio::join!(visit(&backend, Phase::Change), node);
    assert!(said.unwrap().contains("back after"));
}

#[tokio::test]
async fn a_node_that_took_its_connection_with_it_is_back_when_its_boot_id_has_changed() {
    let (setup, backend) = emptied("echo {node} > FOLDER/sent; exit 255").await;
    let file = setup.folder.path().join("sent");
    let node = async {
        while !file.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        setup.world().powercycle("n2");
    };
    let (said, ()) = tokio::join!(visit(&backend, Phase::Change), node);
    assert!(said.unwrap().contains("back after"));
}
