//! Clusters that span sites.
//!
//! A group of a stretch pool peers only with OSDs in several buckets (sites), whatever its `min_size`. In
//! stretch mode, Ceph may give up the OSDs of a site whose monitors are all gone.

use std::collections::BTreeMap;

use stagger_core::model::{BudgetsBuilder, Ix};

use crate::facts::CephFacts;
use crate::facts::osd::Stretch;

/// On which side of a stretch pool's barrier each OSD stands.
///
/// A group that has OSDs in as many sites as it needs loses none of them: of each site's OSDs one stays. One with OSDs
/// in more sites than that may lose sites; then as many OSDs may go as there are sites to spare, or all but one of each
/// site where each has several: either keeps enough of them. Of the site that is mandatory one stays always. An OSD of
/// which nobody can tell where it stands stands in none, and nor does one that is down: a group that has lost a site
/// already loses nothing more.
pub(super) struct Sites {
    needed: usize,
    mandatory: Option<i64>,
    /// By the place of the unit.
    site: BTreeMap<u32, i64>,
}

impl Sites {
    /// `place`: where the unit of an OSD is, if it has one.
    pub(super) fn new(facts: &CephFacts, stretch: Stretch, place: impl Fn(u32) -> Option<u32>) -> Self {
        let up = facts.osds.osds.iter().filter(|(_, osd)| osd.up);
        let site = up
            .filter_map(|(osd, _)| Some((place(*osd)?, facts.tree.above(*osd, stretch.barrier)?)))
            .collect();
        Self {
            needed: stretch.buckets as usize,
            mandatory: stretch.mandatory,
            site,
        }
    }

    /// What besides `min_size` a group with these members asks: how many of which may go.
    pub(super) fn budgets(&self, members: &[u32]) -> Vec<(Vec<u32>, u32)> {
        if members.is_empty() {
            return Vec::new();
        }
        let mut sites: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
        for member in members {
            if let Some(site) = self.site.get(member) {
                sites.entry(*site).or_default().push(*member);
            }
        }
        let all = || members.to_vec();
        let mandatory = match self.mandatory {
            None => None,
            Some(bucket) => match sites.get(&bucket) {
                None => return vec![(all(), 0)],
                Some(of_it) => Some((of_it.clone(), of_it.len() as u32 - 1)),
            },
        };
        let Some(to_spare) = sites.len().checked_sub(self.needed) else {
            return vec![(all(), 0)];
        };
        let mut budgets = if to_spare > 0 && sites.values().any(|of_it| of_it.len() == 1) {
            vec![(all(), to_spare as u32)]
        } else {
            sites
                .into_values()
                .map(|of_it| {
                    let limit = of_it.len() as u32 - 1;
                    (of_it, limit)
                })
                .collect()
        };
        budgets.extend(mandatory);
        budgets
    }
}

/// The sites of a cluster in stretch mode with their monitors. The tiebreaker has one of its own. `None` for a monitor of
/// which nobody can tell where it stands.
pub(crate) fn of_monitors(facts: &CephFacts) -> BTreeMap<Option<&str>, Vec<&str>> {
    let mut sites: BTreeMap<Option<&str>, Vec<&str>> = BTreeMap::new();
    let Some(mode) = facts.osds.stretch_mode else {
        return sites;
    };
    let level = facts.tree.level_name(mode.level);
    for mon in &facts.mons.mons {
        let place = facts.mons.places.get(mon);
        let site = place.and_then(|place| place.get(level?)).map(String::as_str);
        sites.entry(site).or_default().push(mon);
    }
    sites
}

/// What a cluster in stretch mode asks besides: of the monitors of a site one at a time, and no OSD at all while a site is
/// missing or not clean yet. A monitor that stands nobody knows where counts in each site.
pub(super) fn of_mode(facts: &CephFacts, places: &BTreeMap<&str, u32>, builder: &mut BudgetsBuilder) {
    let Some(mode) = facts.osds.stretch_mode else {
        return;
    };
    let sites = of_monitors(facts);
    let at = |mon: &&str| places.get(format!("mon.{mon}").as_str()).map(|at| (Ix(*at), 1));
    let nowhere = sites.get(&None).into_iter().flatten();
    for (site, mons) in sites
        .iter()
        .filter_map(|(site, mons)| Some((site.as_ref()?, mons)))
    {
        let members: Vec<(Ix, u32)> = mons.iter().chain(nowhere.clone()).filter_map(at).collect();
        builder.add_for(0, "monitors", &format!("one at a time in {site}"), 1, &members);
    }
    if mode.degraded || mode.recovering {
        let osds = places.iter().filter(|(id, _)| id.starts_with("osd."));
        let osds: Vec<(Ix, u32)> = osds.map(|(_, at)| (Ix(*at), 1)).collect();
        builder.add_for(0, "stretch mode", "a site is missing", 0, &osds);
    }
}
