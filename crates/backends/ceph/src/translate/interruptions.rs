//! Services that are interrupted while a daemon without a standby restarts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use stagger_core::model::{Fact, IdError, Interruption, UnitId};

use crate::facts::CephFacts;
use crate::facts::mds::{Filesystem, FsMap};
use crate::facts::osd::Pool;
use crate::facts::pg::HOLE;
use crate::facts::rgw::Gateway;

/// The interruptions that a person permits, by their names and by their sorts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Permitted(BTreeSet<String>);

impl Permitted {
    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of that sort and name is: `mds` and `mds.a`.
    pub fn has(&self, sort: &str, name: &str) -> bool {
        self.0.contains(sort) || self.0.contains(name)
    }
}

impl FromIterator<String> for Permitted {
    fn from_iter<I: IntoIterator<Item = String>>(words: I) -> Self {
        Self(words.into_iter().collect())
    }
}

/// Where a pool's groups serve only with all their copies: each of its OSDs interrupts it.
pub(super) fn serves_only_when_clean(pool: &Pool) -> bool {
    pool.size == pool.min_size
}

/// The name under which a pool is permitted.
pub(crate) fn pool_name(pool: &Pool) -> String {
    format!("pool.{}", on_one_line(&pool.name))
}

/// Ceph takes any character in the name of a pool; here it stands in sentences.
pub(super) fn on_one_line(name: &str) -> Cow<'_, str> {
    if !name.contains(char::is_control) {
        return Cow::Borrowed(name);
    }
    let tame = |c: char| {
        if c.is_control() {
            c.escape_default().to_string()
        } else {
            c.to_string()
        }
    };
    Cow::Owned(name.chars().map(tame).collect())
}

/// The server of a file system that nothing stands in for, once it has one rank.
pub(super) fn single_server<'a>(fs: &'a Filesystem, map: &FsMap) -> Option<&'a str> {
    let [only] = &fs.servers[..] else { return None };
    map.standbys.is_empty().then_some(only.name.as_str())
}

/// The gateways in groups that stand in for each other.
pub(super) fn gateways(facts: &CephFacts) -> BTreeMap<(Option<&str>, Option<&str>), Vec<&Gateway>> {
    let mut groups: BTreeMap<_, Vec<&Gateway>> = BTreeMap::new();
    for gateway in &facts.gateways {
        groups.entry(gateway.stands_in_for()).or_default().push(gateway);
    }
    groups
}

/// What those of a group have in common: ` of zone west and service s3`.
pub(super) fn of_group((zone, service): (Option<&str>, Option<&str>)) -> String {
    match (zone, service) {
        (None, None) => String::new(),
        (Some(zone), None) => format!(" of zone {zone}"),
        (None, Some(service)) => format!(" of service {service}"),
        (Some(zone), Some(service)) => format!(" of zone {zone} and service {service}"),
    }
}

/// What is gone while daemons have their turn. `places` are the units that there are: whoever is down is still one that
/// stands in, as soon as it is back.
///
/// # Errors
/// None that could be met: the names are those of units.
pub fn interruptions(
    facts: &CephFacts,
    places: &BTreeMap<&str, u32>,
    permitted: &Permitted,
) -> Result<Vec<Interruption>, IdError> {
    let mut all = Vec::new();
    let mut add = |sort: &str, name: String, units: Vec<UnitId>, what: String| {
        all.push(Interruption {
            permitted: permitted.has(sort, &name),
            name,
            sort: sort.to_owned(),
            units,
            what,
        });
    };
    let of = |kind: &str| -> Vec<&str> {
        places
            .keys()
            .copied()
            .filter(|id| id.split_once('.').is_some_and(|(of, _)| of == kind))
            .collect()
    };
    let mons = of("mon");
    if mons.len() < 3 {
        for mon in &mons {
            let why = match mons.len() {
                1 => "it is the only monitor",
                _ => "the other monitor alone is no quorum",
            };
            let what = format!("while {mon} restarts the cluster accepts no new connections: {why}");
            add("mon", (*mon).to_owned(), vec![UnitId::new(*mon)?], what);
        }
    }
    if let [only] = of("mgr")[..] {
        let what = format!(
            "while {only} restarts there is no manager: no metrics, no dashboard, no balancing, and commands to it wait"
        );
        add("mgr", only.to_owned(), vec![UnitId::new(only)?], what);
    }
    for fs in &facts.fs.filesystems {
        if let Some(server) = single_server(fs, &facts.fs) {
            let name = format!("mds.{server}");
            let what = format!(
                "while {name} restarts clients of the file system {} wait: there is no standby",
                fs.name
            );
            add("mds", name.clone(), vec![UnitId::new(name)?], what);
        }
    }
    for (group, members) in gateways(facts) {
        if let [only] = members[..]
            && of("rgw").len() == facts.gateways.len()
        {
            let name = format!("rgw.{}", only.name);
            let what = format!(
                "while {name} restarts clients of the object gateways{} have no service",
                of_group(group)
            );
            add("rgw", name.clone(), vec![UnitId::new(name)?], what);
        }
    }
    let thin: BTreeMap<u32, &Pool> = facts
        .osds
        .pools
        .iter()
        .filter(|(_, pool)| serves_only_when_clean(pool))
        .map(|(id, pool)| (*id, pool))
        .collect();
    for (pool, osds) in osds_of(facts, &thin) {
        let units: Vec<String> = osds.iter().map(|osd| format!("osd.{osd}")).collect();
        let units = units.into_iter().filter(|id| places.contains_key(id.as_str()));
        let units: Vec<UnitId> = units.map(UnitId::new).collect::<Result<_, _>>()?;
        let pool = thin[&pool];
        let what = format!(
            "while one of its OSDs restarts parts of the pool {} cannot be read or written: it needs {} of {} copies",
            on_one_line(&pool.name),
            pool.min_size,
            pool.size
        );
        add("pool", pool_name(pool), units, what);
    }
    Ok(all)
}

/// The OSDs that hold groups of these pools.
fn osds_of(facts: &CephFacts, pools: &BTreeMap<u32, &Pool>) -> BTreeMap<u32, BTreeSet<u32>> {
    let mut osds: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let Fact::Yes(pgs) = &facts.pgs else { return osds };
    if pools.is_empty() {
        return osds;
    }
    for pg in pgs.iter().filter(|pg| pools.contains_key(&pg.id.pool)) {
        let acting = pg.acting.iter().copied().filter(|osd| *osd != HOLE);
        osds.entry(pg.id.pool).or_default().extend(acting);
    }
    osds
}
