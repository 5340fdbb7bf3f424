//! What an upgrade does to software beside the plan: what is to be known before a run begins.

use std::collections::{BTreeMap, BTreeSet};

use stagger_core::model::{Fact, UnitId};

use crate::config::SoftwareByKind;
use crate::effects::kind_and_id;
use crate::facts::CephFacts;
use crate::memory::hosts_of;
use crate::profile::SoftwareProfile;

/// The kinds in the order of the procedure.
const ORDER: [&str; 5] = ["mon", "mgr", "osd", "mds", "rgw"];

/// Hosts that are named before the rest is counted.
const NAMED: usize = 3;

/// What is to be known of an upgrade to that release, a line each.
pub fn remarks(software: &SoftwareByKind, facts: &CephFacts, release: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if software.profile.is_of_host() {
        lines.extend(ahead_of_their_turn(facts, release));
    }
    if software.profile == SoftwareProfile::Cephadm {
        lines.extend(beside_cephadm(facts));
    }
    lines
}

/// Where the software is a host's, the first daemon that is prepared changes that of all.
fn ahead_of_their_turn(facts: &CephFacts, release: &str) -> Option<String> {
    let mut by_host: BTreeMap<String, BTreeMap<usize, BTreeSet<UnitId>>> = BTreeMap::new();
    for (unit, host) in hosts_of(facts) {
        let place = ORDER.iter().position(|kind| *kind == kind_and_id(&unit).0);
        if let Some(place) = place {
            by_host
                .entry(host)
                .or_default()
                .entry(place)
                .or_default()
                .insert(unit);
        }
    }
    let ahead: Vec<(String, Vec<String>)> = by_host
        .into_iter()
        .filter_map(|(host, by_kind)| {
            let later: Vec<String> = by_kind
                .into_values()
                .skip(1)
                .flatten()
                .map(|unit| unit.to_string())
                .collect();
            (!later.is_empty()).then_some((host, later))
        })
        .collect();
    let daemons: usize = ahead.iter().map(|(_, daemons)| daemons.len()).sum();
    let named: Vec<String> = ahead
        .iter()
        .take(NAMED)
        .map(|(host, daemons)| format!("{host}: {}", daemons.join(", ")))
        .collect();
    let more = match ahead.len().checked_sub(NAMED) {
        Some(more @ 1..) => format!("; and {more} more hosts"),
        Some(0) | None => String::new(),
    };
    (daemons > 0).then(|| {
        format!(
            "note: software belongs to a host: it is installed for the first of its daemons, and {daemons} daemons have {release} on disk \
             before their turn. They keep running; one that crashes meanwhile starts on {release} ({}{more})",
            named.join("; ")
        )
    })
}

fn beside_cephadm(facts: &CephFacts) -> Vec<String> {
    let mut lines = vec![
        "note: cephadm is paused while daemons have their turn; it rotates no keys, as its own upgrade to 20.2.4 and later does".to_owned(),
    ];
    if let Fact::Yes(cephadm) = &facts.cephadm {
        let count = cephadm.others.len();
        if count > 0 {
            lines.push(format!(
                "note: {count} daemons that are no units, such as {}, are deployed by cephadm from the new image at the end",
                cephadm.others[0].name
            ));
        }
        if cephadm.paused {
            lines.push("note: cephadm is paused already, and is left so".to_owned());
        }
    }
    lines
}
