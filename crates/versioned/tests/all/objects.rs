//! Conversions of every pair of neighbours.

use proptest::prelude::*;
use serde_json::json;
use stagger_versioned::chain::Unwritten;
use stagger_versioned::{Follows as _, Version, Versioned as _, laws};

use crate::ironic::{
    Node1_14, Node1_15, Node1_16, Texts, Trait1_0, Trait1_1, any_1_13, any_1_14, any_1_15, any_1_16, full,
    nodes, traits_1_0, traits_1_1,
};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_comes_up_goes_down_as_it_was(a in any_1_13(), b in any_1_14(), c in any_1_15(), t in traits_1_0()) {
        laws::up_loses_nothing::<Node1_14>(&a).unwrap();
        laws::up_loses_nothing::<Node1_15>(&b).unwrap();
        laws::up_loses_nothing::<Node1_16>(&c).unwrap();
        for one in &t {
            laws::up_loses_nothing::<Trait1_1>(one).unwrap();
        }
    }

    #[test]
    fn going_down_twice_is_going_down_once(b in any_1_14(), c in any_1_15(), d in any_1_16(), t in traits_1_1()) {
        laws::down_is_stable(&b).unwrap();
        laws::down_is_stable(&c).unwrap();
        laws::down_is_stable(&d).unwrap();
        for one in &t {
            laws::down_is_stable(one).unwrap();
        }
    }

    #[test]
    fn json_keeps_each_version(a in any_1_13(), b in any_1_14(), c in any_1_15(), d in any_1_16()) {
        laws::json_keeps_all(&a).unwrap();
        laws::json_keeps_all(&b).unwrap();
        laws::json_keeps_all(&c).unwrap();
        laws::json_keeps_all(&d).unwrap();
    }

    /// What is not reported as lost is there again when the copy is brought back, for every version of the chain.
    #[test]
    fn what_is_not_reported_is_not_lost(node in any_1_16()) {
        let chain = nodes();
        for (version, _) in chain.versions() {
            let copy = chain.text(&node, version).unwrap();
            let envelope = format!(r#"{{"kind":"Node","version":"{version}","data":{}}}"#, copy.data);
            let back = chain.receive(&envelope).unwrap().value;
            prop_assert_eq!(copy.lost.is_empty(), back == node);
            let fields = chain.fields(&node, version).unwrap();
            prop_assert_eq!(fields.lost, copy.lost);
            let text: serde_json::Value = serde_json::from_str(&copy.data).unwrap();
            prop_assert_eq!(serde_json::Value::Object(fields.data), text);
        }
        let needs = chain.needs(&node).unwrap();
        prop_assert!(chain.text(&node, needs).unwrap().lost.is_empty());
    }
}

/// The design's own example: 1.15 has a field `fake` that replaces `extra`.
#[test]
fn extra_becomes_fake_and_goes_back() {
    let texts = Texts::from([("rack".to_owned(), "r7".to_owned())]);
    let old = Node1_14 {
        uuid: "n1".to_owned(),
        extra: texts.clone(),
        description: None,
        traits: Vec::new(),
    };
    let new = Node1_15::up(old.clone());
    assert_eq!(new.fake, texts);
    assert_eq!(new.extra, None);
    let shape = serde_json::to_value(new.down()).unwrap();
    assert_eq!(shape["extra"], json!({"rack": "r7"}));
    assert_eq!(shape.get("fake"), None);
    assert_eq!(new.down(), old);
}

#[test]
fn a_field_that_moved_and_one_that_was_split_are_found_in_their_old_places() {
    let copy = nodes().fields(&full(), Version::new(1, 15)).unwrap();
    assert_eq!(copy.lost, []);
    assert_eq!(copy.data["fake"], json!({"rack": "r7", "fact.cpus": "4"}));
    assert_eq!(copy.data["description"], json!("in the corner"));
    assert_eq!(copy.data.get("notes"), None);
}

/// D1 of Ironic: a node went out in the old version, its list of traits in the new one.
#[test]
fn what_is_inside_is_converted_too() {
    let mut node = full();
    node.traits.push(Trait1_1 {
        name: "FPGA".to_owned(),
        note: Some("borrowed".to_owned()),
    });
    let copy = nodes().fields(&node, Version::new(1, 14)).unwrap();
    assert_eq!(copy.data["traits"], json!([{"name": "GPU"}, {"name": "FPGA"}]));
    let lost: Vec<String> = copy.lost.iter().map(ToString::to_string).collect();
    assert_eq!(lost, [r#"/traits/1/note: "borrowed" would become null"#]);
    // An older service reads it by its own types.
    let old: Node1_14 = serde_json::from_value(copy.data.into()).unwrap();
    assert_eq!(
        old.traits[1],
        Trait1_0 {
            name: "FPGA".to_owned()
        }
    );
}

#[test]
fn a_conversion_is_a_copy() {
    let node = full();
    let before = node.clone();
    nodes().text(&node, Version::new(1, 13)).unwrap();
    assert_eq!(node, before);
}

#[test]
fn the_lowest_version_that_holds_all_is_found() {
    let chain = nodes();
    let mut node = full();
    assert_eq!(chain.needs(&node).unwrap(), Version::new(1, 14));
    node.notes.description = None;
    assert_eq!(chain.needs(&node).unwrap(), Version::new(1, 13));
    node.traits[0].note = Some("x".to_owned());
    assert_eq!(chain.needs(&node).unwrap(), Version::new(1, 15));
    node.labels.insert("fact.cpus".to_owned(), "8".to_owned());
    assert_eq!(chain.needs(&node).unwrap(), Node1_16::VERSION);
}

#[test]
fn a_version_that_the_code_does_not_have_is_refused() {
    for (major, minor) in [(1, 12), (1, 17), (2, 14), (0, 14)] {
        let error = nodes().text(&full(), Version::new(major, minor)).unwrap_err();
        assert!(matches!(error, Unwritten::NoSuchVersion { .. }), "{error}");
        assert_eq!(
            error.to_string(),
            format!("Node cannot be written as {major}.{minor}; known are 1.13 to 1.16")
        );
    }
}
