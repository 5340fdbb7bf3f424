//! What nodes carry, what fits where, and what cannot be moved.

use std::collections::BTreeMap;

use stagger_core::model::{Amounts, Capacity, Guest, Host, Storage, UnitId};

use super::GanetiTranslateError;
use crate::model::{GanetiCluster, Instance, Ipolicy, NodeIx, SpecKey, Status};

/// Virtual processors for each processor where no policy says it (`ipolicyDefaultsVcpuRatio` of Ganeti).
const VCPU_RATIO: f64 = 4.0;

/// Spindles of instances for each spindle of a node where no policy says it (`ipolicyDefaultsSpindleRatio`).
const SPINDLE_RATIO: f64 = 32.0;

/// Tags of the cluster that name a prefix: instances that share a tag that begins so are kept apart.
const EXCLUSION: &str = "htools:iextags:";

/// What nodes carry, and what fits where. With `ignore_ipolicy` instances outside of their policy may be moved.
///
/// # Errors
/// As of [`snapshot()`](super::snapshot()).
pub fn capacity(cluster: &GanetiCluster, ignore_ipolicy: bool) -> Result<Capacity, GanetiTranslateError> {
    let mut order: Vec<(UnitId, NodeIx)> = Vec::with_capacity(cluster.nodes.len());
    for (at, node) in (0_u32..).zip(&cluster.nodes) {
        order.push((UnitId::new(node.name.as_str())?, NodeIx(at)));
    }
    order.sort_by(|a, b| a.0.natural_key().cmp(&b.0.natural_key()));
    let mut place = vec![0_u32; cluster.nodes.len()];
    for (at, (_, node)) in (0_u32..).zip(&order) {
        place[node.0 as usize] = at;
    }
    let mut used = vec![[0_i64; 4]; cluster.nodes.len()];
    for instance in running(cluster) {
        for (sum, more) in used[instance.primary.0 as usize].iter_mut().zip(demand(instance)) {
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
    for (name, instance) in guests_by_name(cluster) {
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
        let storage = instance.storage();
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
            takes: demand(instance),
            apart,
            stuck: unmovable_reason(cluster, instance, ignore_ipolicy),
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
pub(crate) fn guests_by_name(cluster: &GanetiCluster) -> impl Iterator<Item = (String, &Instance)> {
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

fn running(cluster: &GanetiCluster) -> impl Iterator<Item = &Instance> {
    cluster
        .instances
        .iter()
        .filter(|instance| !instance.forthcoming && instance.status.may_run())
}

fn host(cluster: &GanetiCluster, unit: UnitId, ix: NodeIx, used: Amounts) -> Host {
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
        takes: node.accepts_instances(),
        size,
        free,
    }
}

fn demand(instance: &Instance) -> Amounts {
    [
        instance.memory,
        instance.vcpus,
        instance.spindle_use,
        instance.disk,
    ]
    .map(|amount| i64::try_from(amount).unwrap_or(i64::MAX))
}

/// As htools have them: any text, with which a tag begins or which it is. An empty one is that of all tags.
fn prefixes(cluster: &GanetiCluster) -> Vec<&str> {
    cluster
        .tags
        .iter()
        .filter_map(|tag| tag.strip_prefix(EXCLUSION))
        .collect()
}

/// Why an instance cannot be moved.
fn unmovable_reason(cluster: &GanetiCluster, instance: &Instance, ignore_ipolicy: bool) -> Option<String> {
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
        .filter(|_| instance.storage() == Storage::Copied)
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
