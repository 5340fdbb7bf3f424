//! Services behind a balancer, as a scenario file describes them.

use serde::{Deserialize, Serialize};

/// The kinds of services, with what each is called.
pub(crate) const SERVICE_KINDS: [(&str, &str); 2] = [
    ("conductor", "conductors of a group, one of them serving"),
    ("api", "API services, one of them serving"),
];

/// Services behind a balancer, as a scenario file describes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BalancedSpec {
    /// The group of each conductor.
    pub conductors: Vec<u32>,
    /// How many API services.
    pub apis: u32,
    /// New code is held to the release before, until all run it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
}
