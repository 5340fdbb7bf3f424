//! The daemons as units.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use stagger_core::model::{HostName, IdError, Kind, Reason, Revision, Unit, UnitId, UnitState, check_plain};

use super::{Baseline, is_absent};
use crate::facts::{CephFacts, DaemonMetadata};

/// The leader of the monitors, the active manager and active metadata servers come last in their stage:
/// each time one of them stops, the cluster waits for another to take over.
const LAST: u32 = 1;

/// All daemons that the maps know, and those that the maps knew before the run: a manager, metadata
/// server or gateway that is stopped leaves its map, and is down, not gone. OSDs that nothing counts on are none:
/// [`absent`](super::absent()).
///
/// # Errors
/// A name or version that cannot be used.
pub fn units(facts: &CephFacts, baseline: Option<&Baseline>) -> Result<Vec<Unit>, IdError> {
    let mut units = Vec::new();
    mons(facts, &mut units)?;
    mgrs(facts, &mut units)?;
    osds(facts, baseline, &mut units)?;
    mdss(facts, &mut units)?;
    rgws(facts, &mut units)?;
    sort(&mut units);
    // A metadata server can be in two lists while it moves; where it serves counts.
    units.dedup_by(|later, first| {
        let same = later.id == first.id;
        if same && later.state < first.state {
            std::mem::swap(later, first);
        }
        same
    });
    let mut gone = Vec::new();
    for (id, daemon) in baseline.into_iter().flat_map(|baseline| &baseline.daemons) {
        // An OSD or a monitor that is in no map any more was removed by somebody.
        if ["mgr", "mds", "rgw"].contains(&daemon.kind.as_str())
            && units
                .binary_search_by(|unit| unit.id.natural_key().cmp(&id.natural_key()))
                .is_err()
        {
            gone.push(Unit {
                id: id.clone(),
                kind: daemon.kind.clone(),
                state: UnitState::Down,
                revision: daemon.revision.clone(),
                domains: daemon.domains.clone(),
                precedence: 0,
                untouchable: None,
            });
        }
    }
    units.append(&mut gone);
    sort(&mut units);
    Ok(units)
}

/// As people count. Those of one name stay in their order.
fn sort(units: &mut [Unit]) {
    units.sort_by(|a, b| a.id.natural_key().cmp(&b.id.natural_key()));
}

struct DaemonFacts<'a> {
    kind: &'a Kind,
    name: &'a str,
    host: Option<&'a str>,
    state: UnitState,
    revision: Option<Revision>,
    domains: BTreeMap<String, String>,
    last: bool,
}

fn unit(seen: DaemonFacts<'_>) -> Result<Unit, IdError> {
    let DaemonFacts {
        kind,
        name,
        host,
        state,
        revision,
        domains,
        last,
    } = seen;
    Ok(Unit {
        id: UnitId::new(format!("{kind}.{name}"))?,
        kind: kind.clone(),
        state,
        revision,
        domains,
        precedence: if last { LAST } else { 0 },
        untouchable: unsafe_name(name, host),
    })
}

/// Commands hold both names, and each daemon tells its own: what would be more than a word there is not touched.
fn unsafe_name(name: &str, host: Option<&str>) -> Option<Reason> {
    let named = check_plain(name).map_err(|why| format!("a command cannot hold its name {name:?}: {why}"));
    let placed = host.map_or(Ok(()), |host| match HostName::new(host) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    });
    let why = named.and(placed).err()?;
    Some(Reason::of_backend("bad-name", why))
}

fn serving(yes: bool) -> UnitState {
    if yes { UnitState::Serving } else { UnitState::Down }
}

/// What a daemon says about itself, and where its host stands.
fn about<'a>(
    facts: &CephFacts,
    metadata: &'a [DaemonMetadata],
    name: &str,
) -> (Option<&'a str>, Option<&'a str>, BTreeMap<String, String>) {
    let found = metadata.iter().find(|daemon| daemon.name == name);
    let host = found.and_then(|daemon| daemon.host.as_deref());
    (
        found.and_then(|daemon| daemon.version.as_deref()),
        host,
        host.map(|host| facts.tree.domains_of_host(host))
            .unwrap_or_default(),
    )
}

fn mons(facts: &CephFacts, units: &mut Vec<Unit>) -> Result<(), IdError> {
    let kind = Kind::new("mon")?;
    for name in &facts.mons.mons {
        let (version, host, domains) = about(facts, &facts.mon_metadata, name);
        units.push(unit(DaemonFacts {
            kind: &kind,
            name,
            host,
            state: serving(facts.mons.in_quorum.contains(name)),
            revision: version.map(Revision::new).transpose()?,
            domains,
            last: *name == facts.mons.leader,
        })?);
    }
    Ok(())
}

fn mgrs(facts: &CephFacts, units: &mut Vec<Unit>) -> Result<(), IdError> {
    let kind = Kind::new("mgr")?;
    let active = facts
        .mgrs
        .active
        .iter()
        .map(|name| (name, facts.mgrs.available, true));
    let standbys = facts.mgrs.standbys.iter().map(|name| (name, true, false));
    for (name, serves, last) in active.chain(standbys) {
        let (version, host, domains) = about(facts, &facts.mgr_metadata, name);
        units.push(unit(DaemonFacts {
            kind: &kind,
            name,
            host,
            state: serving(serves),
            revision: version.map(Revision::new).transpose()?,
            domains,
            last,
        })?);
    }
    Ok(())
}

fn osds(facts: &CephFacts, baseline: Option<&Baseline>, units: &mut Vec<Unit>) -> Result<(), IdError> {
    let kind = Kind::new("osd")?;
    // Thousands of OSDs run a few releases.
    let mut revisions: BTreeMap<&str, Revision> = BTreeMap::new();
    for (id, osd) in &facts.osds.osds {
        if is_absent(facts, baseline, *id, osd) {
            continue;
        }
        let metadata = facts.osd_metadata.binary_search_by_key(id, |osd| osd.id);
        let metadata = metadata.ok().map(|at| &facts.osd_metadata[at]);
        let mut domains = facts.tree.domains(*id);
        if domains.is_empty()
            && let Some(host) = metadata.and_then(|osd| osd.host.as_deref())
        {
            domains = facts.tree.domains_of_host(host);
        }
        let revision = match metadata.and_then(|osd| osd.version.as_deref()) {
            None => None,
            Some(version) => Some(match revisions.entry(version) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(place) => place.insert(Revision::new(version)?).clone(),
            }),
        };
        units.push(unit(DaemonFacts {
            kind: &kind,
            name: &id.to_string(),
            host: metadata.and_then(|osd| osd.host.as_deref()),
            state: serving(osd.up),
            revision,
            domains,
            last: false,
        })?);
    }
    Ok(())
}

fn mdss(facts: &CephFacts, units: &mut Vec<Unit>) -> Result<(), IdError> {
    let kind = Kind::new("mds")?;
    let servers = facts.fs.filesystems.iter().flat_map(|fs| &fs.servers);
    // One on its way to a rank or stopping does not serve, and nobody says that it is down either.
    let servers = servers.map(|mds| {
        let state = if mds.laggy {
            UnitState::Down
        } else if mds.active() || mds.follows() {
            UnitState::Serving
        } else {
            UnitState::Unknown
        };
        (&mds.name, state, !mds.follows())
    });
    let standbys = facts
        .fs
        .standbys
        .iter()
        .map(|name| (name, UnitState::Serving, false));
    for (name, state, last) in servers.chain(standbys) {
        let (version, host, domains) = about(facts, &facts.mds_metadata, name);
        units.push(unit(DaemonFacts {
            kind: &kind,
            name,
            host,
            state,
            revision: version.map(Revision::new).transpose()?,
            domains,
            last,
        })?);
    }
    Ok(())
}

fn rgws(facts: &CephFacts, units: &mut Vec<Unit>) -> Result<(), IdError> {
    let kind = Kind::new("rgw")?;
    for gateway in &facts.gateways {
        let host = gateway.host.as_deref();
        units.push(unit(DaemonFacts {
            kind: &kind,
            name: &gateway.name,
            host,
            state: UnitState::Serving,
            revision: gateway.version.as_deref().map(Revision::new).transpose()?,
            domains: host
                .map(|host| facts.tree.domains_of_host(host))
                .unwrap_or_default(),
            last: false,
        })?);
    }
    Ok(())
}
