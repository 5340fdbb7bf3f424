//! The story: all nodes of a real Ganeti are rebooted, the master included, while `stagger` is killed,
//! a second one tries its luck and somebody else has work to do; and every instance that ran is back where it was.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::json;
use stagger_e2e::case::Phases;
use stagger_e2e::command::say;
use stagger_e2e::ganeti::{Cluster, GanetiSpec, Made, Release};
use stagger_e2e::stagger::{GanetiSetup, Machine, Planted, says};

const LIMIT: Duration = Duration::from_mins(6);
/// What is wished: the instance whose disks are on one node only is down.
const WISH: [&str; 2] = ["reboot", "--accept-non-redundant"];
/// Mistakes in the configuration.
const PLANTED: &[Planted<'_>] = &[
    Planted {
        good: "user = ",
        bad: "usr = ",
        says: "did you mean `user`?",
    },
    Planted {
        good: "watcher pause {seconds}",
        bad: "watcher pause {second}",
        says: "did you mean {seconds}?",
    },
    Planted {
        good: "lock_expires = ",
        bad: "lock_expires = 10 # ",
        says: "has to be more than twice `failover_timeout`",
    },
    Planted {
        good: "ca = \"",
        bad: "ca = \"/no",
        says: "cannot be read",
    },
    Planted {
        good: "user = \"",
        bad: "user = \"x",
        says: "RAPI answered 401",
    },
    Planted {
        good: "addresses = [",
        bad: "addresses = [\"127.0.0.1:9\"] # [",
        says: "no connection",
    },
    Planted {
        good: "pause = \"",
        bad: "pause = \"no-such-program ",
        says: "there is no program no-such-program",
    },
    Planted {
        good: "root@{master} gnt-cluster watcher",
        bad: "root@{master} no-such-gnt watcher",
        says: "there is no program no-such-gnt",
    },
    Planted {
        good: "root@{master} gnt-cluster watcher",
        bad: "-p9 root@{master} gnt-cluster watcher",
        says: "port 9: Connection refused",
    },
    Planted {
        good: "reboot = \"powercycle\"",
        bad: "# by ssh of this machine, which knows no node",
        says: "[cluster.visits] reboot",
    },
];
const NODES: [&str; 5] = ["node1", "node2", "node3", "node4", "node5"];

/// On which cluster it is told.
pub(crate) fn spec(release: Release) -> GanetiSpec {
    GanetiSpec {
        release,
        // Long enough for a kill while a node is down.
        boot_seconds: 5,
        ..GanetiSpec::default()
    }
}

/// Tells it.
pub(crate) fn told(cluster: &Cluster, phases: &mut Phases) -> Result<()> {
    cluster.make(&[
        Made::mirrored("mail", "node1", "node2"),
        Made::mirrored("web", "node3", "node4"),
        Made::mirrored("old", "node2", "node3").down(),
        Made::on("log", "plain", "node5").down(),
        Made::on("wiki", "sharedfile", "node2"),
        Made::on("shop", "rbd", "node4"),
        Made::on("probe", "diskless", "node5"),
    ])?;
    phases.lap("instances made");
    // Slow enough for a resync to be waited for.
    cluster.set_sync_rate(4)?;
    let before = cluster.state()?;
    let complaints = cluster.complaints()?;
    phases.lap("verified before");

    let setup = GanetiSetup {
        watcher: true,
        failover: true,
        drain_scope: "cluster",
        ..GanetiSetup::default()
    };
    let begun = Timestamp::now().to_string();
    let machine = Machine::new(cluster, "anna", &setup)?;
    let rival = Machine::new(cluster, "bert", &setup)?;
    let shown = machine.call(&[&["plan"][..], &WISH].concat())?.expect(0)?;
    say(&shown.out);
    let waves = machine.planned(&WISH, "reboot")?;
    ensure!(
        waves.iter().map(Vec::len).sum::<usize>() == NODES.len() && waves.iter().any(|wave| wave.len() > 1),
        "{waves:?}"
    );
    ensure!(
        waves
            .last()
            .is_some_and(|wave| wave.contains(&"node1".to_owned())),
        "the master is not among the last: {waves:?}"
    );
    phases.lap("planned");
    rival.plans_from_an_inventory(&WISH, "reboot")?;
    // Each node is gone to, not the master alone.
    let by_ssh = format!(
        "reboot = \"{}/ssh -p9 root@{{node}} reboot\"",
        cluster.dir().display()
    );
    let of_nodes = Planted {
        good: "reboot = \"powercycle\"",
        bad: &by_ssh,
        says: "connect to host node5 port 9",
    };
    rival.finds_planted(&[], &[PLANTED, &[of_nodes]].concat())?;
    phases.lap("mistakes in the configuration");

    let others = rebooted(cluster, &machine, &rival, phases)
        .with_context(|| format!("the end of the history:\n{}", machine.history_tail(40)))?;

    let job = cluster.ended(others, LIMIT)?;
    ensure!(job["status"] == "success", "somebody else's job: {job}");
    phases.lap("somebody else's job is done");
    cluster.ensure_rebooted(&before, &NODES)?;
    cluster.ensure_boots_are_noted(&before, &NODES)?;
    // The cluster tells it, also to a machine that has no journal of that run.
    let once_more = [&["plan"][..], &WISH, &["--since", &begun]].concat();
    let nothing = rival.call(&once_more)?.expect(1)?;
    nothing.expect_said(&["none of the selected nodes needs a reboot"])?;
    ensure!(cluster.master()? != before.master, "the master is still the same");
    resync_was_waited_for(cluster)?;
    phases.lap("all is as before");
    let after = cluster.complaints()?;
    let new: Vec<_> = after.difference(&complaints).collect();
    ensure!(new.is_empty(), "`gnt-cluster verify` now complains of {new:?}");
    phases.lap("verified after");
    judged(&machine).with_context(|| format!("the history:\n{}", machine.history_tail(200)))?;
    let guards = machine.call(&["ganeti", "guards"])?.expect(0)?;
    ensure!(guards.out.contains("No guard is held"), "{}", guards.out);
    Ok(())
}

/// Killed in mid-wave, resumed; a rival is refused, and a job of others waits. Gives that job's number.
fn rebooted(cluster: &Cluster, machine: &Machine, rival: &Machine, phases: &mut Phases) -> Result<u64> {
    let mut run = machine.start(&[&["run"][..], &WISH].concat())?;
    run.until("the lease", LIMIT, |line| says(line, "lease", "token"))?;
    let refused = rival.call(&[&["run"][..], &WISH].concat())?.expect(1)?;
    refused.expect_said(&["locked", &machine.newest_run()?, &run.pid().to_string()])?;
    phases.lap("a rival was refused");

    run.until("a wave", LIMIT, |line| says(line, "wave", "reboot"))?;
    machine.stop_when(&run, "a node that is down", LIMIT, |journal| {
        let down = journal.in_phase("change");
        Ok(down.iter().any(|(node, _)| !cluster.is_up(node)))
    })?;
    let job = cluster.submit("PUT", "/2/instances/probe/tags?tag=theirs", None)?;
    run.kill()?;
    phases.lap("killed with a node down");

    // Whoever changes the master needs a lock that outlasts it.
    let setup = GanetiSetup {
        watcher: true,
        drain_scope: "cluster",
        ..GanetiSetup::with_failover()
    };
    machine.configure(cluster, &setup)?;
    let mut run = machine.start(&["resume"])?;
    run.until("the lease", LIMIT, |line| says(line, "lease", "token"))?;
    phases.lap("resumed");
    let waits = cluster.rapi("GET", &format!("/2/jobs/{job}"), None)?;
    ensure!(
        waits.body["status"] == "queued",
        "somebody else's job does not wait: {}",
        waits.body
    );
    run.until("the next wave", LIMIT, |line| says(line, "wave", "reboot"))?;
    phases.lap("the first wave ended");
    let ended = run.end(LIMIT)?.expect(0)?;
    say(&ended.said);
    ended.expect_said(&["every instance that ran before is on its original primary (5 compared)"])?;
    phases.lap("the others, the master last");
    Ok(job)
}

/// A mirror was looked at more than once after its disks were made active, before it counted as whole.
fn resync_was_waited_for(cluster: &Cluster) -> Result<()> {
    let mut looks: BTreeMap<String, u32> = BTreeMap::new();
    let mut most = 0;
    for job in cluster.jobs()? {
        if let Some(name) = job.what().strip_prefix("activate-disks-") {
            looks.insert(name.to_owned(), 0);
        } else if let Some(looks) = job
            .what()
            .strip_prefix("look-at-")
            .and_then(|name| looks.get_mut(name))
        {
            *looks += 1;
            most = most.max(*looks);
        }
    }
    ensure!(most > 1, "no resync was waited for: {most} looks at most");
    Ok(())
}

/// Both judges were asked about each wave, each node was rebooted once, and no wave has both copies of an instance.
fn judged(machine: &Machine) -> Result<()> {
    let journal = machine.journal()?;
    journal.both_judges_agreed()?;
    let waves = journal.passed("reboot");
    // What was not begun when `stagger` was killed may leave its wave, and have its turn in a later one.
    let mut rebooted: Vec<String> = journal
        .actions("visit")
        .into_iter()
        .filter(|(_, action)| action["phase"] == "change")
        .map(|(node, _)| node)
        .collect();
    rebooted.sort();
    ensure!(
        rebooted == NODES,
        "these were rebooted: {rebooted:?}, in {waves:?}"
    );
    for wave in &waves {
        for pair in [["node1", "node2"], ["node3", "node4"], ["node2", "node3"]] {
            let both = pair.iter().all(|node| wave.units.iter().any(|unit| unit == node));
            ensure!(!both, "both copies of an instance went down in {wave:?}");
        }
    }
    ensure!(
        journal
            .of("intent")
            .any(|event| event["action"]["guard"] == json!("drain"))
    );
    ensure!(
        journal
            .of("intent")
            .any(|event| event["action"]["guard"] == json!("watcher-pause"))
    );
    say(format!(
        "waves: {:?}",
        waves.iter().map(|wave| &wave.units).collect::<Vec<_>>()
    ));
    Ok(())
}
