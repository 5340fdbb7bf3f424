//! Hosts as units: a host goes down with all its daemons.
//!
//! The snapshot of hosts is derived from that of daemons, so that constraints of daemons hold for hosts: a
//! host costs on every budget what its daemons cost together, and its state is that of the worst of them. A
//! set of hosts is permitted exactly when all their daemons are, beside every daemon of a host that does not
//! fully serve.

use std::collections::{BTreeMap, BTreeSet};

use stagger_core::model::{
    Budgets, BudgetsBuilder, Condition, HostName, IdError, Interruption, Ix, Kind, Reason, Revision,
    Snapshot, SnapshotError, Terms, Unit, UnitId, UnitState,
};

use super::CephTranslateError;
use crate::facts::CephFacts;

/// The kind of a host.
pub const HOST: &str = "host";

/// What messages call them.
const TERMS: Terms = Terms::new("host", "host", "daemon", "standby");

/// The unit that a host of that name is: `host.ceph3`.
///
/// # Errors
/// A name that no unit can have.
pub fn host_unit(name: &str) -> Result<UnitId, IdError> {
    UnitId::new(format!("{HOST}.{name}"))
}

/// The name of the host that a unit is; `None`: it is a daemon.
pub fn host_name(unit: &UnitId) -> Option<&str> {
    unit.as_str().strip_prefix("host.")
}

/// What only those know that have asked a host itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Booted {
    /// What it runs: its boot, by a name; `None`: nobody could tell.
    pub revision: Option<Revision>,
    /// Why it must be left alone, if it must.
    pub untouchable: Option<Reason>,
}

/// Daemons of which only so many may be down, beside the budgets of the daemons themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonBudget {
    /// What it is called in messages.
    pub name: String,
    /// How many may be down.
    pub limit: u32,
    /// Which daemons.
    pub members: Vec<UnitId>,
}

/// What a snapshot of hosts is made of beside that of the daemons.
pub struct Carried<'a> {
    /// On which host each daemon is. One that has none stays a unit of its own.
    pub places: &'a BTreeMap<UnitId, String>,
    /// What each host runs.
    pub booted: &'a dyn Fn(&str) -> Result<Booted, IdError>,
    /// What holds while hosts have their turn, and not while daemons have theirs.
    pub bounds: &'a [DaemonBudget],
    /// The host whose turn is the last.
    pub last: Option<&'a str>,
}

/// The snapshot of the hosts that carry these daemons.
///
/// # Errors
/// Names that no unit can have; none that the parsers let through are known.
pub fn hosts(daemons: &Snapshot, carried: &Carried<'_>) -> Result<Snapshot, CephTranslateError> {
    let mut of_host: BTreeMap<&str, Vec<&Unit>> = BTreeMap::new();
    let mut units = Vec::new();
    for daemon in daemons.units() {
        match carried.places.get(&daemon.id) {
            Some(host) => of_host.entry(host).or_default().push(daemon),
            None => units.push(daemon.clone()),
        }
    }
    for (host, daemons) in of_host {
        units.push(of_daemons(host, &daemons, carried)?);
    }
    units.sort_by(|a, b| a.id.natural_key().cmp(&b.id.natural_key()));
    let found: BTreeMap<&UnitId, Ix> = (0_u32..)
        .zip(&units)
        .map(|(at, unit)| (&unit.id, Ix(at)))
        .collect();
    let unit_of = |daemon: &UnitId| match carried.places.get(daemon) {
        Some(host) => host_unit(host),
        None => Ok(daemon.clone()),
    };
    let mut seats = Vec::with_capacity(daemons.units().len());
    for daemon in daemons.units() {
        let unit = unit_of(&daemon.id)?;
        let seat = found.get(&unit).copied();
        seats.push(seat.ok_or(CephTranslateError::Snapshot(SnapshotError::Twice(unit)))?);
    }
    let seat_of = |daemon: &UnitId| daemons.find(daemon).map(|at| seats[at.at()]);
    let budgets = |of: &Budgets| carried_budgets(of, &seats, carried.bounds, &seat_of);
    let (now, recovered) = (
        budgets(daemons.budgets()),
        daemons
            .recovers()
            .then(|| budgets(daemons.budgets_once_recovered())),
    );
    let names = |all: &[UnitId]| -> Result<Vec<UnitId>, IdError> {
        let names: BTreeSet<UnitId> = all.iter().map(unit_of).collect::<Result<_, _>>()?;
        let mut names: Vec<UnitId> = names.into_iter().collect();
        names.sort_by(|a, b| a.natural_key().cmp(&b.natural_key()));
        Ok(names)
    };
    let mut conditions = Vec::new();
    for condition in daemons.conditions() {
        conditions.push(Condition {
            but_for: names(&condition.but_for)?,
            ..condition.clone()
        });
    }
    let mut interruptions = Vec::new();
    for interruption in daemons.interruptions() {
        interruptions.push(Interruption {
            units: names(&interruption.units)?,
            ..interruption.clone()
        });
    }
    let kind = Kind::new(HOST)?;
    let durations = daemons.duration(&kind).map(|takes| (kind, takes));
    let snapshot = Snapshot::new(
        daemons.cluster().clone(),
        daemons.observed_at(),
        daemons.generation().to_owned(),
        units,
        now,
        conditions,
        durations.into_iter().collect(),
    )?
    .with_terms(TERMS.with_remedies([super::NEVER_OK_TO_STOP]))
    .with_absent(daemons.absent().iter().cloned())
    .with_interruptions(interruptions)
    .with_bystanders(daemons.bystanders().iter().cloned());
    match recovered {
        Some(recovered) => Ok(snapshot.with_recovered(recovered)?),
        None => Ok(snapshot),
    }
}

/// A host that carries these daemons. What they disagree on, as two roots of the CRUSH tree, is no domain of it.
fn of_daemons(host: &str, daemons: &[&Unit], carried: &Carried<'_>) -> Result<Unit, IdError> {
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (level, name) in daemons.iter().flat_map(|daemon| &daemon.domains) {
        named.entry(level).or_default().insert(name);
    }
    let mut domains: BTreeMap<String, String> = named
        .into_iter()
        .filter(|(_, names)| names.len() == 1)
        .flat_map(|(level, names)| names.into_iter().map(move |name| (level, name)))
        .map(|(level, name)| (level.to_owned(), name.to_owned()))
        .collect();
    // Whoever selects a host names it as its daemons do.
    domains.insert(HOST.to_owned(), host.to_owned());
    let Booted {
        revision,
        untouchable,
    } = (carried.booted)(host)?;
    let bad_name = || {
        let error = HostName::new(host).err()?;
        Some(Reason::of_backend("bad-name", error.to_string()))
    };
    let of_daemon = || daemons.iter().find_map(|daemon| daemon.untouchable.clone());
    let state = daemons.iter().map(|daemon| daemon.state).max();
    Ok(Unit {
        id: host_unit(host)?,
        kind: Kind::new(HOST)?,
        state: state.unwrap_or(UnitState::Unknown),
        revision,
        domains,
        precedence: u32::from(carried.last == Some(host)),
        untouchable: bad_name().or_else(of_daemon).or(untouchable),
    })
}

/// The budgets with each daemon's cost on its host. `seats`: where the unit of each daemon stands.
fn carried_budgets(
    of: &Budgets,
    seats: &[Ix],
    bounds: &[DaemonBudget],
    seat_of: &dyn Fn(&UnitId) -> Option<Ix>,
) -> Budgets {
    let mut builder = BudgetsBuilder::default();
    let members = (0..of.len()).map(|budget| of.members(budget).count()).sum();
    builder.reserve(of.len() + bounds.len(), members);
    let mut costs: Vec<(Ix, u32)> = Vec::new();
    for budget in 0..of.len() {
        costs.clear();
        costs.extend(
            of.members(budget)
                .map(|(daemon, cost)| (seats[daemon.at()], cost)),
        );
        let (group, name) = (of.group(budget), of.name(budget));
        builder.add_for(of.share(budget), group, name, of.limit(budget), &costs);
    }
    for DaemonBudget { name, limit, members } in bounds {
        let members: Vec<(Ix, u32)> = members
            .iter()
            .filter_map(|daemon| Some((seat_of(daemon)?, 1)))
            .collect();
        // It stands for no placement group.
        builder.add_for(0, "metadata servers", name, *limit, &members);
    }
    builder.build()
}

/// What holds of metadata servers while hosts have their turn. An upgrade brings each file system to one rank first, and
/// visits one file system after another; a reboot does not.
///
/// # Errors
/// None that could be met: the names are those of units.
pub fn bounds(facts: &CephFacts) -> Result<Vec<DaemonBudget>, IdError> {
    let map = &facts.fs;
    let unit = |name: &String| UnitId::new(format!("mds.{name}"));
    let follows = map.filesystems.iter().flat_map(|fs| &fs.servers);
    let followers = follows.filter(|server| server.follows()).count();
    let standbys = map.standbys.len() + followers;
    let mut bounds = Vec::new();
    for fs in map
        .filesystems
        .iter()
        .filter(|fs| fs.ranks() > 1 && standbys == 0)
    {
        bounds.push(DaemonBudget {
            name: format!("ranks of {}, without a standby", fs.name),
            limit: 0,
            members: fs
                .servers
                .iter()
                .map(|server| unit(&server.name))
                .collect::<Result<_, _>>()?,
        });
    }
    if map.filesystems.len() > 1 && standbys > 0 {
        let servers = map
            .filesystems
            .iter()
            .flat_map(|fs| &fs.servers)
            .map(|server| &server.name);
        bounds.push(DaemonBudget {
            name: "as many as stand by for all file systems".to_owned(),
            limit: standbys as u32,
            members: servers.chain(&map.standbys).map(unit).collect::<Result<_, _>>()?,
        });
    }
    Ok(bounds)
}
