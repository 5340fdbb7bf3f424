//! Bodies that a real cluster of four nodes answered, and spoilt ones.

use std::path::Path;

use jiff::Timestamp;
use stagger_core::model::UnitState;
use stagger_ganeti::loaders::rapi::{Bodies, RapiError};
use stagger_ganeti::loaders::text;
use stagger_ganeti::model::{Status, Template};
use stagger_ganeti::translate::{View, snapshot};

fn recorded() -> Bodies {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rapi");
    Bodies::in_folder(&folder).unwrap()
}

#[test]
fn a_real_cluster_is_read() {
    let cluster = recorded().cluster().unwrap();
    let names: Vec<_> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["node1", "node2", "node3", "node4"]);
    assert_eq!(
        cluster
            .masters()
            .map(|node| node.name.as_str())
            .collect::<Vec<_>>(),
        ["node1"]
    );
    let instance = &cluster.instances[0];
    assert_eq!(
        (instance.name.as_str(), instance.memory, instance.disk),
        ("instance1", 1024, 192)
    );
    assert_eq!(instance.status, Status::Running);
    assert_eq!(instance.template, Template::Drbd);
    assert_eq!(cluster.node(instance.secondary.unwrap()).name, "node2");
    let resources = cluster.nodes[0].resources.unwrap();
    assert_eq!(
        (resources.memory, resources.memory_own, resources.memory_free),
        (16384, 512, 14848)
    );
    // As text and back it is the same cluster.
    assert_eq!(text::read(&text::write(&cluster)).unwrap(), cluster);
}

#[test]
fn a_node_that_does_not_answer_is_not_counted_on() {
    let mut bodies = recorded();
    bodies.nodes = bodies.nodes.replacen("\"mfree\": 14848", "\"mfree\": null", 1);
    let cluster = bodies.cluster().unwrap();
    assert!(!cluster.nodes[0].is_up());
    assert!(cluster.nodes[1].is_up());
}

#[test]
fn a_drained_node_takes_nothing() {
    let mut bodies = recorded();
    bodies.nodes = bodies
        .nodes
        .replacen("\"drained\": false", "\"drained\": true", 1);
    let cluster = bodies.cluster().unwrap();
    assert!(cluster.nodes[0].is_up() && !cluster.nodes[0].accepts_instances());
    assert!(!text::read(&text::write(&cluster)).unwrap().nodes[0].accepts_instances());
}

/// As htools 3.0 have it (`hroller -S` writes these numbers): a node of KVM reports what is active there, and that is
/// not what it needs for itself.
#[test]
fn a_node_of_kvm_keeps_what_it_is_said_to_keep() {
    let own = |bodies: &Bodies, said: Option<u64>| {
        let read = said.map_or_else(|| bodies.cluster(), |said| bodies.cluster_with(said));
        read.unwrap().nodes[0].resources.unwrap().memory_own
    };
    let fake = recorded();
    let mut kvm = recorded();
    kvm.info = kvm.info.replacen(
        "\"default_hypervisor\": \"fake\"",
        "\"default_hypervisor\": \"kvm\"",
        1,
    );
    assert_eq!((own(&fake, None), own(&kvm, None)), (512, 4096));
    assert_eq!((own(&fake, Some(9999)), own(&kvm, Some(9999))), (512, 9999));
    assert_eq!((own(&fake, Some(0)), own(&kvm, Some(0))), (512, 512));
}

#[test]
fn what_contradicts_itself_is_refused_by_name() {
    for (from, to, said) in [
        (
            "\"pnode\": \"node1\"",
            "\"pnode\": \"node9\"",
            "instance instance1: there is no node \"node9\"",
        ),
        (
            "\"snodes\": [\"node2\"]",
            "\"snodes\": [\"node1\"]",
            "instance instance1: \"node1\" is both its nodes",
        ),
        (
            "\"status\": \"running\"",
            "\"status\": \"odd\"",
            "instance instance1: \"odd\" is no status",
        ),
    ] {
        let mut bodies = recorded();
        bodies.instances = bodies.instances.replacen(from, to, 1);
        assert_eq!(bodies.cluster().unwrap_err().to_string(), said);
    }
}

#[test]
fn numbers_that_cannot_be_are_refused_by_name() {
    let mut bodies = recorded();
    bodies.instances = bodies
        .instances
        .replacen("\"maxmem\": 1024", "\"maxmem\": 9223372036854775807", 1);
    let said = bodies.cluster().unwrap_err().to_string();
    assert_eq!(
        said,
        "instance instance1: its most memory of 9223372036854775807 is more than any node has, which is at most 1000000000000"
    );
    let mut bodies = recorded();
    bodies.nodes = bodies
        .nodes
        .replacen("\"mfree\": 14848", "\"mfree\": -9223372036854775807", 1);
    let said = bodies.cluster().unwrap_err().to_string();
    assert!(
        said.starts_with("node node1: its free memory of -9223372036854775807 is more"),
        "{said}"
    );
}

/// Ganeti gives no live number of such a node.
#[test]
fn a_node_that_carries_no_instances_has_no_numbers_and_serves() {
    let mut bodies = recorded();
    let mut nodes: serde_json::Value = serde_json::from_str(&bodies.nodes).unwrap();
    for of in ["mtotal", "mnode", "mfree", "dtotal", "dfree", "ctotal", "cnos"] {
        nodes[0][of] = serde_json::Value::Null;
    }
    nodes[0]["vm_capable"] = false.into();
    bodies.nodes = nodes.to_string();
    let cluster = bodies.cluster().unwrap();
    let view = View {
        name: "lab".parse().unwrap(),
        at: Timestamp::UNIX_EPOCH,
        durations: std::collections::BTreeMap::new(),
        ignore_ipolicy: false,
    };
    let snapshot = snapshot(&cluster, &view).unwrap();
    let unit = snapshot.unit(snapshot.find(&"node1".parse().unwrap()).unwrap());
    assert_eq!(unit.state, UnitState::Serving);
    assert_eq!(
        unit.untouchable.as_ref().unwrap().code.code(),
        "node-not-vm-capable"
    );
}

#[test]
fn half_an_answer_is_refused() {
    let mut bodies = recorded();
    bodies.nodes.truncate(500);
    assert!(matches!(
        bodies.cluster(),
        Err(RapiError::Body { what: "nodes", .. })
    ));
    let mut bodies = recorded();
    bodies.info = "{}".to_owned();
    assert!(matches!(
        bodies.cluster(),
        Err(RapiError::Body {
            what: "the cluster",
            ..
        })
    ));
    assert!(matches!(
        Bodies::in_folder(Path::new("/nonexistent")),
        Err(RapiError::File { .. })
    ));
}
