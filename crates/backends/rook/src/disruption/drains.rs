//! Node drains: which OSDs may be evicted now, and what keeps the others up.
//!
//! A drain is done by its client: it cordons a node and asks for evictions until they are granted. What
//! may be granted is told by a PodDisruptionBudget. Rook's design (managed PodDisruptionBudgets, see
//! `docs/coverage.md`) is followed here, with its known failures put right:
//!
//! - **An eviction is open only if it is proven**: beside the states of the placement groups as they are now, and all
//!   that is down or leaving. That holds for the first failure domain that drains, for the next one while the first
//!   recovers, and for the default budget, which lets one OSD go anywhere.
//! - A drain is a node that is cordoned *and* has an OSD that is down or going; a cordon alone blocks nobody.
//! - What was down while all placement groups were clean has its data elsewhere, and begins no drain: a dead disk of a node
//!   that stays cordoned takes nobody's turn.
//! - The domain that drains is chosen once and kept, until its OSDs are back or all placement groups are
//!   clean without them: a node that stays drained blocks nobody.
//! - Placement groups count as clean only if it is known: what is stale or missing blocks as the contrary. Nor
//!   are they clean without an OSD that is on its way out while Ceph has it up: they are clean with it.
//! - What is down already may be evicted, or a drain would wait for a pod that crashes again and again: all that is proven
//!   is proven beside it.
//! - There is one budget, and it is switched by one write: no pod is ever under two, which the eviction API answers with
//!   an error, and no moment is without one.
//! - Closing comes before opening, with a look in between: what was let go while a look was made may have lost
//!   more since than it shows. So an OSD is let go only by a look at which all others were closed, or stay open.
//! - What is wanted is worked out anew each time from what is seen, so nothing of before is left behind.
//! - The OSDs of a run's wave that are down or may yet be stopped count as down: those that had their turn and serve
//!   again count as all others.
//! - Where it is proven that two domains may be down together, both may drain.
//!
//! [`decide`] is pure.

pub mod eviction;
pub mod fixed;
pub mod level;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// An OSD as Kubernetes and Ceph show it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct OsdState {
    /// Its number.
    pub id: u32,
    /// Its failure domain of the level that counts; `None`: its Deployment has no such label.
    pub domain: Option<String>,
    /// Whether its pod is ready and Ceph has it up.
    pub serves: bool,
    /// Whether its pod is terminating or was evicted.
    pub leaving: bool,
    /// Whether Ceph has it up, as that of a pod which has just been told to end.
    pub up: bool,
    /// Its node, if that is unschedulable, or gone.
    pub cordoned: Option<String>,
    /// Whether it is being replaced: it is down for a reason that is no drain, and known.
    pub replaced: bool,
}

impl OsdState {
    fn is_down(&self) -> bool {
        !self.replaced && (!self.serves || self.leaving)
    }

    /// Down, or going, from a node that is being drained.
    fn drains(&self) -> bool {
        self.cordoned.is_some() && self.is_down()
    }
}

/// Whether all placement groups have all their copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Groups {
    /// They have, by reports newer than the last change of the OSD map.
    Clean,
    /// Some have not, or nobody could tell.
    NotClean {
        /// Which, or why it is not known.
        why: String,
    },
}

/// What may go, by our own check on fresh facts.
pub trait Judge {
    /// Whether all of `set` may go together beside `gone`: what is down or leaving, and what a wave may stop.
    ///
    /// # Errors
    /// What that would break, in words.
    fn may_go(&self, gone: &BTreeSet<u32>, set: &BTreeSet<u32>) -> Result<(), String>;

    /// Whether each of `set` may go beside `gone`, whichever it is, if it is only one.
    ///
    /// # Errors
    /// What one of them would break, in words.
    fn any_one_may_go(&self, gone: &BTreeSet<u32>, set: &BTreeSet<u32>) -> Result<(), String>;
}

/// What there is to decide on.
#[derive(Clone, Copy)]
pub struct DrainInput<'a> {
    /// When it was seen.
    pub now: Timestamp,
    /// The lowest level of failure domains that any pool's rule enforces; `None`: there are no pools.
    pub level: Option<&'a str>,
    /// All OSDs.
    pub osds: &'a [OsdState],
    /// How their placement groups are.
    pub groups: &'a Groups,
    /// How long `noout` stays on a drained domain (`osdMaintenanceTimeout`).
    pub maintenance: SignedDuration,
    /// The OSDs of a run's open wave that are down, or may yet be stopped; `None`: no wave is open.
    pub wave: Option<&'a BTreeSet<u32>>,
    /// What may go.
    pub judge: &'a dyn Judge,
    /// What the budget let go while this was seen.
    pub open: &'a EvictableOsds,
}

/// Which OSDs may be evicted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum EvictableOsds {
    /// Any, or nobody knows: the default budget is there.
    #[default]
    Any,
    /// These only.
    Only(BTreeSet<u32>),
}

/// The PodDisruptionBudget over OSDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsdDisruptionBudget {
    /// The OSDs that it is not over: those that may all be evicted, and those that Ceph has down.
    pub without: BTreeSet<u32>,
    /// How many of all others may be unavailable: one, or none.
    pub max_unavailable: u32,
}

impl DrainInput<'_> {
    fn is_of_wave(&self, osd: u32) -> bool {
        self.wave.is_some_and(|wave| wave.contains(&osd))
    }
}

impl OsdDisruptionBudget {
    /// As Rook has it while nothing is drained: one may go.
    pub const OF_ROOK: Self = Self {
        without: BTreeSet::new(),
        max_unavailable: 1,
    };
    /// Nothing may go.
    pub const CLOSED: Self = Self {
        without: BTreeSet::new(),
        max_unavailable: 0,
    };
}

/// What has to be remembered from one time to the next.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DrainMemory {
    /// The domains that drain, with since when.
    pub draining: BTreeMap<String, Timestamp>,
    /// The OSDs that are down, and were so while all placement groups were clean: Ceph has their data elsewhere, and
    /// what is drained since has not begun with them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub empty: BTreeSet<u32>,
}

/// What there should be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DesiredBudgets {
    /// The budget over OSDs; `None`: there should be none.
    pub budget: Option<OsdDisruptionBudget>,
    /// The failure domains with `noout`, with when it goes, and no others.
    pub noout: BTreeMap<String, Timestamp>,
    /// What to remember.
    pub memory: DrainMemory,
    /// What the budget lets go.
    pub open: EvictableOsds,
    /// Whether more may be let go by the next look, since something was closed by this one.
    pub again: bool,
    /// The domains of which something may not be evicted now, each with the reason in words.
    pub blocked: BTreeMap<String, String>,
}

/// What there should be, given what is seen and remembered.
pub fn decide(seen: DrainInput<'_>, memory: &DrainMemory) -> DesiredBudgets {
    if seen.level.is_none() || seen.osds.is_empty() {
        return DesiredBudgets::default();
    }
    let fallen: Vec<&OsdState> = seen
        .osds
        .iter()
        .filter(|osd| osd.is_down() && !seen.is_of_wave(osd.id))
        .collect();
    let gone = ids(fallen.iter().copied());
    // Whatever they are down for, nothing more goes with their pods. Those of a wave are the run's.
    let down = ids(seen
        .osds
        .iter()
        .filter(|osd| !osd.serves && !osd.up && !seen.is_of_wave(osd.id)));
    // Clean without them: they hold nothing that others would miss, and do not count.
    let clean = *seen.groups == Groups::Clean && !fallen.iter().any(|osd| osd.up);
    let mut why_not_any = None;
    if seen.wave.is_none() && (fallen.is_empty() || clean) {
        let others: BTreeSet<u32> = ids(seen.osds).difference(&gone).copied().collect();
        match seen.judge.any_one_may_go(&gone, &others) {
            Ok(()) => {
                return DesiredBudgets {
                    memory: DrainMemory {
                        empty: gone.clone(),
                        ..DrainMemory::default()
                    },
                    budget: Some(OsdDisruptionBudget {
                        without: down,
                        max_unavailable: 1,
                    }),
                    ..DesiredBudgets::default()
                };
            }
            Err(why) => why_not_any = Some(why),
        }
    }
    let empty: BTreeSet<u32> = if clean {
        gone.clone()
    } else {
        memory.empty.intersection(&gone).copied().collect()
    };
    let counted: Vec<&OsdState> = fallen
        .into_iter()
        .filter(|osd| !empty.contains(&osd.id))
        .collect();
    let gone: BTreeSet<u32> = gone
        .into_iter()
        .chain(seen.wave.into_iter().flatten().copied())
        .collect();
    let chosen = chosen(memory, &counted);
    let mut refused = BTreeMap::new();
    let drained = domains_of(counted.iter().copied().filter(|osd| osd.drains()));
    let may_go = released(&seen, &chosen, &drained, &gone, &mut refused);
    // One of these that serves at the next look may have been let go meanwhile, as all others.
    let opens: BTreeSet<u32> = may_go.union(&down).copied().collect();
    let free: BTreeSet<u32> = match seen.open {
        EvictableOsds::Only(open) if open.is_subset(&opens) => opens.clone(),
        EvictableOsds::Only(open) => open.intersection(&opens).copied().collect(),
        EvictableOsds::Any => BTreeSet::new(),
    };
    let may_go_on = domains_of(seen.osds.iter().filter(|osd| may_go.contains(&osd.id)));
    let why = block_reason(&seen, &may_go_on, &counted, why_not_any);
    let waits = |osd: &&OsdState| !may_go.contains(&osd.id) && !gone.contains(&osd.id);
    let blocked = domains_of(seen.osds.iter().filter(waits))
        .into_iter()
        .map(|domain| {
            let own = refused.remove(&domain);
            let why = own.map_or_else(|| why.clone(), |own| format!("{why}; without {domain}: {own}"));
            (domain, why)
        });
    let mut wanted = DesiredBudgets {
        blocked: blocked.collect(),
        again: free != opens,
        budget: Some(OsdDisruptionBudget {
            without: free.clone(),
            max_unavailable: 0,
        }),
        open: EvictableOsds::Only(free),
        memory: DrainMemory {
            empty,
            ..DrainMemory::default()
        },
        ..DesiredBudgets::default()
    };
    let fell = domains_of(counted.iter().copied());
    for domain in chosen
        .into_iter()
        .chain(may_go_on)
        .filter(|domain| fell.contains(domain))
    {
        let since = memory.draining.get(&domain).copied().unwrap_or(seen.now);
        let until = since.saturating_add(seen.maintenance).unwrap_or(Timestamp::MAX);
        if drained.contains(&domain) && seen.now < until {
            wanted.noout.insert(domain.clone(), until);
        }
        wanted.memory.draining.insert(domain, since);
    }
    wanted
}

fn ids<'a>(osds: impl IntoIterator<Item = &'a OsdState>) -> BTreeSet<u32> {
    osds.into_iter().map(|osd| osd.id).collect()
}

fn domains_of<'a>(osds: impl Iterator<Item = &'a OsdState>) -> BTreeSet<String> {
    osds.filter_map(|osd| osd.domain.clone()).collect()
}

/// The domains that drain: those of before that are not over, else one, a drained one first.
fn chosen(memory: &DrainMemory, fallen: &[&OsdState]) -> BTreeSet<String> {
    let down = domains_of(fallen.iter().copied());
    let kept: BTreeSet<String> = memory
        .draining
        .keys()
        .filter(|domain| down.contains(*domain))
        .cloned()
        .collect();
    if !kept.is_empty() {
        return kept;
    }
    let drained = domains_of(fallen.iter().copied().filter(|osd| osd.drains()));
    drained.into_iter().chain(down).take(1).collect()
}

/// The OSDs of which any may be evicted now, all of them together: those of the domains that drain, then those of domains
/// with a cordoned node; as a whole where that is proven, else all that are on its cordoned nodes, else node by node. A
/// drain that cannot come to its end is not begun, or two of them wait for each other; of one that has begun as much goes
/// as can, if no other has begun as well. Why a domain is not released as a whole goes into `refused`.
fn released(
    seen: &DrainInput<'_>,
    chosen: &BTreeSet<String>,
    drained: &BTreeSet<String>,
    gone: &BTreeSet<u32>,
    refused: &mut BTreeMap<String, String>,
) -> BTreeSet<u32> {
    let mut free = BTreeSet::new();
    let cordoned = domains_of(seen.osds.iter().filter(|osd| osd.cordoned.is_some()));
    for domain in chosen.iter().chain(cordoned.difference(chosen)) {
        let of_it = || {
            let here = |osd: &&OsdState| osd.domain.as_ref() == Some(domain) && !gone.contains(&osd.id);
            seen.osds.iter().filter(here)
        };
        let Err(why) = release(seen.judge, &ids(of_it()), gone, &mut free) else {
            continue;
        };
        let mut asked: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for osd in of_it() {
            if let Some(node) = &osd.cordoned {
                asked.entry(node).or_default().insert(osd.id);
            }
        }
        let all = asked.values().flatten().copied().collect();
        if release(seen.judge, &all, gone, &mut free).is_err() {
            let mut rest = Vec::new();
            for of_node in asked.into_values() {
                if release(seen.judge, &of_node, gone, &mut free).is_err() {
                    rest.extend(of_node);
                }
            }
            let alone = chosen.first() == Some(domain) && drained.iter().all(|other| other == domain);
            if alone {
                release_some(seen.judge, &rest, gone, &mut free);
            }
        }
        refused.insert(domain.clone(), why);
    }
    free
}

/// Adds a set to what is free, if it may all go beside that.
fn release(
    judge: &dyn Judge,
    set: &BTreeSet<u32>,
    gone: &BTreeSet<u32>,
    free: &mut BTreeSet<u32>,
) -> Result<(), String> {
    let with = free.union(set).copied().collect();
    judge.may_go(gone, &with)?;
    *free = with;
    Ok(())
}

/// Adds of these what may go, halving what may not.
fn release_some(judge: &dyn Judge, osds: &[u32], gone: &BTreeSet<u32>, free: &mut BTreeSet<u32>) {
    let set = osds.iter().copied().collect();
    if release(judge, &set, gone, free).is_err() && osds.len() > 1 {
        let (first, second) = osds.split_at(osds.len() / 2);
        release_some(judge, first, gone, free);
        release_some(judge, second, gone, free);
    }
}

/// Why nothing else may go, in words.
fn block_reason(
    seen: &DrainInput<'_>,
    may_go: &BTreeSet<String>,
    fallen: &[&OsdState],
    why_not_any: Option<String>,
) -> String {
    let names = |ids: &mut dyn Iterator<Item = u32>| {
        let all: Vec<_> = ids.map(|id| format!("osd.{id}")).collect();
        match all.len() {
            0..=6 => all.join(" "),
            many => format!("{} and {} more", all[..6].join(" "), many - 6),
        }
    };
    let mut parts = Vec::new();
    if !fallen.is_empty() {
        let place: Vec<_> = may_go.iter().map(String::as_str).collect();
        let place = if place.is_empty() {
            String::new()
        } else {
            format!(" ({} may go on draining)", place.join(", "))
        };
        let down = names(&mut fallen.iter().map(|osd| osd.id));
        parts.push(format!("{down} down{place}"));
    }
    match seen.wave {
        None => {}
        Some(wave) if wave.is_empty() => {
            parts.push("an upgrade's wave is not over, though its OSDs are back".to_owned());
        }
        Some(wave) => {
            let ids = names(&mut wave.iter().copied());
            parts.push(format!("{ids} of an upgrade's wave"));
        }
    }
    match seen.groups {
        Groups::Clean => {
            let up: Vec<u32> = fallen.iter().filter(|osd| osd.up).map(|osd| osd.id).collect();
            if !up.is_empty() {
                let up = names(&mut up.into_iter());
                parts.push(format!("the placement groups are clean, but still with {up}"));
            }
        }
        Groups::NotClean { why } => parts.push(why.clone()),
    }
    parts.extend(why_not_any);
    parts.join("; ")
}
