//! The reboot of hosts: the goal, and reasons against it.
//!
//! [`CephRebootGoal`] names the hosts with the boot id that each had when the goal was made; [`target`] is
//! the single stage that gives each of them a new boot. Units are [`hosts`]. Everything here is pure;
//! [`visit`] carries it out, and [`host_queries`] reads boot ids from hosts.

pub mod host_queries;
pub(crate) mod visit;

use std::collections::{BTreeMap, BTreeSet};

use stagger_core::model::{
    Fact, GoingBack, IdError, Kind, Part, PartName, Phase, Reason, Revision, Snapshot, StageSpec, Target,
    UnitId, UnitState, Width,
};
use stagger_engine::cluster::Refusal;

use crate::facts::CephFacts;
pub use crate::host_task::{HostTask, MAINTAINED, REBOOTED};
use crate::memory::{BootsBefore, hosts_of};
use crate::target::{TargetPolicy, gates, guards as of_kind, refusal};
use crate::translate::CephTranslateError;
use crate::translate::hosts::{self, Booted, Carried, HOST, host_unit};

/// The revision of a host before its visit, if its boot id was not read.
const BEFORE: &str = "before";

/// The guard by which no standby follows one rank alone, so that each of them can stand in for any.
const NO_STANDBY_REPLAY: &str = "no-standby-replay";

/// Which hosts are to have another boot, and which they have now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CephRebootGoal {
    /// These; `None`: every host that carries a daemon.
    pub only: Option<BTreeSet<String>>,
    /// The boot id of each host, or why nobody could tell; `None`: no host was asked, as of a cluster that was recorded.
    pub boots: Option<BTreeMap<String, Fact<String>>>,
    /// What is done to each.
    pub task: HostTask,
}

/// What a run to that goal keeps of the boots that hosts had before it.
pub(crate) fn boots_before(goal: &CephRebootGoal, last: Option<&str>) -> BootsBefore {
    let boots = goal.boots.iter().flatten();
    let boots = boots.filter_map(|(host, boot)| Some((host.clone(), boot.get()?.clone())));
    BootsBefore {
        boots: boots.collect(),
        last: last.map(str::to_owned),
        task: goal.task.clone(),
    }
}

/// What a host runs that has this boot now. One that told nothing before the run has no name for it.
fn revision(before: &BootsBefore, host: &str, boot: &str) -> Result<Option<Revision>, IdError> {
    match before.boots.get(host) {
        None => Ok(None),
        Some(before) if before == boot => boot_name(boot).map(Some),
        Some(_) => Revision::new(before.task.past_tense()).map(Some),
    }
}

/// What a host runs by its boot id.
fn boot_name(boot: &str) -> Result<Revision, IdError> {
    Revision::new(format!("boot-{boot}"))
}

/// The host among these that a name means: its own, or the same without domains on either side.
pub fn host_named<'a>(hosts: impl IntoIterator<Item = &'a String>, name: &str) -> Option<&'a str> {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let mut of_short = BTreeSet::new();
    for host in hosts {
        if host == name {
            return Some(host);
        }
        if short(host) == short(name) && (host.contains('.') != name.contains('.')) {
            of_short.insert(host.as_str());
        }
    }
    // Two that differ in their domains alone are not guessed between.
    of_short.pop_first().filter(|_| of_short.is_empty())
}

/// The hosts of a cluster before a run. `last`: the host whose turn is the last.
///
/// # Errors
/// Names that no unit can have.
pub fn snapshot(
    facts: &CephFacts,
    daemons: &Snapshot,
    goal: &CephRebootGoal,
    last: Option<&str>,
) -> Result<Snapshot, CephTranslateError> {
    let places = hosts_of(facts);
    let mut down: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for daemon in daemons
        .units()
        .iter()
        .filter(|daemon| daemon.state != UnitState::Serving)
    {
        if let Some(host) = places.get(&daemon.id) {
            down.entry(host).or_default().push(daemon.id.as_str());
        }
    }
    let booted = |host: &str| -> Result<Booted, IdError> {
        let silent = |why: &str| {
            let why = format!("its boot id could not be read: {why}");
            Some(Reason::of_backend("host-silent", why))
        };
        let (revision, silent) = match goal.boots.as_ref().map(|boots| boots.get(host)) {
            None => (Some(Revision::new(BEFORE)?), None),
            Some(None) => (None, silent("it was not asked")),
            Some(Some(Fact::No(why))) => (None, silent(why)),
            Some(Some(Fact::Yes(boot))) => (Some(boot_name(boot)?), None),
        };
        let ill = down.get(host).map(|daemons| {
            let why = format!(
                "{} of it was already down: start {}, or remove it from the cluster, then plan again",
                daemons.join(", "),
                if daemons.len() == 1 { "it" } else { "them" }
            );
            Reason::of_backend("daemon-down", why)
        });
        Ok(Booted {
            revision,
            untouchable: ill.or(silent),
        })
    };
    hosts::hosts(
        daemons,
        &Carried {
            places: &places,
            booted: &booted,
            bounds: &hosts::bounds(facts)?,
            last,
        },
    )
}

/// The hosts of a cluster in a run that began with `before`. `boots`: what hosts answered that were asked since.
///
/// # Errors
/// Names that no unit can have.
pub(crate) fn snapshot_in_run(
    facts: &CephFacts,
    daemons: &Snapshot,
    places: &BTreeMap<UnitId, String>,
    before: &BootsBefore,
    boots: &BTreeMap<String, String>,
) -> Result<Snapshot, CephTranslateError> {
    let booted = |host: &str| -> Result<Booted, IdError> {
        let now = boots.get(host).map(|boot| revision(before, host, boot));
        Ok(Booted {
            revision: now.transpose()?.flatten(),
            untouchable: None,
        })
    };
    hosts::hosts(
        daemons,
        &Carried {
            places,
            booted: &booted,
            bounds: &hosts::bounds(facts)?,
            last: before.last.as_deref(),
        },
    )
}

/// The one stage that reboots the hosts that are meant. `prepares`: whether something is laid out for a wave before its turn.
///
/// # Errors
/// All reasons why nothing should be begun.
pub fn target(
    facts: &CephFacts,
    daemons: &Snapshot,
    goal: &CephRebootGoal,
    last: Option<&str>,
    prepares: bool,
    policy: &TargetPolicy,
) -> Result<Target, Refusal> {
    let mut reasons = refusal::of_reboot(facts, daemons.units(), policy);
    reasons.extend(unplaced_daemons(facts, daemons));
    if !reasons.is_empty() {
        return Err(Refusal(reasons));
    }
    compile(facts, daemons, goal, last, prepares, policy)
        .map_err(|error| Refusal(vec![Reason::of_backend("bad-name", error.to_string())]))
}

/// A host cannot be rebooted while nobody knows what goes down with it.
fn unplaced_daemons(facts: &CephFacts, daemons: &Snapshot) -> Option<Reason> {
    let places = hosts_of(facts);
    let nowhere = daemons
        .units()
        .iter()
        .filter(|daemon| !places.contains_key(&daemon.id));
    let nowhere: Vec<&str> = nowhere.map(|daemon| daemon.id.as_str()).collect();
    (!nowhere.is_empty()).then(|| {
        let why = format!(
            "the host of these is unknown: {}; start them, or remove them from the cluster",
            nowhere.join(", ")
        );
        Reason::of_backend("host-unknown", why)
    })
}

/// The hosts that carry a daemon.
pub fn names(facts: &CephFacts, daemons: &Snapshot) -> BTreeSet<String> {
    let mut places = hosts_of(facts);
    let units = daemons.units().iter();
    units.filter_map(|daemon| places.remove(&daemon.id)).collect()
}

/// The hosts that carry a daemon of one of these kinds.
pub fn with_daemons(facts: &CephFacts, daemons: &Snapshot, kinds: &[Kind]) -> BTreeSet<String> {
    let mut places = hosts_of(facts);
    let units = daemons.units().iter().filter(|unit| kinds.contains(&unit.kind));
    units.filter_map(|daemon| places.remove(&daemon.id)).collect()
}

fn compile(
    facts: &CephFacts,
    daemons: &Snapshot,
    goal: &CephRebootGoal,
    last: Option<&str>,
    prepares: bool,
    policy: &TargetPolicy,
) -> Result<Target, IdError> {
    let all = names(facts, daemons);
    let meant = goal.only.as_ref().unwrap_or(&all);
    let count = meant.len();
    let what = goal.task.verb();
    let mut title = format!("{what} {count} host{}", if count == 1 { "" } else { "s" });
    if let Some(last) = last.filter(|last| meant.contains(*last)) {
        title = format!("{title}, {last} last: stagger runs there");
    }
    let mut guards = of_kind("osd", policy)?;
    if facts.fs.filesystems.iter().any(|fs| fs.standby_replay) {
        let of_servers = of_kind("mds", policy)?;
        guards.extend(
            of_servers
                .into_iter()
                .filter(|guard| guard.name.as_str() == NO_STANDBY_REPLAY),
        );
    }
    let only = goal.only.as_ref().map(|only| {
        let mut only = only
            .iter()
            .map(|host| host_unit(host))
            .collect::<Result<Vec<_>, _>>()?;
        only.sort();
        Ok::<_, IdError>(only)
    });
    let stage = StageSpec {
        name: PartName::new(goal.task.stage())?,
        kind: Kind::new(HOST)?,
        revision: Revision::new(goal.task.past_tense())?,
        width: Width::Policy,
        // What is active is handed over in the same phase, so that the word of both judges is fresh when the host goes down.
        phases: if prepares {
            vec![Phase::Prepare, Phase::Change]
        } else {
            vec![Phase::Change]
        },
        guards,
        gates: gates(
            facts,
            &["osds-up-in", "mgr-active", "mds-active", "rgw-serving"],
            policy,
        )?,
        door_before_last: None,
        may_be_left: false,
        going_back: GoingBack::Impossible {
            why: goal.task.irreversible_reason().to_owned(),
        },
        maintenance: None,
    };
    Ok(Target {
        title,
        parts: vec![Part::Stage(stage)],
        only: only.transpose()?,
    })
}
