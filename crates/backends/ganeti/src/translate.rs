//! A cluster as a snapshot: nodes are units and hosts, instances are guests, a DRBD pair is a budget of one.
//!
//! [`snapshot`] is of the cluster alone, as any loader gives it; [`live`] adds what only a live cluster
//! reports: boot ids, notes of visits, conditions. What both share is here and in [`capacity`](mod@capacity).

pub mod capacity;
pub mod live;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    BudgetsBuilder, CapacityError, ClusterName, Code, IdError, Ix, Kind, Reason, Snapshot, Terms, Unit,
    UnitId, UnitState,
};

use self::capacity::capacity;
use crate::model::{GanetiCluster, GanetiNode, Template};

/// The kind of all units.
pub const KIND: &str = "node";
/// What a node runs before its turn, and after it.
pub const BEFORE: &str = "before";
/// See [`BEFORE`].
pub const REBOOTED: &str = "rebooted";
/// What a node runs after maintenance other than a reboot.
pub const MAINTAINED: &str = "maintained";

/// How a cluster is looked at.
#[derive(Debug, Clone)]
pub struct View {
    /// What the cluster is called.
    pub name: ClusterName,
    /// When it was observed.
    pub at: Timestamp,
    /// How long a visit and moves take, by their names: `node`, `migrate`, `relocate`, `replace-standby`.
    pub durations: BTreeMap<Kind, SignedDuration>,
    /// Instances may be moved to a node of another group whose policy they are outside of, as with `--ignore-ipolicy`
    /// of Ganeti.
    pub ignore_ipolicy: bool,
}

/// A cluster that makes no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum GanetiTranslateError {
    /// A name that is none.
    #[error("a name that stagger cannot use")]
    Name(#[from] IdError),
    /// Hosts and guests that do not fit together.
    #[error("nodes and instances do not fit together")]
    Capacity(#[from] CapacityError),
    /// Two nodes of one name, or the like.
    #[error("the cluster contradicts itself")]
    Snapshot(#[from] stagger_core::model::SnapshotError),
    /// A node that one answer has and another has not.
    #[error("node {0} is listed in one answer and not in another")]
    Node(String),
}

/// What Ganeti's manual calls them, and the flags that free a node.
pub fn terms() -> Terms {
    Terms::new("node", "node", "instance", "secondary").with_remedies([
        (
            Code::NonRedundant,
            "--accept-non-redundant once no such instance runs, or --move-non-redundant",
        ),
        (
            Code::NonRedundantRunning,
            "stopping it, or --move-non-redundant: such instances are down while they move",
        ),
        (
            Code::NoRoom,
            "more memory on the secondary, or --spend-spare where only the reserve for a failure is short",
        ),
    ])
}

/// The snapshot of a cluster.
///
/// # Errors
/// Names that are none, or that stand twice. What the readers of this crate give has none of these.
pub fn snapshot(cluster: &GanetiCluster, view: &View) -> Result<Snapshot, GanetiTranslateError> {
    let mut units = Vec::with_capacity(cluster.nodes.len());
    for node in &cluster.nodes {
        units.push(unit(cluster, node)?);
    }
    let snapshot = Snapshot::new(
        view.name.clone(),
        view.at,
        format!("{} instances", cluster.instances.len()),
        units,
        pairs(cluster).build(),
        Vec::new(),
        view.durations.clone(),
    )?;
    let snapshot = snapshot.with_terms(terms());
    Ok(snapshot.with_capacity(capacity(cluster, view.ignore_ipolicy)?)?)
}

/// Why a node that carries no instances is left alone.
pub fn not_vm_capable() -> Reason {
    Reason::of_backend(
        "node-not-vm-capable",
        "it carries no instances, and Ganeti reports no boot of such a node: when it has had its reboot cannot be seen",
    )
}

/// As seen live: who has drained a node may be at work on it, so that it is not counted on.
fn unit(cluster: &GanetiCluster, node: &GanetiNode) -> Result<Unit, GanetiTranslateError> {
    let group = &cluster.group(node.group).name;
    let untouchable = if node.offline {
        None
    } else if node.drained {
        Some(Reason::of_backend(
            "node-drained",
            "it was drained by others, and may be under maintenance",
        ))
    } else if node.vm_capable {
        None
    } else {
        Some(not_vm_capable())
    };
    Ok(Unit {
        id: UnitId::new(node.name.as_str())?,
        kind: Kind::new(KIND)?,
        state: if node.offline || node.drained {
            UnitState::Down
        } else if node.resources.is_none() && node.vm_capable {
            UnitState::Unknown
        } else {
            UnitState::Serving
        },
        revision: Some(BEFORE.parse()?),
        domains: BTreeMap::from([("group".to_owned(), group.clone())]),
        precedence: 0,
        untouchable,
    })
}

/// The two nodes of a DRBD instance are never down together, whether it runs or not. Nodes are counted in the
/// order of the cluster.
pub fn pairs(cluster: &GanetiCluster) -> BudgetsBuilder {
    let mut by_nodes: BTreeMap<(u32, u32), (&str, u32)> = BTreeMap::new();
    for instance in cluster.instances.iter().filter(|instance| !instance.forthcoming) {
        if let (Template::Drbd, Some(secondary)) = (instance.template, instance.secondary) {
            let (one, other) = (instance.primary.0, secondary.0);
            let pair = by_nodes
                .entry((one.min(other), one.max(other)))
                .or_insert((instance.name.as_str(), 0));
            pair.1 += 1;
        }
    }
    let mut budgets = BudgetsBuilder::default();
    for ((one, other), (name, count)) in by_nodes {
        let name = match count {
            1 => name.to_owned(),
            more => format!("{name} and {} more", more - 1),
        };
        budgets.add_for(count, "DRBD of", &name, 1, &[(Ix(one), 1), (Ix(other), 1)]);
    }
    budgets
}
