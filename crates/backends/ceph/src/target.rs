//! From the wanted release to the stages and steps that lead there.
//!
//! The order is that of Ceph's own upgrade notes: monitors, managers, OSDs, metadata servers, gateways, and
//! finally `require-osd-release`.

pub(crate) mod refusal;

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use stagger_core::model::{
    ConditionName, Door, Gate, GoingBack, GuardName, GuardScope, GuardSpec, IdError, Kind, Part, PartName,
    Phase, Reason, Revision, StageSpec, StepSpec, Target, Unit, Width,
};

use stagger_engine::cluster::Refusal;

use crate::facts::release::{self, Version};
use crate::facts::{CephFacts, cephadm};
use crate::rollback_table::rollback_support;
use crate::translate::{HealthPolicy, NO_OTHER_UPGRADE, SITES_WHOLE, units};

/// When placement groups are well enough to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PgGate {
    /// All are active and clean.
    #[default]
    Clean,
    /// All are active with all their copies; for clusters whose balancer never rests.
    NotDegraded,
}

/// What moves data or loads disks beside a run, and can be paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disturbance {
    /// The manager's balancer, which moves placement groups.
    Balancer,
    /// The manager's autoscaler, which splits and merges them.
    Autoscaler,
    /// Scrubs and deep scrubs.
    Scrubs,
}

impl Disturbance {
    /// What is paused where nobody says otherwise. Scrubs that are not done are complained of after a while.
    pub fn defaults() -> BTreeSet<Self> {
        BTreeSet::from([Self::Balancer, Self::Autoscaler])
    }
}

/// What the gates ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetPolicy {
    /// When placement groups are well enough.
    pub pgs: PgGate,
    /// How long each gate must have held, in seconds.
    pub hold: u32,
    /// How long to wait for a gate, in seconds.
    pub timeout: u32,
    /// How long `noout` stays on a wave's OSDs at most, in seconds. After that Ceph marks them out as it
    /// always would.
    pub noout: u32,
    /// What is paused while OSDs have their turn.
    pub pause: BTreeSet<Disturbance>,
    /// Whether the configuration says how an OSD's data is made readable for an older release.
    pub before_rollback: bool,
    /// Whether the daemons are changed as cephadm's: see [`SoftwareProfile::Cephadm`](crate::profile::SoftwareProfile::Cephadm).
    pub cephadm: bool,
    /// What is thought of Ceph's complaints before the run.
    pub health: HealthPolicy,
}

impl Default for TargetPolicy {
    fn default() -> Self {
        Self {
            pgs: PgGate::Clean,
            hold: 5,
            timeout: 600,
            noout: 1200,
            pause: Disturbance::defaults(),
            before_rollback: false,
            cephadm: false,
            health: HealthPolicy::default(),
        }
    }
}

/// How long what disturbs stays paused at most; renewed as long as the stage goes on.
const PAUSED: SignedDuration = SignedDuration::from_hours(2);

/// How long file systems stay on one rank without standby-replay at most.
const ONE_RANK: SignedDuration = SignedDuration::from_hours(2);

/// The releases that run, by their lowest and highest major number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Running {
    lowest: u32,
    highest: u32,
    lowest_osd: Option<u32>,
}

/// The stages and steps that bring the cluster to `release`, `18.2.7`.
///
/// # Errors
/// All reasons why nothing should be begun, not only the first.
pub fn target(facts: &CephFacts, release: &str, policy: &TargetPolicy) -> Result<Target, Refusal> {
    let units = units(facts, None).map_err(|error| invalid_name(&error))?;
    target_for(facts, &units, release, policy)
}

/// The same where the units are there already that these facts make.
///
/// # Errors
/// As [`target`].
pub fn target_for(
    facts: &CephFacts,
    units: &[Unit],
    release: &str,
    policy: &TargetPolicy,
) -> Result<Target, Refusal> {
    let wanted = refusal::accept_release(facts, units, release, policy)?;
    compile(facts, units, &wanted, policy).map_err(|error| invalid_name(&error))
}

fn invalid_name(error: &IdError) -> Refusal {
    Refusal(vec![Reason::of_backend("bad-name", error.to_string())])
}

fn compile(
    facts: &CephFacts,
    units: &[Unit],
    wanted: &Version,
    policy: &TargetPolicy,
) -> Result<Target, IdError> {
    let mut parts = Vec::new();
    // Also kinds that nobody has seen: a gateway is in the manager's map seconds after it was started, and a metadata server may
    // be added. Without their stage a run would end and leave them behind.
    for kind in ["mon", "mgr", "osd", "mds", "rgw"] {
        parts.push(Part::Stage(stage(facts, units, kind, wanted, policy)?));
    }
    if facts
        .osds
        .require_osd_release
        .is_some_and(|now| now < wanted.major)
    {
        parts.push(Part::Step(require_release(facts, wanted, policy)?));
    }
    if policy.cephadm {
        parts.push(Part::Step(container_image(facts, wanted, policy)?));
    }
    let mut running: BTreeMap<Version, u32> = BTreeMap::new();
    for version in units.iter().filter_map(version_of) {
        *running.entry(version).or_default() += 1;
    }
    let from: Vec<String> = running
        .keys()
        .filter(|version| *version != wanted)
        .map(ToString::to_string)
        .collect();
    let from = from.join(" and ");
    let title = if from.is_empty() {
        format!("ceph {wanted}")
    } else if running.keys().all(|version| version >= wanted) {
        format!("ceph downgrade from {from} to {wanted}")
    } else {
        format!("ceph {from} to {wanted}")
    };
    Ok(Target {
        title,
        parts,
        only: None,
    })
}

/// What a unit runs, where that is known.
fn version_of(unit: &Unit) -> Option<Version> {
    Version::parse(unit.revision.as_ref()?.as_str())
}

/// These gates and those of every stage.
pub(crate) fn gates(facts: &CephFacts, names: &[&str], policy: &TargetPolicy) -> Result<Vec<Gate>, IdError> {
    let pgs = match policy.pgs {
        PgGate::Clean => "pgs-clean",
        PgGate::NotDegraded => "pgs-not-degraded",
    };
    let whole = [
        "daemons-running",
        "no-crash-loop",
        "health",
        "quorum",
        "pgs-known",
        "pg-stats-fresh",
        pgs,
    ];
    let gate = |name: &&str| {
        Ok(Gate {
            condition: ConditionName::new(*name)?,
            hold: SignedDuration::from_secs(i64::from(policy.hold)),
            timeout: SignedDuration::from_secs(i64::from(policy.timeout)),
        })
    };
    let sites = facts.osds.stretch_mode.map(|_| SITES_WHOLE);
    let orchestrator = policy.cephadm.then_some(NO_OTHER_UPGRADE);
    let besides = sites.iter().chain(&orchestrator);
    names.iter().chain(&whole).chain(besides).map(gate).collect()
}

fn stage(
    facts: &CephFacts,
    units: &[Unit],
    kind: &str,
    wanted: &Version,
    policy: &TargetPolicy,
) -> Result<StageSpec, IdError> {
    // Monitors of a release that the map does not demand yet would let an older one join again, and OSDs of a later
    // release are not begun beside those.
    let min_mon = format!("min-mon-release-{}", wanted.major);
    let of_osds = ["osds-up-in", min_mon.as_str()];
    let (width, own): (_, &[&str]) = match kind {
        "mon" => (Width::Single, &[]),
        "mgr" => (Width::Policy, &["mgr-active"]),
        "osd" if wanted.major >= crate::translate::OLDEST => (Width::Policy, &of_osds),
        "osd" => (Width::Policy, &of_osds[..1]),
        "mds" => (Width::Policy, &["mds-active"]),
        _ => (Width::Policy, &["rgw-serving"]),
    };
    Ok(StageSpec {
        name: PartName::new(kind)?,
        kind: Kind::new(kind)?,
        revision: Revision::new(wanted.to_string())?,
        width,
        // A daemon goes down and comes up in its restart: there is nothing to enter or to leave.
        phases: vec![Phase::Prepare, Phase::Change],
        guards: guards(kind, policy)?,
        gates: gates(facts, own, policy)?,
        door_before_last: if kind == "mon" {
            last_mon(facts, wanted)?
        } else {
            None
        },
        // No OSD runs a release that monitors and managers do not: nobody may begin them before those are done.
        may_be_left: !matches!(kind, "mon" | "mgr"),
        going_back: hardest_rollback(units, kind, wanted, policy),
        maintenance: None,
    })
}

/// What is taken while daemons of that kind have their turn.
pub(crate) fn guards(kind: &str, policy: &TargetPolicy) -> Result<Vec<GuardSpec>, IdError> {
    let guard = |name: &str, scope, expiry, why: &str| {
        Ok(GuardSpec {
            name: GuardName::new(name)?,
            scope,
            expiry,
            why: why.to_owned(),
        })
    };
    let mut guards = Vec::new();
    if policy.cephadm {
        guards.push(guard(
            "no-orchestrator",
            GuardScope::Stage,
            PAUSED,
            "cephadm deploys and reconfigures nothing while its daemons are changed",
        )?);
    }
    match kind {
        "osd" => {
            guards.push(guard(
                "noout",
                GuardScope::Wave,
                SignedDuration::from_secs(i64::from(policy.noout)),
                "no data is moved away from OSDs that are only restarted",
            )?);
            for disturbance in &policy.pause {
                let (name, why) = match disturbance {
                    Disturbance::Balancer => ("no-balancer", "no placement group is moved to balance"),
                    Disturbance::Autoscaler => ("no-autoscale", "no placement group is split or merged"),
                    Disturbance::Scrubs => ("no-scrubs", "scrubs leave disks to recovery"),
                };
                guards.push(guard(name, GuardScope::Stage, PAUSED, why)?);
            }
        }
        "mds" => guards.extend([
            guard(
                "no-standby-replay",
                GuardScope::Stage,
                ONE_RANK,
                "a standby of one release does not follow the journal of another",
            )?,
            guard(
                "one-rank",
                GuardScope::Stage,
                ONE_RANK,
                "metadata servers of two releases do not share a file system",
            )?,
        ]),
        _ => {}
    }
    Ok(guards)
}

fn last_mon(facts: &CephFacts, wanted: &Version) -> Result<Option<Door>, IdError> {
    let now = facts.mons.min_mon_release;
    if now >= wanted.major {
        return Ok(None);
    }
    Ok(Some(Door {
        name: PartName::new("last-mon")?,
        why: format!(
            "when every monitor runs {wanted}, the cluster demands release {} of monitors by itself, and one of \
             release {now} never joins again",
            wanted.major
        ),
    }))
}

/// What going back takes for the units that are not on the wanted release yet; the hardest case, where
/// they run several. Of a kind that nobody has seen, a unit may run whatever any other does.
fn hardest_rollback(units: &[Unit], kind: &str, wanted: &Version, policy: &TargetPolicy) -> GoingBack {
    let rank = |back: &GoingBack| match back {
        GoingBack::Restart => 0,
        GoingBack::Rebuild { .. } => 1,
        GoingBack::Impossible { .. } => 2,
    };
    let is_seen = units.iter().any(|unit| unit.kind.as_str() == kind);
    units
        .iter()
        .filter(|unit| !is_seen || unit.kind.as_str() == kind)
        .map(|unit| match version_of(unit) {
            Some(now) => rollback_support(kind, wanted.major, now.major, policy.before_rollback),
            None => GoingBack::Impossible {
                why: format!("what {} runs is unknown", unit.id),
            },
        })
        .max_by_key(rank)
        .unwrap_or(GoingBack::Restart)
}

/// The step after which cephadm starts everything from the new image, what is no unit included.
fn container_image(facts: &CephFacts, wanted: &Version, policy: &TargetPolicy) -> Result<StepSpec, IdError> {
    let name = cephadm::container_image(&wanted.to_string());
    Ok(StepSpec {
        name: PartName::new(name.clone())?,
        done_when: ConditionName::new(name)?,
        before: gates(facts, &[], policy)?,
        door: None,
        why: "cephadm starts every daemon from the new image, and what it manages besides runs that too"
            .to_owned(),
    })
}

fn require_release(facts: &CephFacts, wanted: &Version, policy: &TargetPolicy) -> Result<StepSpec, IdError> {
    let major = wanted.major;
    let name = format!("require-osd-release-{major}");
    let release = release::name(major).unwrap_or_default();
    Ok(StepSpec {
        name: PartName::new(name.clone())?,
        done_when: ConditionName::new(name.clone())?,
        before: gates(
            facts,
            &[
                &format!("osds-run-{major}"),
                &format!("min-mon-release-{major}"),
                "osds-up-in",
            ],
            policy,
        )?,
        door: Some(Door {
            name: PartName::new(name)?,
            why: format!(
                "an OSD older than {release} never joins again, and what {release} adds may change its data"
            ),
        }),
        why: format!("switches on what release {major} ({release}) adds, once every OSD runs it"),
    })
}
