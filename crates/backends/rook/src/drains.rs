//! Node drains: which failure domain may go down now, and what keeps the others up.
//!
//! A drain is done by its client: it cordons a node and asks for evictions until they are granted. What
//! may be granted is told by PodDisruptionBudgets. Rook's design (managed PodDisruptionBudgets, see
//! `docs/coverage.md`) is followed here, with its known failures put right:
//!
//! - A drain is a node that is cordoned *and* has an OSD that is down or going; a cordon alone blocks nobody.
//! - The domain that drains is chosen once and kept, until its OSDs are back or all placement groups are
//!   clean without them: a node that stays drained blocks nobody.
//! - Placement groups count as clean only if it is known: what is stale or missing blocks as the contrary. Nor
//!   are they clean without an OSD that is on its way out while Ceph has it up: they are clean with it.
//! - Closing comes before opening, with a look in between: what was let go while a look was made may have lost
//!   more since than it shows. So a domain is let go only by a look at which all others were closed, or stay open.
//! - What is wanted is worked out anew each time from what is seen, so nothing of before is left behind.
//! - While a run's wave is open nothing goes that is not proven, beside those of it that are down or may yet be
//!   stopped: those that had their turn and serve again count as all others.
//! - Where it is proven that two domains may be down together, both may drain.
//!
//! [`decide`] is pure; [`steps`](budgets::steps) puts what is wanted into an order in which no moment is
//! without protection.

pub mod budgets;
pub mod fixed;
pub mod level;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use budgets::{Budget, Selects};

/// An OSD as Kubernetes and Ceph show it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Osd {
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
    /// Whether its node is unschedulable, or gone.
    pub cordoned: bool,
    /// Whether it is being replaced: it is down for a reason that is no drain, and known.
    pub replaced: bool,
}

impl Osd {
    fn is_down(&self) -> bool {
        !self.replaced && (!self.serves || self.leaving)
    }

    /// Down, or going, from a node that is being drained.
    fn drains(&self) -> bool {
        self.cordoned && self.is_down()
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

/// Whether a set of OSDs may be down together, by our own check on fresh facts.
pub type Proof<'a> = &'a dyn Fn(&BTreeSet<u32>) -> bool;

/// What there is to decide on.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// When it was seen.
    pub now: Timestamp,
    /// Whether budgets are managed at all, by the CephCluster's `disruptionManagement`.
    pub managed: bool,
    /// The lowest level of failure domains that any pool's rule enforces; `None`: there are no pools.
    pub level: Option<&'a str>,
    /// All OSDs.
    pub osds: &'a [Osd],
    /// How their placement groups are.
    pub groups: &'a Groups,
    /// How long `noout` stays on a drained domain (`osdMaintenanceTimeout`).
    pub maintenance: SignedDuration,
    /// The OSDs of a run's open wave that are down, or may yet be stopped; `None`: no wave is open.
    pub wave: Option<&'a BTreeSet<u32>>,
    /// What may be down together.
    pub proven: Proof<'a>,
    /// What the budgets let go while this was seen.
    pub open: &'a Open,
}

/// Of which failure domains anything may be evicted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Open {
    /// Of any, or nobody knows: the default budget is there.
    #[default]
    Anywhere,
    /// Of these only.
    Domains(BTreeSet<String>),
}

impl Seen<'_> {
    fn is_of_wave(&self, osd: u32) -> bool {
        self.wave.is_some_and(|wave| wave.contains(&osd))
    }
}

/// What has to be remembered from one time to the next.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Memory {
    /// The domains that drain, with since when.
    pub draining: BTreeMap<String, Timestamp>,
}

/// What there should be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// The budgets over OSDs, and no others.
    pub budgets: Vec<Budget>,
    /// The failure domains with `noout`, with when it goes, and no others.
    pub noout: BTreeMap<String, Timestamp>,
    /// What to remember.
    pub memory: Memory,
    /// What these budgets let go.
    pub open: Open,
    /// Whether more may be let go by the next look, since something was closed by this one.
    pub again: bool,
    /// The domains of which nothing may be evicted, each with the reason in words.
    pub blocked: BTreeMap<String, String>,
    /// OSDs whose Deployment lacks the label of the level: they are blocked with all others.
    pub unplaced: BTreeSet<u32>,
}

/// What there should be, given what is seen and remembered.
pub fn decide(seen: Seen<'_>, memory: &Memory) -> Wanted {
    let Some(level) = seen.level.filter(|_| seen.managed && !seen.osds.is_empty()) else {
        return Wanted::default();
    };
    let unplaced: BTreeSet<u32> = seen
        .osds
        .iter()
        .filter(|osd| osd.domain.is_none())
        .map(|osd| osd.id)
        .collect();
    let fallen: Vec<&Osd> = seen
        .osds
        .iter()
        .filter(|osd| osd.is_down() && !seen.is_of_wave(osd.id))
        .collect();
    let clean = *seen.groups == Groups::Clean && !fallen.iter().any(|osd| osd.up);
    if seen.wave.is_none() && (fallen.is_empty() || clean) {
        // Clean without them: they hold nothing that others would miss, and do not count.
        let without = fallen.iter().map(|osd| osd.id).collect();
        return Wanted {
            budgets: vec![Budget::over_all(without)],
            unplaced,
            ..Wanted::default()
        };
    }
    let chosen = chosen(memory, &fallen);
    let may_go = released(&seen, &chosen, &fallen);
    let free: BTreeSet<String> = match seen.open {
        Open::Domains(open) if open.is_subset(&may_go) => may_go.clone(),
        Open::Domains(open) => open.intersection(&may_go).cloned().collect(),
        Open::Anywhere => BTreeSet::new(),
    };
    let why = why(&seen, &may_go, &fallen);
    let domains: BTreeSet<&String> = seen.osds.iter().filter_map(|osd| osd.domain.as_ref()).collect();
    let mut wanted = Wanted {
        unplaced,
        again: free != may_go,
        ..Wanted::default()
    };
    if may_go.is_empty() {
        // Nothing may go: that takes one budget, not one for each domain.
        wanted.budgets.push(Budget::closed());
    }
    for domain in domains.into_iter().filter(|domain| !free.contains(*domain)) {
        if !may_go.is_empty() {
            let budget = Budget::blocking(level, Selects::Domain(domain.clone()));
            wanted.budgets.push(budget);
        }
        if !may_go.contains(domain) {
            wanted.blocked.insert(domain.clone(), why.clone());
        }
    }
    if !wanted.unplaced.is_empty() && !may_go.is_empty() {
        wanted.budgets.push(Budget::blocking(level, Selects::Unplaced));
    }
    wanted.open = Open::Domains(free);
    let fell = domains_of(fallen.iter().copied());
    let drained = domains_of(fallen.iter().copied().filter(|osd| osd.drains()));
    for domain in chosen
        .into_iter()
        .chain(may_go)
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

fn domains_of<'a>(osds: impl Iterator<Item = &'a Osd>) -> BTreeSet<String> {
    osds.filter_map(|osd| osd.domain.clone()).collect()
}

/// The domains that drain: those of before that are not over, else one, a drained one first.
fn chosen(memory: &Memory, fallen: &[&Osd]) -> BTreeSet<String> {
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

/// The domains of which anything may be evicted now.
///
/// Where nothing but one domain has fallen, it is that: Ceph's pools are made to bear it. Beside a fault
/// elsewhere, a second drain or a run's wave only what is proven may go.
fn released(seen: &Seen<'_>, chosen: &BTreeSet<String>, fallen: &[&Osd]) -> BTreeSet<String> {
    let mut free = BTreeSet::new();
    let inside = |osd: &&Osd| osd.domain.as_ref().is_some_and(|domain| chosen.contains(domain));
    if seen.wave.is_none() && chosen.len() == 1 && fallen.iter().all(inside) {
        free.clone_from(chosen);
    }
    let drained = domains_of(fallen.iter().copied().filter(|osd| osd.drains()));
    let waiting = domains_of(seen.osds.iter().filter(|osd| osd.cordoned));
    for domain in chosen.iter().chain(&drained).chain(&waiting) {
        let mut with = free.clone();
        if with.insert(domain.clone()) && may_all_be_down(seen, &with, fallen) {
            free = with;
        }
    }
    free
}

/// Whether everything in these domains may be down together, beside what is down already and the wave.
fn may_all_be_down(seen: &Seen<'_>, domains: &BTreeSet<String>, fallen: &[&Osd]) -> bool {
    let inside = |osd: &&Osd| osd.domain.as_ref().is_some_and(|domain| domains.contains(domain));
    let set: BTreeSet<u32> = seen
        .osds
        .iter()
        .filter(inside)
        .map(|osd| osd.id)
        .chain(fallen.iter().map(|osd| osd.id))
        .chain(seen.wave.into_iter().flatten().copied())
        .collect();
    (seen.proven)(&set)
}

/// Why nothing else may go, in words.
fn why(seen: &Seen<'_>, may_go: &BTreeSet<String>, fallen: &[&Osd]) -> String {
    let ids = |ids: &mut dyn Iterator<Item = u32>| {
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
        let down = ids(&mut fallen.iter().map(|osd| osd.id));
        parts.push(format!("{down} down{place}"));
    }
    match seen.wave {
        None => {}
        Some(wave) if wave.is_empty() => {
            parts.push("an upgrade's wave is not over, though its OSDs are back".to_owned());
        }
        Some(wave) => {
            let ids = ids(&mut wave.iter().copied());
            parts.push(format!("{ids} of an upgrade's wave"));
        }
    }
    match seen.groups {
        Groups::Clean => {
            let up: Vec<u32> = fallen.iter().filter(|osd| osd.up).map(|osd| osd.id).collect();
            if !up.is_empty() {
                let up = ids(&mut up.into_iter());
                parts.push(format!("the placement groups are clean, but still with {up}"));
            }
        }
        Groups::NotClean { why } => parts.push(why.clone()),
    }
    parts.join("; ")
}
