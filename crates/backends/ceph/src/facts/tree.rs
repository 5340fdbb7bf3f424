//! The CRUSH tree: the location of each OSD.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::pg::HOLE;
use super::{ParseError, from_json, invalid};

/// The CRUSH tree, as `osd tree` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CrushTree {
    /// The buckets by number, which is negative.
    pub buckets: BTreeMap<i64, Bucket>,
    /// The buckets that hold each OSD, nearest first, each with the one above it and so on; an OSD that
    /// stands in two places has two.
    pub parents: BTreeMap<u32, Vec<i64>>,
    /// Whether each OSD was up when the tree was read.
    pub up: BTreeMap<u32, bool>,
}

/// A bucket of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Its name, in which any character may stand.
    pub name: String,
    /// Its level: `host`, `rack`, `root`.
    pub level: String,
    /// The number of its level, where the tree tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level_number: Option<u32>,
    /// The bucket above it.
    pub parent: Option<i64>,
    /// What stands below it: buckets negative, OSDs not, in the order of the answer.
    pub children: Vec<i64>,
}

#[derive(Deserialize)]
struct RawTree {
    nodes: Vec<RawNode>,
    #[serde(default)]
    stray: Vec<RawNode>,
}

#[derive(Deserialize)]
struct RawNode {
    id: i64,
    name: String,
    #[serde(rename = "type")]
    level: String,
    #[serde(default)]
    type_id: Option<u32>,
    #[serde(default)]
    children: Vec<i64>,
    #[serde(default)]
    status: String,
}

/// An OSD's number, if it can be one.
pub(super) fn osd_id(number: i64) -> Option<u32> {
    u32::try_from(number).ok().filter(|id| *id < HOLE)
}

impl CrushTree {
    /// Reads `osd tree`.
    ///
    /// # Errors
    /// No JSON, not that shape, a child that is not there, or a bucket that holds itself.
    pub fn read(bytes: &[u8], origin: &str) -> Result<Self, ParseError> {
        let RawTree { nodes, stray } = from_json(bytes, origin)?;
        let mut tree = Self::default();
        for node in nodes.into_iter().chain(stray) {
            if node.id < 0 {
                let bucket = Bucket {
                    name: node.name,
                    level: node.level,
                    level_number: node.type_id,
                    parent: None,
                    children: node.children,
                };
                // An OSD's host is listed once for each root that it stands under.
                tree.buckets.insert(node.id, bucket);
            } else {
                let osd = osd_id(node.id)
                    .ok_or_else(|| invalid(origin, format!("{:?} has the number {}", node.name, node.id)))?;
                tree.up.insert(osd, node.status == "up");
                tree.parents.entry(osd).or_default();
            }
        }
        tree.link(origin)?;
        Ok(tree)
    }

    fn link(&mut self, origin: &str) -> Result<(), ParseError> {
        let links: Vec<(i64, i64)> = self
            .buckets
            .iter()
            .flat_map(|(id, bucket)| bucket.children.iter().map(|child| (*child, *id)))
            .collect();
        for (child, parent) in links {
            if child < 0 {
                let bucket = self.buckets.get_mut(&child).ok_or_else(|| {
                    invalid(
                        origin,
                        format!("bucket {parent} holds {child}, which is not there"),
                    )
                })?;
                bucket.parent = Some(parent);
            } else {
                let osd = osd_id(child).filter(|osd| self.up.contains_key(osd));
                let osd = osd.ok_or_else(|| {
                    invalid(
                        origin,
                        format!("bucket {parent} holds osd.{child}, which is not there"),
                    )
                })?;
                self.parents.entry(osd).or_default().push(parent);
            }
        }
        match self.cycle() {
            Some(bucket) => Err(invalid(origin, format!("bucket {bucket} is below itself"))),
            None => Ok(()),
        }
    }

    /// A bucket that is below itself, if one does. It is looked for downwards: a bucket may stand in two places, and
    /// of those above it only one is its parent here.
    fn cycle(&self) -> Option<i64> {
        let children = |id: i64| self.buckets.get(&id).map_or(&[][..], |bucket| &bucket.children);
        let mut done = BTreeSet::new();
        for start in self.buckets.keys() {
            let mut above = BTreeSet::from([*start]);
            // The way down, each with its children that are still to be looked at.
            let mut way = vec![(*start, children(*start))];
            while let Some((id, left)) = way.last_mut() {
                let Some((child, rest)) = left.split_first() else {
                    above.remove(id);
                    done.insert(*id);
                    way.pop();
                    continue;
                };
                *left = rest;
                if above.contains(child) {
                    return Some(*child);
                }
                if *child < 0 && !done.contains(child) {
                    above.insert(*child);
                    way.push((*child, children(*child)));
                }
            }
        }
        None
    }

    /// The bucket and those above it, nearest first.
    pub fn upwards(&self, from: i64) -> impl Iterator<Item = (i64, &Bucket)> {
        std::iter::successors(self.buckets.get(&from).map(|b| (from, b)), |(_, bucket)| {
            let parent = bucket.parent?;
            self.buckets.get(&parent).map(|b| (parent, b))
        })
    }

    /// The failure domains of an OSD by level. Where it stands in two places, the first counts.
    pub fn domains(&self, osd: u32) -> BTreeMap<String, String> {
        let mut domains = BTreeMap::new();
        for parent in self.parents.get(&osd).into_iter().flatten() {
            self.add_domains(*parent, &mut domains);
        }
        domains
    }

    /// The bucket of the level of that number that an OSD stands below. Where it stands in two places, the first that
    /// has one counts.
    pub fn above(&self, osd: u32, level: u32) -> Option<i64> {
        let parents = self.parents.get(&osd)?;
        parents.iter().find_map(|parent| {
            let mut upwards = self.upwards(*parent);
            upwards.find_map(|(id, bucket)| (bucket.level_number == Some(level)).then_some(id))
        })
    }

    /// The name of the level of that number, if any bucket is of it.
    pub fn level_name(&self, number: u32) -> Option<&str> {
        let mut buckets = self.buckets.values();
        let found = buckets.find(|bucket| bucket.level_number == Some(number))?;
        Some(&found.level)
    }

    /// The failure domains of a host of that name by level; the host alone if the tree has none.
    pub fn domains_of_host(&self, host: &str) -> BTreeMap<String, String> {
        let short = host.split('.').next().unwrap_or(host);
        let mut domains = BTreeMap::from([("host".to_owned(), host.to_owned())]);
        let found = self
            .buckets
            .iter()
            .find(|(_, b)| b.level == "host" && (b.name == host || b.name == short));
        if let Some((id, bucket)) = found {
            domains.insert("host".to_owned(), bucket.name.clone());
            self.add_domains(*id, &mut domains);
        }
        domains
    }

    fn add_domains(&self, from: i64, domains: &mut BTreeMap<String, String>) {
        for (_, bucket) in self.upwards(from) {
            domains
                .entry(bucket.level.clone())
                .or_insert_with(|| bucket.name.clone());
        }
    }

    /// All OSDs below a bucket, in the order of their numbers.
    pub fn descendants(&self, bucket: i64) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let mut reached = BTreeSet::from([bucket]);
        let mut open = vec![bucket];
        while let Some(id) = open.pop() {
            for child in self.buckets.get(&id).into_iter().flat_map(|b| &b.children) {
                match osd_id(*child) {
                    Some(osd) => drop(found.insert(osd)),
                    // One that stands in two places is looked into once.
                    None if reached.insert(*child) => open.push(*child),
                    None => {}
                }
            }
        }
        found
    }
}
