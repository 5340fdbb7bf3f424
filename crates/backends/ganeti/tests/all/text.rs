//! The text format: both ways, and what is refused.

use proptest::prelude::*;
use stagger_ganeti::loaders::generated::{ClusterRng, Shape, cluster};
use stagger_ganeti::loaders::text::{read, write};
use stagger_ganeti::model::{Status, Template};

proptest! {
    #[test]
    fn what_was_written_is_read_as_it_was(seed: u64) {
        let mut rng = ClusterRng(seed);
        let shape = Shape::any(&mut rng, 12);
        let before = cluster(&mut rng, &shape);
        let text = write(&before);
        let after = read(&text).unwrap();
        prop_assert_eq!(&before, &after);
        prop_assert_eq!(text, write(&after));
    }

    #[test]
    fn a_text_that_is_cut_or_spoilt_is_refused_or_read_and_never_a_panic(
        seed: u64, cut in 0_usize..4000, at in 0_usize..4000, with in "[|,;?\\n0-9a-zA-Z-]",
    ) {
        let mut rng = ClusterRng(seed);
        let shape = Shape::small_cluster(&mut rng);
        let text = write(&cluster(&mut rng, &shape));
        read(&text[..cut.min(text.len())]).ok();
        let at = at % text.len();
        let spoilt = format!("{}{with}{}", &text[..at], &text[at + 1..]);
        if let Err(error) = read(&spoilt) {
            prop_assert!(error.line >= 1 && error.line <= spoilt.lines().count() + 1, "{}", error);
        }
    }
}

const GOOD: &str = "\
default|uuid-1|preferred|a,b|

node1|16384|512|14336|102400|102016|2|M|uuid-1
node2|16384.5|512|15872|102400|102016|2|N|uuid-1|4|tag|N|0|1|1.0
node3|?|?|?|?|?|?|Y|uuid-1

web1|1024|64|1|running|Y|node1|node2|drbd|
web2|512|64|1|ADMIN_down|N|node2||plain|x,y|2|-|N

htools:iextags:service

|128,1,1024,1,1,1|1,1,1,1,1,1;9,9,9,9,9,9|drbd,plain|4.0|32.0
default|128,1,1024,1,1,1|1,1,1,1,1,1;9,9,9,9,9,9|drbd|2.0|16.0

whatever a later release adds
";

#[test]
fn fields_that_may_be_missing_have_their_defaults() {
    let cluster = read(GOOD).unwrap();
    assert_eq!(cluster.groups[0].tags, ["a", "b"]);
    let resources = cluster.nodes[0].resources.unwrap();
    assert_eq!((resources.spindles, resources.cpus_own), (1, 1));
    assert_eq!(cluster.nodes[1].resources.unwrap().memory, 16384);
    assert!(cluster.nodes[2].resources.is_none() && !cluster.nodes[2].is_up());
    assert_eq!(
        cluster
            .masters()
            .map(|node| node.name.as_str())
            .collect::<Vec<_>>(),
        ["node1"]
    );
    assert_eq!(cluster.instances[0].template, Template::Drbd);
    assert_eq!(cluster.instances[1].status, Status::AdminDown);
    assert_eq!(cluster.instances[1].spindle_use, 2);
    let ratio = cluster.ipolicy.as_ref().unwrap().vcpu_ratio;
    assert!((ratio - 4.0).abs() < f64::EPSILON, "{ratio}");
    assert_eq!(
        cluster.ipolicy_of(cluster.nodes[0].group).unwrap().templates,
        [Template::Drbd]
    );
}

/// Sums of what is left stay whole.
#[test]
fn numbers_that_no_node_has_are_refused() {
    for (from, to, said) in [
        (
            "web1|1024",
            "web1|9223372036854775807",
            "line 7, memory: 9223372036854775807 is more than any node has, which is at most 1000000000000",
        ),
        (
            "512|14336",
            "512|-1000000000001.5",
            "line 3, free memory: -1000000000001.5 is more than any node has, which is at most 1000000000000",
        ),
        (
            "512|14336",
            "512|inf",
            "line 3, free memory: \"inf\" is not a number",
        ),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_eq!(read(&text).unwrap_err().to_string(), said);
    }
}

/// A bound of a policy is only compared.
#[test]
fn a_policy_may_allow_anything() {
    let text = GOOD.replacen("9,9,9,9,9,9", "18446744073709551615,9,9,9,9,9", 1);
    assert_eq!(read(&text).unwrap().ipolicy.unwrap().ranges[0].1[0], u64::MAX);
}

#[test]
fn policies_may_be_missing() {
    let text = GOOD.split("\n|128").next().unwrap();
    assert!(read(text).unwrap().ipolicy.is_none());
}

#[test]
fn refusals_name_the_line_and_the_field() {
    for (from, to, said) in [
        (
            "preferred",
            "sometimes",
            "line 1, allocation policy: \"sometimes\" is none of preferred, last_resort, unallocable",
        ),
        (
            "16384|512|14336",
            "16384|512|lots",
            "line 3, free memory: \"lots\" is not a number",
        ),
        ("node1|16384", "node1|-1", "line 3, memory: -1 is below 0"),
        (
            "|M|uuid-1",
            "|M|uuid-2",
            "line 3, group: there is no group with the UUID \"uuid-2\"",
        ),
        (
            "|M|",
            "|X|",
            "line 3, flag: \"X\" is none of Y (offline), M (master), N",
        ),
        (
            "node2|16384.5",
            "node1|16384.5",
            "line 4, name: two nodes are called \"node1\"",
        ),
        (
            "node2|16384.5",
            "no de|16384.5",
            "line 4, name: \"no de\" is no name: it holds white space or control characters",
        ),
        (
            "|node1|node2|",
            "|node1|node9|",
            "line 7, secondary node: there is no node \"node9\"",
        ),
        (
            "|node1|node2|",
            "|node1|node1|",
            "line 7, secondary node: \"node1\" is the primary node too",
        ),
        (
            "|running|",
            "|walking|",
            "line 7, status: \"walking\" is none of running, ADMIN_down, ERROR_down, ERROR_up, ERROR_wrongnode, ERROR_nodedown, ERROR_nodeoffline, ADMIN_offline, USER_down",
        ),
        (
            "|drbd|\nweb2",
            "|paper|\nweb2",
            "line 7, disk template: \"paper\" is none of diskless, file, sharedfile, plain, blockdev, drbd, rbd, ext, gluster",
        ),
        (
            "|Y|node1",
            "|maybe|node1",
            "line 7, auto balance: \"maybe\" is neither Y nor N",
        ),
        (
            "web1|1024|64|1|running|Y|node1|node2|drbd|",
            "web1|1024|64",
            "line 7: an instance has 10 fields or more, and this has 3",
        ),
        (
            "\n|128,1,1024,1,1,1|1,1",
            "\n|128,1,1024,1,1|1,1",
            "line 12, standard: 6 sizes are wanted, and \"128,1,1024,1,1\" has 5",
        ),
        (
            ";9,9,9,9,9,9|drbd,",
            "|drbd,",
            "line 12, ranges: a range has a least and a most, and one of them is missing",
        ),
        (
            "\ndefault|128",
            "\nother|128",
            "line 13, owner: there is no group \"other\"; empty stands for the cluster",
        ),
        ("\ndefault|128", "\n|128", "line 13, owner: \"\" has two policies"),
        (
            "drbd|2.0",
            "drbd|NaN",
            "line 13, ratio of virtual processors: \"NaN\" is not a number of 0 or more",
        ),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from} is not there");
        assert_eq!(read(&text).unwrap_err().to_string(), said);
    }
    let cut = GOOD.split("\nweb1").next().unwrap();
    assert_eq!(
        read(cut).unwrap_err().to_string(),
        "line 6: the text ends before the section of instances; there are 4, each after an empty line: groups, nodes, instances, tags of the cluster"
    );
}
