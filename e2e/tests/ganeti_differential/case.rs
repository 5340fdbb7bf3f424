//! A cluster and a question about it, from a seed.

use anyhow::{Context, Result};
use stagger_ganeti::hroller::HrollerOptions;
use stagger_ganeti::loaders::generated::{ClusterRng, Shape, cluster};
use stagger_ganeti::loaders::text;
use stagger_ganeti::model::{GanetiCluster, GanetiNode, Status, Template};

/// A cluster, and what is asked about it, in the words of both programs.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) cluster: GanetiCluster,
    /// The cluster as a file.
    pub(crate) text: String,
    /// What our library is asked.
    pub(crate) options: HrollerOptions,
    /// The same as words of the command line, for both programs.
    pub(crate) flags: Vec<String>,
    /// Whether all that is asked for exists.
    pub(crate) sane: bool,
}

impl Case {
    /// The case of a seed; always the same one.
    pub(crate) fn of(seed: u64) -> Result<Self> {
        let mut rng = ClusterRng(seed);
        let most = rng.pick(&[6, 10, 16, 30, 60]);
        let shape = Shape::any(&mut rng, most);
        let mut drawn = cluster(&mut rng, &shape);
        // One that is lost, and may be anywhere, has every node left out: in few cases, or there is nothing to compare.
        if !seed.is_multiple_of(8) {
            for instance in &mut drawn.instances {
                if instance.status == Status::ErrorWrongNode && instance.template != Template::Drbd {
                    instance.status = Status::ErrorUp;
                }
            }
        }
        let mut sane = spoil(&mut rng, &mut drawn, shape.offline > 0);
        let text = text::write(&drawn);
        let cluster = text::read(&text).with_context(|| format!("seed {seed}"))?;

        let mut asked = Asked::default();
        let options = &mut asked.options;
        let percent = |rng: &mut ClusterRng, flag: &mut bool, p: u64| {
            *flag = rng.percent(p);
        };
        percent(&mut rng, &mut options.offline_maintenance, 15);
        percent(&mut rng, &mut options.full_evacuation, 25);
        percent(&mut rng, &mut options.skip_non_redundant, 15);
        percent(&mut rng, &mut options.ignore_non_redundant, 20);
        percent(&mut rng, &mut options.force, 15);
        sane |= options.force && cluster.masters().count() == 0;
        asked.switches();
        sane &= asked.select(&mut rng, &cluster);
        Ok(Self {
            seed,
            cluster,
            text,
            options: asked.options,
            flags: asked.flags,
            sane,
        })
    }

    /// The words of the command line.
    pub(crate) fn words(&self) -> Vec<&str> {
        self.flags.iter().map(String::as_str).collect()
    }

    /// The nodes that hroller has in its groups if it has any: places in the list of nodes.
    pub(crate) fn chosen(&self) -> Vec<u32> {
        let selection = &self.options.selection;
        let any = |wanted: &[String], is: &dyn Fn(&str) -> bool| {
            wanted.is_empty() || wanted.iter().any(|word| is(word))
        };
        let with_others = |at: u32| {
            let mut instances = self.cluster.instances.iter();
            instances.any(|instance| instance.primary.0 == at && instance.template != Template::Drbd)
        };
        let chosen = |(at, node): &(u32, &GanetiNode)| {
            let group = self.cluster.group(node.group);
            node.is_up()
                && !selection.leave_out.contains(&node.name)
                && any(&selection.groups, &|word| {
                    word == group.name || word == group.uuid
                })
                && any(&selection.tags, &|word| node.tags.iter().any(|tag| tag == word))
                && !(self.options.skip_non_redundant && with_others(*at))
        };
        (0_u32..)
            .zip(&self.cluster.nodes)
            .filter(chosen)
            .map(|(at, _)| at)
            .collect()
    }

    /// How to see this one again.
    pub(crate) fn again(&self) -> String {
        format!(
            "SEED={} CASES=1 cargo test -p stagger-e2e --test ganeti_differential -- --ignored --nocapture --exact \
             hundreds_of_clusters_as_hroller_sees_them",
            self.seed
        )
    }
}

/// Masters that are missing or too many, and nodes that say nothing of themselves; whether it has one master.
fn spoil(rng: &mut ClusterRng, cluster: &mut GanetiCluster, silent: bool) -> bool {
    let masters = rng.below(100);
    if masters < 4 {
        for node in &mut cluster.nodes {
            node.master = false;
        }
    } else if masters < 7 {
        let at = rng.below(cluster.nodes.len() as u64) as usize;
        cluster.nodes[at].master = true;
        cluster.nodes[at].offline = false;
    }
    if silent {
        for node in &mut cluster.nodes {
            if !node.master && rng.percent(3) {
                node.resources = None;
            }
        }
    }
    cluster.masters().count() == 1
}

/// Options as they are drawn.
#[derive(Debug, Default)]
struct Asked {
    options: HrollerOptions,
    flags: Vec<String>,
}

impl Asked {
    fn switches(&mut self) {
        let options = &self.options;
        let switches = [
            (options.offline_maintenance, "--offline-maintenance"),
            (options.full_evacuation, "--full-evacuation"),
            (options.skip_non_redundant, "--skip-non-redundant"),
            (options.ignore_non_redundant, "--ignore-non-redundant"),
            (options.force, "--force"),
        ];
        let on = switches.iter().filter(|(on, _)| *on);
        self.flags.extend(on.map(|(_, flag)| (*flag).to_owned()));
    }

    /// Which nodes; whether all that is named exists.
    fn select(&mut self, rng: &mut ClusterRng, cluster: &GanetiCluster) -> bool {
        let mut sane = true;
        let selection = &mut self.options.selection;
        if rng.percent(20) {
            let group = &cluster.groups[rng.below(cluster.groups.len() as u64) as usize];
            let (name, exists) = match rng.below(20) {
                0 => ("nowhere", false),
                1..10 => (group.uuid.as_str(), true),
                _ => (group.name.as_str(), true),
            };
            sane &= exists;
            selection.groups.push(name.to_owned());
            self.flags.extend(["-G".to_owned(), name.to_owned()]);
        }
        if rng.percent(20) {
            let tags = rng.pick(&["even", "even", "even", "even,odd", "odd"]);
            selection.tags.extend(tags.split(',').map(str::to_owned));
            self.flags.push(format!("--node-tags={tags}"));
        }
        if rng.percent(20) {
            for _ in 0..=rng.below(3) {
                let node = &cluster.nodes[rng.below(cluster.nodes.len() as u64) as usize];
                let name = if rng.percent(5) {
                    sane = false;
                    "nobody".to_owned()
                } else {
                    node.name.clone()
                };
                self.flags.extend(["-O".to_owned(), name.clone()]);
                selection.leave_out.push(name);
            }
        }
        sane
    }
}
