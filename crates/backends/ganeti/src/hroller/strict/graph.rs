//! The graph of nodes that must not go together, and hroller's three greedy colourings of it.
//!
//! Edges keep their number: a pair of nodes with two DRBD instances counts twice in a degree, and a node whose instances
//! share a secondary has an edge to itself. Which colouring wins depends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;

use crate::model::{GanetiCluster, Template};

/// One way of colouring, and the nodes of each colour.
#[derive(Debug)]
pub(super) struct Colours {
    way: &'static str,
    pub(super) classes: Vec<Vec<u32>>,
}

/// The nodes from the first that is meant to the last; also those between that are not, without edges.
#[derive(Debug)]
pub(super) struct Graph {
    first: u32,
    /// By vertex, from `first`: the other ends of its edges, as vertices.
    adjacent: Vec<Vec<usize>>,
}

impl Graph {
    /// Edges between the two nodes of each DRBD instance, and, but for an offline maintenance, between all nodes whose
    /// instances have a secondary in common. `None` where no node is meant.
    pub(super) fn new(
        cluster: &GanetiCluster,
        chosen: &BTreeSet<u32>,
        offline_maintenance: bool,
    ) -> Option<Self> {
        let (first, last) = (*chosen.first()?, *chosen.last()?);
        let mut adjacent: Vec<Vec<usize>> = vec![Vec::new(); (last - first) as usize + 1];
        let meant = |node: u32| chosen.contains(&node);
        let mut add = |from: u32, to: u32| {
            if meant(from) && meant(to) {
                adjacent[(from - first) as usize].push((to - first) as usize);
            }
        };
        let mut pairs = BTreeSet::new();
        for instance in &cluster.instances {
            let Some(secondary) = instance.secondary.filter(|_| instance.template == Template::Drbd) else {
                continue;
            };
            for (from, to) in [
                (instance.primary.0, secondary.0),
                (secondary.0, instance.primary.0),
            ] {
                add(from, to);
                pairs.insert((from, to));
            }
        }
        if !offline_maintenance {
            for primaries in behind_secondaries(cluster) {
                for from in &primaries {
                    for to in &primaries {
                        if pairs.insert((*from, *to)) {
                            add(*from, *to);
                        }
                    }
                }
            }
        }
        // The last edge stands first.
        for ends in &mut adjacent {
            ends.reverse();
        }
        Some(Self { first, adjacent })
    }

    /// The three colourings, in the order in which they are preferred.
    pub(super) fn colourings(&self) -> [Colours; 3] {
        let of = |way, colours: Vec<usize>| Colours {
            way,
            classes: self.classes(&colours),
        };
        [
            of("LF", self.by_degree()),
            of("Dsatur", self.by_neighbours(true)),
            of("Dcolor", self.by_neighbours(false)),
        ]
    }

    /// The highest degree first, of equal ones the last node.
    fn by_degree(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.adjacent.len()).collect();
        order.sort_by_key(|vertex| self.adjacent[*vertex].len());
        let mut colours = vec![None; order.len()];
        for vertex in order.into_iter().rev() {
            colours[vertex] = Some(self.free_colour(vertex, &colours));
        }
        colours.into_iter().flatten().collect()
    }

    /// That with the most colours among its neighbours first (or coloured neighbours, where colours are not `distinct`),
    /// of equal ones the highest degree, of these the last node.
    fn by_neighbours(&self, distinct: bool) -> Vec<usize> {
        let count = self.adjacent.len();
        let mut colours: Vec<Option<usize>> = vec![None; count];
        let mut met: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); count];
        let mut coloured = vec![0_usize; count];
        let mut left: Vec<usize> = (0..count).collect();
        while let Some(at) = (0..left.len()).max_by_key(|at| {
            let vertex = left[*at];
            let neighbours = if distinct {
                met[vertex].len()
            } else {
                coloured[vertex]
            };
            (neighbours, self.adjacent[vertex].len())
        }) {
            let vertex = left.remove(at);
            let colour = self.free_colour(vertex, &colours);
            colours[vertex] = Some(colour);
            // Every edge has its other direction.
            for other in &self.adjacent[vertex] {
                met[*other].insert(colour);
                coloured[*other] += 1;
            }
        }
        colours.into_iter().flatten().collect()
    }

    fn free_colour(&self, vertex: usize, colours: &[Option<usize>]) -> usize {
        let taken: BTreeSet<usize> = self.adjacent[vertex]
            .iter()
            .filter_map(|other| colours[*other])
            .collect();
        // Of so many colours one more than are taken, one is free.
        (0..=taken.len())
            .find(|colour| !taken.contains(colour))
            .unwrap_or_default()
    }

    fn classes(&self, colours: &[usize]) -> Vec<Vec<u32>> {
        let mut classes: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (node, colour) in (self.first..).zip(colours) {
            classes.entry(*colour).or_default().push(node);
        }
        classes.into_values().collect()
    }
}

/// For each node that is a secondary: the primaries of its instances, each once, that of the last instance first.
fn behind_secondaries(cluster: &GanetiCluster) -> Vec<Vec<u32>> {
    let mut behind: Vec<Vec<u32>> = vec![Vec::new(); cluster.nodes.len()];
    let mut met = BTreeSet::new();
    for instance in cluster
        .instances
        .iter()
        .rev()
        .filter(|instance| !instance.forthcoming)
    {
        if let Some(secondary) = instance.secondary
            && met.insert((secondary.0, instance.primary.0))
        {
            behind[secondary.0 as usize].push(instance.primary.0);
        }
    }
    behind
}

/// The classes of the colouring with the fewest colours, the first of equal ones.
pub(super) fn smallest(colourings: &[Colours]) -> &[Vec<u32>] {
    let fewest = colourings.iter().min_by_key(|colours| colours.classes.len());
    fewest.map_or(&[], |colours| &colours.classes)
}

/// The colourings in one line, the smallest first, of equal ones the last: how many colours, and how many nodes of each.
pub(super) fn statistics(colourings: &[Colours]) -> String {
    let mut ordered: Vec<&Colours> = colourings.iter().collect();
    ordered.sort_by_key(|colours| std::cmp::Reverse(colours.classes.len()));
    let mut line = String::new();
    let mut before = None;
    for Colours { way, classes } in ordered.into_iter().rev() {
        match before.replace(classes.len()) {
            None => {}
            Some(size) if size == classes.len() => line += " TIE ",
            Some(_) => line += " LOOSE ",
        }
        let sizes: Vec<String> = classes.iter().map(|class| class.len().to_string()).collect();
        let _ = write!(line, "{way}: {} ({})", classes.len(), sizes.join(","));
    }
    line
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.first as usize + self.adjacent.len() - 1;
        write!(f, "array ({},{last}) [", self.first)?;
        for (at, ends) in self.adjacent.iter().enumerate() {
            let ends: Vec<String> = ends
                .iter()
                .map(|end| (end + self.first as usize).to_string())
                .collect();
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}({},[{}])", at + self.first as usize, ends.join(","))?;
        }
        f.write_str("]")
    }
}
