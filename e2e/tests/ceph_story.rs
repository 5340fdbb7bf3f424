//! One story for every change: a real cluster goes from 16 to 18 and on to 20 under load, while `stagger`
//! is killed, while a second one tries its luck, and nobody who reads or writes notices anything.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use stagger_e2e::case::{Phases, under_load};
use stagger_e2e::ceph::{Cluster, Daemon, Kind};
use stagger_e2e::command::say;
use stagger_e2e::oracle;
use stagger_e2e::rados::Target;
use stagger_e2e::rook;
use stagger_e2e::roots::Release;
use stagger_e2e::stagger::{Machine, Planted, Setup, says};
use stagger_e2e::verify;

const LIMIT: Duration = Duration::from_mins(5);
/// Mistakes in the configuration.
const PLANTED: &[Planted<'_>] = &[
    Planted {
        good: "lock_expires = ",
        bad: "lock_expire = ",
        says: "did you mean `lock_expires`?",
    },
    Planted {
        good: "r={release}; ",
        bad: "r={relase}; ",
        says: "did you mean {release}?",
    },
    Planted {
        good: "daemonctl use",
        bad: "daemonctll use",
        says: "there is no program",
    },
    Planted {
        good: "logs = \"tail -n 200 ",
        bad: "logs = \"tail -n 200 'x ",
        says: "its shell cannot read",
    },
    Planted {
        good: "accept = [",
        bad: "accept = [\"POOL_NO_REDUNDANSY\", ",
        says: "Ceph 16 to 20 know no health check POOL_NO_REDUNDANSY",
    },
    Planted {
        good: "/enter\", \"sh\"",
        bad: "/entr\", \"sh\"",
        says: "cannot be started",
    },
    Planted {
        good: "ceph.conf\"",
        bad: "ceph.cnf\"",
        says: "cluster",
    },
    Planted {
        good: "growth = ",
        bad: "order = { by-domain = \"rakc\" }\ngrowth = ",
        says: "there is no such level of failure domains",
    },
    Planted {
        good: "[policy]",
        bad: "[cluster.durations]\nods = 20\n[policy]",
        says: "there is no such kind of daemon",
    },
    Planted {
        good: "restart = ",
        bad: "# restart = ",
        says: "set `restart` in [software.mon]",
    },
    Planted {
        good: "interruptions = [",
        bad: "interruptions = 7 # [",
        says: "invalid type",
    },
    Planted {
        good: "doors = ",
        bad: "doors = \"sometimes\" # ",
        says: "sometimes",
    },
    Planted {
        good: "folder = \"",
        bad: "folder = \"/proc/no",
        says: "its folder is not writable",
    },
    Planted {
        good: "restart = \"",
        bad: "restart = \"sudo -n ",
        says: "there is no program sudo",
    },
    Planted {
        good: "[software.all]",
        bad: "[software.all]\nversions = \"echo 'ceph-base | 16.2.15-1~bpo11+1 | x'\"",
        says: "its repositories do not have 18.",
    },
    Planted {
        good: "[software.all]",
        bad: "[software.all]\nversions = \"echo no network; exit 4\"",
        says: "its repositories could not be read",
    },
    Planted {
        good: "conf = ",
        bad: "user = \"client.load\"\nconf = ",
        says: "[cluster] user",
    },
    Planted {
        good: "python = [",
        bad: "python = [\"no-such-python\"] # [",
        says: "no-such-python",
    },
];
/// Sets that both oracles are asked about on each map.
const SETS: usize = 300;

#[test]
#[ignore = "needs root and Ceph; cargo xtask test runs it"]
fn from_16_over_18_to_20_under_load_with_kills_and_a_rival() -> Result<()> {
    under_load("story_16_18_20", Release::Pacific, &Release::ALL, story)
}

fn story(cluster: &Cluster, phases: &mut Phases) -> Result<()> {
    let setup = Setup::default();
    let machine = Machine::new(cluster, "anna", &setup)?;
    let rival = Machine::new(cluster, "bert", &setup)?;
    let to = verify::version(cluster, Release::Reef)?;

    let planned = machine.planned(&["upgrade", "--to", &to], "osd")?;
    let over_hosts = planned.iter().filter(|wave| hosts(wave).len() > 1).count();
    let rounds = rook::walk(cluster, cluster.spec().osds)?;
    say(format!(
        "OSD waves planned: {}, {over_hosts} of them over several hosts; Rook's walk: {} rounds",
        planned.len(),
        rounds.len()
    ));
    ensure!(over_hosts > 0, "no wave has OSDs of two hosts: {planned:?}");
    ensure!(
        planned.len() < rounds.len(),
        "{planned:?} is no better than {rounds:?}"
    );
    phases.lap("plan, and Rook's walk");

    rival.plans_from_an_inventory(&["upgrade", "--to", &to], "osd")?;
    rival.finds_planted(&["--to", &to], PLANTED)?;
    let refused = rival.call(&["config", "check", "--to", "99.1"])?.expect(1)?;
    refused.expect_said(&["\"99.1\" is no release that is known here"])?;
    phases.lap("mistakes in the configuration");

    oracles_agree(cluster, phases)?;

    upgrade_with_kills(cluster, &machine, &rival, &to, phases)
        .with_context(|| format!("the end of the history:\n{}", machine.history_tail(40)))?;

    let waves = upgraded(cluster, &machine, Release::Reef, 1)?;
    ensure!(
        waves < rounds.len(),
        "{waves} OSD waves, Rook {} rounds",
        rounds.len()
    );
    phases.lap("16 to 18 verified");

    let to = verify::version(cluster, Release::Tentacle)?;
    was_out_of_the_quorum(cluster)?;
    monitors_first(cluster, &machine, &to)?;
    phases.lap("monitors to 20");
    let run = machine.start(&["run", "upgrade", "--to", &to])?;
    let ended = run
        .end(LIMIT)?
        .expect(0)
        .with_context(|| machine.history_tail(40))?;
    say(&ended.said);
    phases.lap("18 to 20");
    upgraded(cluster, &machine, Release::Tentacle, 2)?;
    phases.lap("18 to 20 verified");
    let tally = oracle::beside_the_real_one(cluster, 3, SETS)?;
    tally.print("20");
    ensure!(
        tally.others.is_empty(),
        "disagreements that the map does not prove: {:?}",
        tally.others
    );
    phases.lap("both oracles on 20");
    Ok(())
}

/// What the last monitor has on its disk if it was out of the quorum while the others came to 18. On that 20 does not start.
fn was_out_of_the_quorum(cluster: &Cluster) -> Result<()> {
    let mons = cluster.spec().daemons(Kind::Mon);
    let last = mons.last().context("there are monitors")?;
    let file = cluster.dir().join(format!("mon.{}/min_mon_release", last.id));
    let recorded = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    ensure!(recorded.trim() == "reef", "{} says {recorded:?}", file.display());
    std::fs::write(&file, "pacific\n").with_context(|| format!("write {}", file.display()))
}

/// Monitors alone: OSDs do not come before them, nothing else is touched, and the next run takes up the rest.
fn monitors_first(cluster: &Cluster, machine: &Machine, to: &str) -> Result<()> {
    let jumped = machine.call(&["plan", "upgrade", "--to", to, "--kind", "osd", "--host", "host0"])?;
    jumped
        .expect(1)?
        .expect_said(&["come after stage mon", "not selected"])?;
    let run = machine.start(&["run", "upgrade", "--to", to, "--kind", "mon"])?;
    let ended = run.end(LIMIT)?.expect(0)?;
    ended.expect_said(&["every selected unit serves on the target"])?;
    let versions = cluster.rados().mon("versions")?;
    let only = |kind: &str, version: &str| {
        let kind = versions[kind].as_object();
        kind.is_some_and(|kind| kind.len() == 1 && kind.keys().all(|name| name.contains(version)))
    };
    let before = verify::version(cluster, Release::Reef)?;
    ensure!(
        only("mon", to) && only("osd", &before) && only("mgr", &before),
        "it runs {versions}"
    );
    verify::nothing_is_left(cluster)
}

/// Everything is on that release, nothing is left, each daemon was visited so often in all. Gives the
/// number of OSD waves.
fn upgraded(cluster: &Cluster, machine: &Machine, release: Release, visits: u32) -> Result<usize> {
    verify::is_on(cluster, machine, release)?;
    verify::nothing_is_left(cluster)?;
    verify::visited_each(cluster, visits)?;
    verify::is_healthy(cluster)?;
    let journal = machine.journal()?;
    journal.both_judges_agreed()?;
    let waves = journal.passed("osd");
    let on: Vec<_> = waves.iter().map(|wave| hosts(&wave.units).len()).collect();
    ensure!(
        on.iter().any(|hosts| *hosts > 1),
        "no wave had OSDs of two hosts: {waves:?}"
    );
    say(format!(
        "OSD waves to {release}: {}, on {on:?} hosts, each with the consent of both judges",
        waves.len()
    ));
    for (stage, seconds) in journal.stage_seconds() {
        say(format!("   stage {stage}: {seconds:.1} s"));
    }
    Ok(waves.len())
}

/// The hosts of OSDs: two on each, in order.
fn hosts(osds: &[String]) -> BTreeSet<u32> {
    osds.iter()
        .filter_map(|osd| osd.strip_prefix("osd.")?.parse::<u32>().ok())
        .map(|osd| osd / 2)
        .collect()
}

fn oracles_agree(cluster: &Cluster, phases: &mut Phases) -> Result<()> {
    let clean = oracle::beside_the_real_one(cluster, 1, SETS)?;
    clean.print("16, clean");
    ensure!(clean.same == SETS, "they differ: {:?}", clean.others);
    ensure!(
        clean.yes > 0 && clean.yes < SETS,
        "the sets ask for nothing: {clean:?}"
    );
    let stopped = Daemon {
        kind: Kind::Osd,
        id: "5".to_owned(),
    };
    cluster.daemonctl(&["stop", "osd", &stopped.id])?;
    cluster.wait_for("a map that stands still without osd.5", LIMIT, |rados| {
        let status = rados.mon("status")?;
        let states = status["pgmap"]["pgs_by_state"].as_array().cloned();
        let states = states.unwrap_or_default();
        // A group whose primary has not reported since is told as it was before.
        let groups = rados.command(Target::Mgr, "pg dump", json!({}))?;
        let groups = groups["pg_map"]["pg_stats"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let is_left = |group: &Value| {
            group["acting"]
                .as_array()
                .is_some_and(|acting| acting.contains(&json!(5)))
        };
        let known = ["active+clean", "active+undersized+degraded", "active+undersized"];
        Ok(states.len() > 1
            && !groups.is_empty()
            && !groups.iter().any(is_left)
            && status["osdmap"]["num_up_osds"] == cluster.spec().osds - 1
            && states.iter().all(|state| {
                state["state_name"]
                    .as_str()
                    .is_some_and(|name| known.contains(&name))
            }))
    })?;
    let degraded = oracle::beside_the_real_one(cluster, 2, SETS);
    cluster.daemonctl(&["start", "osd", &stopped.id])?;
    let degraded = degraded?;
    degraded.print("16, an OSD down");
    ensure!(degraded.same == SETS, "they differ: {:?}", degraded.others);
    verify::is_healthy(cluster)?;
    phases.lap(format!("both oracles on {} sets", 2 * SETS));
    Ok(())
}

/// Killed in the mon stage with an intent open, in mid OSD wave with daemons down, and after a wave has
/// settled while its gates are still waited for; each time somebody resumes.
fn upgrade_with_kills(
    cluster: &Cluster,
    machine: &Machine,
    rival: &Machine,
    to: &str,
    phases: &mut Phases,
) -> Result<()> {
    let mut run = machine.start(&["run", "upgrade", "--to", to])?;
    machine.stop_in_visit(&run, "mon", LIMIT)?;
    run.kill()?;
    phases.lap("killed with a mon's intent open");

    let mut run = machine.start(&["resume"])?;
    run.until("the lease", LIMIT, |line| says(line, "lease", "token"))?;
    let refused = rival.call(&["run", "upgrade", "--to", to])?.expect(1)?;
    let (name, pid) = (machine.newest_run()?, run.pid().to_string());
    refused.expect_said(&["locked", &name, &pid, "since"])?;
    phases.lap("a rival was refused");

    // A wave of several OSDs, which growth permits from the second one on.
    for _ in 0..2 {
        run.until("an OSD wave", LIMIT, |line| says(line, "wave", "osd:"))?;
    }
    machine.stop_when(&run, "an OSD that is down", LIMIT, |journal| {
        let up = &cluster.rados().mon("status")?["osdmap"]["num_up_osds"];
        Ok(journal.visits("osd") && *up != cluster.spec().osds)
    })?;
    run.kill()?;
    phases.lap("killed in mid OSD wave");

    let mut run = machine.start(&["resume"])?;
    run.until("the next OSD wave", LIMIT, |line| says(line, "wave", "osd:"))?;
    machine.stop_when(&run, "gates that are waited for", LIMIT, |journal| {
        Ok(journal.waits_for_gates())
    })?;
    run.kill()?;
    phases.lap("killed between settle and gate");

    let run = machine.start(&["resume"])?;
    let ended = run.end(LIMIT)?.expect(0)?;
    say(&ended.said);
    phases.lap("resumed to the end");
    Ok(())
}
