//! Which nodes are meant.

use regex::Regex;
use stagger_ganeti::loaders::text::read;
use stagger_ganeti::model::GanetiCluster;
use stagger_ganeti::selection::{NodeSelection, node_called};

fn cluster() -> GanetiCluster {
    let node = |name: &str, flag: &str, group: &str, tags: &str| {
        format!("{name}|16384|512|15872|102400|102400|4|{flag}|{group}|1|{tags}|N|0|1|1.0\n")
    };
    let nodes = [
        node("node1", "M", "u1", "even,old"),
        node("node2", "N", "u1", "old"),
        node("node3", "N", "u2", "even"),
        node("node10", "N", "u3", ""),
    ];
    let groups = "east|u1|preferred||\nwest|u2|preferred||\nnorth|u3|last_resort||\n";
    read(&format!("{groups}\n{}\n\n\n", nodes.concat())).unwrap()
}

fn names(selection: &NodeSelection) -> String {
    match selection.of(&cluster()) {
        Ok(nodes) => nodes
            .iter()
            .map(stagger_core::model::UnitId::as_str)
            .collect::<Vec<_>>()
            .join(" "),
        Err(error) => error.to_string(),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn nodes_are_selected_by_group_tag_pattern_and_name() {
    let all = NodeSelection::default();
    assert_eq!(names(&all), "node1 node10 node2 node3");
    let groups = |of: &[&str]| NodeSelection {
        groups: words(of),
        ..NodeSelection::default()
    };
    assert_eq!(names(&groups(&["east", "u3"])), "node1 node10 node2");
    let tags = |of: &[&str]| NodeSelection {
        tags: words(of),
        ..NodeSelection::default()
    };
    assert_eq!(names(&tags(&["even"])), "node1 node3");
    let matching = |pattern: &str| NodeSelection {
        matching: Some(Regex::new(pattern).unwrap()),
        ..NodeSelection::default()
    };
    assert_eq!(names(&matching("^node[23]$")), "node2 node3");
    assert_eq!(names(&matching("1")), "node1 node10");
    let mixed = NodeSelection {
        groups: words(&["east", "west"]),
        tags: words(&["even"]),
        nodes: words(&["node1", "node2", "node3"]),
        leave_out: words(&["node3"]),
        ..NodeSelection::default()
    };
    assert_eq!(names(&mixed), "node1");
    assert_eq!(
        mixed.to_string(),
        "in group east or west, with tag even, called node1 or node2 or node3, without node3"
    );
}

#[test]
fn what_fits_nothing_is_refused_with_what_there_is() {
    let refused = |selection: NodeSelection| names(&selection);
    assert_eq!(
        refused(NodeSelection {
            groups: words(&["south"]),
            ..NodeSelection::default()
        }),
        "there is no node group \"south\"; there are: east, west, north"
    );
    assert_eq!(
        refused(NodeSelection {
            tags: words(&["odd"]),
            ..NodeSelection::default()
        }),
        "no node has the tag \"odd\""
    );
    assert_eq!(
        refused(NodeSelection {
            matching: Some(Regex::new("^x").unwrap()),
            ..NodeSelection::default()
        }),
        "no node has a name that matches \"^x\""
    );
    assert_eq!(
        refused(NodeSelection {
            leave_out: words(&["nod3"]),
            ..NodeSelection::default()
        }),
        "there is no node \"nod3\"; the nearest is node3"
    );
    assert_eq!(
        refused(NodeSelection {
            groups: words(&["west"]),
            leave_out: words(&["node3"]),
            ..NodeSelection::default()
        }),
        "no node is all that is asked for: in group west, without node3"
    );
}

/// As Ganeti's own commands take a name. One that is none would have nothing left on it, and all would seem well.
#[test]
fn a_node_is_called_by_its_name_or_without_its_domain() {
    let nodes = ["n1.a.org", "n1.b.org", "n2.a.org", "n2", "n3.a.org"];
    let nodes = nodes.map(|name| format!("{name}|16384|512|15872|102400|102400|4|N|g|1||N|0|1|1.0\n"));
    let cluster = read(&format!("default|g|preferred||\n\n{}\n\n\n", nodes.concat())).unwrap();
    let called = |name: &str| {
        node_called(&cluster, name)
            .map(str::to_owned)
            .map_err(|error| error.to_string())
    };
    assert_eq!(called("n3").as_deref(), Ok("n3.a.org"));
    assert_eq!(called("n3.a.org").as_deref(), Ok("n3.a.org"));
    assert_eq!(called("n2").as_deref(), Ok("n2"), "its very name");
    assert!(called("n1").is_err(), "there are two");
    let refused = called("n33").unwrap_err();
    assert!(
        refused.starts_with("there is no node \"n33\"; the nearest is n"),
        "{refused}"
    );
}
