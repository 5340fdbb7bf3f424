//! The unsafe parts of hroller's own answer.

use std::collections::{BTreeMap, BTreeSet};

use super::StrictOptions;
use super::placement::free_memory;
use crate::hroller::RebootGroup;
use crate::hroller::differences::listed;
use crate::model::{GanetiCluster, Instance, Template};

/// A sentence for each way in which these groups are unsafe, with the names that it concerns.
pub(super) fn dangers(
    cluster: &GanetiCluster,
    options: &StrictOptions,
    groups: &[RebootGroup],
) -> Vec<String> {
    let by_name: BTreeMap<&str, u32> = cluster
        .nodes
        .iter()
        .map(|node| node.name.as_str())
        .zip(0_u32..)
        .collect();
    let sets: Vec<BTreeSet<u32>> = groups
        .iter()
        .map(|group| {
            group
                .nodes
                .iter()
                .filter_map(|name| by_name.get(name.as_str()).copied())
                .collect()
        })
        .collect();
    let mut words = Vec::new();
    let mut add = |names: Vec<&str>, sentence: &dyn Fn(&str) -> String| {
        if !names.is_empty() {
            words.push(sentence(&listed(&names)));
        }
    };
    // In an offline maintenance everything is stopped before: only copies that are missing already count.
    if !options.offline_maintenance {
        add(local(cluster, &sets), &|names| {
            format!(
                "these instances run and have their disks on one node only: they cannot be migrated, and stop with their node: {names}"
            )
        });
        add(without_secondary(cluster, &sets), &|names| {
            format!(
                "the other node of these instances is offline or drained, so that they stop with the node that is left: {names}"
            )
        });
        add(full(cluster, &sets), &|names| {
            format!(
                "these nodes have too little memory for all instances that are migrated to them at once: {names}"
            )
        });
    }
    words
}

fn running<'a>(cluster: &'a GanetiCluster, sets: &[BTreeSet<u32>]) -> Vec<&'a Instance> {
    let goes = |instance: &&Instance| {
        instance.status.may_run()
            && !instance.forthcoming
            && sets.iter().any(|set| set.contains(&instance.primary.0))
    };
    cluster.instances.iter().filter(goes).collect()
}

/// Instances on the disks of a node that goes.
fn local<'a>(cluster: &'a GanetiCluster, sets: &[BTreeSet<u32>]) -> Vec<&'a str> {
    let on_one = |instance: &&Instance| matches!(instance.template, Template::Plain | Template::File);
    let running = running(cluster, sets);
    running
        .into_iter()
        .filter(on_one)
        .map(|instance| instance.name.as_str())
        .collect()
}

/// DRBD instances whose other node cannot take them.
fn without_secondary<'a>(cluster: &'a GanetiCluster, sets: &[BTreeSet<u32>]) -> Vec<&'a str> {
    let alone = |instance: &&Instance| {
        instance.template == Template::Drbd
            && instance
                .secondary
                .is_none_or(|node| !cluster.node(node).accepts_instances())
    };
    running(cluster, sets)
        .into_iter()
        .filter(alone)
        .map(|instance| instance.name.as_str())
        .collect()
}

/// Secondaries to which a group migrates more than they have free.
fn full<'a>(cluster: &'a GanetiCluster, sets: &[BTreeSet<u32>]) -> Vec<&'a str> {
    let free = free_memory(cluster);
    let mut full = BTreeSet::new();
    for set in sets {
        let mut comes: BTreeMap<u32, i64> = BTreeMap::new();
        for instance in running(cluster, std::slice::from_ref(set)) {
            if let Some(secondary) = instance.secondary.filter(|_| instance.template == Template::Drbd) {
                *comes.entry(secondary.0).or_default() += i64::try_from(instance.memory).unwrap_or(i64::MAX);
            }
        }
        full.extend(
            comes
                .into_iter()
                .filter(|(node, comes)| *comes > free.get(node).copied().unwrap_or_default())
                .map(|(node, _)| node),
        );
    }
    full.into_iter()
        .map(|node| cluster.nodes[node as usize].name.as_str())
        .collect()
}
