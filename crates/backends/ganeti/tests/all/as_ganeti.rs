//! What Ganeti itself would say to a plan: states of instances and nodes, policies, N+1, exclusion tags.

use stagger_core::explain::explain;
use stagger_core::model::{Code, Evacuate, EvacuationPolicy, Limit, Policy, Spare};
use stagger_ganeti::goal::GanetiRebootGoal;
use stagger_ganeti::loaders::text::read;
use stagger_ganeti::model::GanetiCluster;
use stagger_ganeti::translate::{View, snapshot};

use crate::planning::{bold, made, planned, planned_by, told, view, with};

/// Nobody knows where an instance runs of which Ganeti says another node: of DRBD it is one of two, else any.
#[test]
fn a_node_on_which_a_lost_instance_may_run_is_left_alone() {
    let lost = |status, secondary, template| {
        let db = ("db", 1024, status, 1, secondary, template, "");
        made(3, &[db])
    };
    let everything = with(EvacuationPolicy {
        evacuate: Evacuate::Everything,
        ..EvacuationPolicy::default()
    });
    for wish in [GanetiRebootGoal::default(), everything] {
        for status in ["ERROR_wrongnode", "ERROR_nodedown"] {
            assert_eq!(
                told(&lost(status, Some(2), "drbd"), &wish),
                "node3 | node1:guest-stuck node2:guest-stuck",
                "{status}"
            );
        }
    }
    assert_eq!(
        told(
            &lost("ERROR_wrongnode", None, "ext"),
            &GanetiRebootGoal::default()
        ),
        " | node1:guest-stuck node2:guest-stuck node3:guest-stuck"
    );
    assert_eq!(
        told(&lost("ERROR_nodedown", None, "ext"), &GanetiRebootGoal::default()),
        "node2,node3 | node1:guest-stuck"
    );
    let cluster = lost("ERROR_wrongnode", Some(2), "drbd");
    let (snapshot, target, made) = planned(&cluster, &GanetiRebootGoal::default());
    let said = explain(&snapshot, &target, &made, &"node2".parse().unwrap()).unwrap();
    assert_eq!(
        said.held_by,
        ["db may run there: it runs on another node than Ganeti has noted (ERROR_wrongnode)"]
    );
    let answered =
        stagger_ganeti::hroller::answer(&cluster, &stagger_ganeti::hroller::HrollerOptions::default());
    let groups = answered.unwrap().groups;
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].nodes, ["node3"]);
}

/// Somebody who has drained a node may be at work on it: nothing is staked on it, here as in a live cluster.
#[test]
fn a_drained_node_counts_as_down() {
    let mut cluster = made(3, &[("web", 1024, "running", 1, Some(2), "drbd", "")]);
    cluster.nodes[0].drained = true;
    let mut wish = GanetiRebootGoal::default();
    assert_eq!(
        told(&cluster, &wish),
        "node3 | node1:node-drained node2:never-ok-to-stop"
    );
    wish.selection.leave_out = vec!["node1".to_owned()];
    let policy = Policy {
        max_in_parallel: Limit::Count(1),
        ..bold()
    };
    let (_, _, made) = planned_by(&cluster, &wish, &policy);
    let left: Vec<_> = made
        .left_alone
        .iter()
        .map(|left| left.reason.code.code())
        .collect();
    assert_eq!(left, ["never-ok-to-stop", "max-in-parallel-used-up"]);
}

/// A master that carries no instances, say: Ganeti says nothing of it that it would have to ask it for.
#[test]
fn a_node_without_instances_is_left_alone_and_not_taken_for_one_that_is_down() {
    let mut cluster = made(6, &[("web", 1024, "running", 2, Some(3), "drbd", "")]);
    cluster.nodes[0].vm_capable = false;
    cluster.nodes[0].resources = None;
    let (_, _, made) = planned_by(&cluster, &GanetiRebootGoal::default(), &Policy::default());
    let left: Vec<_> = made
        .left_alone
        .iter()
        .map(|left| (left.unit.as_str(), left.reason.code.code()))
        .collect();
    assert_eq!(left, [("node1", "node-not-vm-capable")]);
    assert_eq!(made.units(), 5);
    cluster.nodes[0].offline = true;
    let (_, _, made) = planned_by(&cluster, &GanetiRebootGoal::default(), &bold());
    assert_eq!(made.left_alone[0].reason.code, Code::UnitDown);
}

const SPLIT: &str = "\
east|u1|preferred||
west|u2|preferred||

node1|16384|384|16000|409600|204800|8|M|u1
node2|16384|384|14976|409600|204800|8|N|u1
node3|16384|384|16000|409600|204800|8|N|u2

web|1024|1024|1|running|Y|node2|node1|drbd|


|128,1,1024,1,1,1|128,1,1,1,1,1;4096,8,9,9,9,9|drbd|4.0|32.0
";

/// Ganeti asks a policy where an instance goes to a node of another group (`_ComputeIPolicyNodeViolation`).
#[test]
fn a_policy_binds_only_what_goes_to_another_group() {
    let tight =
        |group: &str| format!("{SPLIT}{group}|128,1,1024,1,1,1|128,1,1,1,1,1;512,8,9,9,9,9|drbd|4.0|32.0\n");
    let elsewhere = |text: &str| read(&text.replacen("|node2|node1|", "|node2|node3|", 1)).unwrap();
    let node2 = |cluster: &GanetiCluster| {
        let (snapshot, target, made) = planned(cluster, &GanetiRebootGoal::default());
        let said = explain(&snapshot, &target, &made, &"node2".parse().unwrap()).unwrap();
        if made.left_alone.is_empty() {
            Vec::new()
        } else {
            said.held_by
        }
    };
    assert_eq!(node2(&read(&tight("east")).unwrap()), [""; 0], "within its group");
    assert_eq!(node2(&elsewhere(SPLIT)), [""; 0]);
    for group in ["west", "east"] {
        // There, or home again.
        let cluster = elsewhere(&tight(group));
        assert_eq!(
            node2(&cluster),
            [format!(
                "web cannot be moved: the policy of group {group} does not allow 1024 for memory-size"
            )]
        );
        let ignored = View {
            ignore_ipolicy: true,
            ..view()
        };
        let capacity = snapshot(&cluster, &ignored).unwrap();
        assert_eq!(capacity.capacity().unwrap().guest(0).stuck, None);
        // What it uses is not what it may have.
        let mut less = cluster.clone();
        less.instances[0].maxmem = 512;
        assert_eq!(node2(&less), [""; 0]);
    }
}

const KEPT: &str = "\
default|u|preferred||

n1|32768|1024|27648|1000000|990000|16|N|u|1||N|0|1|1.0
n2|32768|1024|31744|1000000|990000|16|M|u|1||N|0|1|1.0
n3|9216|1024|8192|1000000|980000|16|N|u|1||N|0|1|1.0

db1|4096|10000|1|running|Y|n1|n3|drbd||1|-|N
db2|6144|10000|1|ADMIN_down|Y|n2|n3|drbd||1|-|N


";

/// As `gnt-cluster verify` and `hcheck` count: with db1 on n3 that has no room for db2 any more, should somebody start it there.
#[test]
fn memory_is_kept_for_what_is_down_too() {
    let spend = with(EvacuationPolicy {
        spare: Spare::Spend,
        ..EvacuationPolicy::default()
    });
    for status in ["ADMIN_down", "ERROR_down", "USER_down", "ERROR_nodeoffline"] {
        let cluster = read(&KEPT.replacen("ADMIN_down", status, 1)).unwrap();
        assert_eq!(
            told(&cluster, &GanetiRebootGoal::default()),
            "n3 n2 | n1:no-room",
            "{status}"
        );
        assert_eq!(told(&cluster, &spend), "n3 n1,n2 | ", "{status}");
    }
    for (from, to) in [("ADMIN_down", "ADMIN_offline"), ("ADMIN_down|Y", "ADMIN_down|N")] {
        let cluster = read(&KEPT.replacen(from, to, 1)).unwrap();
        assert_eq!(
            told(&cluster, &GanetiRebootGoal::default()),
            "n3 n1,n2 | ",
            "{to}"
        );
    }
}

/// The pairs on which the real `hbal` was asked (`pri_tags_score` of its `-v -v`).
#[test]
fn what_begins_as_an_exclusion_tag_says_is_kept_apart() {
    for (prefix, tag, apart) in [
        ("service", "service-dns", true),
        ("service", "service", true),
        ("service:dns", "service:dns", true),
        ("service:", "service:dns", true),
        ("service", "service:dns", true),
        ("service", "xservice", false),
        ("", "whatever", true),
    ] {
        let mut cluster = made(
            3,
            &[
                ("dns1", 1024, "running", 1, None, "ext", tag),
                ("dns2", 1024, "running", 2, None, "ext", tag),
            ],
        );
        cluster.tags = vec![format!("htools:iextags:{prefix}")];
        let (_, _, made) = planned(&cluster, &GanetiRebootGoal::default());
        let meet = made.stages().flat_map(|stage| &stage.waves).any(|wave| {
            let to: Vec<_> = wave.moves.iter().map(|a_move| a_move.to.as_str()).collect();
            to.len() == 2 || to.iter().any(|to| *to != "node3")
        });
        assert_eq!(meet, !apart, "{prefix:?} {tag:?}");
        assert_eq!(made.waves(), if apart { 3 } else { 2 }, "{prefix:?} {tag:?}");
    }
}
