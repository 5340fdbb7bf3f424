//! The policy for nodes that Ironic is working on.

use serde::{Deserialize, Serialize};

/// What is done about nodes in flight: before the points of no return, and before a conductor is stopped that works on them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InFlight {
    /// Whether they are waited for.
    pub nodes: NodesInFlight,
    /// How long they are waited for, in seconds, and before a point of no return no less than the policy's `gate_timeout`;
    /// then the run is held, and names them.
    pub timeout: u64,
    /// Nodes, by name (or UUID, of one without a name), that are not waited for: one that has been stuck for days.
    pub except: Vec<String>,
}

impl Default for InFlight {
    fn default() -> Self {
        Self {
            nodes: NodesInFlight::default(),
            timeout: 1800,
            except: Vec::new(),
        }
    }
}

/// What nodes in flight mean to an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodesInFlight {
    /// No plan is made while there is one; those of later are waited for.
    Refuse,
    /// They are waited for.
    #[default]
    Wait,
    /// They are not looked at. A node that a conductor has reserved is waited for all the same, as ever.
    Accept,
}
