//! Why a run is refused: all reasons at once.

use std::collections::BTreeSet;

use stagger_core::model::{Fact, GoingBack, Reason, Unit};

use super::{Refusal, Running, TargetPolicy, version_of};
use crate::facts::CephFacts;
use crate::facts::osd::{Pool, StretchMode};
use crate::facts::release::{self, Version};
use crate::facts::stores::NO_LEVELDB;
use crate::rollback_table::rollback_support;
use crate::translate::{CAUSED, of_monitors, unaccepted};

/// Upgrades may pass over one release, and no more.
const LONGEST_JUMP: u32 = 2;

/// The release that is wanted, if nothing speaks against it.
pub(super) fn accept_release(
    facts: &CephFacts,
    units: &[Unit],
    release: &str,
    policy: &TargetPolicy,
) -> Result<Version, Refusal> {
    let mut reasons = Vec::new();
    reasons.extend(orchestrator(facts, policy.cephadm));
    reasons.extend(stretch(facts));
    let running = running(units, &mut reasons);
    let wanted = known_release(release, units, &mut reasons);
    if let Some(wanted) = &wanted {
        reasons.extend(stores(facts, units, wanted.major));
    }
    if let (Some(wanted), Some(running)) = (&wanted, running) {
        releases(facts, units, wanted, running, &mut reasons);
    }
    let half_way = running.is_some_and(|running| {
        running.lowest < running.highest
            || facts
                .osds
                .require_osd_release
                .is_some_and(|now| now < running.lowest)
    });
    let lowest = running.map(|running| running.lowest);
    reasons.extend(health(facts, policy, half_way, lowest));
    match wanted {
        Some(wanted) if reasons.is_empty() => Ok(wanted),
        Some(_) | None => Err(Refusal(reasons)),
    }
}

/// `18.2.7`, also written `v18.2.7`; or `18` or `reef`, where one version of it runs here already.
fn known_release(release: &str, units: &[Unit], reasons: &mut Vec<Reason>) -> Option<Version> {
    let text = release.strip_prefix('v').unwrap_or(release);
    let known = |version: &Version| release::name(version.major).is_some();
    if let Some(version) = Version::parse(text).filter(known) {
        return Some(version);
    }
    let major = release::major(&text.to_lowercase()).or_else(|| text.parse().ok());
    let named = major.and_then(|major| Some((major, release::name(major)?)));
    let why = if let Some((major, name)) = named {
        let of_it = units.iter().filter_map(version_of);
        let of_it: BTreeSet<Version> = of_it.filter(|version| version.major == major).collect();
        if let (Some(one), 1) = (of_it.first(), of_it.len()) {
            return Some(one.clone());
        }
        format!(
            "{release:?} names a release, Ceph {major} ({name}), and not which version of it: give one like {major}.2.1, or set \
             `versions` in [software.all], and the newest that every host can install is taken"
        )
    } else {
        let known = release::known_majors();
        let known: Vec<String> = known
            .map(|major| format!("{major} ({})", release::name(major).unwrap_or_default()))
            .collect();
        format!(
            "{release:?} is no release that is known here; write one like 18.2.7, of {}",
            known.join(", ")
        )
    };
    reasons.push(Reason::of_backend("unknown-release", why));
    None
}

fn running(units: &[Unit], reasons: &mut Vec<Reason>) -> Option<Running> {
    let mut majors = Vec::new();
    let mut unknown = Vec::new();
    for unit in units {
        match version_of(unit) {
            Some(version) => majors.push(version.major),
            None => unknown.push(unit.id.as_str()),
        }
    }
    if !unknown.is_empty() {
        let why = format!(
            "what these run is unknown: {}; start them, or remove them from the cluster",
            unknown.join(", ")
        );
        reasons.push(Reason::of_backend("release-unknown", why));
    }
    let osds = units
        .iter()
        .filter(|unit| unit.kind.as_str() == "osd")
        .filter_map(version_of);
    Some(Running {
        lowest: *majors.iter().min()?,
        highest: *majors.iter().max()?,
        lowest_osd: osds.map(|version| version.major).min(),
    })
}

fn health(facts: &CephFacts, policy: &TargetPolicy, half_way: bool, lowest: Option<u32>) -> Option<Reason> {
    let own = |code: &str| {
        let cause = CAUSED.iter().find(|cause| cause.code == code);
        cause.is_some_and(|cause| {
            half_way && cause.half_way || cause.asked_since.is_some_and(|major| lowest >= Some(major))
        })
    };
    let bad: Vec<String> = unaccepted(facts, &policy.health)
        .filter(|(code, _)| !own(code) || policy.health.block.contains(*code))
        .map(|(code, check)| {
            let severity = if check.error { "error" } else { "warning" };
            format!("{code} ({severity}: {})", check.message)
        })
        .collect();
    let overall = &facts.health.status;
    if bad.is_empty() {
        // An overall word without complaints would be a contradiction.
        let odd = facts.health.checks.is_empty() && overall != "HEALTH_OK";
        return odd.then(|| {
            Reason::of_backend(
                "unhealthy",
                format!("the cluster is {overall} and names no health check"),
            )
        });
    }
    let why = format!(
        "{overall}: {}; cure it, or add the codes to health.accept",
        bad.join("; ")
    );
    Some(Reason::of_backend("unhealthy", why))
}

/// Why no host of the cluster is rebooted.
pub(crate) fn of_reboot(facts: &CephFacts, units: &[Unit], policy: &TargetPolicy) -> Vec<Reason> {
    let versions: BTreeSet<Version> = units.iter().filter_map(version_of).collect();
    let half_way = versions.len() > 1;
    let lowest = versions.iter().map(|version| version.major).min();
    let reasons = [
        orchestrator(facts, policy.cephadm),
        stretch(facts),
        health(facts, policy, half_way, lowest),
    ];
    reasons.into_iter().flatten().collect()
}

/// `by_cephadm`: the daemons are changed as cephadm's.
fn orchestrator(facts: &CephFacts, by_cephadm: bool) -> Option<Reason> {
    match &facts.orchestrator {
        Fact::Yes(None) if by_cephadm => Some(Reason::of_backend(
            "no-cephadm",
            "cephadm does not manage this cluster's daemons, and [software] has profile = \"cephadm\": give the profile of its hosts",
        )),
        Fact::Yes(None) => None,
        Fact::Yes(Some(backend)) if by_cephadm && backend == "cephadm" => cephadm(facts),
        Fact::Yes(Some(backend)) => {
            let instead = if backend == "cephadm" {
                "set profile = \"cephadm\" in [software]"
            } else {
                "upgrade it, and put its hosts into maintenance, there"
            };
            Some(Reason::of_backend(
                "managed-by-orchestrator",
                format!(
                    "{backend} manages this cluster's daemons and would undo what others do to them; {instead}"
                ),
            ))
        }
        Fact::No(why) => Some(Reason::of_backend(
            "orchestrator-unknown",
            format!("whether an orchestrator manages the daemons is unknown: {why}"),
        )),
    }
}

/// Why nothing is begun beside cephadm.
fn cephadm(facts: &CephFacts) -> Option<Reason> {
    match &facts.cephadm {
        Fact::Yes(cephadm) => cephadm.upgrade.as_ref().map(|upgrade| {
            let why = format!(
                "cephadm upgrades this cluster itself, {upgrade}; wait for its end, or stop it with `ceph orch upgrade stop`"
            );
            Reason::of_backend("orchestrator-upgrading", why)
        }),
        Fact::No(why) => Some(Reason::of_backend(
            "orchestrator-unknown",
            format!("what cephadm is about is unknown: {why}"),
        )),
    }
}

/// What has been upgraded on a real cluster: stretch mode over two sites with a tiebreaker, each site with monitors to
/// spare, and every pool over both sites. `ok-to-stop` counts `min_size` alone there and approves a whole site; the budgets
/// here keep one OSD in each. Nothing is begun while a site is missing.
fn stretch(facts: &CephFacts) -> Option<Reason> {
    let Some(mode) = facts.osds.stretch_mode else {
        let pools = facts.osds.pools.values().filter(|pool| pool.stretch.is_some());
        let pools: Vec<&str> = pools.map(|pool| pool.name.as_str()).collect();
        return (!pools.is_empty()).then(|| {
            untested_refusal(&format!(
                "the groups of these pools need OSDs of several sites, outside stretch mode: {}",
                pools.join(", ")
            ))
        });
    };
    if mode.degraded || mode.recovering {
        let why = "the cluster is in stretch mode, and a site is missing or its placement groups are not clean yet: Ceph \
                   relies on the other site alone. Restore that site, and wait for HEALTH_OK";
        return Some(Reason::of_backend("site-missing", why));
    }
    unknown_stretch_mode(facts, mode).map(|what| untested_refusal(&what))
}

fn untested_refusal(what: &str) -> Reason {
    let why = format!(
        "{what}. Ceph's own answer to ok-to-stop counts only min_size there, and approves what leaves groups that cannot \
         peer; upgrade such a cluster site by site, by hand"
    );
    Reason::of_backend("stretch-cluster", why)
}

/// How a cluster in stretch mode differs from those that are known.
fn unknown_stretch_mode(facts: &CephFacts, mode: StretchMode) -> Option<String> {
    if mode.sites != SITES {
        return Some(format!(
            "it is in stretch mode over {} sites, not {SITES}",
            mode.sites
        ));
    }
    let on_both = |pool: &Pool| {
        let stretch = pool.stretch.filter(|stretch| stretch.barrier == mode.level);
        stretch.is_some_and(|stretch| stretch.buckets == SITES)
    };
    let odd = facts.osds.pools.values().filter(|pool| !on_both(pool));
    let odd: Vec<&str> = odd.map(|pool| pool.name.as_str()).collect();
    if !odd.is_empty() {
        return Some(format!(
            "it is in stretch mode, and these pools are not kept in both sites: {}",
            odd.join(", ")
        ));
    }
    let Some(tiebreaker) = &facts.mons.tiebreaker else {
        return Some("it is in stretch mode, and no monitor is named as the tiebreaker".to_owned());
    };
    let sites = of_monitors(facts);
    if let Some(nowhere) = sites.get(&None) {
        return Some(format!(
            "it is in stretch mode, and the site of these monitors is unknown: {}",
            nowhere.join(", ")
        ));
    }
    let voters = sites.values().filter(|mons| !mons.contains(&tiebreaker.as_str()));
    let counts: Vec<usize> = voters.map(Vec::len).collect();
    (counts.len() != SITES as usize || counts.iter().any(|count| *count < 2)).then(|| {
        format!(
            "it is in stretch mode, and besides the tiebreaker {tiebreaker} its sites have {counts:?} monitors: each of two \
             needs two, so that none is without one while they restart"
        )
    })
}

/// Ceph stretches over so many.
const SITES: u32 = 2;

/// The first releases that do not open a store of that sort any more.
const NO_FILESTORE: u32 = 18;

fn stores(facts: &CephFacts, units: &[Unit], major: u32) -> Option<Reason> {
    let level = |backend: &Option<String>| major >= NO_LEVELDB && backend.as_deref() == Some("leveldb");
    let file = |store: &Option<String>| major >= NO_FILESTORE && store.as_deref() == Some("filestore");
    let mons = facts.mon_metadata.iter();
    let mut old: Vec<String> = mons
        .filter_map(|mon| match mon.kv_backend.as_deref() {
            Some("leveldb") if major >= NO_LEVELDB => Some(format!("mon.{} (LevelDB)", mon.name)),
            Some("unknown") if major >= NO_LEVELDB => Some(format!("mon.{} (store unknown)", mon.name)),
            Some(_) | None => None,
        })
        .collect();
    let is_unit = |id: u32| {
        let id = format!("osd.{id}");
        units.iter().any(|unit| unit.id.as_str() == id)
    };
    for osd in facts
        .osd_metadata
        .iter()
        .filter(|osd| (file(&osd.store) || level(&osd.backend)) && is_unit(osd.id))
    {
        if file(&osd.store) {
            old.push(format!("osd.{} (FileStore)", osd.id));
        } else if level(&osd.backend) {
            old.push(format!("osd.{} (LevelDB)", osd.id));
        }
    }
    (!old.is_empty()).then(|| {
        let why = format!(
            "LevelDB is gone from release {NO_LEVELDB} and FileStore from {NO_FILESTORE}; make these anew on RocksDB \
             or BlueStore first: {}",
            old.join(", ")
        );
        Reason::of_backend("store-too-old", why)
    })
}

fn releases(
    facts: &CephFacts,
    units: &[Unit],
    wanted: &Version,
    running: Running,
    reasons: &mut Vec<Reason>,
) {
    let major = wanted.major;
    let require = facts.osds.require_osd_release;
    let min_mon = facts.mons.min_mon_release;
    if major > running.lowest + LONGEST_JUMP {
        let why = format!(
            "release {} runs here, and {wanted} is {} further; go to {} first",
            running.lowest,
            major - running.lowest,
            running.lowest + LONGEST_JUMP
        );
        reasons.push(Reason::of_backend("jump-too-long", why));
    }
    match (require, running.lowest_osd) {
        (Some(now), Some(lowest)) if now < lowest && major > lowest => {
            let name = release::name(lowest).unwrap_or_default();
            let why = format!(
                "every OSD runs release {lowest} or later and the cluster still demands only {now}; \
                 finish that upgrade first: ceph osd require-osd-release {name}"
            );
            reasons.push(Reason::of_backend("require-osd-release-behind", why));
        }
        (None, Some(_)) => {
            let why = "require_osd_release is not set, or to a release that is not known here";
            reasons.push(Reason::of_backend("require-osd-release-behind", why));
        }
        (Some(_) | None, Some(_) | None) => {}
    }
    let demanded = require.unwrap_or(0).max(min_mon);
    if major < demanded {
        let why = format!(
            "{wanted} would be a downgrade: the cluster demands release {demanded}, and no daemon of {wanted} would join it"
        );
        reasons.push(Reason::of_backend("release-too-low", why));
        return;
    }
    let stuck: Vec<&str> = units
        .iter()
        .filter(|unit| {
            version_of(unit).is_some_and(|now| {
                now.major > major
                    && rollback_support(unit.kind.as_str(), now.major, major, false) != GoingBack::Restart
            })
        })
        .map(|unit| unit.id.as_str())
        .collect();
    if !stuck.is_empty() {
        let why = format!(
            "{wanted} does not start on the data of these, which run a later release: {}",
            stuck.join(", ")
        );
        reasons.push(Reason::of_backend("release-too-low", why));
    }
}
