//! Nodes in flight: what Ironic is doing with its nodes while its services are changed.
//!
//! The states are Ironic's own `UNSTABLE_STATES` (`ironic.common.states`, the same from 26.1 to 32.0): those
//! that change without a request. In some, a conductor works and has reserved the node: if it stops then, the
//! node fails at the conductor's next start (`STUCK_STATES_TREATED_AS_FAIL`). In the others the conductor
//! waits for the agent on the node, and that survives a restart. Ironic's own guide requires a stable state
//! of every node before an upgrade.

use serde::{Deserialize, Serialize};

use crate::config::{Conductor, InFlight, NodesInFlight};

/// As the column `provision_state` has them.
pub(crate) const STATES: [&str; 14] = [
    "deploying",
    "wait call-back",
    "cleaning",
    "clean wait",
    "verifying",
    "deleting",
    "inspecting",
    "inspect wait",
    "adopting",
    "rescuing",
    "rescue wait",
    "unrescuing",
    "servicing",
    "service wait",
];

/// So many are named; of the rest only the number is told.
const NAMED: usize = 5;

/// A node in one of these states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeInFlight {
    /// Its name, or its UUID where it has none.
    pub node: String,
    /// Its provision state, as Ironic's API shows it.
    pub state: String,
    /// Since when, by Ironic's own clock, in UTC; `None`: it does not say.
    #[serde(default)]
    pub since: Option<String>,
    /// The conductor that has it reserved, or else the one that last worked on it, as it is registered.
    #[serde(default)]
    pub conductor: Option<String>,
}

impl std::fmt::Display for NodeInFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            node,
            state,
            since,
            conductor,
        } = self;
        write!(f, "{node}: {state}")?;
        if let Some(since) = since {
            write!(f, " since {since} UTC")?;
        }
        conductor
            .as_ref()
            .map_or(Ok(()), |conductor| write!(f, " on {conductor}"))
    }
}

/// Those that are waited for; none where the configuration accepts them all.
pub(crate) fn blocking_nodes<'a>(
    nodes: &'a [NodeInFlight],
    config: &'a InFlight,
) -> impl Iterator<Item = &'a NodeInFlight> {
    let accepts_all = config.nodes == NodesInFlight::Accept;
    nodes
        .iter()
        .filter(move |node| !accepts_all && !config.except.contains(&node.node))
}

/// Those of them that this conductor works on, or was the last to work on.
pub(crate) fn of_conductor<'a>(
    nodes: impl Iterator<Item = &'a NodeInFlight>,
    conductor: &Conductor,
) -> Vec<&'a NodeInFlight> {
    let names = conductor.reserves_as();
    nodes
        .filter(|node| {
            let by = node.conductor.as_deref();
            by.is_some_and(|by| names.contains(by))
        })
        .collect()
}

/// The first of them by name, and how many more there are; `None`: none.
pub(crate) fn listed(nodes: &[&NodeInFlight]) -> Option<String> {
    let named: Vec<String> = nodes.iter().take(NAMED).map(ToString::to_string).collect();
    let more = nodes.len().saturating_sub(NAMED);
    match (named.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(named.join(", ")),
        (false, more) => Some(format!("{}, {more} more", named.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(node: &str, conductor: Option<&str>) -> NodeInFlight {
        NodeInFlight {
            node: node.to_owned(),
            state: "wait call-back".to_owned(),
            since: Some("2026-11-30 00:31:05".to_owned()),
            conductor: conductor.map(str::to_owned),
        }
    }

    #[test]
    fn five_are_named_and_the_rest_are_counted() {
        let all: Vec<NodeInFlight> = (1..8).map(|at| node(&format!("n{at}"), Some("c1"))).collect();
        let all: Vec<&NodeInFlight> = all.iter().collect();
        assert_eq!(listed(&[]), None);
        assert_eq!(
            listed(&all[..1]).unwrap(),
            "n1: wait call-back since 2026-11-30 00:31:05 UTC on c1"
        );
        assert!(
            listed(&all[..5])
                .unwrap()
                .ends_with("n5: wait call-back since 2026-11-30 00:31:05 UTC on c1")
        );
        assert!(listed(&all).unwrap().ends_with(", 2 more"));
    }

    #[test]
    fn those_that_are_accepted_are_not_waited_for() {
        let nodes = [node("n1", Some("c1")), node("n2", None)];
        let count = |config: &InFlight| blocking_nodes(&nodes, config).count();
        let mut config = InFlight::default();
        assert_eq!(count(&config), 2);
        config.except = vec!["n2".to_owned()];
        assert_eq!(count(&config), 1);
        config.nodes = NodesInFlight::Accept;
        assert_eq!(count(&config), 0);
    }
}
