//! All nodes, in waves that grow.

use anyhow::{Result, ensure};
use stagger_e2e::case::{Phases, on_ganeti};
use stagger_e2e::ganeti::{Cluster, Made, Release};
use stagger_e2e::stagger::{GanetiSetup, Machine};

use super::{LIMIT, case, case_of, reboot, story};

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn every_node_with_all_kinds_of_instances_and_the_master() -> Result<()> {
    let name = "every_node_with_all_kinds_of_instances_and_the_master";
    case(5, name, every_node)
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn every_node_of_ganeti_3_1() -> Result<()> {
    case_of(Release::V3_1, 5, "every_node_of_ganeti_3_1", every_node)
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn the_story_on_ganeti_3_1() -> Result<()> {
    on_ganeti("the_story_on_ganeti_3_1", story::spec(Release::V3_1), story::told)
}

fn every_node(cluster: &Cluster, phases: &mut Phases) -> Result<()> {
    cluster.make(&[
        Made::mirrored("mail", "node1", "node2"),
        Made::mirrored("web", "node2", "node3"),
        Made::mirrored("shop", "node4", "node5"),
        Made::mirrored("old", "node3", "node4").down(),
        Made::on("log", "plain", "node5").down(),
        Made::on("dump", "file", "node4").down(),
        Made::on("wiki", "sharedfile", "node1"),
        Made::on("files", "rbd", "node3"),
        Made::on("probe", "diskless", "node5"),
    ])?;
    phases.lap("instances made");
    let before = cluster.state()?;
    let setup = GanetiSetup {
        growth: true,
        watcher: true,
        ..GanetiSetup::with_failover()
    };
    let machine = Machine::new(cluster, "anna", &setup)?;
    the_masters_daemon_tells_the_same(cluster, &machine, &setup)?;
    phases.lap("hroller asked the master's daemon");
    let why = machine.call(&["explain", "node1", "reboot", "--accept-non-redundant"])?;
    let why = why.expect(0)?.out;
    ensure!(
        why.contains("node1") && why.contains("in the last wave, as requested"),
        "{why}"
    );
    // That of 3.1 is what makes it a tested one.
    reboot(
        &machine,
        &["--accept-non-redundant", "--accept-untested-release"],
        0,
    )?;
    phases.lap("rebooted");
    let nodes = ["node1", "node2", "node3", "node4", "node5"];
    cluster.ensure_rebooted(&before, &nodes)?;
    ensure!(cluster.master()? != "node1", "the master is still the same");
    let journal = machine.journal()?;
    journal.both_judges_agreed()?;
    let waves = journal.passed("reboot");
    ensure!(
        waves.first().is_some_and(|wave| wave.units.len() == 1),
        "the first wave is no canary: {waves:?}"
    );
    // A cluster that was rebooted may be rebooted once more: it is another wish.
    machine.call(&["status"])?.expect(0)?;
    the_fence_holds(cluster)?;
    phases.lap("the fence refuses what is late");
    Ok(())
}

/// A request of a process that had the lock before becomes a job that is cancelled before it begins; those of others run.
fn the_fence_holds(cluster: &Cluster) -> Result<()> {
    let submitted = |reason: &str| {
        let path = format!("/2/instances/wiki/tags?tag=late&reason={reason}");
        let job = cluster.submit("PUT", &path, None)?;
        cluster.ended(job, LIMIT)
    };
    let late = submitted("stagger:000000000000:1:20260101-0000-abcd-1:tag-wiki")?;
    ensure!(late["status"] == "canceled", "a late job of ours ran: {late}");
    let theirs = submitted("theirs")?;
    ensure!(
        theirs["status"] == "success",
        "a job of others did not run: {theirs}"
    );
    Ok(())
}

/// `hroller -L` on the master beside `hroller -m`.
fn the_masters_daemon_tells_the_same(
    cluster: &Cluster,
    machine: &Machine,
    setup: &GanetiSetup,
) -> Result<()> {
    let socket = cluster.dir().join("node1/var/run/ganeti/socket/ganeti-query");
    let groups = |source: &[&str]| -> Result<String> {
        let words = [&["hroller", "--print-moves"][..], source].concat();
        let ended = machine.call(&words)?.expect(0)?;
        ensure!(ended.out.contains("Group"), "{}", ended.out);
        Ok(ended.out)
    };
    let there = groups(&["-L", &socket.display().to_string()])?;
    let here = groups(&["-m", &setup.address])?;
    ensure!(there == here, "by luxid:\n{there}\nby RAPI:\n{here}");
    Ok(())
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn groups_go_in_parallel() -> Result<()> {
    case(5, "groups_go_in_parallel", |cluster, phases| {
        cluster.gnt(&["gnt-group", "add", "other"])?;
        cluster.gnt(&["gnt-group", "assign-nodes", "other", "node4", "node5"])?;
        cluster.make(&[
            Made::on("wiki", "sharedfile", "node2"),
            Made::on("mail", "sharedfile", "node3"),
            Made::on("shop", "sharedfile", "node4"),
            Made::on("dump", "sharedfile", "node5"),
        ])?;
        let before = cluster.state()?;
        phases.lap("two groups, an instance on each node");
        let machine = Machine::new(cluster, "anna", &GanetiSetup::default())?;
        // One of each group at a time.
        reboot(&machine, &["--non-drbd", "one", "-O", "node1"], 0)?;
        phases.lap("rebooted");
        cluster.ensure_rebooted(&before, &["node2", "node3", "node4", "node5"])?;
        let waves = machine.journal()?.passed("reboot");
        ensure!(
            waves.len() == 2
                && waves.iter().all(|wave| {
                    let of_other = wave
                        .units
                        .iter()
                        .filter(|unit| ["node4", "node5"].contains(&unit.as_str()));
                    wave.units.len() == 2 && of_other.count() == 1
                }),
            "{waves:?}"
        );
        // Of one group alone nothing else is touched.
        let before = cluster.state()?;
        reboot(&machine, &["-G", "other"], 0)?;
        cluster.ensure_rebooted(&before, &["node4", "node5"])?;
        phases.lap("and then one group alone");
        Ok(())
    })
}

/// As in every cluster of more than ten nodes: Ganeti refuses to drain a candidate unless another may be promoted.
#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn with_more_nodes_than_candidates() -> Result<()> {
    case(4, "with_more_nodes_than_candidates", |cluster, phases| {
        cluster.make(&[Made::on("wiki", "sharedfile", "node2")])?;
        cluster.gnt(&["gnt-cluster", "modify", "--candidate-pool-size=2"])?;
        for node in ["node3", "node4"] {
            cluster.gnt(&["gnt-node", "modify", "--master-candidate=no", node])?;
        }
        let mut before = cluster.state()?;
        let roles: String = before.roles.values().map(String::as_str).collect();
        ensure!(roles == "MCRR", "the roles are {roles}");
        phases.lap("two candidates of four nodes");
        let machine = Machine::new(cluster, "anna", &GanetiSetup::default())?;
        reboot(&machine, &["-O", "node1"], 0)?;
        phases.lap("rebooted");
        // Who was promoted stays so.
        let now = cluster.state()?;
        ensure!(now.roles["node2"] == "C", "{:?}", now.roles);
        let promoted = now.roles.values().filter(|role| *role == "C").count();
        ensure!(promoted > 1, "nobody was promoted: {:?}", now.roles);
        before.roles = now.roles;
        cluster.ensure_rebooted(&before, &["node2", "node3", "node4"])
    })
}
