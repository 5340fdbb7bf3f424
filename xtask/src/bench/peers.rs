//! The peers: Rook's loop over Ceph's own walk, and first fit.

use super::maps::{Map, Shape};

/// Of three copies, one may be down.
const MAY: u8 = 1;

/// Waves of those who do not colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rounds {
    /// Rounds of Rook's loop with no limit on a set.
    pub(crate) rook: u32,
    /// First fit in the order of the OSDs.
    pub(crate) first_fit: u32,
}

/// Counts them.
///
/// Rook takes the first OSD of its queue, asks `ok-to-stop <id> --max N`, and updates what comes back.
/// Ceph grows the set along the CRUSH tree from that OSD: its host, then its rack, then everything, and
/// stops after a level on which something did not fit.
pub(crate) fn rounds(map: &Map) -> Rounds {
    let osds = map.shape.osds;
    let mut of = vec![Vec::new(); osds as usize];
    for (group, members) in map.groups.iter().enumerate() {
        for osd in members {
            of[*osd as usize].push(group as u32);
        }
    }
    let mut set = Set {
        of: &of,
        down: vec![0; map.groups.len()],
        members: Vec::new(),
    };

    let mut todo = vec![true; osds as usize];
    let mut rook = 0;
    while let Some(seed) = todo.iter().position(|waits| *waits) {
        walk(&mut set, seed as u32, map.shape);
        for osd in set.clear() {
            todo[osd as usize] = false;
        }
        rook += 1;
    }

    let mut todo: Vec<u32> = (0..osds).collect();
    let mut first_fit = 0;
    while !todo.is_empty() {
        todo.retain(|osd| !set.add(*osd));
        set.clear();
        first_fit += 1;
    }
    Rounds { rook, first_fit }
}

fn walk(set: &mut Set<'_>, seed: u32, shape: Shape) {
    let Shape { osds, host, rack, .. } = shape;
    set.add(seed);
    for width in [host, host * rack, osds] {
        let from = seed / width * width;
        let mut failed = false;
        for osd in from..(from + width).min(osds) {
            if !set.members.contains(&osd) && !set.add(osd) {
                failed = true;
            }
        }
        if failed {
            return;
        }
    }
}

struct Set<'a> {
    of: &'a [Vec<u32>],
    down: Vec<u8>,
    members: Vec<u32>,
}

impl Set<'_> {
    fn add(&mut self, osd: u32) -> bool {
        let groups = &self.of[osd as usize];
        if groups.iter().any(|group| self.down[*group as usize] >= MAY) {
            return false;
        }
        for group in groups {
            self.down[*group as usize] += 1;
        }
        self.members.push(osd);
        true
    }

    fn clear(&mut self) -> Vec<u32> {
        for osd in &self.members {
            for group in &self.of[*osd as usize] {
                self.down[*group as usize] = 0;
            }
        }
        std::mem::take(&mut self.members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_round_where_nothing_else_fits() {
        // Every group has one OSD in each of three hosts: hosts exclude each other.
        let host = 20;
        let groups = (0..host).flat_map(|a| (0..host).map(move |b| [a, host + b, 2 * host + (a + b) % host]));
        let map = Map {
            shape: Shape::of_hosts(3 * host),
            groups: groups.collect(),
        };
        let three = Rounds {
            rook: 3,
            first_fit: 3,
        };
        assert_eq!(rounds(&map), three);
    }
}
