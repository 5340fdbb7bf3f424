//! What `daemonctl` can do beyond restarting: faults, going back, and stores made anew.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stagger_e2e::ceph::{CephSpec, Cluster, Daemon, Kind};
use stagger_e2e::command::{output, run, say};
use stagger_e2e::roots::Release;

const LIMIT: Duration = Duration::from_mins(2);

#[test]
#[ignore = "needs root and Ceph; cargo xtask test --long runs it"]
fn faults_are_seen_and_stores_are_made_anew() -> Result<()> {
    let spec = CephSpec {
        osds: 12,
        mdss: 0,
        rgws: 0,
        ..CephSpec::default()
    };
    let cluster = Cluster::boot_with(Release::Pacific, spec, &[Release::Pacific, Release::Reef])?;
    going_back(&cluster).with_context(|| cluster.logs_tail())
}

fn going_back(cluster: &Cluster) -> Result<()> {
    let osd = |id: &str| Daemon {
        kind: Kind::Osd,
        id: id.to_owned(),
    };
    let words = ["use", "osd", "0", "20"];
    let refused = output(
        cluster
            .sandbox()
            .command(cluster.dir().join("daemonctl"))
            .args(words),
    )?;
    ensure!(
        refused.status.code() == Some(3),
        "a release that is not there: {refused:?}"
    );

    // A mon that 18 has written to cannot be read by 16, but 16 can make it anew from the others.
    let mons = cluster.spec().daemons(Kind::Mon);
    cluster.upgrade(&mons[0], Release::Reef)?;
    full_quorum(cluster)?;
    cluster.daemonctl(&["rebuild", "mon", "a", "16"])?;
    full_quorum(cluster)?;
    ensure!(release(cluster, "mon", "a")? == "16", "mon.a is not on 16");
    say("mon.a went to 18 and came back");

    for mon in &mons {
        cluster.upgrade(mon, Release::Reef)?;
        full_quorum(cluster)?;
    }
    for mgr in cluster.spec().daemons(Kind::Mgr) {
        cluster.upgrade(&mgr, Release::Reef)?;
    }
    cluster.wait_clean(LIMIT)?;

    // It never got to its store, so the old release simply runs again.
    cluster.set_fault(&osd("1"), Some("18 fail"))?;
    let why = cluster
        .upgrade(&osd("1"), Release::Reef)
        .err()
        .context("osd.1 started despite its fault")?;
    ensure!(
        format!("{why:#}").contains("made to fail"),
        "another failure: {why:#}"
    );
    cluster.daemonctl(&["use", "osd", "1", "16"])?;
    cluster.daemonctl(&["start", "osd", "1"])?;
    cluster.wait_clean(LIMIT)?;
    say("osd.1 failed on 18 and is back on 16");

    // This one has written to its store on 18.
    cluster.set_fault(&osd("2"), Some("18 crash-after 2"))?;
    cluster.upgrade(&osd("2"), Release::Reef)?;
    thread::sleep(Duration::from_secs(4));
    ensure!(
        cluster.daemonctl(&["status", "osd", "2"]).is_err(),
        "osd.2 runs despite its fault"
    );
    cluster.daemonctl(&["use", "osd", "2", "16"])?;
    let why = cluster
        .daemonctl(&["start", "osd", "2"])
        .err()
        .context("16 read what 18 had written")?;
    ensure!(
        format!("{why:#}").contains("unable to mount object store"),
        "another failure: {why:#}"
    );
    cluster.daemonctl(&["rebuild", "osd", "2", "16"])?;
    let took = cluster.wait_clean(LIMIT)?;
    ensure!(release(cluster, "osd", "2")? == "16", "osd.2 is not on 16");
    say(format!(
        "osd.2 crashed on 18; made anew on 16, it was clean after {:.1} s",
        took.as_secs_f64()
    ));
    Ok(())
}

#[test]
#[ignore = "needs root and Ceph; cargo xtask test --long runs it"]
fn who_starts_itself_anew_is_stopped_all_the_same() -> Result<()> {
    let spec = CephSpec {
        osds: 12,
        mdss: 2,
        rgws: 0,
        ..CephSpec::default()
    };
    let cluster = Cluster::boot_with(Release::Reef, spec, &[Release::Reef])?;
    started_anew(&cluster).with_context(|| cluster.logs_tail())
}

/// As a metadata server does that hears that it was replaced: for a moment no file names its process.
fn started_anew(cluster: &Cluster) -> Result<()> {
    for after in [0, 20, 50, 100, 150, 200, 300, 500, 1_000] {
        run(Command::new(cluster.dir().join("ceph")).args(["tell", "mds.b", "respawn"]))?;
        thread::sleep(Duration::from_millis(after));
        cluster.daemonctl(&["stop", "mds", "b"])?;
        let words = ["-f", "^ceph-mds .*-i b$"];
        let left = output(cluster.sandbox().command("pgrep").args(words))?;
        ensure!(
            left.stdout.is_empty(),
            "stopped {after} ms after it was told to start anew, and there is {}",
            String::from_utf8_lossy(&left.stdout)
        );
        cluster.daemonctl(&["start", "mds", "b"])?;
        cluster.wait_for("mds.b", LIMIT, |rados| {
            let seen = rados.mon("mds metadata")?;
            let names = seen.as_array().into_iter().flatten();
            Ok(names
                .filter(|one| one["name"] == "b" && one.get("addr").is_some())
                .count()
                == 1)
        })?;
    }
    Ok(())
}

fn full_quorum(cluster: &Cluster) -> Result<()> {
    // What the map still says of a moment ago is not an answer.
    thread::sleep(Duration::from_millis(500));
    let mons = cluster.spec().daemons(Kind::Mon).len();
    cluster.wait_for("full quorum", LIMIT, |rados| {
        let quorum = rados.mon("quorum_status")?;
        Ok(quorum["quorum_names"]
            .as_array()
            .is_some_and(|names| names.len() == mons))
    })?;
    Ok(())
}

/// The release that a daemon runs.
fn release(cluster: &Cluster, kind: &str, id: &str) -> Result<String> {
    let status = cluster.daemonctl(&["status", kind, id])?;
    Ok(status.split_whitespace().nth(1).unwrap_or("").to_owned())
}
