//! Why nothing is begun: all reasons at once.

use stagger_core::model::{GoingBack, Reason, Unit};

use super::{Refusal, Running, TargetPolicy, version_of};
use crate::facts::release::{self, Version};
use crate::facts::stores::NO_LEVELDB;
use crate::facts::{Facts, Known};
use crate::going_back::going_back;
use crate::translate::{CAUSED, unaccepted};

/// Upgrades may pass over one release, and no more.
const LONGEST_JUMP: u32 = 2;

/// The release that is wanted, if nothing speaks against it.
pub(super) fn judge(
    facts: &Facts,
    units: &[Unit],
    release: &str,
    policy: &TargetPolicy,
) -> Result<Version, Refusal> {
    let mut reasons = Vec::new();
    reasons.extend(orchestrator(facts));
    reasons.extend(stretch(facts));
    let running = running(units, &mut reasons);
    let wanted = known_release(release, &mut reasons);
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
    reasons.extend(health(facts, policy, half_way));
    match wanted {
        Some(wanted) if reasons.is_empty() => Ok(wanted),
        Some(_) | None => Err(Refusal(reasons)),
    }
}

fn known_release(release: &str, reasons: &mut Vec<Reason>) -> Option<Version> {
    let known = |version: &Version| release::name(version.major).is_some();
    match Version::parse(release) {
        Some(version) if known(&version) => Some(version),
        Some(_) | None => {
            let known: Vec<String> = release::known()
                .map(|major| format!("{major} ({})", release::name(major).unwrap_or_default()))
                .collect();
            let why = format!(
                "{release:?} is no release that is known here; write one like 18.2.7, of {}",
                known.join(", ")
            );
            reasons.push(Reason::of_backend("unknown-release", why));
            None
        }
    }
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
            "nobody knows what these run: {}; start them, or remove them from the cluster",
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

fn health(facts: &Facts, policy: &TargetPolicy, half_way: bool) -> Option<Reason> {
    let own = |code: &str| half_way && CAUSED.iter().any(|cause| cause.half_way && cause.code == code);
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
                format!("the cluster says {overall} and names no complaint"),
            )
        });
    }
    let why = format!(
        "{overall}: {}; cure it, or add the codes to health.accept",
        bad.join("; ")
    );
    Some(Reason::of_backend("unhealthy", why))
}

fn orchestrator(facts: &Facts) -> Option<Reason> {
    match &facts.orchestrator {
        Known::Yes(None) => None,
        Known::Yes(Some(backend)) => Some(Reason::of_backend(
            "managed-by-orchestrator",
            format!(
                "{backend} manages this cluster's daemons and would undo what others do to them; upgrade it there"
            ),
        )),
        Known::No(why) => Some(Reason::of_backend(
            "orchestrator-unknown",
            format!("nobody could tell whether an orchestrator manages the daemons: {why}"),
        )),
    }
}

/// Groups of such pools stop serving with OSDs of one site alone, which neither `min_size` nor Ceph's own oracle
/// counts; and nobody has seen yet how this program does there.
fn stretch(facts: &Facts) -> Option<Reason> {
    let pools: Vec<&str> = facts
        .osds
        .pools
        .values()
        .filter(|pool| pool.stretch.is_some())
        .map(|pool| pool.name.as_str())
        .collect();
    if pools.is_empty() && !facts.osds.stretch_mode {
        return None;
    }
    let what = if pools.is_empty() {
        "it is in stretch mode".to_owned()
    } else {
        format!(
            "the groups of these pools need OSDs of several sites: {}",
            pools.join(", ")
        )
    };
    let why = format!(
        "{what}. Ceph's own answer to ok-to-stop counts only min_size there, and approves what leaves groups that \
         cannot peer; upgrade such a cluster site by site, by hand"
    );
    Some(Reason::of_backend("stretch-cluster", why))
}

/// The first releases that do not open a store of that sort any more.
const NO_FILESTORE: u32 = 18;

fn stores(facts: &Facts, units: &[Unit], major: u32) -> Option<Reason> {
    let level = |backend: &Option<String>| major >= NO_LEVELDB && backend.as_deref() == Some("leveldb");
    let file = |store: &Option<String>| major >= NO_FILESTORE && store.as_deref() == Some("filestore");
    let mons = facts.mon_metadata.iter();
    let mut old: Vec<String> = mons
        .filter_map(|mon| match mon.kv_backend.as_deref() {
            Some("leveldb") if major >= NO_LEVELDB => Some(format!("mon.{} (LevelDB)", mon.name)),
            Some("unknown") if major >= NO_LEVELDB => Some(format!("mon.{} (it does not tell)", mon.name)),
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

fn releases(facts: &Facts, units: &[Unit], wanted: &Version, running: Running, reasons: &mut Vec<Reason>) {
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
        let why = format!("the cluster demands release {demanded}, and no daemon of {wanted} would join it");
        reasons.push(Reason::of_backend("release-too-low", why));
        return;
    }
    let stuck: Vec<&str> = units
        .iter()
        .filter(|unit| {
            version_of(unit).is_some_and(|now| {
                now.major > major
                    && going_back(unit.kind.as_str(), now.major, major, false) != GoingBack::Restart
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
