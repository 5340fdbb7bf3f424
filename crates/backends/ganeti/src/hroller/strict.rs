//! Ganeti's own answer, group for group and move for move: for scripts that depend on it.
//!
//! [`super::answer`] plans better and refuses what is unsafe. This module plans what the `hroller` of Ganeti
//! 3.0 and 3.1 plans, with its defects: it moves instances that do not run or cannot be migrated, and it
//! counts no memory for DRBD instances. [`dangers`](Colouring::dangers) lists what is unsafe in an answer.
//!
//! The steps, in its order: [`StrictInput`] (the master, nodes set offline), the [`graph`], three greedy
//! colourings of it, the [`placement`] of what has to move, and the order of the groups.

mod dangers;
mod graph;
mod placement;
mod refusal;

use std::collections::BTreeSet;

pub use refusal::refusal;

use super::{HrollerError, RebootGroup, master_names};
use crate::loaders::text;
use crate::model::{GanetiCluster, GanetiNode, GroupIx, Ipolicy, Resources, Template};
use graph::{Colours, Graph, smallest, statistics};
use placement::{Kind, PlacementState, clear_in_parts, migrate_off};

/// What hroller is asked, in its own options.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "these are the switches that hroller has"
)]
pub struct StrictOptions {
    /// `-G`: one group, by name or UUID.
    pub group: Option<String>,
    /// `--node-tags`: nodes with one of these tags; none of them where the list is empty.
    pub tags: Option<Vec<String>>,
    /// `-O`: nodes that count as offline, in the order in which they are given.
    pub offline: Vec<String>,
    /// `--skip-non-redundant`.
    pub skip_non_redundant: bool,
    /// `--ignore-non-redundant`.
    pub ignore_non_redundant: bool,
    /// `--offline-maintenance`: nodes may share a secondary.
    pub offline_maintenance: bool,
    /// `--full-evacuation`.
    pub full_evacuation: bool,
    /// `-f`: go on without a master.
    pub force: bool,
}

/// A cluster with what is asked of it, once its master is known.
#[derive(Debug)]
pub struct StrictInput<'a> {
    cluster: &'a GanetiCluster,
    options: &'a StrictOptions,
    /// By the places of nodes.
    online: Vec<bool>,
    no_master: bool,
}

/// The nodes that are meant, in the colours that say which of them go together.
#[derive(Debug)]
pub struct Colouring<'a> {
    question: &'a StrictInput<'a>,
    chosen: BTreeSet<u32>,
    graph: Graph,
    colourings: [Colours; 3],
}

/// Nodes that go together, and the cluster once they are cleared.
type Part = (Vec<u32>, PlacementState);

impl<'a> StrictInput<'a> {
    /// The question about a cluster.
    ///
    /// # Errors
    /// No master without `-f`, or two of them.
    pub fn new(cluster: &'a GanetiCluster, options: &'a StrictOptions) -> Result<Self, HrollerError> {
        // A node that says nothing of itself is master of nothing.
        let speaks = |node: &&GanetiNode| node.resources.is_some();
        let masters = cluster.masters().filter(speaks).map(|node| node.name.as_str());
        let masters: Vec<&str> = masters.collect();
        let no_master = match masters.as_slice() {
            [] if !options.force => return Err(HrollerError::NoMaster),
            [] => true,
            [_] => false,
            several => return Err(HrollerError::Masters(master_names(several))),
        };
        Ok(Self {
            cluster,
            options,
            online: cluster.nodes.iter().map(GanetiNode::accepts_instances).collect(),
            no_master,
        })
    }

    /// With the nodes of `-O` offline.
    ///
    /// # Errors
    /// A name that fits no node, or several.
    pub fn with_offline(mut self) -> Result<Self, HrollerError> {
        let mut wrong = Vec::new();
        // The last that was given is looked at first.
        for given in self.options.offline.iter().rev() {
            match node_called(self.cluster, given) {
                Some(at) => self.online[at] = false,
                None => wrong.push(given.as_str()),
            }
        }
        if wrong.is_empty() {
            Ok(self)
        } else {
            Err(HrollerError::WrongOffline(wrong.join(",")))
        }
    }

    /// For stderr, with `Warning: ` before.
    pub fn warning(&self) -> Option<String> {
        self.no_master.then(|| HrollerError::NoMaster.to_string())
    }

    /// The nodes that are meant, coloured.
    ///
    /// # Errors
    /// `-G` fits no group or several, or no node is left.
    pub fn colouring(&'a self) -> Result<Colouring<'a>, HrollerError> {
        let group = self
            .options
            .group
            .as_deref()
            .map(|name| self.group(name))
            .transpose()?;
        let with_others: BTreeSet<u32> = self
            .cluster
            .instances
            .iter()
            .filter(|instance| instance.template != Template::Drbd && !instance.forthcoming)
            .map(|instance| instance.primary.0)
            .collect();
        let chosen: BTreeSet<u32> = (0_u32..)
            .zip(&self.cluster.nodes)
            .filter(|(at, node)| {
                let tagged = self.options.tags.as_ref().is_none_or(|tags| {
                    node.resources.is_some() && node.tags.iter().any(|tag| tags.contains(tag))
                });
                self.online[*at as usize]
                    && tagged
                    && group.is_none_or(|group| node.group == group)
                    && !(self.options.skip_non_redundant && with_others.contains(at))
            })
            .map(|(at, _)| at)
            .collect();
        let Some(graph) = Graph::new(self.cluster, &chosen, self.options.offline_maintenance) else {
            return Err(HrollerError::NoGraph(self.none_chosen(&with_others)));
        };
        Ok(Colouring {
            question: self,
            chosen,
            colourings: graph.colourings(),
            graph,
        })
    }

    fn group(&self, name: &str) -> Result<GroupIx, HrollerError> {
        let mut fits = (0_u32..)
            .zip(&self.cluster.groups)
            .filter(|(_, group)| group.name == name || group.uuid == name);
        match (fits.next(), fits.next()) {
            (Some((at, _)), None) => Ok(GroupIx(at)),
            _ => Err(HrollerError::NoGroup),
        }
    }

    /// Which nodes `--skip-non-redundant` skips, where none is left.
    fn none_chosen(&self, with_others: &BTreeSet<u32>) -> Vec<String> {
        if !self.options.skip_non_redundant {
            return vec![
                "no node that is online is in the group and has one of the tags that are asked for"
                    .to_owned(),
            ];
        }
        super::skipped_nodes(self.cluster, with_others)
    }
}

/// The one node that is meant: its whole name, or the part of it before a dot.
fn node_called(cluster: &GanetiCluster, given: &str) -> Option<usize> {
    let mut names = cluster.nodes.iter().map(|node| node.name.as_str());
    if let Some(at) = names.clone().position(|name| name == given) {
        return Some(at);
    }
    let prefix = format!("{given}.");
    let at = names.position(|name| name.starts_with(&prefix))?;
    // Two that begin so are none.
    (!names.any(|name| name.starts_with(&prefix))).then_some(at)
}

impl Colouring<'_> {
    /// What `-v -v -v` prints of the graph.
    pub fn graph(&self) -> String {
        self.graph.to_string()
    }

    /// What `-v -v` prints of the three colourings.
    pub fn statistics(&self) -> String {
        statistics(&self.colourings)
    }

    /// The groups in their order, with their moves. A group may be empty: nodes were coloured that are not meant.
    ///
    /// # Errors
    /// Something has no place. [`HrollerError::causes`] names it.
    pub fn groups(&self) -> Result<Vec<RebootGroup>, HrollerError> {
        let StrictInput {
            cluster,
            options,
            online,
            ..
        } = self.question;
        let start = PlacementState::new(cluster);
        let targets: Vec<u32> = (0_u32..)
            .zip(online)
            .filter_map(|(at, online)| online.then_some(at))
            .collect();
        let colours = smallest(&self.colourings);
        let mut parts: Vec<Part> = Vec::new();
        for colour in colours {
            if options.ignore_non_redundant {
                parts.push((colour.clone(), start.clone()));
                continue;
            }
            parts.extend(
                clear_in_parts(cluster, &start, Kind::NonRedundant, colour, &targets)
                    .map_err(|stuck| HrollerError::NoCapacity(vec![stuck.to_string()]))?,
            );
        }
        if options.full_evacuation {
            for (nodes, state) in &mut parts {
                migrate_off(cluster, state, nodes)
                    .map_err(|stuck| HrollerError::MigrationFailed(vec![stuck.to_string()]))?;
            }
            let mut evacuated = Vec::new();
            for (nodes, state) in &parts {
                evacuated.extend(
                    clear_in_parts(cluster, state, Kind::Secondaries, nodes, &targets)
                        .map_err(|stuck| HrollerError::NoCapacityForSecondaries(vec![stuck.to_string()]))?,
                );
            }
            parts = evacuated;
        }
        Ok(self.in_order(&start, parts))
    }

    /// What of these groups is unsafe: a sentence each, for a person.
    pub fn dangers(&self, groups: &[RebootGroup]) -> Vec<String> {
        dangers::dangers(self.question.cluster, self.question.options, groups)
    }

    /// The largest first, that of the master last, and the master last in it.
    fn in_order(&self, start: &PlacementState, parts: Vec<Part>) -> Vec<RebootGroup> {
        let cluster = self.question.cluster;
        let is_master = |at: u32| {
            let node = &cluster.nodes[at as usize];
            node.master && node.resources.is_some()
        };
        let mut groups: Vec<Part> = parts
            .into_iter()
            .map(|(mut nodes, state)| {
                nodes.retain(|node| self.chosen.contains(node));
                (nodes, state)
            })
            .collect();
        groups.sort_by_key(|(nodes, _)| {
            (
                nodes.iter().any(|node| is_master(*node)),
                std::cmp::Reverse(nodes.len()),
            )
        });
        groups
            .into_iter()
            .map(|(mut nodes, state)| {
                nodes.sort_by_key(|node| is_master(*node));
                RebootGroup {
                    nodes: nodes
                        .into_iter()
                        .map(|at| cluster.nodes[at as usize].name.clone())
                        .collect(),
                    moves: state.moves_since(cluster, start),
                }
            })
            .collect()
    }
}

/// The cluster as `-S` writes it: what it says nothing of has Ganeti's default.
pub fn saved(cluster: &GanetiCluster) -> String {
    let mut cluster = cluster.clone();
    let default = Ipolicy::of_ganeti();
    for group in &mut cluster.groups {
        group.ipolicy.get_or_insert_with(|| default.clone());
    }
    cluster.ipolicy.get_or_insert(default);
    for node in cluster.nodes.iter_mut().filter(|node| node.resources.is_none()) {
        node.offline = true;
        node.tags.clear();
        node.exclusive_storage = false;
        node.resources = Some(Resources {
            memory: 0,
            memory_own: 0,
            memory_free: 0,
            disk: 0,
            disk_free: 0,
            cpus: 0,
            spindles: 0,
            spindles_free: 0,
            cpus_own: 0,
            cpu_speed: 1.0,
        });
    }
    text::write(&cluster)
}
