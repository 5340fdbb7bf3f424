//! What a run counts on, looked at before it begins.

use std::os::unix::fs::PermissionsExt as _;

use stagger_engine::preflight::{Check, CheckOutcome};
use stagger_ganeti::config::GanetiHooks;
use stagger_ganeti::preflight::check;

use crate::common::setup;
use crate::double::World;

/// An ssh by which n2 cannot be reached, and that notes where it goes.
const SSH: &str = r#"#!/bin/sh
for at; do case $at in *n[0-9]) break;; esac; done
echo "$*" >>"$0.log"
case $at in *n2) echo "ssh: connect to host n2 port 22: No route to host" >&2; exit 255;; esac
exec sh
"#;

#[tokio::test]
async fn each_node_is_reached_as_the_commands_of_a_run_reach_it() {
    let mut setup = setup(World::with_nodes(4)).await;
    {
        let mut world = setup.world();
        world.now.nodes.get_mut("n4").unwrap().role = "O";
        world.shown = world.now.clone();
    }
    let ssh = setup.folder.path().join("ssh");
    std::fs::write(&ssh, SSH).unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ssh = ssh.display().to_string();
    let visits = &mut setup.settings.cluster.visits;
    visits.reboot = Some(format!("{ssh} root@{{node}} true; exit 255"));
    visits.hooks = GanetiHooks {
        enter: Some(format!("{ssh} -n root@{{node}} no-such-program {{node}}")),
        // What this machine does by itself goes nowhere.
        leave: Some("true {node}".to_owned()),
        ..GanetiHooks::default()
    };
    let rapi = setup.rapi();
    let facts = rapi.facts().await.unwrap();
    let checks = check(&setup.settings, &rapi, &facts).await;
    let of = |node: &str| -> Vec<&Check> { checks.iter().filter(|check| check.subject == node).collect() };
    for node in ["n1", "n3"] {
        let missing = "[cluster.visits] hooks.enter: there is no program no-such-program";
        assert_eq!(of(node), [&Check::failed(node, missing)]);
    }
    let [silent] = of("n2")[..] else {
        panic!("{checks:?}")
    };
    assert_eq!(silent.outcome, CheckOutcome::Failed);
    assert!(silent.found.contains("No route to host"), "{silent:?}");
    assert!(of("n4").is_empty(), "Ganeti does not talk to it: {checks:?}");

    let log = std::fs::read_to_string(format!("{ssh}.log")).unwrap();
    let mut went: Vec<&str> = log.lines().collect();
    went.sort_unstable();
    let to = |node: &str| format!("-oBatchMode=yes -oConnectTimeout=10 root@{node} sh");
    assert_eq!(
        went,
        ["n1", "n2", "n3"].map(to),
        "once to each, for both commands"
    );
}
