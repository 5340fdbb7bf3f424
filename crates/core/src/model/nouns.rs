//! What people call the things of a cluster: whoever runs a Ganeti reads of nodes and instances.

use super::Snapshot;

/// Words for messages; their plural takes an `s`, but for `secondary`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nouns {
    /// A unit.
    pub unit: &'static str,
    /// A host of guests.
    pub host: &'static str,
    /// What hosts carry.
    pub guest: &'static str,
    /// The host of a guest's second copy.
    pub standby: &'static str,
}

const PLAIN: Nouns = Nouns {
    unit: "unit",
    host: "host",
    guest: "guest",
    standby: "standby",
};

/// Where units are nodes that carry something.
const NODES: Nouns = Nouns {
    unit: "node",
    host: "node",
    guest: "instance",
    standby: "secondary",
};

impl Snapshot {
    /// What people call its things.
    pub fn nouns(&self) -> Nouns {
        let nodes = self
            .units()
            .first()
            .is_some_and(|unit| unit.kind.as_str() == "node");
        if nodes && self.rooms().is_some() {
            NODES
        } else {
            PLAIN
        }
    }
}
