//! The document of `risks`.

use schemars::JsonSchema;
use serde::Serialize;
use stagger_risks::{Applies, Risk, RiskEffect, RiskFinding, System};

/// `risks`: known risks of releases.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KnownRisks {
    /// Of which cluster it is said what applies; absent: none was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
    /// Those on its way first, and of these those that apply.
    pub(crate) risks: Vec<RiskRow>,
}

/// A known risk.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RiskRow {
    /// By which it is named and accepted.
    pub(crate) id: String,
    /// Of which kind of cluster.
    pub(crate) system: System,
    /// The releases from which it is met.
    pub(crate) from: String,
    /// The releases at which it is met.
    pub(crate) to: String,
    /// What comes of it where it applies.
    pub(crate) effect: RiskEffect,
    /// What happens.
    pub(crate) what: String,
    /// What to do about it.
    #[serde(rename = "do")]
    pub(crate) remedy: String,
    /// Where it is described.
    pub(crate) source: Vec<String>,
    /// Whether it applies to the cluster; absent: it is not on its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) applies: Option<Applies>,
    /// By what that is known, or why it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) because: Option<String>,
}

impl RiskRow {
    /// A risk with what was found of it, if it is on the way.
    pub(crate) fn of(risk: &Risk, found: Option<&RiskFinding>) -> Self {
        Self {
            id: risk.id.clone(),
            system: risk.system,
            from: risk.from.to_string(),
            to: risk.to.to_string(),
            effect: risk.effect,
            what: risk.what.clone(),
            remedy: risk.remedy.clone(),
            source: risk.source.clone(),
            applies: found.map(|found| found.applies),
            because: found.map(|found| found.because.clone()),
        }
    }
}
