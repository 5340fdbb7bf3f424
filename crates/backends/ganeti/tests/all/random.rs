//! Random clusters from a seed: all states, all templates, groups, tags, policies.

use stagger_ganeti::cluster::{
    AllocPolicy, Cluster, Group, GroupIx, Instance, Ipolicy, Node, NodeIx, Resources, Status, Template,
};

/// Numbers from a seed.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub(crate) fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// What a random cluster is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) nodes: u64,
    pub(crate) groups: u64,
    pub(crate) instances_a_node: u64,
    /// How full nodes are: their memory for each MiB of their instances, in percent.
    pub(crate) roomy: u64,
    /// Whether states and templates of all kinds occur, or only running DRBD instances.
    pub(crate) mixed: bool,
}

impl Shape {
    /// A shape for small clusters.
    pub(crate) fn small(rng: &mut Rng) -> Self {
        Self {
            nodes: 2 + rng.below(8),
            groups: 1 + rng.below(2),
            instances_a_node: rng.below(5),
            roomy: rng.pick(&[110, 140, 200, 400]),
            mixed: rng.percent(60),
        }
    }
}

fn policy(rng: &mut Rng) -> Ipolicy {
    Ipolicy {
        standard: [128, 1, 1024, 1, 1, 1],
        ranges: vec![([1, 1, 0, 0, 0, 0], [32768, 8, 1_048_576, 16, 8, 12])],
        templates: Template::ALL.to_vec(),
        vcpu_ratio: rng.pick(&[1.0, 4.0, 4.5]),
        spindle_ratio: rng.pick(&[8.0, 32.0, 1000.0]),
    }
}

/// A cluster whose numbers add up.
#[expect(
    clippy::too_many_lines,
    clippy::cast_possible_wrap,
    reason = "one field after another, and small numbers"
)]
pub(crate) fn cluster(rng: &mut Rng, shape: Shape) -> Cluster {
    let groups: Vec<Group> = (0..shape.groups)
        .map(|at| Group {
            name: format!("group-{at}"),
            uuid: format!("uuid-{at}"),
            alloc_policy: rng.pick(&[
                AllocPolicy::Preferred,
                AllocPolicy::LastResort,
                AllocPolicy::Unallocable,
            ]),
            tags: Vec::new(),
            networks: Vec::new(),
            ipolicy: if rng.percent(80) { Some(policy(rng)) } else { None },
        })
        .collect();
    let group_of = |node: u64| node * shape.groups / shape.nodes;
    let mut instances = Vec::new();
    for node in 0..shape.nodes {
        let peers: Vec<u64> = (0..shape.nodes)
            .filter(|peer| *peer != node && group_of(*peer) == group_of(node))
            .collect();
        for _ in 0..shape.instances_a_node {
            let template = if shape.mixed && rng.percent(50) {
                rng.pick(Template::ALL)
            } else {
                Template::Drbd
            };
            if template == Template::Drbd && peers.is_empty() {
                continue;
            }
            let running = !shape.mixed || rng.percent(70);
            instances.push(Instance {
                name: format!("inst-{}", instances.len()),
                memory: rng.pick(&[512, 1024, 2048, 4096]),
                disk: rng.pick(&[1024, 10240, 51200]),
                vcpus: 1 + rng.below(3),
                status: if running {
                    Status::Running
                } else {
                    rng.pick(Status::ALL)
                },
                auto_balance: rng.percent(90),
                primary: NodeIx(node as u32),
                secondary: (template == Template::Drbd).then(|| NodeIx(rng.pick(&peers) as u32)),
                template,
                tags: if rng.percent(15) {
                    vec![format!("service:{}", rng.pick(&["dns", "web"]))]
                } else {
                    Vec::new()
                },
                spindle_use: 1,
                disk_spindles: None,
                forthcoming: false,
            });
        }
    }
    let master = rng.below(shape.nodes);
    let nodes = (0..shape.nodes).map(|at| {
        let ix = NodeIx(at as u32);
        let on = || instances.iter().filter(move |instance| instance.primary == ix);
        let used: u64 = on().filter(|i| i.status.may_run()).map(|i| i.memory).sum();
        let disk: u64 = instances
            .iter()
            .filter(|i| match i.template {
                Template::Drbd => i.primary == ix || i.secondary == Some(ix),
                Template::Plain | Template::File => i.primary == ix,
                _ => false,
            })
            .map(|i| i.disk)
            .sum();
        let memory = 512 + 2048 * shape.instances_a_node.max(1) * shape.roomy / 100;
        let memory = memory.max(512 + used);
        Node {
            name: format!("node-{at}"),
            resources: Some(Resources {
                memory,
                memory_own: 512,
                memory_free: (memory - 512 - used) as i64,
                disk: disk + 200_000,
                disk_free: 200_000,
                cpus: 8,
                spindles: 4,
                spindles_free: 0,
                cpus_own: 1,
                cpu_speed: 1.0,
            }),
            offline: at != master && shape.mixed && rng.percent(5),
            drained: false,
            vm_capable: true,
            master: at == master,
            group: GroupIx(group_of(at) as u32),
            tags: if rng.percent(30) {
                vec!["even".to_owned()]
            } else {
                Vec::new()
            },
            exclusive_storage: false,
        }
    });
    Cluster {
        nodes: nodes.collect(),
        groups,
        instances,
        tags: if rng.percent(30) {
            vec!["htools:iextags:service".to_owned()]
        } else {
            Vec::new()
        },
        ipolicy: if rng.percent(80) { Some(policy(rng)) } else { None },
    }
}
