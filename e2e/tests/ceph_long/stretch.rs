//! A cluster in stretch mode: two sites, and a monitor in a third that breaks ties.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use stagger_e2e::case::of_shape_under_load;
use stagger_e2e::ceph::{CephSpec, Cluster};
use stagger_e2e::command::say;
use stagger_e2e::oracle;
use stagger_e2e::rados::{Request, Target};
use stagger_e2e::roots::Release;
use stagger_e2e::stagger::{Machine, Setup};
use stagger_e2e::verify;

use super::LIMIT;

/// How long the watcher rests between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// No wave takes a site from any placement group, or its monitors from a site; and nobody notices anything.
#[test]
#[ignore = "long; needs root and Ceph; cargo xtask test --long runs it"]
fn upgrade_18_to_20_over_two_sites() -> Result<()> {
    let name = "upgrade_18_to_20_over_two_sites";
    let releases = [Release::Reef, Release::Tentacle];
    let spec = CephSpec::stretched();
    of_shape_under_load(name, spec, Release::Reef, &releases, |cluster, phases| {
        let sites = Sites::of(cluster)?;
        a_whole_site_may_not_stop(cluster, &sites)?;
        phases.lap("both judges on a whole site");

        let machine = Machine::new(cluster, "anna", &Setup::over_sites())?;
        let to = verify::version(cluster, Release::Tentacle)?;
        watched(cluster, &sites, || {
            let run = machine.start(&["run", "upgrade", "--to", &to])?;
            let ended = run
                .end(LIMIT)?
                .expect(0)
                .with_context(|| machine.history_tail(40))?;
            say(&ended.said);
            Ok(())
        })?;
        phases.lap("18 to 20");

        let journal = machine.journal()?;
        journal.both_judges_agreed()?;
        let waves: Vec<Vec<String>> = journal.passed("osd").into_iter().map(|wave| wave.units).collect();
        say(format!("OSD waves: {waves:?}"));
        ensure!(
            waves.iter().any(|wave| wave.len() > 1),
            "no wave had two OSDs: {waves:?}"
        );
        for wave in &waves {
            sites.ensure_kept(wave)?;
        }
        for wave in journal.passed("mon") {
            ensure!(wave.units.len() == 1, "monitors together: {wave:?}");
        }
        verify::is_on(cluster, &machine, Release::Tentacle)?;
        verify::nothing_is_left(cluster)?;
        verify::visited_each(cluster, 1)?;
        verify::is_healthy(cluster)?;
        let mode = &cluster.rados().mon("osd dump")?["stretch_mode"];
        ensure!(mode["stretch_mode_enabled"] == true, "stretch mode is {mode}");
        a_whole_site_may_not_stop(cluster, &sites)
    })
}

/// What stands where.
struct Sites {
    osds: BTreeMap<u64, u64>,
    /// The sites that have OSDs, with their monitors. The tiebreaker has a site without OSDs.
    mons: BTreeMap<u64, BTreeSet<String>>,
    /// The members of each placement group.
    groups: BTreeMap<String, BTreeSet<u64>>,
}

impl Sites {
    fn of(cluster: &Cluster) -> Result<Self> {
        let spec = cluster.spec();
        let each = u64::from(spec.osds / spec.racks);
        let osds = (0..u64::from(spec.osds)).map(|osd| (osd, osd / each)).collect();
        let dump = cluster.rados().mon("mon dump")?;
        ensure!(
            dump["stretch_mode"] == true,
            "the monitors are not in stretch mode: {dump}"
        );
        let mut mons: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        for mon in dump["mons"].as_array().into_iter().flatten() {
            let name = mon["name"].as_str().unwrap_or_default();
            let place = mon["crush_location"].as_str().unwrap_or_default();
            let site = place.trim_matches(['{', '}']).strip_prefix("datacenter=dc");
            let site = site
                .with_context(|| format!("mon.{name} stands in {place:?}"))?
                .parse()?;
            if site < u64::from(spec.racks) {
                mons.entry(site).or_default().insert(name.to_owned());
            }
        }
        let dump = cluster.rados().command(Target::Mgr, "pg dump", json!({}))?;
        let stats = dump["pg_map"]["pg_stats"]
            .as_array()
            .context("`pg dump` without groups")?;
        let member = |osd: &Value| osd.as_u64();
        let groups = stats
            .iter()
            .map(|pg| {
                let acting = pg["acting"].as_array().into_iter().flatten();
                let name = pg["pgid"].as_str().unwrap_or_default().to_owned();
                (name, acting.filter_map(member).collect())
            })
            .collect();
        Ok(Self { osds, mons, groups })
    }

    /// Each group keeps an OSD in each site while these are down.
    fn ensure_kept(&self, wave: &[String]) -> Result<()> {
        let stops: BTreeSet<u64> = wave
            .iter()
            .filter_map(|unit| unit.strip_prefix("osd.")?.parse().ok())
            .collect();
        ensure!(stops.len() == wave.len(), "no wave of OSDs: {wave:?}");
        for (name, members) in &self.groups {
            let kept: BTreeSet<u64> = members.difference(&stops).map(|osd| self.osds[osd]).collect();
            ensure!(
                kept.len() == self.mons.len(),
                "{name} on {members:?} is left in the sites {kept:?} by {wave:?}"
            );
        }
        Ok(())
    }
}

/// Ceph's own oracle counts two copies of four, and says yes; the groups could not peer.
fn a_whole_site_may_not_stop(cluster: &Cluster, sites: &Sites) -> Result<()> {
    for site in sites.mons.keys() {
        let of_it = sites.osds.iter().filter(|(_, stands)| *stands == site);
        let osds: Vec<u32> = of_it
            .map(|(osd, _)| u32::try_from(*osd))
            .collect::<Result<_, _>>()?;
        ensure!(
            !oracle::may_stop(cluster, &osds)?,
            "all OSDs of the site {site} may stop, it is said"
        );
        let ids: Vec<String> = osds.iter().map(ToString::to_string).collect();
        // A no comes with a code of its own, and its reasons in the same shape.
        let question = Request::new(Target::Mgr, "osd ok-to-stop", json!({ "ids": ids }));
        let answer = cluster.rados().ask(&question)?;
        let theirs = &answer.json()?["ok_to_stop"];
        say(format!(
            "site {site}: Ceph's ok-to-stop says {theirs}, the judge here says no"
        ));
    }
    Ok(())
}

/// Does something while another thread looks again and again whether a site is missing.
///
/// A group that is `peered` and not `active` has settled and cannot serve: a change of its members alone never shows
/// that, so one look is enough for a no.
fn watched(cluster: &Cluster, sites: &Sites, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let done = AtomicBool::new(false);
    let (worked, seen) = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let (mut looks, mut bad) = (0_u32, BTreeSet::new());
            while !done.load(Ordering::Relaxed) {
                // Nobody answers while monitors elect.
                if let Ok(found) = look(cluster, sites) {
                    looks += 1;
                    bad.extend(found);
                }
                thread::sleep(LOOK);
            }
            (looks, bad)
        });
        let worked = work();
        done.store(true, Ordering::Relaxed);
        (
            worked,
            watcher.join().map_err(|_| anyhow!("the watcher panicked")),
        )
    });
    let (looks, bad) = seen?;
    worked.with_context(|| format!("what the watcher saw: {bad:?}"))?;
    say(format!("{looks} looks at the sites"));
    ensure!(looks > 100, "only {looks} looks at the sites");
    ensure!(bad.is_empty(), "seen in {looks} looks: {bad:?}");
    Ok(())
}

fn look(cluster: &Cluster, sites: &Sites) -> Result<Vec<String>> {
    let mut bad = Vec::new();
    let status = cluster.rados().mon("status")?;
    for state in status["pgmap"]["pgs_by_state"].as_array().into_iter().flatten() {
        let name = state["state_name"].as_str().unwrap_or_default();
        let words: Vec<&str> = name.split('+').collect();
        if words.contains(&"peered") && !words.contains(&"active") {
            bad.push(format!("groups that cannot serve: {name}"));
        }
    }
    let quorum: BTreeSet<&str> = status["quorum_names"]
        .as_array()
        .context("`status` without a quorum")?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for (site, mons) in &sites.mons {
        // While they elect, none is in quorum.
        if !quorum.is_empty() && !mons.iter().any(|mon| quorum.contains(mon.as_str())) {
            bad.push(format!("the site {site} has no monitor: {quorum:?}"));
        }
    }
    let mode = &cluster.rados().mon("osd dump")?["stretch_mode"];
    if mode["degraded_stretch_mode"] != 0 || mode["recovering_stretch_mode"] != 0 {
        bad.push(format!("stretch mode is {mode}"));
    }
    Ok(bad)
}
