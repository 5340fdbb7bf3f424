//! hroller's placement of instances that leave nodes: greedily, on the first node with room.
//!
//! Room is free memory, free disk for templates with volumes, and spindles with exclusive storage. Ratios,
//! tags, policies and reserves for a failure are ignored. Lists keep hroller's order: the newest instance
//! first.

use std::collections::BTreeMap;
use std::fmt;

use crate::model::{GanetiCluster, GroupIx, Instance, Status, Template};

/// What has to leave a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Instances of another template than drbd.
    NonRedundant,
    /// What has its second copy there.
    Secondaries,
}

/// What has no place, for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnplacedInstance {
    kind: UnplacedKind,
    node: String,
    instance: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnplacedKind {
    Placed(Kind),
    Migrated,
}

impl fmt::Display for UnplacedInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, node, instance } = self;
        match kind {
            UnplacedKind::Placed(Kind::NonRedundant) => {
                write!(
                    f,
                    "instance {instance} of node {node} fits on no other node of its group"
                )
            }
            UnplacedKind::Placed(Kind::Secondaries) => write!(
                f,
                "the second copy of instance {instance} on node {node} fits on no other node of its group"
            ),
            UnplacedKind::Migrated => {
                write!(
                    f,
                    "instance {instance} of node {node} does not fit on its secondary node"
                )
            }
        }
    }
}

/// Where every instance is, and what every node has left.
#[derive(Debug, Clone)]
pub(super) struct PlacementState {
    nodes: Vec<FreeResources>,
    /// By instance: its primary and its secondary.
    places: Vec<(u32, Option<u32>)>,
}

/// What a node has left. hroller mistakes one node for another while it replaces secondaries, so each says who it is.
#[derive(Debug, Clone)]
struct FreeResources {
    node: u32,
    group: GroupIx,
    memory: i64,
    disk: i64,
    spindles: i64,
    exclusive: bool,
    /// Instances, the newest last.
    primaries: Vec<usize>,
    secondaries: Vec<usize>,
}

impl FreeResources {
    fn add_primary(&mut self, at: usize, instance: &Instance) -> bool {
        let memory = self.memory - memory(instance);
        let disk = self.disk - disk(instance);
        let spindles = self.spindles_with(instance);
        let fits = memory > 0 && (!has_volumes(instance) || (disk > 0 && (!self.exclusive || spindles >= 0)));
        if fits {
            self.memory = memory;
            self.disk = disk;
            self.spindles = spindles;
            self.primaries.push(at);
        }
        fits
    }

    fn remove_primary(&mut self, at: usize, instance: &Instance) {
        remove_newest(&mut self.primaries, at);
        self.memory += memory(instance);
        self.disk += disk(instance);
        self.spindles = self.spindles_without(instance);
    }

    fn add_secondary(&mut self, at: usize, instance: &Instance) -> bool {
        let disk = self.disk - signed(instance.disk);
        let spindles = self.spindles_with(instance);
        let fits = instance.template == Template::Drbd && disk > 0 && (!self.exclusive || spindles >= 0);
        if fits {
            self.disk = disk;
            self.spindles = spindles;
            self.secondaries.push(at);
        }
        fits
    }

    fn remove_secondary(&mut self, at: usize, instance: &Instance) {
        remove_newest(&mut self.secondaries, at);
        self.disk += disk(instance);
        self.spindles = self.spindles_without(instance);
    }

    /// Where spindles count, an instance that does not say how many it has fits nowhere.
    fn spindles_with(&self, instance: &Instance) -> i64 {
        match (self.exclusive, instance.disk_spindles) {
            (false, _) => 0,
            (true, None) => -1,
            (true, Some(spindles)) => self.spindles - signed(spindles),
        }
    }

    fn spindles_without(&self, instance: &Instance) -> i64 {
        match (self.exclusive, instance.disk_spindles) {
            (false, _) => 0,
            (true, None) => self.spindles,
            (true, Some(spindles)) => self.spindles + signed(spindles),
        }
    }
}

fn remove_newest(list: &mut Vec<usize>, instance: usize) {
    if let Some(at) = list.iter().rposition(|other| *other == instance) {
        list.remove(at);
    }
}

/// Memory that an instance takes of its node.
fn memory(instance: &Instance) -> i64 {
    let takes =
        !instance.forthcoming && (instance.status.may_run() || instance.status == Status::ErrorNodeOffline);
    if takes { signed(instance.memory) } else { 0 }
}

fn has_volumes(instance: &Instance) -> bool {
    matches!(instance.template, Template::Drbd | Template::Plain)
}

/// Disk that counts: only volumes are seen in what a node has free.
fn disk(instance: &Instance) -> i64 {
    if has_volumes(instance) {
        signed(instance.disk)
    } else {
        0
    }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

impl PlacementState {
    /// As the cluster is. Memory that a node does not have free, and no instance uses, is nobody's.
    pub(super) fn new(cluster: &GanetiCluster) -> Self {
        let mut nodes: Vec<FreeResources> = (0_u32..)
            .zip(&cluster.nodes)
            .map(|(at, node)| FreeResources {
                node: at,
                group: node.group,
                memory: 0,
                disk: node.resources.map_or(0, |has| has.disk_free),
                spindles: node.resources.map_or(0, |has| has.spindles_free),
                exclusive: node.exclusive_storage && node.resources.is_some(),
                primaries: Vec::new(),
                secondaries: Vec::new(),
            })
            .collect();
        let mut used = vec![0_i64; nodes.len()];
        for (at, instance) in cluster
            .instances
            .iter()
            .enumerate()
            .filter(|(_, i)| !i.forthcoming)
        {
            nodes[instance.primary.0 as usize].primaries.push(at);
            used[instance.primary.0 as usize] += memory(instance);
            if let Some(secondary) = instance.secondary {
                nodes[secondary.0 as usize].secondaries.push(at);
            }
        }
        for ((left, node), used) in nodes.iter_mut().zip(&cluster.nodes).zip(used) {
            let (total, own, free) = node.resources.map_or((0, 0, 0), |has| {
                (signed(has.memory), signed(has.memory_own), has.memory_free)
            });
            let by_sum = total - own - used;
            left.memory = by_sum - (by_sum - free).max(0);
        }
        let places = cluster
            .instances
            .iter()
            .map(|instance| (instance.primary.0, instance.secondary.map(|node| node.0)))
            .collect();
        Self { nodes, places }
    }

    /// As `--print-moves` has them: instances that are elsewhere than before, but for a mere swap of their two nodes.
    pub(super) fn moves_since(&self, cluster: &GanetiCluster, before: &Self) -> Vec<String> {
        let name = |node: u32| {
            let who = self.nodes[node as usize].node;
            cluster.nodes[who as usize].name.as_str()
        };
        let places = self.places.iter().zip(&before.places);
        let moved = cluster
            .instances
            .iter()
            .zip(places)
            .filter_map(|(instance, (now, then))| {
                let mirrored = instance.template == Template::Drbd;
                let elsewhere = now.0 != then.0 || (mirrored && now.1 != then.1);
                let swapped = Some(now.0) == then.1 && now.1 == Some(then.0);
                if !elsewhere || swapped {
                    return None;
                }
                let secondary = now.1.filter(|_| mirrored).map(|node| format!(" {}", name(node)));
                Some(format!(
                    "{} {}{}",
                    instance.name,
                    name(now.0),
                    secondary.unwrap_or_default()
                ))
            });
        moved.collect()
    }

    /// What has to leave a node, in the order in which it is placed.
    fn leaving(&self, cluster: &GanetiCluster, kind: Kind, node: u32) -> Vec<usize> {
        let left = &self.nodes[node as usize];
        match kind {
            Kind::NonRedundant => {
                let others = left.primaries.iter().rev().copied();
                others
                    .filter(|at| cluster.instances[*at].template != Template::Drbd)
                    .collect()
            }
            Kind::Secondaries => left.secondaries.iter().rev().copied().collect(),
        }
    }

    /// Puts an instance, or its second copy, on a node, if that has room.
    fn place(
        &mut self,
        cluster: &GanetiCluster,
        kind: Kind,
        at: usize,
        to: u32,
        before: &mut Before,
    ) -> bool {
        let instance = &cluster.instances[at];
        let (primary, secondary) = self.places[at];
        let mut new = self.nodes[to as usize].clone();
        match kind {
            Kind::NonRedundant => {
                if !new.add_primary(at, instance) {
                    return false;
                }
                let mut old = self.nodes[primary as usize].clone();
                old.remove_primary(at, instance);
                self.set(primary, old, before);
                self.set(to, new, before);
                self.places[at].0 = to;
            }
            Kind::Secondaries => {
                let Some(secondary) = secondary.filter(|_| primary != to) else {
                    return false;
                };
                if !new.add_secondary(at, instance) {
                    return false;
                }
                // This is where it mistakes the primary for the old secondary.
                let mut old = self.nodes[primary as usize].clone();
                old.remove_secondary(at, instance);
                self.set(secondary, old, before);
                self.set(to, new, before);
                self.places[at].1 = Some(to);
            }
        }
        before.places.push((at, (primary, secondary)));
        true
    }

    fn set(&mut self, node: u32, left: FreeResources, before: &mut Before) {
        let old = std::mem::replace(&mut self.nodes[node as usize], left);
        before.nodes.push((node, old));
    }

    /// Takes back what was done since.
    fn undo(&mut self, before: Before) {
        for (node, left) in before.nodes.into_iter().rev() {
            self.nodes[node as usize] = left;
        }
        for (at, places) in before.places.into_iter().rev() {
            self.places[at] = places;
        }
    }

    /// Places all that has to leave a node on the first of the targets with room, or nothing of it.
    fn clear(
        &mut self,
        cluster: &GanetiCluster,
        kind: Kind,
        node: u32,
        targets: &[u32],
    ) -> Result<(), UnplacedInstance> {
        let group = self.nodes[node as usize].group;
        let targets: Vec<u32> = targets
            .iter()
            .copied()
            .filter(|target| *target != node && self.nodes[*target as usize].group == group)
            .collect();
        let mut before = Before::default();
        for at in self.leaving(cluster, kind, node) {
            let placed = targets
                .iter()
                .any(|target| self.place(cluster, kind, at, *target, &mut before));
            if !placed {
                self.undo(before);
                return Err(UnplacedInstance {
                    kind: UnplacedKind::Placed(kind),
                    node: cluster.nodes[node as usize].name.clone(),
                    instance: cluster.instances[at].name.clone(),
                });
            }
        }
        Ok(())
    }
}

/// What was before some changes.
#[derive(Debug, Default)]
struct Before {
    nodes: Vec<(u32, FreeResources)>,
    places: Vec<(usize, (u32, Option<u32>))>,
}

/// Splits nodes that may go together into parts, of each of which all that has to leave has a place.
///
/// # Errors
/// What has no place even where its node goes alone.
pub(super) fn clear_in_parts(
    cluster: &GanetiCluster,
    start: &PlacementState,
    kind: Kind,
    nodes: &[u32],
    targets: &[u32],
) -> Result<Vec<(Vec<u32>, PlacementState)>, UnplacedInstance> {
    let mut parts = Vec::new();
    let mut rest = nodes.to_vec();
    while !rest.is_empty() {
        let mut state = start.clone();
        let mut targets = targets.to_vec();
        let (mut part, mut later) = (Vec::new(), Vec::new());
        let mut first_stuck = None;
        for node in rest {
            match state.clear(cluster, kind, node, &targets) {
                Ok(()) => {
                    targets.retain(|target| *target != node);
                    part.push(node);
                }
                Err(stuck) => {
                    first_stuck.get_or_insert(stuck);
                    later.push(node);
                }
            }
        }
        if let (true, Some(stuck)) = (part.is_empty(), first_stuck) {
            return Err(stuck);
        }
        parts.push((part, state));
        rest = later;
    }
    Ok(parts)
}

/// Migrates the DRBD instances of nodes to their secondaries.
///
/// # Errors
/// One whose secondary has no room.
pub(super) fn migrate_off(
    cluster: &GanetiCluster,
    state: &mut PlacementState,
    nodes: &[u32],
) -> Result<(), UnplacedInstance> {
    let mirrored = |at: &usize| cluster.instances[*at].template == Template::Drbd;
    let instances: Vec<usize> = nodes
        .iter()
        .flat_map(|node| {
            state.nodes[*node as usize]
                .primaries
                .iter()
                .rev()
                .copied()
                .filter(mirrored)
        })
        .collect();
    for at in instances {
        let instance = &cluster.instances[at];
        let (primary, secondary) = state.places[at];
        let stuck = || UnplacedInstance {
            kind: UnplacedKind::Migrated,
            node: cluster.nodes[primary as usize].name.clone(),
            instance: instance.name.clone(),
        };
        let secondary = secondary.ok_or_else(stuck)?;
        let mut from = state.nodes[primary as usize].clone();
        let mut to = state.nodes[secondary as usize].clone();
        from.remove_primary(at, instance);
        to.remove_secondary(at, instance);
        if !to.add_primary(at, instance) || !from.add_secondary(at, instance) {
            return Err(stuck());
        }
        state.nodes[primary as usize] = from;
        state.nodes[secondary as usize] = to;
        state.places[at] = (secondary, Some(primary));
    }
    Ok(())
}

/// Unused memory by node, for who warns: what is free by the report and by the sum, the lesser.
pub(super) fn free_memory(cluster: &GanetiCluster) -> BTreeMap<u32, i64> {
    let state = PlacementState::new(cluster);
    (0_u32..)
        .zip(state.nodes.iter().map(|left| left.memory))
        .collect()
}
