//! The documents of `token`.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use stagger_asks::view::AskDocument;
use stagger_core::model::ClusterName;
use stagger_serve::access::Role;

/// `token list`
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenList {
    /// In the order in which they were made.
    pub(crate) tokens: Vec<TokenRow>,
}

/// Asks and grants.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskRows {
    /// The newest first.
    pub(crate) asks: Vec<AskDocument>,
}

/// A token, which is not kept itself.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenRow {
    /// What it is called.
    pub(crate) name: String,
    /// What its holder may do.
    pub(crate) role: Role,
    /// Of which clusters; not there: of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clusters: Option<Vec<ClusterName>>,
    /// Until when it is good.
    pub(crate) expires: Timestamp,
    /// Whether that is past.
    pub(crate) expired: bool,
}
