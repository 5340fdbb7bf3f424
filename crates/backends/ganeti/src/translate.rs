//! A cluster as a snapshot: nodes are units and hosts, instances are guests, a DRBD pair is a budget of one.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{
    Amounts, BudgetsBuilder, Capacity, CapacityError, ClusterName, Guest, Host, Ix, Kind, Reason, Snapshot,
    SnapshotError, Storage, Terms, Unit, UnitId, UnitState,
};

use crate::cluster::{Cluster, Instance, Ipolicy, Node, NodeIx, SpecKey, Status, Template};

/// The kind of all units.
pub const KIND: &str = "node";
/// What a node runs before its turn, and after it.
pub const BEFORE: &str = "before";
/// See [`BEFORE`].
pub const REBOOTED: &str = "rebooted";

/// Virtual processors for each processor where no policy says it (`ipolicyDefaultsVcpuRatio` of Ganeti).
const VCPU_RATIO: f64 = 4.0;
/// Spindles of instances for each spindle of a node where no policy says it (`ipolicyDefaultsSpindleRatio`).
const SPINDLE_RATIO: f64 = 32.0;
/// Tags of the cluster that name a prefix: instances that share a tag that begins so are kept apart.
const EXCLUSION: &str = "htools:iextags:";

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
pub enum TranslateError {
    /// A name that is none.
    #[error("a name that stagger cannot use")]
    Name(#[from] stagger_core::model::IdError),
    /// Hosts and guests that do not fit together.
    #[error("nodes and instances do not fit together")]
    Capacity(#[from] CapacityError),
    /// Two nodes of one name, or the like.
    #[error("the cluster contradicts itself")]
    Snapshot(#[from] SnapshotError),
}

/// What Ganeti's manual calls them.
pub const TERMS: Terms = Terms::new("node", "node", "instance", "secondary");

/// The snapshot of a cluster.
///
/// # Errors
/// Names that are none, or that stand twice. What the readers of this crate give has none of these.
pub fn snapshot(cluster: &Cluster, view: &View) -> Result<Snapshot, TranslateError> {
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
    let snapshot = snapshot.with_terms(TERMS);
    Ok(snapshot.with_capacity(capacity(cluster, view.ignore_ipolicy)?)?)
}

/// Why a node that carries no instances is left alone.
pub fn not_vm_capable() -> Reason {
    Reason::of_backend(
        "node-not-vm-capable",
        "it carries no instances, and Ganeti says nothing of the boots of such a node: nobody could tell when it has had its reboot",
    )
}

/// As seen live: who has drained a node may be at work on it, so that it is not counted on.
fn unit(cluster: &Cluster, node: &Node) -> Result<Unit, TranslateError> {
    let group = &cluster.group(node.group).name;
    let untouchable = if node.offline {
        None
    } else if node.drained {
        Some(Reason::of_backend(
            "node-drained",
            "somebody has drained it, and may be at work on it",
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
pub fn pairs(cluster: &Cluster) -> BudgetsBuilder {
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

/// What nodes carry, and what fits where. With `ignore_ipolicy` instances outside of their policy may be moved.
///
/// # Errors
/// As of [`snapshot`].
pub fn capacity(cluster: &Cluster, ignore_ipolicy: bool) -> Result<Capacity, TranslateError> {
    let mut order: Vec<(UnitId, NodeIx)> = Vec::with_capacity(cluster.nodes.len());
    for (at, node) in (0_u32..).zip(&cluster.nodes) {
        order.push((UnitId::new(node.name.as_str())?, NodeIx(at)));
    }
    order.sort_by(|a, b| a.0.natural().cmp(&b.0.natural()));
    let mut place = vec![0_u32; cluster.nodes.len()];
    for (at, (_, node)) in (0_u32..).zip(&order) {
        place[node.0 as usize] = at;
    }
    let mut used = vec![[0_i64; 4]; cluster.nodes.len()];
    for instance in running(cluster) {
        for (sum, more) in used[instance.primary.0 as usize].iter_mut().zip(takes(instance)) {
            *sum += more;
        }
    }
    let hosts = order
        .into_iter()
        .map(|(unit, ix)| host(cluster, unit, ix, used[ix.0 as usize]))
        .collect();

    let (prefixes, mut tags) = (prefixes(cluster), Vec::new());
    let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
    let mut guests = Vec::with_capacity(cluster.instances.len());
    for (name, instance) in named(cluster) {
        let mut apart: Vec<u32> = instance
            .tags
            .iter()
            .filter(|tag| prefixes.iter().any(|prefix| tag.starts_with(prefix)))
            .map(|tag| {
                *numbers.entry(tag.clone()).or_insert_with(|| {
                    tags.push(tag.clone());
                    tags.len() as u32 - 1
                })
            })
            .collect();
        apart.sort_unstable();
        apart.dedup();
        let storage = storage(instance);
        guests.push(Guest {
            name,
            host: place[instance.primary.0 as usize],
            standby: instance
                .secondary
                .filter(|_| storage == Storage::Copied)
                .map(|secondary| place[secondary.0 as usize]),
            storage,
            runs: instance.status.may_run(),
            // As Ganeti and htools have it: what is down may be started, but for what is taken out of service.
            reserved: instance.auto_balance && instance.status != Status::AdminOffline,
            takes: takes(instance),
            apart,
            stuck: stuck(cluster, instance, ignore_ipolicy),
            elsewhere: match instance.status {
                Status::ErrorWrongNode => true,
                Status::ErrorNodeDown => storage == Storage::Copied,
                Status::Running
                | Status::ErrorUp
                | Status::AdminDown
                | Status::ErrorDown
                | Status::ErrorNodeOffline
                | Status::AdminOffline
                | Status::UserDown => false,
            },
        });
    }
    let pools = cluster.groups.iter().map(|group| group.name.clone()).collect();
    Ok(Capacity::new(hosts, guests, pools, tags)?)
}

/// Instances by the names of the guests that they are. Files made by hand may have two instances of one name.
pub(crate) fn named(cluster: &Cluster) -> impl Iterator<Item = (String, &Instance)> {
    let mut names: BTreeMap<&str, u32> = BTreeMap::new();
    let instances = cluster.instances.iter().filter(|instance| !instance.forthcoming);
    instances.map(move |instance| {
        let count = names.entry(instance.name.as_str()).or_default();
        *count += 1;
        let name = match *count {
            1 => instance.name.clone(),
            more => format!("{}#{more}", instance.name),
        };
        (name, instance)
    })
}

fn running(cluster: &Cluster) -> impl Iterator<Item = &Instance> {
    cluster
        .instances
        .iter()
        .filter(|instance| !instance.forthcoming && instance.status.may_run())
}

fn host(cluster: &Cluster, unit: UnitId, ix: NodeIx, used: Amounts) -> Host {
    let node = cluster.node(ix);
    let policy = cluster.ipolicy_of(node.group);
    let (size, free) = match &node.resources {
        None => ([0; 4], [0; 4]),
        Some(has) => {
            let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let most = |ratio: f64, number: u64| (ratio * number as f64).floor() as i64;
            let vcpus = most(policy.map_or(VCPU_RATIO, |policy| policy.vcpu_ratio), has.cpus);
            let spindles = most(
                policy.map_or(SPINDLE_RATIO, |policy| policy.spindle_ratio),
                has.spindles,
            );
            // What is said to be free and what is left by our own sum: the smaller counts.
            let left = signed(has.memory).saturating_sub(signed(has.memory_own)) - used[0];
            (
                [signed(has.memory), vcpus, spindles, signed(has.disk)],
                [
                    has.memory_free.min(left),
                    // Those of the node itself count as in use, as htools have it.
                    vcpus - used[1] - signed(has.cpus_own),
                    spindles - used[2],
                    has.disk_free,
                ],
            )
        }
    };
    Host {
        unit,
        pool: node.group.0,
        takes: node.takes_instances(),
        size,
        free,
    }
}

fn takes(instance: &Instance) -> Amounts {
    [
        instance.memory,
        instance.vcpus,
        instance.spindle_use,
        instance.disk,
    ]
    .map(|amount| i64::try_from(amount).unwrap_or(i64::MAX))
}

/// Where the disks of an instance are. DRBD without a secondary has one copy.
pub fn storage(instance: &Instance) -> Storage {
    storage_of(instance.template, instance.secondary.is_some())
}

/// Where the disks of such a template are.
pub fn storage_of(template: Template, has_secondary: bool) -> Storage {
    match template {
        Template::Drbd if has_secondary => Storage::Copied,
        Template::Drbd | Template::Plain | Template::File => Storage::Local,
        Template::Diskless
        | Template::SharedFile
        | Template::BlockDev
        | Template::Rbd
        | Template::Ext
        | Template::Gluster => Storage::Shared,
    }
}

/// As htools have them: any text, with which a tag begins or which it is. An empty one is that of all tags.
fn prefixes(cluster: &Cluster) -> Vec<&str> {
    cluster
        .tags
        .iter()
        .filter_map(|tag| tag.strip_prefix(EXCLUSION))
        .collect()
}

/// Why an instance cannot be moved.
fn stuck(cluster: &Cluster, instance: &Instance, ignore_ipolicy: bool) -> Option<String> {
    match instance.status {
        Status::ErrorWrongNode => {
            return Some("it runs on another node than Ganeti has noted (ERROR_wrongnode)".to_owned());
        }
        Status::ErrorNodeDown => {
            return Some("its node does not answer (ERROR_nodedown)".to_owned());
        }
        Status::Running
        | Status::ErrorUp
        | Status::AdminDown
        | Status::ErrorDown
        | Status::ErrorNodeOffline
        | Status::AdminOffline
        | Status::UserDown => {}
    }
    let secondary = instance
        .secondary
        .filter(|_| storage(instance) == Storage::Copied)
        .map(|secondary| cluster.node(secondary))?;
    if secondary.is_up() && secondary.drained {
        return Some(format!(
            "its secondary node {} is drained, and takes none",
            secondary.name
        ));
    }
    let home = cluster.node(instance.primary).group;
    if ignore_ipolicy || !instance.status.may_run() || secondary.group == home {
        return None;
    }
    // There, and home again.
    [secondary.group, home].into_iter().find_map(|group| {
        let why = outside(cluster.ipolicy_of(group)?, instance)?;
        Some(format!("the policy of group {} {why}", cluster.group(group).name))
    })
}

/// What a policy says against an instance: Ganeti refuses to migrate such a one to a node of another group; within
/// a group it does not ask. Sizes of single disks and networks are not in the text format, and are not looked at.
fn outside(policy: &Ipolicy, instance: &Instance) -> Option<String> {
    if !policy.templates.contains(&instance.template) {
        return Some(format!("has no disk template {}", instance.template));
    }
    let sizes = [
        (SpecKey::Memory, instance.maxmem),
        (SpecKey::Cpus, instance.vcpus),
        (SpecKey::Spindles, instance.spindle_use),
    ];
    let place = |key: SpecKey| SpecKey::ALL.iter().position(|other| *other == key);
    let breaks = |(least, most): &([u64; 6], [u64; 6])| {
        sizes
            .iter()
            .find(|(key, size)| place(*key).is_some_and(|at| *size < least[at] || *size > most[at]))
    };
    let broken: Vec<_> = policy.ranges.iter().map(breaks).collect();
    if broken.is_empty() || broken.iter().any(Option::is_none) {
        return None;
    }
    let (key, size) = broken.into_iter().flatten().next()?;
    Some(format!("does not allow {size} for {key}"))
}
