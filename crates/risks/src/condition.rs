//! The language of conditions: closed, total and typed. It has no names of its own, no arithmetic and no patterns; each word
//! looks at one thing that a cluster answers, and has three values.

use serde::Deserialize;

use crate::cluster::{ClusterAnswer, Metadata, PoolFacts, RiskFacts, Setting};
use crate::release::{Ranges, release};

/// What has to be so of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RiskCondition {
    /// There is a daemon of that kind: `daemon = "rgw"`.
    Daemon(String),
    /// A health check of that code complains: `health = "OSD_DOWN"`.
    Health(String),
    /// A pool matches all of this: `pool = { erasure = true }`.
    Pool(PoolIs),
    /// The monitors' configuration sets that: `setting = { daemon = "osd", option = "…", is = "true" }`.
    Setting(SettingIs),
    /// A daemon says that of itself: `metadata = { daemon = "osd", field = "osd_objectstore", is = "bluestore" }`.
    Metadata(MetadataIs),
    /// All of these.
    All(Vec<Self>),
    /// At least one of these.
    Any(Vec<Self>),
    /// Not this.
    Not(Box<Self>),
}

/// Properties of one pool; all that are given must match.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolIs {
    /// Whether it is erasure-coded.
    pub erasure: Option<bool>,
    /// A flag that it has: `ec_overwrites`.
    pub flag: Option<String>,
    /// An option that is set on it.
    pub option: Option<String>,
    /// To what that is set [default: to anything].
    pub is: Option<String>,
}

/// A setting of daemons of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingIs {
    /// The kind of daemon. A setting for all daemons, for the kind, or for one of the kind counts.
    pub daemon: String,
    /// The option.
    pub option: String,
    /// To what it is set. `true`, `yes` and `1` are the same, and so are their opposites.
    pub is: String,
    /// What it is where nothing is set for all or for the kind [default: something else than `is`].
    pub default: Option<String>,
}

/// What a daemon of a kind says of itself: either `is` or `release` is given.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetadataIs {
    /// The kind of daemon: `osd`.
    pub daemon: String,
    /// The field.
    pub field: String,
    /// What it says.
    pub is: Option<String>,
    /// It names a release of these: `ceph version 19.2.1 (…)`, or `19.2.1`.
    pub release: Option<Ranges>,
}

/// Whether a condition holds, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holds {
    /// It does.
    Yes(String),
    /// It does not.
    No(String),
    /// Unknown.
    Unknown(String),
}

/// So many are named where something is true of many.
const NAMED: usize = 3;

impl RiskCondition {
    /// Checks the condition beyond its syntax.
    ///
    /// # Errors
    /// A part of it tests nothing.
    pub(crate) fn verify(&self) -> Result<(), String> {
        match self {
            Self::All(parts) | Self::Any(parts) if parts.is_empty() => {
                Err("`all` and `any` need at least one condition".to_owned())
            }
            Self::All(parts) | Self::Any(parts) => parts.iter().try_for_each(Self::verify),
            Self::Not(part) => part.verify(),
            Self::Pool(PoolIs {
                erasure: None,
                flag: None,
                option: None,
                ..
            }) => Err("`pool` needs one of erasure, flag and option".to_owned()),
            Self::Pool(PoolIs {
                option: None,
                is: Some(_),
                ..
            }) => Err("`pool` with `is` needs the option".to_owned()),
            Self::Metadata(MetadataIs { is, release, .. }) if is.is_some() == release.is_some() => {
                Err("`metadata` needs either `is` or `release`".to_owned())
            }
            Self::Daemon(_) | Self::Health(_) | Self::Pool(_) | Self::Setting(_) | Self::Metadata(_) => {
                Ok(())
            }
        }
    }

    /// Each condition in it that looks at something, in order.
    pub(crate) fn leaves(&self) -> Vec<&Self> {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().flat_map(Self::leaves).collect(),
            Self::Not(part) => part.leaves(),
            Self::Daemon(_) | Self::Health(_) | Self::Pool(_) | Self::Setting(_) | Self::Metadata(_) => {
                vec![self]
            }
        }
    }

    /// Whether it holds, by Kleene's strong three-valued logic: an unknown part makes the whole unknown,
    /// unless the rest decides.
    pub fn holds(&self, cluster: &RiskFacts) -> Holds {
        match self {
            Self::Daemon(kind) => evaluate_known(&cluster.daemons, |daemons| match daemons.get(kind) {
                Some(1) => Holds::Yes(format!("there is a {kind}")),
                Some(count) if *count > 0 => Holds::Yes(format!("there are {count} {kind}")),
                Some(_) | None => Holds::No(format!("there is no {kind}")),
            }),
            Self::Health(code) => evaluate_known(&cluster.health, |codes| {
                if codes.contains(code) {
                    Holds::Yes(format!("the cluster reports {code}"))
                } else {
                    Holds::No(format!("the cluster does not report {code}"))
                }
            }),
            Self::Pool(wanted) => evaluate_known(&cluster.pools, |pools| {
                let found = pools.iter().filter(|pool| wanted.fits(pool));
                let found = found.map(|pool| pool.name.as_str()).collect::<Vec<_>>();
                if found.is_empty() {
                    Holds::No(format!("no pool {wanted}"))
                } else {
                    Holds::Yes(format!("{} {wanted}", name_list("pool", &found)))
                }
            }),
            Self::Setting(wanted) => evaluate_known(&cluster.settings, |settings| wanted.holds(settings)),
            Self::Metadata(wanted) => match cluster.metadata.get(&wanted.daemon) {
                Some(all) => evaluate_known(all, |all| wanted.holds(all)),
                None => Holds::Unknown(format!("no {} was queried", wanted.daemon)),
            },
            Self::All(parts) => all(parts.iter().map(|part| part.holds(cluster))),
            Self::Any(parts) => not(all(parts.iter().map(|part| not(part.holds(cluster))))),
            Self::Not(part) => not(part.holds(cluster)),
        }
    }
}

/// Evaluates a known answer; an unknown one stays unknown.
fn evaluate_known<T>(fact: &ClusterAnswer<T>, decide: impl FnOnce(&T) -> Holds) -> Holds {
    match fact {
        ClusterAnswer::Yes(fact) => decide(fact),
        ClusterAnswer::No(why) => Holds::Unknown(why.clone()),
    }
}

fn not(holds: Holds) -> Holds {
    match holds {
        Holds::Yes(why) => Holds::No(why),
        Holds::No(why) => Holds::Yes(why),
        Holds::Unknown(why) => Holds::Unknown(why),
    }
}

/// False if one part does not hold; else unknown if one part is unknown.
fn all(parts: impl Iterator<Item = Holds>) -> Holds {
    let mut because = Vec::new();
    let mut unknown = None;
    for part in parts {
        match part {
            Holds::No(why) => return Holds::No(why),
            Holds::Unknown(why) => unknown = unknown.or(Some(why)),
            Holds::Yes(why) => because.push(why),
        }
    }
    match unknown {
        Some(why) => Holds::Unknown(why),
        None => Holds::Yes(because.join(", and ")),
    }
}

/// `pool a, b, c and 4 more`
fn name_list(what: &str, names: &[&str]) -> String {
    let shown = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => format!("{what} {shown}"),
        more => format!("{what} {shown} and {more} more"),
    }
}

impl PoolIs {
    fn fits(&self, pool: &PoolFacts) -> bool {
        let Self {
            erasure,
            flag,
            option,
            is,
        } = self;
        let set = |option: &String| {
            let value = pool.options.get(option);
            value.is_some_and(|value| is.as_ref().is_none_or(|is| equals(is, value)))
        };
        erasure.is_none_or(|erasure| erasure == pool.erasure)
            && flag.as_ref().is_none_or(|flag| pool.flags.contains(flag))
            && option.as_ref().is_none_or(set)
    }
}

impl std::fmt::Display for PoolIs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            erasure,
            flag,
            option,
            is,
        } = self;
        let mut parts = Vec::new();
        parts.extend(erasure.map(|erasure| {
            let word = if erasure {
                "is erasure-coded"
            } else {
                "is replicated"
            };
            word.to_owned()
        }));
        parts.extend(flag.as_ref().map(|flag| format!("has the flag {flag}")));
        parts.extend(option.as_ref().map(|option| match is {
            Some(is) => format!("has {option} set to {is}"),
            None => format!("has {option} set"),
        }));
        f.write_str(&parts.join(" and "))
    }
}

impl SettingIs {
    fn holds(&self, settings: &[Setting]) -> Holds {
        let Self {
            daemon,
            option,
            is,
            default,
        } = self;
        let one_of_it = format!("{daemon}.");
        let of_it = settings.iter().filter(|setting| {
            let section = setting.section.as_str();
            let meant = section == "global" || section == daemon || section.starts_with(&one_of_it);
            meant && setting.option == *option
        });
        let of_it: Vec<&Setting> = of_it.collect();
        if let Some(found) = of_it.iter().find(|setting| equals(is, &setting.value)) {
            return Holds::Yes(format!("{option} is {} for {}", found.value, found.section));
        }
        let for_all = of_it
            .iter()
            .any(|setting| !setting.masked && !setting.section.starts_with(&one_of_it));
        match default {
            Some(default) if !for_all && equals(is, default) => {
                Holds::Yes(format!("{option} is {default} unless it is set"))
            }
            Some(_) | None => Holds::No(format!("{option} is not {is} in the monitors' configuration")),
        }
    }
}

impl MetadataIs {
    fn holds(&self, all: &[Metadata]) -> Holds {
        let Self {
            daemon,
            field,
            is,
            release: wanted,
        } = self;
        let mut fits = Vec::new();
        let mut silent = Vec::new();
        for one in all {
            let value = one.fields.get(field);
            let answer = match (value, is, wanted) {
                (Some(value), Some(is), _) => Some(equals(is, value)),
                (Some(value), None, Some(wanted)) => {
                    release_in(value).map(|release| wanted.contain(&release))
                }
                (Some(_), None, None) | (None, _, _) => None,
            };
            match answer {
                Some(true) => fits.push(one.daemon.as_str()),
                Some(false) => {}
                None => silent.push(one.daemon.as_str()),
            }
        }
        let value = match (is, wanted) {
            (Some(is), _) => is.clone(),
            (None, Some(wanted)) => format!("of {wanted}"),
            (None, None) => String::new(),
        };
        if !fits.is_empty() {
            return Holds::Yes(format!(
                "{field} is {value} of {}",
                name_list("", &fits).trim_start()
            ));
        }
        if !silent.is_empty() {
            return Holds::Unknown(format!(
                "{} does not report its {field}",
                name_list("", &silent).trim_start()
            ));
        }
        Holds::No(format!("{field} of no {daemon} is {value}"))
    }
}

/// The first release in a text: `ceph version 19.2.1 (58a7…) squid (stable)`.
fn release_in(text: &str) -> Option<semver::Version> {
    text.split_whitespace().find_map(release)
}

/// Whether two values are the same, as Ceph reads switches.
fn equals(a: &str, b: &str) -> bool {
    fn switch(text: &str) -> Option<bool> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Some(true),
            "false" | "no" | "off" | "0" => Some(false),
            _ => None,
        }
    }
    a == b || switch(a).is_some_and(|a| switch(b) == Some(a))
}
