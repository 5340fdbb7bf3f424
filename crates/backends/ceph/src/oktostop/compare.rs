//! Stagger's answer beside Ceph's.

use std::fmt;

use serde::Deserialize;

use super::{OkToStopVerdict, Oracle};
use crate::facts::pg::PgId;
use crate::facts::{ParseError, from_json, invalid};

/// Ceph's answer to `osd ok-to-stop`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OkToStopAnswer {
    /// Its verdict.
    pub ok: bool,
    /// The set that it speaks of, sorted. With `--max` it is larger than the one asked about.
    pub osds: Vec<u32>,
    /// All groups that it says something about, sorted.
    pub groups: Vec<PgId>,
    /// Those that forbid it, sorted.
    pub bad: Vec<PgId>,
}

#[derive(Deserialize)]
struct Raw {
    ok_to_stop: bool,
    osds: Vec<u32>,
    #[serde(default)]
    unknown_pgs: Vec<String>,
    #[serde(default)]
    bad_no_pool_pgs: Vec<String>,
    #[serde(default)]
    bad_already_inactive: Vec<String>,
    #[serde(default)]
    bad_become_inactive: Vec<String>,
    #[serde(default)]
    ok_become_degraded: Vec<String>,
    #[serde(default)]
    ok_become_more_degraded: Vec<String>,
}

/// Some answers are wrapped once more.
#[derive(Deserialize)]
#[serde(untagged)]
enum Wrapped {
    Plain(Raw),
    In { ok_to_stop: Raw },
}

impl OkToStopAnswer {
    /// Reads the answer to `osd ok-to-stop`. The code that came with it says nothing that is not here.
    ///
    /// # Errors
    /// No JSON, not that shape, or names that are no placement groups.
    pub fn read(bytes: &[u8], origin: &str) -> Result<Self, ParseError> {
        let raw = match from_json(bytes, origin)? {
            Wrapped::Plain(raw) | Wrapped::In { ok_to_stop: raw } => raw,
        };
        let bad = [
            raw.unknown_pgs,
            raw.bad_no_pool_pgs,
            raw.bad_already_inactive,
            raw.bad_become_inactive,
        ];
        let fine = [raw.ok_become_degraded, raw.ok_become_more_degraded];
        let read = |lists: &[Vec<String>]| -> Result<Vec<PgId>, ParseError> {
            let names = lists.iter().flatten();
            let ids = names.map(|name| {
                PgId::parse(name).ok_or_else(|| invalid(origin, format!("{name:?} is no placement group")))
            });
            let mut ids: Vec<PgId> = ids.collect::<Result<_, _>>()?;
            ids.sort_unstable();
            ids.dedup();
            Ok(ids)
        };
        let bad = read(&bad)?;
        let mut groups = read(&fine)?;
        groups.extend(&bad);
        groups.sort_unstable();
        groups.dedup();
        let mut osds = raw.osds;
        osds.sort_unstable();
        Ok(Self {
            ok: raw.ok_to_stop,
            osds,
            groups,
            bad,
        })
    }
}

/// What the placement group map says of one group: the reader can count it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The group.
    pub id: PgId,
    /// Its state.
    pub state: String,
    /// Its pool's name; `None` if the pool is gone.
    pub pool: Option<String>,
    /// Its acting members as Ceph lists them, without holes.
    pub acting: Vec<u32>,
    /// Those of them that are asked about.
    pub stopping: Vec<u32>,
    /// How many it needs; 0 if the pool is gone.
    pub min_size: u32,
    /// In how many sites it has OSDs then, and in how many it needs some, where those are too few.
    pub sites: Option<(u32, u32)>,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            state,
            pool,
            acting,
            stopping,
            min_size,
            sites,
        } = self;
        let list = |osds: &[u32]| {
            let names: Vec<String> = osds.iter().map(ToString::to_string).collect();
            names.join(", ")
        };
        let pool = match pool {
            Some(pool) => format!("of pool {pool}"),
            None => "of a pool that is gone".to_owned(),
        };
        let (on, without) = (list(acting), list(stopping));
        write!(f, "{id} {pool} is {state} on {on}; without {without} it has ")?;
        match sites {
            Some((left, needed)) => write!(f, "OSDs in {left} of {needed} sites that it needs"),
            None => write!(f, "{} and needs {min_size}", acting.len() - stopping.len()),
        }
    }
}

/// How our answer and Ceph's stand to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Agreement {
    /// The same verdict for the same groups.
    Same,
    /// The same verdict; these groups are in one answer and not in the other.
    SameVerdict {
        /// Groups that Ceph did not name, and should have.
        they_passed_over: Vec<PgId>,
        /// Groups that we did not name.
        we_passed_over: Vec<PgId>,
    },
    /// Ceph approves what we refuse: its oracle is not to be relied on here.
    TheyApprove {
        /// The groups that forbid it, each with what the map says of it.
        proofs: Vec<Proof>,
    },
    /// Ceph refuses what we approve. Either of us may have older facts; nothing is stopped.
    TheyRefuse {
        /// The groups that it names, each with what our map says of it.
        proofs: Vec<Proof>,
    },
    /// The answers are not about the same set.
    OtherSet {
        /// The set that Ceph speaks of.
        theirs: Vec<u32>,
    },
}

/// Lays Ceph's answer beside ours.
pub fn compare(oracle: &Oracle<'_>, ours: &OkToStopVerdict, theirs: &OkToStopAnswer) -> Agreement {
    if ours.osds != theirs.osds {
        return Agreement::OtherSet {
            theirs: theirs.osds.clone(),
        };
    }
    let proofs = |groups: &[PgId]| {
        groups
            .iter()
            .filter_map(|id| proof(oracle, *id, &ours.osds))
            .collect()
    };
    match (ours.ok(), theirs.ok) {
        (false, true) => Agreement::TheyApprove {
            proofs: proofs(&ours.blocking_groups()),
        },
        (true, false) => Agreement::TheyRefuse {
            proofs: proofs(&theirs.bad),
        },
        (true, true) | (false, false) => {
            let mut groups = ours.blocking_groups();
            groups.retain(|id| !ours.also_unsafe.contains(id));
            groups.extend(&ours.ok_become_degraded);
            groups.extend(&ours.ok_become_more_degraded);
            groups.sort_unstable();
            let without = |these: &[PgId], those: &[PgId]| -> Vec<PgId> {
                these
                    .iter()
                    .copied()
                    .filter(|id| those.binary_search(id).is_err())
                    .collect()
            };
            let they_passed_over = without(&groups, &theirs.groups);
            let we_passed_over = without(&theirs.groups, &groups);
            if they_passed_over.is_empty() && we_passed_over.is_empty() {
                Agreement::Same
            } else {
                Agreement::SameVerdict {
                    they_passed_over,
                    we_passed_over,
                }
            }
        }
    }
}

fn proof(oracle: &Oracle<'_>, id: PgId, set: &[u32]) -> Option<Proof> {
    let pg = oracle.pgs.at(oracle.pgs.find(id)?);
    let pool = oracle.pool(&pg);
    let acting: Vec<u32> = pg.live().collect();
    Some(Proof {
        id,
        state: pg.state.to_string(),
        pool: pool.map(|pool| pool.name.clone()),
        stopping: acting
            .iter()
            .copied()
            .filter(|osd| set.binary_search(osd).is_ok())
            .collect(),
        sites: pool.and_then(|pool| oracle.too_few_sites(&acting, pool, set)),
        acting,
        min_size: pool.map_or(0, |pool| pool.min_size),
    })
}
