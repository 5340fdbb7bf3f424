//! A request to an allocator, made of the recorded bodies; the real hroller reads it with `-I`.

use std::path::Path;

use stagger_ganeti::loaders::iallocator::{RequestError, read};
use stagger_ganeti::loaders::rapi::Bodies;
use stagger_ganeti::model::{GanetiCluster, Status};

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn recorded() -> String {
    std::fs::read_to_string(fixtures().join("request.json")).unwrap()
}

/// What the other ways of loading say too.
fn common(mut cluster: GanetiCluster) -> GanetiCluster {
    cluster.ipolicy = None;
    for node in &mut cluster.nodes {
        node.master = false;
    }
    for instance in &mut cluster.instances {
        instance.disk_spindles = None;
    }
    cluster
}

#[test]
fn a_request_tells_what_rapi_tells_but_for_the_master() {
    let asked = read(&recorded(), 0).unwrap();
    assert_eq!(asked.masters().count(), 0);
    let bodies = Bodies::in_folder(&fixtures().join("rapi")).unwrap();
    assert_eq!(common(asked), common(bodies.cluster().unwrap()));
}

#[test]
fn a_node_of_kvm_keeps_what_it_is_said_to_keep() {
    let own = |text: &str, said: u64| read(text, said).unwrap().nodes[0].resources.unwrap().memory_own;
    let kvm = recorded().replacen("\"fake\"", "\"kvm\"", 1);
    assert_eq!(
        (own(&recorded(), 4096), own(&kvm, 4096), own(&kvm, 0)),
        (512, 4096, 512)
    );
}

#[test]
fn what_should_not_run_does_not_and_what_is_offline_says_nothing() {
    let text = recorded()
        .replacen("\"admin_state\": \"up\"", "\"admin_state\": \"down\"", 1)
        .replacen("\"offline\": false", "\"offline\": true", 1)
        .replacen("\"total_memory\": 16384,", "", 1);
    let cluster = read(&text, 0).unwrap();
    assert_eq!(cluster.instances[0].status, Status::AdminDown);
    assert!(!cluster.nodes[0].is_up() && cluster.nodes[1].is_up());
}

#[test]
fn nodes_stand_in_the_order_of_the_request() {
    let text = recorded();
    let swapped = text
        .replace("\"node1\": {", "\"nodeX\": {")
        .replace("\"node4\": {", "\"node1\": {")
        .replace("\"nodeX\": {", "\"node4\": {");
    let cluster = read(&swapped, 0).unwrap();
    let names: Vec<_> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["node4", "node2", "node3", "node1"]);
}

#[test]
fn what_is_no_request_is_refused() {
    let text = recorded();
    for (spoilt, said) in [
        (
            text[..text.len() / 2].to_owned(),
            "it is no request to an allocator of Ganeti",
        ),
        (
            text.replace("\"request\"", "\"ask\""),
            "it is no request to an allocator of Ganeti",
        ),
        (
            text.replacen("\"admin_state\": \"up\"", "\"admin_state\": \"odd\"", 1),
            "instance instance1: \"odd\" is no state",
        ),
        (
            text.replacen("\"disk_template\": \"drbd\"", "\"disk_template\": \"paper\"", 1),
            "instance instance1: \"paper\" is no disk template",
        ),
        (
            text.replace("\"node4\": {", "\"node9\": {"),
            "instance instance3: there is no node \"node4\"",
        ),
        (
            text.replace("\"node4\": {", "\"node1\": {"),
            "node node1: it is listed twice",
        ),
    ] {
        assert_eq!(read(&spoilt, 0).unwrap_err().to_string(), said);
    }
    let unreadable = read("{}", 0).unwrap_err();
    assert!(matches!(unreadable, RequestError::Unreadable(_)), "{unreadable}");
}

/// As one of Ganeti's own tests has it; htools take the first.
#[test]
fn of_a_key_that_stands_twice_the_first_counts() {
    let twice = recorded().replacen('{', "{\"enabled_hypervisors\": [\"kvm\"],", 1);
    let own = read(&twice, 4096).unwrap().nodes[0].resources.unwrap().memory_own;
    assert_eq!(own, 4096);
}
