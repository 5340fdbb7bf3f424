//! Which risks a cluster meets on its way to a release.

use std::collections::BTreeSet;

use semver::Version;
use serde::Serialize;

use crate::cluster::RiskFacts;
use crate::condition::{Holds, RiskCondition};
use crate::file::{Risk, RiskEffect, System};
use crate::release::release;

/// From where to where a cluster goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradePath {
    /// Which kind of cluster.
    pub system: System,
    /// The releases of its daemons; `None` for a daemon whose release is unknown.
    pub running: BTreeSet<Option<String>>,
    /// Where it goes; `None`: that is not said, and every risk from here counts.
    pub to: Option<String>,
}

/// What has to be asked of a cluster for the risks on its way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Questions {
    /// Its pools.
    pub pools: bool,
    /// These options of its configuration.
    pub options: BTreeSet<String>,
    /// What daemons of these kinds say of themselves.
    pub metadata: BTreeSet<String>,
}

/// Whether a risk applies to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Applies {
    /// It does.
    Yes,
    /// Unknown: it may.
    Unknown,
    /// It does not.
    No,
}

/// What was found of one risk that is on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Finding")
)]
#[serde(deny_unknown_fields)]
pub struct RiskFinding {
    /// The risk's id.
    pub id: String,
    /// From which releases it is met.
    pub from: String,
    /// At which releases it is met.
    pub to: String,
    /// What comes of it where it applies.
    pub effect: RiskEffect,
    /// Whether it applies.
    pub applies: Applies,
    /// By what that is known, or why it is not.
    pub because: String,
    /// What happens.
    pub what: String,
    /// What to do about it.
    #[serde(rename = "do")]
    pub remedy: String,
    /// Where it is described.
    pub source: Vec<String>,
    /// An operator has accepted it.
    pub accepted: bool,
}

impl RiskFinding {
    /// The risk in a sentence: `ID: what happens; why it applies; what to do (sources)`.
    pub fn sentence(&self) -> String {
        let Self {
            id,
            because,
            what,
            remedy,
            source,
            ..
        } = self;
        format!("{id}: {what}; {because}; {remedy} ({})", source.join(" "))
    }

    /// Whether a run is refused because of it.
    pub fn blocks_run(&self) -> bool {
        self.applies == Applies::Yes && self.effect == RiskEffect::Refuse && !self.accepted
    }
}

impl Questions {
    /// The questions for the risks on that upgrade path.
    pub fn of(risks: &[Risk], way: &UpgradePath) -> Self {
        let met = risks.iter().filter(|risk| way.applies(risk).is_some());
        let mut asked = Self::default();
        for leaf in met
            .filter_map(|risk| risk.when.as_ref())
            .flat_map(RiskCondition::leaves)
        {
            match leaf {
                RiskCondition::Pool(_) => asked.pools = true,
                RiskCondition::Setting(setting) => {
                    asked.options.insert(setting.option.clone());
                }
                RiskCondition::Metadata(metadata) => {
                    asked.metadata.insert(metadata.daemon.clone());
                }
                RiskCondition::Daemon(_)
                | RiskCondition::Health(_)
                | RiskCondition::All(_)
                | RiskCondition::Any(_)
                | RiskCondition::Not(_) => {}
            }
        }
        asked
    }

    /// The options that any risk of a kind of cluster needs, on any path: an inventory keeps these.
    pub fn options_of(risks: &[Risk], system: System) -> BTreeSet<String> {
        let of_it = risks.iter().filter(|risk| risk.system == system);
        let leaves = of_it
            .filter_map(|risk| risk.when.as_ref())
            .flat_map(RiskCondition::leaves);
        leaves
            .filter_map(|leaf| match leaf {
                RiskCondition::Setting(setting) => Some(setting.option.clone()),
                _ => None,
            })
            .collect()
    }
}

impl UpgradePath {
    /// Whether the risk is on the path: `Some(true)` certainly, `Some(false)` possibly, as something is
    /// unknown.
    fn applies(&self, risk: &Risk) -> Option<bool> {
        if risk.system != self.system {
            return None;
        }
        let to = self.to.as_deref().map(release);
        let at = match &to {
            // An unknown release may be any.
            None | Some(None) => Some(to.is_none()),
            Some(Some(to)) => risk.to.contain(to).then_some(true),
        }?;
        let to = to.flatten();
        let mut from = None;
        for running in &self.running {
            match running.as_deref().and_then(release) {
                // It is there, and goes nowhere.
                Some(running) if to.as_ref() == Some(&running) => {}
                Some(running) if self.starts_at(risk, &running) => from = Some(true),
                Some(_) => {}
                None => from = from.or(Some(false)),
            }
        }
        from.map(|from| from && at)
    }

    /// Whether the risk is met from that release. Where it is not said where the way goes, it goes up.
    fn starts_at(&self, risk: &Risk, running: &Version) -> bool {
        risk.from.contain(running) && (self.to.is_some() || risk.to.include_later_than(running))
    }
}

/// All risks on the path: first those that refuse the run, then warnings, then unknown ones, then the rest.
/// `accepted`: the ids of accepted risks.
pub fn judge(
    risks: &[Risk],
    way: &UpgradePath,
    cluster: &RiskFacts,
    accepted: &BTreeSet<String>,
) -> Vec<RiskFinding> {
    let found = risks.iter().filter_map(|risk| {
        let surely = way.applies(risk)?;
        let holds = match &risk.when {
            None => Holds::Yes("it is so of every cluster".to_owned()),
            Some(condition) => condition.holds(cluster),
        };
        let (applies, because) = match (holds, surely) {
            (Holds::No(why), _) => (Applies::No, why),
            (Holds::Yes(why), true) => (Applies::Yes, why),
            (Holds::Unknown(why), _) => (Applies::Unknown, why),
            (Holds::Yes(_), false) => (Applies::Unknown, "from or to which release is unknown".to_owned()),
        };
        Some(RiskFinding {
            id: risk.id.clone(),
            from: risk.from.to_string(),
            to: risk.to.to_string(),
            effect: risk.effect,
            applies,
            because,
            what: risk.what.clone(),
            remedy: risk.remedy.clone(),
            source: risk.source.clone(),
            accepted: accepted.contains(&risk.id),
        })
    });
    let mut found: Vec<RiskFinding> = found.collect();
    found.sort_by(|a, b| (a.applies, a.effect, &a.id).cmp(&(b.applies, b.effect, &b.id)));
    found
}
