//! The monitors and their quorum.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ParseError, from_json, invalid, parse};

/// The monitors, as `quorum_status` tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Quorum {
    /// The cluster's id.
    pub fsid: String,
    /// All monitors in the map, sorted by name.
    pub mons: Vec<String>,
    /// The place of each in the map, by which it can be asked alone.
    pub ranks: BTreeMap<String, u32>,
    /// Those in quorum.
    pub in_quorum: Vec<String>,
    /// Where each stands, by level: `datacenter`, `dc1`. Those of which the map tells it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub places: BTreeMap<String, BTreeMap<String, String>>,
    /// The one that breaks ties between two sites, in stretch mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tiebreaker: Option<String>,
    /// The one that leads them.
    pub leader: String,
    /// The release that every monitor must have at least; it moves by itself when the last one has it.
    pub min_mon_release: u32,
}

#[derive(Deserialize)]
struct Raw {
    quorum_names: Vec<String>,
    #[serde(default)]
    quorum_leader_name: String,
    monmap: RawMap,
}

#[derive(Deserialize)]
struct RawMap {
    fsid: String,
    #[serde(default)]
    min_mon_release: u32,
    #[serde(default)]
    tiebreaker_mon: String,
    mons: Vec<RawMon>,
}

#[derive(Deserialize)]
struct RawMon {
    name: String,
    #[serde(default)]
    rank: u32,
    #[serde(default)]
    crush_location: RawPlace,
}

/// Where a monitor stands: `"{datacenter=dc1,rack=r2}"` before release 20, and a list of pairs from there on. While
/// monitors are upgraded either comes, as the one that leads them writes it.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawPlace {
    Text(String),
    Pairs(Vec<RawPair>),
}

impl Default for RawPlace {
    fn default() -> Self {
        Self::Pairs(Vec::new())
    }
}

#[derive(Deserialize)]
struct RawPair {
    key: String,
    val: String,
}

fn place(raw: &RawPlace) -> BTreeMap<String, String> {
    let text = match raw {
        RawPlace::Text(text) => text,
        RawPlace::Pairs(pairs) => {
            let pairs = pairs.iter();
            return pairs.map(|pair| (pair.key.clone(), pair.val.clone())).collect();
        }
    };
    let pairs = text.trim_start_matches('{').trim_end_matches('}').split(',');
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(level, name)| (level.trim().to_owned(), name.trim().to_owned()))
        .collect()
}

impl Quorum {
    /// Reads `quorum_status`.
    ///
    /// # Errors
    /// No JSON, not that shape, a name that cannot be one, or a monitor in quorum that is not in the map.
    pub fn read(bytes: &[u8], origin: &str) -> Result<Self, ParseError> {
        let raw: Raw = from_json(bytes, origin)?;
        let ranks = raw
            .monmap
            .mons
            .iter()
            .map(|mon| (mon.name.clone(), mon.rank))
            .collect();
        let placed = raw.monmap.mons.iter();
        let places = placed
            .map(|mon| (mon.name.clone(), place(&mon.crush_location)))
            .filter(|(_, place)| !place.is_empty())
            .collect();
        let mut mons: Vec<String> = raw.monmap.mons.into_iter().map(|mon| mon.name).collect();
        mons.sort();
        for mon in &mons {
            parse::name(mon, origin)?;
        }
        if let Some(twice) = mons
            .windows(2)
            .find_map(|pair| (pair[0] == pair[1]).then_some(&pair[0]))
        {
            return Err(invalid(origin, format!("two monitors are called {twice:?}")));
        }
        let mut in_quorum = raw.quorum_names;
        in_quorum.sort();
        in_quorum.dedup();
        if let Some(odd) = in_quorum.iter().find(|mon| mons.binary_search(mon).is_err()) {
            return Err(invalid(
                origin,
                format!("{odd:?} is in quorum and not in the map of monitors"),
            ));
        }
        Ok(Self {
            fsid: raw.monmap.fsid,
            mons,
            ranks,
            in_quorum,
            places,
            tiebreaker: Some(raw.monmap.tiebreaker_mon).filter(|name| !name.is_empty()),
            leader: raw.quorum_leader_name,
            min_mon_release: raw.monmap.min_mon_release,
        })
    }
}
