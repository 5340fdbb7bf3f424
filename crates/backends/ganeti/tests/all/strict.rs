//! Ganeti's own answers: those of hroller 3.0.2 on the cluster of the transcripts, as it printed them.

use stagger_ganeti::hroller::strict::{StrictInput, StrictOptions, refusal, saved};
use stagger_ganeti::hroller::{HrollerError, OutputOptions, RebootGroup, lines};
use stagger_ganeti::loaders::text::{read, write};
use stagger_ganeti::model::GanetiCluster;

const LAB: &str = include_str!("../../../../cli/tests/transcripts/inputs/lab.data");

const MOVES: OutputOptions = OutputOptions {
    headers: false,
    one_step_only: false,
    moves: true,
};

fn groups(cluster: &GanetiCluster, options: &StrictOptions) -> Result<Vec<RebootGroup>, HrollerError> {
    StrictInput::new(cluster, options)?
        .with_offline()?
        .colouring()?
        .groups()
}

fn printed(options: &StrictOptions) -> String {
    lines(&groups(&read(LAB).unwrap(), options).unwrap(), MOVES).join("\n")
}

#[test]
fn it_moves_what_does_not_run_and_what_cannot_be_migrated() {
    assert_eq!(
        printed(&StrictOptions::default()),
        "node3,node5,node6,node7\n  mail1 node8\n  mail2 node8\n  build node8\n  dns1 node8\n  dns2 node8\nnode8\n  scratch \
         node5\nnode4\nnode2\nnode1"
    );
}

#[test]
fn a_full_evacuation_replaces_secondaries_of_what_was_migrated() {
    let options = StrictOptions {
        full_evacuation: true,
        offline_maintenance: true,
        ..StrictOptions::default()
    };
    assert_eq!(
        printed(&options),
        "node3,node5,node6,node7\n  web2 node2 node1\n  web3 node4 node1\n  db1 node1 node2\n  old1 node1 node2\n  mail1 \
         node8\n  mail2 node8\n  build node8\n  dns1 node8\n  dns2 node8\nnode8\n  scratch node5\nnode4\n  web3 node3 \
         node1\n  web4 node1 node2\n  db2 node2 node1\nnode2\n  web1 node1 node3\n  web2 node3 node1\n  db2 node4 \
         node1\nnode1\n  web1 node2 node3\n  web4 node4 node2\n  db1 node3 node2\n  old1 node3 node2"
    );
}

#[test]
fn nodes_between_those_that_are_meant_are_coloured_too() {
    let cluster = read(LAB).unwrap();
    let options = StrictOptions {
        tags: Some(vec!["even".to_owned()]),
        ..StrictOptions::default()
    };
    let question = StrictInput::new(&cluster, &options).unwrap();
    let colouring = question.colouring().unwrap();
    assert_eq!(
        colouring.graph(),
        "array (1,7) [(1,[1,3]),(2,[]),(3,[3,1]),(4,[]),(5,[]),(6,[]),(7,[])]"
    );
    assert_eq!(
        colouring.statistics(),
        "Dcolor: 2 (6,1) TIE Dsatur: 2 (6,1) TIE LF: 2 (6,1)"
    );
    let groups = colouring.groups().unwrap();
    assert_eq!(
        lines(&groups, MOVES).join("\n"),
        "node4,node6\n  mail1 node8\n  mail2 node8\n  build node8\n  dns1 node8\n  dns2 node8\nnode8\n  scratch node5\nnode2"
    );
}

#[test]
fn edges_are_counted_as_often_as_there_are_instances() {
    let cluster = read(LAB).unwrap();
    let options = StrictOptions {
        skip_non_redundant: true,
        ..StrictOptions::default()
    };
    let question = StrictInput::new(&cluster, &options).unwrap();
    assert_eq!(
        question.colouring().unwrap().graph(),
        "array (0,3) [(0,[0,2,2,3,1]),(1,[1,3,2,0]),(2,[2,0,0,3,1]),(3,[3,1,0,2])]"
    );
}

#[test]
fn what_is_unsafe_is_named_and_nothing_is_where_all_is_stopped() {
    let cluster = read(LAB).unwrap();
    let dangers = |options: &StrictOptions| {
        let question = StrictInput::new(&cluster, options).unwrap();
        let colouring = question.colouring().unwrap();
        colouring.dangers(&colouring.groups().unwrap())
    };
    let found = dangers(&StrictOptions::default());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("one node only") && found[0].ends_with(": build"),
        "{found:?}"
    );
    let offline = StrictOptions {
        offline_maintenance: true,
        ..StrictOptions::default()
    };
    assert!(dangers(&offline).is_empty());
}

/// A secondary with too little memory, and one that is offline.
#[test]
fn full_and_missing_secondaries_are_unsafe() {
    let text = "\
g|u1|preferred||

n1|16384|512|9728|409600|400000|8|M|u1
n2|16384|512|1000|409600|400000|8|N|u1
n3|16384|512|15872|409600|400000|8|Y|u1

a|6144|1024|1|running|Y|n1|n2|drbd|
b|1024|1024|1|running|Y|n2|n3|drbd|


";
    let cluster = read(text).unwrap();
    let options = StrictOptions {
        ignore_non_redundant: true,
        ..StrictOptions::default()
    };
    let question = StrictInput::new(&cluster, &options).unwrap();
    let colouring = question.colouring().unwrap();
    let dangers = colouring.dangers(&colouring.groups().unwrap());
    assert!(
        dangers
            .iter()
            .any(|danger| danger.contains("too little memory") && danger.ends_with(": n2")),
        "{dangers:?}"
    );
    assert!(
        dangers
            .iter()
            .any(|danger| danger.contains("offline") && danger.ends_with(": b")),
        "{dangers:?}"
    );
}

#[test]
fn where_there_is_no_answer_what_stands_in_the_way_is_named() {
    let cluster = read(LAB).unwrap();
    let full = LAB
        .replace("|32768|1024|26624|", "|32768|1024|1000|")
        .replace("node8|32768|1024|31744|", "node8|32768|1024|900|");
    let error = groups(&read(&full).unwrap(), &StrictOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Not enough capacity to move non-redundant instances"
    );
    assert!(error.causes()[0].starts_with("instance "), "{:?}", error.causes());
    let wrong = StrictOptions {
        offline: vec!["node9".to_owned(), "node1".to_owned(), "x".to_owned()],
        ..StrictOptions::default()
    };
    let error = groups(&cluster, &wrong).unwrap_err();
    assert_eq!(error.to_string(), "wrong node name(s) set as offline: x,node9");
    let nowhere = StrictOptions {
        group: Some("north".to_owned()),
        ..StrictOptions::default()
    };
    assert_eq!(
        groups(&cluster, &nowhere).unwrap_err().to_string(),
        "Cannot find target group."
    );
    let untagged = StrictOptions {
        tags: Some(Vec::new()),
        ..StrictOptions::default()
    };
    let error = groups(&cluster, &untagged).unwrap_err();
    assert_eq!(error.to_string(), "Cannot create node graph");
    assert!(!error.causes().is_empty());
}

#[test]
fn a_node_may_be_named_by_what_stands_before_a_dot() {
    let text = LAB.replace("node2|", "node2.example.org|");
    let cluster = read(&text).unwrap();
    let options = StrictOptions {
        offline: vec!["node2".to_owned()],
        ..StrictOptions::default()
    };
    let groups = groups(&cluster, &options).unwrap();
    assert!(
        !groups
            .iter()
            .flat_map(|group| &group.nodes)
            .any(|node| node.starts_with("node2"))
    );
}

#[test]
fn what_is_saved_has_ganetis_policy_where_there_is_none() {
    let bare = "g|u1|preferred||\n\nn1|?|0|0|0|0|0|Y|u1\nn2|1024|0|1024|1024|1024|1|M|u1\n\n\n\n";
    let text = saved(&read(bare).unwrap());
    assert!(text.contains("\nn1|0|0|0|0|0|0|Y|u1|0||N|0|0|1.0\n"), "{text}");
    let policy = "128,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,8,12|diskless,file,sharedfile,plain,blockdev,drbd,rbd,\
                  ext,gluster|4.0|32.0\n";
    assert!(text.ends_with(&format!("\n|{policy}g|{policy}")), "{text}");
    // What says all of itself is written as it is.
    let whole = read(&text).unwrap();
    assert_eq!(saved(&whole), write(&whole));
}

/// As hroller 3.0.2 and 3.1 said it of the same texts.
#[test]
fn what_is_refused_is_refused_in_its_words() {
    const TEXT: &str = "g|u1|preferred||\n\nn1|16384|512|9728|409600|400000|8|M|u1\nn2|16384|512|9728|409600|400000|8|N|u1\n\n\
                        a|6144|1024|1|running|Y|n1|n2|drbd|\n\n\n\n";
    let said = |from: &str, to: &str| refusal(&TEXT.replacen(from, to, 1)).unwrap_or_default();
    assert_eq!(refusal(TEXT), None);
    assert_eq!(
        refusal(""),
        Some("Invalid format of the input file: 0 sections instead of 4 or more".to_owned())
    );
    assert_eq!(
        said("preferred", "x"),
        "Invalid string value for type AllocPolicy: \"x\""
    );
    assert_eq!(
        said("g|u1|preferred||", "g\"\\\u{e9}|u1|preferred"),
        "Invalid/incomplete group data: '[\"g\\\"\\\\\\233\",\"u1\",\"preferred\"]'"
    );
    assert_eq!(
        said("|16384|", "|16384y|"),
        "n1: leftover characters when parsing '16384y': 'y'"
    );
    assert_eq!(said("|512|", "|1.5|"), "n1: cannot parse string '1.5'");
    assert_eq!(said("|8|N|u1", "|8|N|u9"), "Unknown group 'u9' for node n2");
    assert_eq!(
        said("|8|N|u1", "|8|N|u1|1||W"),
        "Invalid exclusive_storage value for node 'n2': W"
    );
    assert_eq!(
        said("running", "run"),
        "Invalid string value for type InstanceStatus: \"run\""
    );
    assert_eq!(
        said("drbd", "raid"),
        "Instance a: Invalid string value for type DiskTemplate: \"raid\""
    );
    assert_eq!(said("|n1|n2|", "|n3|n2|"), "Unknown node 'n3' for instance a");
    assert_eq!(
        said("|n2|drbd", "|n1|drbd"),
        "Instance a has same primary and secondary node - n1"
    );
    assert_eq!(
        said("|drbd|", "|drbd||1|-|z"),
        "Invalid forthcoming value 'z' for instance a"
    );
}
