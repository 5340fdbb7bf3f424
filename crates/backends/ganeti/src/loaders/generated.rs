//! Clusters from a seed, for tests and measurements: all layouts of second copies, templates, states, tags and
//! policies. The same seed and shape give the same cluster.

use crate::model::{
    AllocPolicy, GanetiCluster, GanetiNode, GroupIx, Instance, Ipolicy, NodeGroup, NodeIx, Resources, Status,
    Template,
};

/// Numbers from a seed.
#[derive(Debug, Clone)]
pub struct ClusterRng(pub u64);

impl ClusterRng {
    /// The next number. G. Steele, D. Lea and C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    #[expect(
        clippy::should_implement_trait,
        reason = "there is always a next one, and nobody walks through them"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// Yes, in so many of a hundred cases.
    pub fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }

    /// One of these, of which there is one at least.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Where second copies are, within the group of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// On any node.
    Random,
    /// On one of the three nodes that follow.
    Ring,
    /// Two nodes have each other's.
    Pairs,
    /// On a node of the same cell; so many nodes are one.
    Cells(u64),
    /// On one of the first so many nodes.
    Hubs(u64),
}

/// What a cluster is made of.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// How many nodes.
    pub nodes: u64,
    /// How many node groups they are in.
    pub groups: u64,
    /// How many instances each node has.
    pub instances_a_node: u64,
    /// Where second copies are.
    pub layout: Layout,
    /// Disk templates, the more often named the more of them.
    pub templates: &'static [Template],
    /// How full nodes are: their memory for each MiB of their instances, in percent. From 10,000 on nothing that
    /// can be full is ever full.
    pub roomy: u64,
    /// Of a hundred instances: those that do not plainly run.
    pub idle: u64,
    /// Of a hundred nodes, the master aside: those that are offline.
    pub offline: u64,
    /// Whether policies, tags and small processors may forbid what memory permits.
    pub bounds: bool,
}

/// Only mirrored instances.
pub const MIRRORED: &[Template] = &[Template::Drbd];
/// Half of them mirrored, the others of all kinds.
pub const MIXED: &[Template] = &[
    Template::Drbd,
    Template::Drbd,
    Template::Drbd,
    Template::Drbd,
    Template::Drbd,
    Template::Drbd,
    Template::Drbd,
    Template::Drbd,
    Template::Diskless,
    Template::File,
    Template::SharedFile,
    Template::Plain,
    Template::BlockDev,
    Template::Rbd,
    Template::Ext,
    Template::Gluster,
];
/// Mirrored ones, and others that can be migrated.
pub const MOVABLE: &[Template] = &[
    Template::Drbd,
    Template::Drbd,
    Template::Ext,
    Template::SharedFile,
];
/// Mirrored ones as half of a thousand, with plain, RBD, `ext` and shared files as the others.
pub const USUAL: &[Template] = &[
    Template::Drbd,
    Template::Drbd,
    Template::Drbd,
    Template::Drbd,
    Template::Drbd,
    Template::Plain,
    Template::Rbd,
    Template::Rbd,
    Template::Ext,
    Template::SharedFile,
];

impl Shape {
    /// Mirrored, running, with room for everything, in one group.
    pub const PLAIN: Self = Self {
        nodes: 10,
        groups: 1,
        instances_a_node: 10,
        layout: Layout::Random,
        templates: MIRRORED,
        roomy: 10_000,
        idle: 0,
        offline: 0,
        bounds: false,
    };

    /// A shape for a small cluster: two to nine nodes.
    pub fn small_cluster(rng: &mut ClusterRng) -> Self {
        let nodes = 2 + rng.below(8);
        let mixed = rng.percent(60);
        Self {
            nodes,
            groups: 1 + rng.below(2),
            instances_a_node: rng.below(5),
            roomy: rng.pick(&[110, 140, 200, 400]),
            bounds: true,
            ..if mixed { Self::mixed() } else { Self::PLAIN }
        }
    }

    /// All templates and states, some nodes offline.
    pub fn mixed() -> Self {
        Self {
            templates: MIXED,
            idle: 30,
            offline: 5,
            bounds: true,
            ..Self::PLAIN
        }
    }

    /// Any shape with so many nodes at most.
    pub fn any(rng: &mut ClusterRng, most: u64) -> Self {
        let nodes = 2 + rng.below(most.saturating_sub(1));
        Self {
            nodes,
            groups: if rng.percent(70) {
                1
            } else {
                1 + rng.below(nodes.min(4))
            },
            instances_a_node: 1 + rng.below(8),
            layout: match rng.below(10) {
                0..5 => Layout::Random,
                5 => Layout::Ring,
                6 => Layout::Pairs,
                7 | 8 => Layout::Cells(2 + rng.below(8)),
                _ => Layout::Hubs(1 + rng.below(5)),
            },
            templates: rng.pick(&[MIRRORED, MIRRORED, MIXED, MOVABLE, USUAL]),
            roomy: rng.pick(&[10_000, 10_000, 110, 140, 200, 400]),
            idle: rng.pick(&[0, 0, 10, 30]),
            offline: rng.pick(&[0, 0, 0, 5, 20]),
            bounds: rng.percent(30),
        }
    }

    /// Where second copies of a node's instances may be.
    fn peers(&self, node: u64) -> Peers {
        let group = self.group_of(node);
        let start = (group * self.nodes).div_ceil(self.groups);
        let len = ((group + 1) * self.nodes).div_ceil(self.groups) - start;
        Peers { node, start, len }
    }

    fn group_of(&self, node: u64) -> u64 {
        node * self.groups / self.nodes
    }
}

/// The nodes of a group, seen from one of them.
#[derive(Debug, Clone, Copy)]
struct Peers {
    node: u64,
    start: u64,
    len: u64,
}

impl Peers {
    /// One that is another node, if there is one.
    fn pick(self, rng: &mut ClusterRng, layout: Layout) -> Option<u64> {
        if self.len < 2 {
            return None;
        }
        let at = self.node - self.start;
        let (from, count) = match layout {
            Layout::Random => (0, self.len),
            Layout::Ring => {
                let next = (at + 1 + rng.below(3)) % self.len;
                return Some(self.start + if next == at { (at + 1) % self.len } else { next });
            }
            Layout::Pairs => (at / 2 * 2, 2),
            Layout::Cells(size) => (at / size.max(2) * size.max(2), size.max(2)),
            Layout::Hubs(hubs) => (0, hubs),
        };
        let count = count.min(self.len - from);
        if count < 2 && from == at {
            // The last of an odd number, or a hub alone.
            return Some(self.start + (at + self.len - 1) % self.len);
        }
        loop {
            let other = from + rng.below(count);
            if other != at {
                return Some(self.start + other);
            }
        }
    }
}

/// From this on nothing is ever full.
const AMPLE: u64 = 10_000;
/// Memory of the node itself, in MiB.
const OWN: u64 = 512;

/// A cluster whose numbers add up.
pub fn cluster(rng: &mut ClusterRng, shape: &Shape) -> GanetiCluster {
    let groups = (0..shape.groups).map(|at| group(rng, shape, at)).collect();
    let mut instances = Vec::new();
    for node in 0..shape.nodes {
        let peers = shape.peers(node);
        for _ in 0..shape.instances_a_node {
            let number = instances.len();
            instances.extend(instance(rng, shape, peers, number));
        }
    }
    let master = rng.below(shape.nodes);
    let mut used = vec![(0_u64, 0_u64); shape.nodes as usize];
    for instance in &instances {
        let on = instance.primary.0 as usize;
        if instance.status.may_run() {
            used[on].0 += instance.memory;
        }
        if matches!(
            instance.template,
            Template::Drbd | Template::Plain | Template::File
        ) {
            used[on].1 += instance.disk;
        }
        if let Some(secondary) = instance.secondary {
            used[secondary.0 as usize].1 += instance.disk;
        }
    }
    let nodes = (0..shape.nodes)
        .zip(used)
        .map(|(at, used)| node(rng, shape, at, at == master, used))
        .collect();
    GanetiCluster {
        groups,
        nodes,
        instances,
        tags: if shape.bounds && rng.percent(30) {
            vec!["htools:iextags:service".to_owned()]
        } else {
            Vec::new()
        },
        ipolicy: (rng.percent(80) || !shape.bounds).then(|| policy(rng, shape)),
    }
}

fn group(rng: &mut ClusterRng, shape: &Shape, at: u64) -> NodeGroup {
    NodeGroup {
        name: format!("group-{at}"),
        uuid: format!("uuid-{at}"),
        alloc_policy: rng.pick(&[
            AllocPolicy::Preferred,
            AllocPolicy::LastResort,
            AllocPolicy::Unallocable,
        ]),
        tags: Vec::new(),
        networks: Vec::new(),
        ipolicy: (rng.percent(80) || !shape.bounds).then(|| policy(rng, shape)),
    }
}

fn policy(rng: &mut ClusterRng, shape: &Shape) -> Ipolicy {
    let (vcpu_ratio, spindle_ratio) = if shape.bounds {
        (rng.pick(&[1.0, 4.0, 4.5]), rng.pick(&[8.0, 32.0, 1000.0]))
    } else {
        (1000.0, 1000.0)
    };
    Ipolicy {
        standard: [128, 1, 1024, 1, 1, 1],
        ranges: vec![([1, 1, 0, 0, 0, 0], [32768, 8, 1_048_576, 16, 8, 12])],
        templates: Template::ALL.to_vec(),
        vcpu_ratio,
        spindle_ratio,
    }
}

fn instance(rng: &mut ClusterRng, shape: &Shape, peers: Peers, number: usize) -> Option<Instance> {
    let template = rng.pick(shape.templates);
    let secondary = match template {
        Template::Drbd => Some(NodeIx(peers.pick(rng, shape.layout)? as u32)),
        _ => None,
    };
    let memory = rng.pick(&[512, 1024, 2048, 4096]);
    Some(Instance {
        name: format!("inst-{number}"),
        memory,
        maxmem: memory,
        disk: rng.pick(&[1024, 10240, 51200]),
        vcpus: 1 + rng.below(3),
        // Most were stopped by somebody: what is in trouble keeps its whole node from being visited.
        status: if !rng.percent(shape.idle) {
            Status::Running
        } else if rng.percent(70) {
            Status::AdminDown
        } else {
            rng.pick(Status::ALL)
        },
        auto_balance: rng.percent(90),
        primary: NodeIx(peers.node as u32),
        secondary,
        template,
        tags: if shape.bounds && rng.percent(15) {
            vec![format!("service:{}", rng.pick(&["dns", "web"]))]
        } else {
            Vec::new()
        },
        spindle_use: 1,
        disk_spindles: None,
        forthcoming: false,
    })
}

#[expect(clippy::cast_possible_wrap, reason = "no node has so much")]
fn node(rng: &mut ClusterRng, shape: &Shape, at: u64, master: bool, (used, disk): (u64, u64)) -> GanetiNode {
    let memory = (2048 * shape.instances_a_node.max(1) * shape.roomy / 100).max(used) + OWN;
    let disk_free = if shape.roomy >= AMPLE {
        100_000_000
    } else {
        200_000
    };
    GanetiNode {
        name: format!("node-{at}"),
        resources: Some(Resources {
            memory,
            memory_own: OWN,
            memory_free: (memory - OWN - used) as i64,
            disk: disk + disk_free,
            disk_free: disk_free as i64,
            cpus: 8,
            spindles: 4,
            spindles_free: 0,
            cpus_own: 1,
            cpu_speed: 1.0,
        }),
        offline: !master && rng.percent(shape.offline),
        drained: false,
        vm_capable: true,
        master,
        group: GroupIx(shape.group_of(at) as u32),
        tags: if rng.percent(30) {
            vec!["even".to_owned()]
        } else {
            Vec::new()
        },
        exclusive_storage: false,
    }
}
