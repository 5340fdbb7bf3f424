//! What a cluster has answered, as far as conditions ask.

use std::collections::{BTreeMap, BTreeSet};

/// An answer, or why there is none. No answer never counts as the harmless one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterAnswer<T> {
    /// The answer.
    Yes(T),
    /// Unknown, with the reason.
    No(String),
}

/// All that conditions can ask of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RiskFacts {
    /// How many daemons there are, by kind: `osd`, `rgw`, `tcmu-runner`.
    pub daemons: ClusterAnswer<BTreeMap<String, usize>>,
    /// The codes of all health checks that complain: `OSD_DOWN`.
    pub health: ClusterAnswer<BTreeSet<String>>,
    /// The pools.
    pub pools: ClusterAnswer<Vec<PoolFacts>>,
    /// Settings in the monitors' configuration, for all daemons or some. Settings in a daemon's own file are
    /// unknown.
    pub settings: ClusterAnswer<Vec<Setting>>,
    /// What daemons say of themselves, by their kind; a kind that was not asked for is missing.
    pub metadata: BTreeMap<String, ClusterAnswer<Vec<Metadata>>>,
}

impl RiskFacts {
    /// A cluster about which nothing is known, for that reason.
    pub fn unknown(why: &str) -> Self {
        Self {
            daemons: ClusterAnswer::No(why.to_owned()),
            health: ClusterAnswer::No(why.to_owned()),
            pools: ClusterAnswer::No(why.to_owned()),
            settings: ClusterAnswer::No(why.to_owned()),
            metadata: BTreeMap::new(),
        }
    }
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolFacts {
    /// Its name.
    pub name: String,
    /// Whether it is erasure-coded.
    pub erasure: bool,
    /// Its flags: `ec_overwrites`.
    pub flags: BTreeSet<String>,
    /// What is set on it, as text: `pg_num_max` to `32`.
    pub options: BTreeMap<String, String>,
}

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// For whom: `global`, `osd`, `osd.3`.
    pub section: String,
    /// It is for some of these only: those on a host, or with a class of devices.
    pub masked: bool,
    /// Its name.
    pub option: String,
    /// What it is set to.
    pub value: String,
}

/// What a daemon says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// Which: `osd.3`.
    pub daemon: String,
    /// Field by field, as text.
    pub fields: BTreeMap<String, String>,
}
