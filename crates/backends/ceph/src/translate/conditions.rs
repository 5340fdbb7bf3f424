//! How the cluster is: each check as a named condition, with the numbers behind it.
//!
//! | condition | yes when |
//! |---|---|
//! | `daemons-running` | every daemon of the maps serves, and with a baseline every one that served then |
//! | `no-crash-loop` | no daemon has crashed twice since the baseline, by Ceph's crash reports |
//! | `health` | no complaint but those that are accepted, stood before, or are the run's own ([`super::CAUSED`]) |
//! | `quorum` | every monitor of the map is in quorum |
//! | `osds-up-in` | every OSD is up that is not absent; with a baseline, those that were up are, and those that were in are |
//! | `mgr-active` | a manager is active, and as many stand by as before |
//! | `pgs-known` | each placement group of each pool is reported in known words, none stale or being made |
//! | `pg-stats-fresh` | each of those reports was made after the group's OSDs came up |
//! | `pgs-clean` | all are active and clean, by fresh reports |
//! | `pgs-not-degraded` | all are active with all their copies, by fresh reports; data may still move |
//! | `mds-active` | every file system has all its ranks |
//! | `rgw-serving` | every gateway of the map and of the baseline serves |
//! | `sites-whole` | in stretch mode: no site is missing, or was and is not clean yet. Other clusters have no such condition |
//! | `no-other-upgrade` | cephadm upgrades nothing by itself. Only clusters of cephadm have it |
//! | `container-image-V` | cephadm starts everything from an image that daemons of version V run. Only clusters of cephadm have it |
//! | `require-osd-release-N` | the cluster demands release N of OSDs |
//! | `min-mon-release-N` | the cluster demands release N of monitors |
//! | `osds-run-N` | every OSD that is up runs release N or later: Ceph asks no others |
//!
//! What nobody can tell is unknown, never yes.

mod cephadm;
mod pgs;

use std::collections::BTreeMap;
use std::fmt;

use stagger_core::model::{Condition, ConditionName, Fact, IdError, Unit, UnitId, UnitState, Verdict};

use super::codes::caused;
use super::{Baseline, HealthPolicy, blockers, is_absent};
use crate::facts::CephFacts;
use crate::facts::health::HealthCheck;
use crate::facts::osd::{Osd, StretchMode};
use crate::facts::release::{self, Version};

/// The oldest release for which `require-osd-release-N` and its like are told.
pub(crate) const OLDEST: u32 = 16;

/// The condition that clusters in stretch mode have besides.
pub(crate) const SITES_WHOLE: &str = "sites-whole";

/// The condition that clusters of cephadm have besides.
pub(crate) const NO_OTHER_UPGRADE: &str = "no-other-upgrade";

/// All conditions of a cluster.
///
/// # Errors
/// None that could be met: the names are this program's.
pub fn conditions(
    facts: &CephFacts,
    units: &[Unit],
    policy: &HealthPolicy,
    baseline: Option<&Baseline>,
) -> Result<Vec<Condition>, IdError> {
    let mut all = vec![
        condition("daemons-running", running(units, baseline))?,
        condition("no-crash-loop", crash_loop(facts, baseline))?,
        condition("health", health(facts, policy, baseline))?,
        condition("quorum", quorum(facts))?,
        condition("osds-up-in", osds_up_in(facts, baseline))?,
        condition("mgr-active", mgr_active(facts, baseline))?,
        condition("mds-active", mds_active(facts))?,
        condition("rgw-serving", rgw_serving(units))?,
    ];
    for (name, found) in pgs::all(facts) {
        all.push(condition(name, found)?);
    }
    if let Some(mode) = facts.osds.stretch_mode {
        all.push(condition(SITES_WHOLE, sites_whole(mode))?);
    }
    cephadm::add(facts, &mut all)?;
    let running = Running::of(facts);
    for major in release::known_majors().filter(|major| *major >= OLDEST) {
        let require = facts.osds.require_osd_release;
        let why = format!("require_osd_release is {}", release_label(require));
        let verdict = require.map_or(Verdict::Unknown, |now| verdict_if(now >= major));
        all.push(condition(
            &format!("require-osd-release-{major}"),
            (verdict, why),
        )?);
        let now = facts.mons.min_mon_release;
        let why = format!("min_mon_release is {}", release_label(Some(now)));
        all.push(condition(
            &format!("min-mon-release-{major}"),
            (verdict_if(now >= major), why),
        )?);
        all.push(condition(&format!("osds-run-{major}"), running.osds_run(major))?);
    }
    blockers::add_blockers(facts, units, baseline, &mut all)?;
    Ok(all)
}

/// A verdict with its why.
type VerdictReason = (Verdict, String);

fn condition(name: &str, (verdict, why): VerdictReason) -> Result<Condition, IdError> {
    Ok(Condition::new(ConditionName::new(name)?, verdict, why))
}

fn verdict_if(it_is: bool) -> Verdict {
    if it_is { Verdict::Yes } else { Verdict::No }
}

/// `a, b, c and 12 more`.
fn short_list<T: ToString>(names: impl IntoIterator<Item = T>) -> String {
    const SHOWN: usize = 5;
    let mut names = names.into_iter();
    let shown: Vec<String> = names.by_ref().take(SHOWN).map(|name| name.to_string()).collect();
    let shown = shown.join(", ");
    match names.count() {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn release_label(major: Option<u32>) -> String {
    match major {
        None | Some(0) => "unknown".to_owned(),
        Some(major) => format!("{major} {}", release::name(major).unwrap_or_default())
            .trim_end()
            .to_owned(),
    }
}

fn running(units: &[Unit], baseline: Option<&Baseline>) -> VerdictReason {
    let expected = |unit: &&Unit| baseline.is_none_or(|baseline| baseline.daemons.contains_key(&unit.id));
    let missing: Vec<&Unit> = units
        .iter()
        .filter(expected)
        .filter(|u| u.state != UnitState::Serving)
        .collect();
    let count = units.iter().filter(expected).count();
    if missing.is_empty() {
        return (Verdict::Yes, format!("all {count} daemons serve"));
    }
    let down = missing.iter().any(|unit| unit.state == UnitState::Down);
    let why = format!(
        "{} of {count} daemons do not serve: {}",
        missing.len(),
        short_list(missing.iter().map(|u| &u.id))
    );
    (if down { Verdict::No } else { Verdict::Unknown }, why)
}

fn crash_loop(facts: &CephFacts, baseline: Option<&Baseline>) -> VerdictReason {
    let crashes = match &facts.crashes {
        Fact::Yes(crashes) => crashes,
        Fact::No(why) => return (Verdict::Unknown, format!("crash reports cannot be read: {why}")),
    };
    let mut new: BTreeMap<&str, u32> = BTreeMap::new();
    for crash in crashes
        .iter()
        .filter(|c| baseline.is_none_or(|baseline| !baseline.crashes.contains(&c.id)))
    {
        *new.entry(&crash.daemon).or_default() += 1;
    }
    let since = if baseline.is_some() {
        "since the run started"
    } else {
        "that are not archived"
    };
    let again: Vec<String> = new
        .iter()
        .filter(|(_, n)| **n > 1)
        .map(|(daemon, n)| format!("{daemon} ({n} times)"))
        .collect();
    if again.is_empty() {
        let count: u32 = new.values().sum();
        (
            Verdict::Yes,
            format!("{count} crash reports {since}, none twice of one daemon"),
        )
    } else {
        (
            Verdict::No,
            format!("crashed again and again {since}: {}", short_list(again)),
        )
    }
}

/// The complaints that are neither muted nor accepted, with those that always count.
pub fn unaccepted<'a>(
    facts: &'a CephFacts,
    policy: &'a HealthPolicy,
) -> impl Iterator<Item = (&'a String, &'a HealthCheck)> {
    facts.health.checks.iter().filter(|(code, check)| {
        policy.block.contains(*code) || !(check.muted || policy.accept.contains(*code))
    })
}

fn health(facts: &CephFacts, policy: &HealthPolicy, baseline: Option<&Baseline>) -> VerdictReason {
    let (mut standing, mut own, mut bad) = (0, 0, Vec::new());
    for (code, check) in unaccepted(facts, policy) {
        let blocked = policy.block.contains(code);
        let before = baseline.and_then(|baseline| baseline.health.get(code));
        if !blocked && before.is_some_and(|was_error| *was_error || !check.error) {
            standing += 1;
        } else if !blocked && baseline.is_some() && caused(code).is_some() {
            own += 1;
        } else {
            bad.push(format!("{code} ({})", check.message));
        }
    }
    let status = &facts.health.status;
    if bad.is_empty() {
        let why = format!(
            "{status}: nothing to hold for; {standing} health checks from before, {own} from the run itself"
        );
        (Verdict::Yes, why)
    } else {
        (Verdict::No, format!("{status}: {}", short_list(bad)))
    }
}

fn quorum(facts: &CephFacts) -> VerdictReason {
    let mons = &facts.mons;
    let out: Vec<&String> = mons
        .mons
        .iter()
        .filter(|mon| !mons.in_quorum.contains(mon))
        .collect();
    let inside = short_list(&mons.in_quorum);
    if out.is_empty() {
        return (
            Verdict::Yes,
            format!("all {} monitors are in quorum: {inside}", mons.mons.len()),
        );
    }
    (
        Verdict::No,
        format!("not in quorum: {}; in quorum: {inside}", short_list(out)),
    )
}

fn sites_whole(mode: StretchMode) -> VerdictReason {
    let why = if mode.recovering {
        "a site has come back, and its placement groups are not clean yet"
    } else if mode.degraded {
        "a site is missing: placement groups serve from the other one alone"
    } else {
        "both sites are there"
    };
    (verdict_if(!mode.degraded && !mode.recovering), why.to_owned())
}

fn osds_up_in(facts: &CephFacts, baseline: Option<&Baseline>) -> VerdictReason {
    let osds: BTreeMap<u32, &Osd> = facts
        .osds
        .osds
        .iter()
        .filter(|(id, osd)| !is_absent(facts, baseline, **id, osd))
        .map(|(id, osd)| (*id, osd))
        .collect();
    let expected = |id: u32| {
        baseline.is_none_or(|b| UnitId::new(format!("osd.{id}")).is_ok_and(|id| b.daemons.contains_key(&id)))
    };
    let down: Vec<String> = osds
        .iter()
        .filter(|(id, osd)| !osd.up && expected(**id))
        .map(|(id, _)| format!("osd.{id}"))
        .collect();
    let out: Vec<String> = osds
        .iter()
        .filter(|(id, osd)| !osd.inside && baseline.is_some_and(|b| b.osds_in.contains(*id)))
        .map(|(id, _)| format!("osd.{id}"))
        .collect();
    let up = osds.values().filter(|osd| osd.up).count();
    let inside = osds.values().filter(|osd| osd.inside).count();
    let counts = format!("{up} of {} OSDs are up, {inside} are in", osds.len());
    match (down.is_empty(), out.is_empty()) {
        (true, true) => (Verdict::Yes, counts),
        (false, true) => (Verdict::No, format!("{counts}; down: {}", short_list(down))),
        (true, false) => (
            Verdict::No,
            format!("{counts}; out since the run started: {}", short_list(out)),
        ),
        (false, false) => (
            Verdict::No,
            format!(
                "{counts}; down: {}; out since the run started: {}",
                short_list(down),
                short_list(out)
            ),
        ),
    }
}

fn mgr_active(facts: &CephFacts, baseline: Option<&Baseline>) -> VerdictReason {
    let mgrs = &facts.mgrs;
    let standbys = mgrs.standbys.len() as u32;
    let before = baseline.map_or(0, |baseline| baseline.mgr_standbys);
    match &mgrs.active {
        None => (Verdict::No, "no manager is active".to_owned()),
        Some(active) if !mgrs.available => (
            Verdict::No,
            format!("{active} is becoming active and does not answer yet"),
        ),
        Some(active) if standbys < before => (
            Verdict::No,
            format!("{active} is active, {standbys} stand by, {before} did before the run"),
        ),
        Some(active) => (Verdict::Yes, format!("{active} is active, {standbys} stand by")),
    }
}

fn mds_active(facts: &CephFacts) -> VerdictReason {
    let mut bad = Vec::new();
    for fs in &facts.fs.filesystems {
        let active = fs.servers.iter().filter(|mds| mds.active()).count() as u32;
        if active < fs.max_mds || fs.lost_ranks > 0 {
            bad.push(format!(
                "{}: {active} of {} ranks active, {} lost",
                fs.name, fs.max_mds, fs.lost_ranks
            ));
        }
    }
    match (bad.is_empty(), facts.fs.filesystems.len()) {
        (true, 0) => (Verdict::Yes, "there is no file system".to_owned()),
        (true, count) => (
            Verdict::Yes,
            format!("all ranks of {count} file systems are active"),
        ),
        (false, _) => (Verdict::No, short_list(bad)),
    }
}

fn rgw_serving(units: &[Unit]) -> VerdictReason {
    let gateways: Vec<&Unit> = units.iter().filter(|unit| unit.kind.as_str() == "rgw").collect();
    let down: Vec<_> = gateways
        .iter()
        .filter(|unit| unit.state != UnitState::Serving)
        .map(|u| &u.id)
        .collect();
    if gateways.is_empty() {
        (Verdict::Yes, "there is no object gateway".to_owned())
    } else if down.is_empty() {
        (Verdict::Yes, format!("all {} gateways serve", gateways.len()))
    } else {
        (
            Verdict::No,
            format!(
                "{} of {} gateways do not serve: {}",
                down.len(),
                gateways.len(),
                short_list(down)
            ),
        )
    }
}

/// What the OSDs run that are up, with their numbers.
struct Running {
    known: Vec<(u32, Version)>,
    unknown: Vec<u32>,
}

impl Running {
    fn of(facts: &CephFacts) -> Self {
        let mut running = Self {
            known: Vec::with_capacity(facts.osds.osds.len()),
            unknown: Vec::new(),
        };
        for (id, _) in facts.osds.osds.iter().filter(|(_, osd)| osd.up) {
            let found = facts.osd_metadata.binary_search_by_key(id, |osd| osd.id).ok();
            let version = found
                .and_then(|at| facts.osd_metadata[at].version.as_deref())
                .and_then(Version::parse);
            match version {
                Some(version) => running.known.push((*id, version)),
                None => running.unknown.push(*id),
            }
        }
        running
    }

    fn osds_run(&self, major: u32) -> VerdictReason {
        let older = || self.known.iter().filter(|(_, version)| version.major < major);
        let (count, unknown) = (older().count(), self.unknown.len());
        if count > 0 {
            let named = older().map(|(id, version)| fmt::from_fn(move |f| write!(f, "osd.{id} ({version})")));
            (
                Verdict::No,
                format!("{count} OSDs are older: {}", short_list(named)),
            )
        } else if unknown > 0 {
            let named = self
                .unknown
                .iter()
                .map(|id| fmt::from_fn(move |f| write!(f, "osd.{id}")));
            (
                Verdict::Unknown,
                format!(
                    "the version of {unknown} OSDs is not known: {}",
                    short_list(named)
                ),
            )
        } else {
            (
                Verdict::Yes,
                format!("all {} OSDs that are up run {major} or later", self.known.len()),
            )
        }
    }
}
