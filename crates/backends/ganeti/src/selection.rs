//! The selection of nodes.

use regex::Regex;
use stagger_core::model::{IdError, UnitId};

use crate::model::{GanetiCluster, GanetiNode};

/// What nodes have to be. Of each kind of condition that is given, a node has to fulfil one.
#[derive(Debug, Clone, Default)]
pub struct NodeSelection {
    /// Groups, by name or UUID.
    pub groups: Vec<String>,
    /// Tags of nodes.
    pub tags: Vec<String>,
    /// A pattern that is found in the name.
    pub matching: Option<Regex>,
    /// Names.
    pub nodes: Vec<String>,
    /// Names of nodes that are left out whatever else they are.
    pub leave_out: Vec<String>,
}

/// A selection that makes no sense in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// A group that there is not.
    #[error("there is no node group {name:?}; there are: {known}")]
    Group {
        /// As it was given.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// A node that there is not.
    #[error("there is no node {name:?}; the nearest is {nearest}")]
    Node {
        /// As it was given.
        name: String,
        /// The name that is most like it.
        nearest: String,
    },
    /// A tag that no node has.
    #[error("no node has the tag {0:?}")]
    Tag(String),
    /// A pattern that is found in no name.
    #[error("no node has a name that matches {0:?}")]
    Pattern(String),
    /// All together leave nothing.
    #[error("no node is all that is asked for: {0}")]
    Nothing(String),
    /// A name that is none.
    #[error(transparent)]
    Name(#[from] IdError),
}

impl NodeSelection {
    /// The nodes that are meant, sorted by name.
    ///
    /// # Errors
    /// A group, node, tag or pattern that fits nothing, or all of them together.
    pub fn of(&self, cluster: &GanetiCluster) -> Result<Vec<UnitId>, SelectError> {
        for name in &self.groups {
            let known = cluster
                .groups
                .iter()
                .any(|group| group.name == *name || group.uuid == *name);
            if !known {
                let names: Vec<&str> = cluster.groups.iter().map(|group| group.name.as_str()).collect();
                return Err(SelectError::Group {
                    name: name.clone(),
                    known: names.join(", "),
                });
            }
        }
        for name in self.nodes.iter().chain(&self.leave_out) {
            node_exists(cluster, name)?;
        }
        if let Some(tag) = self
            .tags
            .iter()
            .find(|tag| !cluster.nodes.iter().any(|node| node.tags.contains(tag)))
        {
            return Err(SelectError::Tag(tag.clone()));
        }
        if let Some(pattern) = &self.matching
            && !cluster.nodes.iter().any(|node| pattern.is_match(&node.name))
        {
            return Err(SelectError::Pattern(pattern.to_string()));
        }
        let mut meant = cluster
            .nodes
            .iter()
            .filter(|node| self.means(cluster, node))
            .map(|node| UnitId::new(node.name.as_str()))
            .collect::<Result<Vec<_>, _>>()?;
        if meant.is_empty() {
            return Err(SelectError::Nothing(self.to_string()));
        }
        meant.sort();
        Ok(meant)
    }

    fn means(&self, cluster: &GanetiCluster, node: &GanetiNode) -> bool {
        let group = cluster.group(node.group);
        let any =
            |wanted: &[String], is: &dyn Fn(&String) -> bool| wanted.is_empty() || wanted.iter().any(is);
        any(&self.groups, &|name| group.name == *name || group.uuid == *name)
            && any(&self.tags, &|tag| node.tags.contains(tag))
            && any(&self.nodes, &|name| node.name == *name)
            && self
                .matching
                .as_ref()
                .is_none_or(|pattern| pattern.is_match(&node.name))
            && !self.leave_out.contains(&node.name)
    }
}

/// The node of that name, or of that name without its domain if there is one such node, as Ganeti's own commands take it.
///
/// # Errors
/// There is none, and which is nearest.
pub fn node_called<'a>(cluster: &'a GanetiCluster, name: &str) -> Result<&'a str, SelectError> {
    let short = |node: &&GanetiNode| node.name.split_once('.').is_some_and(|(short, _)| short == name);
    let nodes = &cluster.nodes;
    let mut found = nodes
        .iter()
        .filter(|node| node.name == name)
        .chain(nodes.iter().filter(short));
    match (found.next(), found.next()) {
        (Some(node), None) => Ok(&node.name),
        (Some(node), Some(_)) if node.name == name => Ok(&node.name),
        _ => Err(none_called(cluster, name)),
    }
}

fn node_exists(cluster: &GanetiCluster, name: &str) -> Result<(), SelectError> {
    if cluster.nodes.iter().any(|node| node.name == name) {
        return Ok(());
    }
    Err(none_called(cluster, name))
}

fn none_called(cluster: &GanetiCluster, name: &str) -> SelectError {
    let nearest = cluster
        .nodes
        .iter()
        .max_by(|a, b| strsim::jaro_winkler(name, &a.name).total_cmp(&strsim::jaro_winkler(name, &b.name)));
    SelectError::Node {
        name: name.to_owned(),
        nearest: nearest.map_or_else(|| "none".to_owned(), |node| node.name.clone()),
    }
}

/// What is asked for, in words.
impl std::fmt::Display for NodeSelection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        let mut list = |what: &str, names: &[String]| {
            if !names.is_empty() {
                parts.push(format!("{what} {}", names.join(" or ")));
            }
        };
        list("in group", &self.groups);
        list("with tag", &self.tags);
        list("called", &self.nodes);
        list("without", &self.leave_out);
        if let Some(pattern) = &self.matching {
            parts.push(format!("matching {:?}", pattern.as_str()));
        }
        if parts.is_empty() {
            return f.write_str("all nodes");
        }
        f.write_str(&parts.join(", "))
    }
}
